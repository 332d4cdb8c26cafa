r"""Puts evaluations beside each other and beside the papers' figures, on a page or in Markdown.

    python evaluation/report.py runs/evaluation/en-es.json runs/evaluation/usem3.json --training runs/en-es
    python evaluation/report.py runs/evaluation/en-es.json --markdown report.md
    python evaluation/report.py runs/evaluation/en-es.json --markdown - \
        --scores sts/stsb.en.dev/pearson_angular --published "Yang et al. 2019/USE_CNN"
    python evaluation/report.py runs/en-es/results.json runs/no-snli/results.json --markdown -   # trainings

Files are results of evaluation/main.py or of trainings (`results.json`).
"""

import base64
import io
import itertools
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_lowercase
from typing import Any, NamedTuple

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import jinja2
import matplotlib
import numpy as np
import pandas as pd
from absl import app, flags
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from xling_tf.errors import UserError, one_line_errors, parse_flags_and_files
from xling_tf.evaluators.running import SEEN, SUITES
from xling_tf.files import read_json, replacing, require_writable_folder

Key = tuple[str, str, str]  # suite, data set, metric

# Smaller is better.
_COSTS = ("error_rate", "eigen_similarity", "seconds", "mib", "loss")
# Shown times 100, as the papers print them.
_FRACTIONS = ("accuracy", "f1", "precision", "recall", "reciprocal_rank", "error_rate")
_CORRELATIONS = ("pearson", "spearman")
_WORDS = {
    **{f"precision_at_{k}": f"P@{k}" for k in (1, 3, 10)},
    "mean_average_precision_at_100": "MAP@100",
    "mean_reciprocal_rank": "MRR",
    "macro_f1": "macro F1",
    "f1": "F1",
    "pearson_angular": "Pearson",
    "spearman_angular": "Spearman",
}


class Cell(NamedTuple):
    """A score as it is shown; empty where there is none."""

    text: str = ""
    is_best: bool = False


class Row(NamedTuple):
    """What names a row, and its scores; a paper's own systems are "published"."""

    names: Sequence[str]
    cells: Sequence[Cell]
    kind: str = "measured"


class Table(NamedTuple):
    """A table with notes below it."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Row]
    notes: Sequence[str] = ()


class Section(NamedTuple):
    """What stands under one heading; charts are (title, address of an image)."""

    title: str
    source: str
    tables: Sequence[Table]
    charts: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, kw_only=True)
class Results:
    """A results file of evaluation/main.py.

    Scores can be compared if their accounts are equal. `trained_on` has the shares of a data set's pairs, if
    it has any, and of its texts that the system was trained on, if that is known.
    """

    name: str
    complete: bool
    scores: Mapping[Key, float]
    illustrations: Mapping[str, Mapping[str, Any]]
    accounts: Mapping[tuple[str, str], Mapping[str, str]]
    trained_on: Mapping[tuple[str, str], Mapping[str, float]]
    skipped: Mapping[str, str]
    provenance: Mapping[str, Any]


def main(argv: list[str]) -> None:
    """Reads the results that the arguments name, and writes the report."""
    asked = flags.FLAGS
    with one_line_errors("the same command makes the report anew"):
        results = (
            read_results([Path(argument) for argument in argv[1:]]) if argv[1:] or not asked.sweep else []
        )
        if asked.markdown is not None:
            if asked.scores:
                table = chosen_scores(results, asked.scores, asked.published)
                text = render([Section("", "", [table])], [], as_page=False)
            else:
                text = render(sections(results), results, as_page=False)
            _write(asked.markdown, text)
        if asked.output is not None or asked.markdown is None:
            charts = [chart for run in asked.training for chart in learning_curves(Path(run))]
            curves = [Section("Learning curves", "", (), charts)] if charts else []
            swept = [chart for path in asked.sweep for chart in sweep_curves(Path(path))]
            curves += [Section("Quality against minutes", "", (), swept)] if swept else []
            parts = [*sections(results), *curves, *pictures(results)]
            _write(asked.output or "report.html", render(parts, results, as_page=True))


def _write(name: str, text: str) -> None:
    if name == "-":
        print(text, end="")
        return
    path = Path(name)
    require_writable_folder(path.parent, "give another file")
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(f"{path} is written", file=sys.stderr)


def render(parts: Sequence[Section], results: Sequence[Results], *, as_page: bool) -> str:
    """Renders sections as a page that fetches nothing and runs no script, or as Markdown."""
    environment = jinja2.Environment(
        autoescape=as_page,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
    )
    # In Markdown, text that opens neither a column nor a tag.
    environment.filters["plain"] = lambda text: (
        str(text).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
    )
    skipped: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for result in results:
        for item in result.skipped.items():
            skipped[item].append(result.name)
    return environment.get_template("report.j2").render(
        as_page=as_page, sections=parts, results=results, skipped=skipped
    )


# Reading.


def read_results(paths: Sequence[Path]) -> list[Results]:
    """Reads results of evaluations, and those of trainings as a suite "training"."""
    if not paths:
        raise UserError("results files are expected, as runs/evaluation/en-es.json, got none")
    results: dict[str, Results] = {}
    for path in paths:
        with _reading(path, "a results file of evaluation/main.py or of a training"):
            content = read_json(path)
            if "system" not in content:
                content = _of_training(content, path)
            result = _results(content)
        name = f"{result.name} ({path.stem})" if result.name in results else result.name
        if name in results:
            raise UserError(f"results must differ in their names, but {name} is there twice")
        results[name] = replace(result, name=name)
    return list(results.values())


@contextmanager
def _reading(path: Path, expected: str) -> Iterator[None]:
    """Tells what a file or folder should be that holds something else."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        cause = f"{type(error).__name__}: {str(error)[:100]}"
        raise UserError(f"{path} must be {expected}, but is not ({cause}); give another") from error


def _of_training(content: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """A training's `results.json` in the form of an evaluation's."""
    budget = {"steps": content["steps"], "minutes": content["minutes"]}
    scores = {suite.replace("/", "."): of_suite for suite, of_suite in content["scores"].items()}
    return {
        "system": {"name": path.parent.name if path.name == "results.json" else path.stem},
        "scores": {"training": {**scores, "budget": budget}},
        **{"complete": True, "illustrations": {}, "datasets": {}, "skipped": {}},
        **{key: value for key, value in content.items() if key != "scores"},
    }


def _results(content: Mapping[str, Any]) -> Results:
    apart = ("complete", "scores", "illustrations", "datasets", "skipped")
    scores = {
        (suite, dataset, metric): float(value)
        for suite, datasets in content["scores"].items()
        for dataset, of_dataset in datasets.items()
        for metric, value in of_dataset.items()
    }
    if not np.isfinite(list(scores.values())).all():
        raise ValueError("a score is no finite number")
    accounts = {
        (suite, name): {
            **{key: json.dumps(value) for key, value in dataset["protocol"].items()},
            **{file: str(account["checksum"])[:8] for file, account in dataset["files"].items()},
        }
        for suite, datasets in content["datasets"].items()
        for name, dataset in datasets.items()
    }
    return Results(
        name=str(content["system"]["name"]),
        complete=bool(content["complete"]),
        scores=scores,
        illustrations={suite: dict(of) for suite, of in content["illustrations"].items()},
        accounts=accounts,
        trained_on={
            (suite, name): {str(what): float(share) for what, share in dataset["trained_on"].items()}
            for suite, datasets in content["datasets"].items()
            for name, dataset in datasets.items()
            if "trained_on" in dataset
        },
        skipped={str(name): str(why) for name, why in content["skipped"].items()},
        provenance={key: value for key, value in content.items() if key not in apart},
    )


# Tables.


def label(metric: str) -> str:
    """A metric's name in words.

    Example:
        >>> label("en-es/precision_at_1"), label("logistic/accuracy")
        ('en-es, P@1', 'logistic, accuracy')
    """
    *path, name = metric.split("/")
    return ", ".join(part.replace("_", " ") for part in (*path, _WORDS.get(name, name)))


def shown(metric: str, value: float) -> str:
    """Formats a value as the papers do: fractions in percent, correlations as they are.

    Example:
        >>> shown("network/accuracy", 0.8), shown("pearson_angular", 0.8325)
        ('80.0', '0.833')
    """
    name = metric.rpartition("/")[2]
    if any(part in name for part in _CORRELATIONS):
        return f"{value + 1e-9:.3f}"
    if any(part in name for part in _FRACTIONS):
        return f"{100 * value + 1e-9:.1f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def marked(metric: str, values: Sequence[float | None]) -> list[Cell]:
    """Cells in which the best one is marked, where there are several."""
    present = [value for value in values if value is not None]
    is_cost = any(cost in metric.rpartition("/")[2] for cost in _COSTS)
    winner = shown(metric, min(present) if is_cost else max(present)) if len(present) > 1 else None
    texts = ["" if value is None else shown(metric, value) for value in values]
    return [Cell(text, bool(text) and text == winner) for text in texts]


def sections(results: Sequence[Results]) -> list[Section]:
    """Means of suites, and of each suite the papers' tables and all scores."""
    keys = list(dict.fromkeys(key for result in results for key in result.scores))
    # Counts and standard errors are not compared.
    keys = [key for key in keys if "num_" not in key[2] and not key[2].endswith("_stderr")]
    names = [result.name for result in results]
    parts = []
    if means := list(_means(results, keys)):
        overview = Table("Mean of first scores", ["suite", "data sets", *names], means)
        parts.append(Section("Overview", "", [overview]))
    beside = list(paper_tables(results))
    for suite in dict.fromkeys(key[0] for key in keys):
        of_suite = [key for key in keys if key[0] == suite]
        datasets = dict.fromkeys(key[1] for key in of_suite)
        differ = {dataset: differences(results, suite, dataset) for dataset in datasets}
        seen = {dataset: [*_seen(results, suite, dataset)] for dataset in datasets}
        rows = [
            Row(
                ["⚠ " * bool(differ[key[1]]) + "† " * bool(seen[key[1]]) + key[1], label(key[2])],
                marked(key[2], [result.scores.get(key) for result in results]),
            )
            for key in of_suite
        ]
        notes = [f"⚠ {dataset}: {told}" for dataset, of in differ.items() for told in of]
        notes += [f"† {dataset}: {told}" for dataset, of in seen.items() for told in of]
        scores = Table("All scores", ["data", "score", *names], rows, notes)
        title, source = suite.replace("_", " "), ""
        if suite in SUITES:
            title, source = SUITES[suite].title, f"{suite}: {SUITES[suite].source}"
        tables = [*(table for of, table in beside if of == suite), scores]
        parts.append(Section(title, source, tables))
    return parts


def _means(results: Sequence[Results], keys: Sequence[Key]) -> Iterator[Row]:
    """Of each suite the mean over the first score of each data set that all systems have.

    A second mean leaves out the data sets whose pairs, or texts if there are no pairs, a system is known to
    have been trained on.
    """
    firsts = list({key[:2]: key for key in reversed(keys)}.values())
    for suite in dict.fromkeys(key[0] for key in keys):
        shared = [
            key
            for key in firsts
            if key[0] == suite
            and any(part in key[2] for part in (*_FRACTIONS, *_CORRELATIONS))
            and all(key in result.scores for result in results)
        ]
        clean = [
            key
            for key in shared
            if all(next(iter(r.trained_on.get(key[:2], {}).values()), 0.0) < SEEN for r in results)
        ]
        named = {suite: shared} | ({f"{suite}, not trained on": clean} if len(clean) < len(shared) else {})
        for name, chosen in named.items():
            if chosen:
                means = [float(np.mean([r.scores[key] for key in chosen])) for r in results]
                yield Row([name, str(len(chosen))], marked(chosen[0][2], means))


def _seen(results: Sequence[Results], suite: str, dataset: str) -> Iterator[str]:
    """A sentence for each system that was trained on a part of a data set."""
    for result in results:
        shares = result.trained_on.get((suite, dataset), {})
        parts = [f"{share:.0%} of its {what}" for what, share in shares.items() if share >= SEEN]
        if parts:
            yield f"{result.name} was trained on {' and '.join(parts)}"


def differences(results: Sequence[Results], suite: str, dataset: str) -> list[str]:
    """A sentence for each parameter of the protocol and each file that not all systems share."""
    accounts = {r.name: r.accounts[suite, dataset] for r in results if (suite, dataset) in r.accounts}
    frame = pd.DataFrame(accounts).fillna("none")
    return [
        f"{key} differs: " + ", ".join(f"{value} of {name}" for name, value in row.items())
        for key, row in frame.iterrows()
        if row.nunique() > 1
    ]


def papers() -> Iterator[tuple[str, Mapping[str, Any], dict[str, list[float | None]]]]:
    """Yields (paper and table, its content, values of each system) of papers.json, percent as fractions.

    Example:
        >>> source, _, systems = next(papers())
        >>> source, systems["Multi-task en-fr"][0]
        ('Chidambaram et al. 2019, table 1', 0.779)
    """
    content = read_json(Path(__file__).with_name("papers.json"))
    for table in content["tables"]:
        frame = pd.DataFrame({**table.get("systems", {}), **table.get("prior_work", {})}, dtype=float)
        # Rounded, since 77.9 / 100 is not the float 0.779 but for luck.
        frame = (frame / 100).round(6) if table["percent"] else frame
        frame = (1 - frame).round(6) if table.get("complement") else frame
        systems = {
            str(name): [None if np.isnan(value) else value for value in values]
            for name, values in frame.items()
        }
        number = table["table"]
        number = number if number.startswith("section") else f"table {number}"
        yield f"{content['papers'][table['paper']]['name']}, {number}", table, systems


def paper_tables(results: Sequence[Results]) -> Iterator[tuple[str, Table]]:
    """The papers' tables, by suite, of which anything was measured, the systems above the papers' own."""
    for source, table, systems in papers():
        columns = table["columns"]
        paths = [column["metric"].split("/") for column in columns]
        shared = [part for part in paths[0] if all(part in path for path in paths)]
        is_one = len({column["dataset"] for column in columns}) == 1
        found = {r.name: [_measured(r, column) for column in columns] for r in results}
        notes: list[str] = []
        headings = [""]
        for place, (column, path) in enumerate(zip(columns, paths, strict=True)):
            own = label("/".join(part for part in path if part not in shared))
            heading = f"{column['dataset']}: {own}" if own else column["dataset"]
            differs = next((row[place][1] for row in found.values() if row[place][1]), "")
            headings.append((own if own and is_one else heading) + _mark(notes, differs))
        ours = {name: [value for value, _ in row] for name, row in found.items()}
        ours = {name: values for name, values in ours.items() if values.count(None) < len(values)}
        rows = []
        for group, kind in ((ours, "measured"), (systems, "published")):
            values = zip(*group.values(), strict=True)
            cells = [marked(c["metric"], v) for c, v in zip(columns, values, strict=False)]
            for name, row in zip(group, zip(*cells, strict=True), strict=False):
                rows.append(Row([name], row, kind))
        metric = f" ({label('/'.join(shared))})" if shared else ""
        below = _lettered(notes) + ([table["note"]] if "note" in table else [])
        if ours:
            title = f"{source}: {table['title']}{metric}"
            yield columns[0]["suite"], Table(title, headings, rows, below)


def _measured(result: Results, column: Mapping[str, str]) -> tuple[float | None, str]:
    """The score that belongs into a column of a paper's table, and how its data differ from the paper's."""
    note, stand_in = column.get("note", ""), column.get("stand_in", "")
    value = result.scores.get((column["suite"], column["dataset"], column["metric"]))
    if value is not None:
        return value, "" if stand_in else note
    value = result.scores.get((column["suite"], stand_in, column["metric"]))
    return value, f"{stand_in} here: {note}" if value is not None else ""


def _mark(notes: list[str], note: str) -> str:
    """Adds a note, and gives the letter that stands for it."""
    if note and note not in notes:
        notes.append(note)
    return f" ({ascii_lowercase[notes.index(note)]})" if note else ""


def _lettered(notes: Sequence[str]) -> list[str]:
    return [f"({letter}) {note}" for letter, note in zip(ascii_lowercase, notes, strict=False)]


def chosen_scores(results: Sequence[Results], names: Sequence[str], published: Sequence[str]) -> Table:
    """A table of a few scores, the systems and those of papers as its columns."""
    figures: dict[str, dict[Key, tuple[float, str]]] = {name: {} for name in published}
    for source, table, systems in papers():
        for system, values in systems.items():
            of_system = figures.get(f"{source.rpartition(',')[0]}/{system}", {})
            for column, value in zip(table["columns"], values, strict=True):
                suite, metric, note = column["suite"], column["metric"], column.get("note", "")
                if value is not None:
                    if "stand_in" in column:
                        of_system[suite, column["stand_in"], metric] = value, note
                        note = ""
                    of_system[suite, column["dataset"], metric] = value, note
    unknown = [name for name, of_system in figures.items() if not of_system]
    known = {key for result in results for key in result.scores}
    keys: list[Any] = [tuple(name.split("/", 2)) for name in names]
    unknown += [name for name, key in zip(names, keys, strict=True) if key not in known]
    if unknown:
        raise UserError(
            "scores are named as 'senteval/MR/network/accuracy' and published systems as "
            f"'Yang et al. 2019/USE_CNN', but there is no {unknown[0]!r}; the report without a choice "
            "and papers.json have them all"
        )
    notes: list[str] = []
    rows = []
    for key in keys:
        cells = marked(key[2], [result.scores.get(key) for result in results])
        for of_system in figures.values():
            of_key = of_system.get(key)
            text = shown(key[2], of_key[0]) + _mark(notes, of_key[1]) if of_key else ""
            cells.append(Cell(text))
        rows.append(Row([key[0], key[1], label(key[2])], cells))
    titles = [f"{system} ({paper})" for paper, _, system in (n.partition("/") for n in published)]
    headings = ["suite", "data", "score", *(result.name for result in results), *titles]
    return Table("", headings, rows, _lettered(notes))


# Charts.


def _image(figure: Figure) -> str:
    """The address of an image that a page holds itself."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "xling_tf", "text.parse_math": False}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _line_chart(lines: Sequence[Any], columns: int) -> tuple[Figure, Axes]:
    """An empty chart with room below for the names of its lines, which are in columns."""
    figure = Figure(figsize=(4.8, 3 + 0.17 * -(-len(lines) // columns)), layout="constrained")
    axes = figure.subplots()
    axes.grid(alpha=0.2)
    return figure, axes


def _with_names(figure: Figure, columns: int) -> str:
    figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
    return _image(figure)


def learning_curves(run_dir: Path) -> Iterator[tuple[str, str]]:
    """Draws losses and accuracies of a training, a line a task; those of held-out data are dashed."""
    points = learning_points(run_dir)
    for measure in ("loss", "accuracy"):
        lines = [*points[measure].groupby(level="task", sort=False)]
        figure, axes = _line_chart(lines, columns=2)
        tasks: list[str] = []
        for task, line in lines:
            base, _, held_out = str(task).partition(",")
            tasks += [base] if base not in tasks else []
            style = "--" if held_out else "-"
            x = line.index.get_level_values("step")
            axes.plot(x, line, style, color=f"C{tasks.index(base) % 10}", label=task)
        axes.set(xlabel="step", ylabel=measure)
        yield f"{run_dir.name}: {measure} in training", _with_names(figure, columns=2)


def learning_points(run_dir: Path) -> pd.DataFrame:
    """Loss and accuracy by task and step; a point is the mean of neighbouring steps, at most sixty a task."""
    expected = "the folder of a training, as runs/en-es, with its metrics.jsonl and dev.jsonl"
    with _reading(run_dir, expected):
        steps = _read_lines(run_dir / "metrics.jsonl")[["step", "task", "loss", "accuracy"]]
        width = max(1, int(steps["step"].max()) // 60)
        steps["step"] = (steps["step"] // width + 0.5) * width
        dev = run_dir / "dev.jsonl"
        held_out = [
            {"step": line["step"], "task": f"{task}, held out", **scores}
            for line in (_read_lines(dev).to_dict("records") if dev.exists() else [])
            for task, scores in line["scores"].items()
        ]
        points = pd.concat([steps, pd.DataFrame(held_out)]) if held_out else steps
        points = points.astype({"loss": float, "accuracy": float, "step": float})
        points["task"] = points["task"].astype(str).str.replace("_", " ")
        return points.groupby(["task", "step"], sort=False)[["loss", "accuracy"]].mean()


def sweep_curves(path: Path) -> Iterator[tuple[str, str]]:
    """Draws each score of a sweep against the minutes of training, a line a recipe."""
    points = sweep_points(path)
    for name in points:
        lines = [*points[name].dropna().groupby(level="recipe", sort=False)]
        figure, axes = _line_chart(lines, columns=1)
        for recipe, line in lines:
            axes.plot(line.index.get_level_values("minutes"), line, "o-", label=recipe)
        axes.set(xlabel="minutes of training", xscale="log")
        budgets = sorted({minutes for _, minutes in points.index})
        axes.set_xticks(budgets, [f"{minutes:g}" for minutes in budgets])
        axes.minorticks_off()
        yield str(name), _with_names(figure, columns=1)


def sweep_points(path: Path) -> pd.DataFrame:
    """Scores by recipe and minutes: the medians of the seeds."""
    with _reading(path, "a file of training/sweep.py, as runs/sweep/results.jsonl"):
        lines = _read_lines(path)
        scores = pd.DataFrame([*lines["scores"]], index=[lines["recipe"], lines["minutes"]]).astype(float)
        return scores.groupby(level=["recipe", "minutes"], sort=False).median().sort_index()


def _read_lines(path: Path) -> pd.DataFrame:
    """Reads lines of JSON; the last one may be cut, since the training may still run."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return pd.DataFrame([json.loads(line) for line in lines if line.endswith("\n")])


def pictures(results: Sequence[Results]) -> list[Section]:
    """Maps of sentences, their similarities, and retrieval errors to read."""
    tables, charts = [], []
    for suite in ("sentence_map", "document_map", "heat_map", "retrieval_errors"):
        drawings = [(r.name, *item) for r in results for item in r.illustrations.get(suite, {}).items()]
        for name, dataset, drawing in sorted(drawings, key=lambda drawn: drawn[1]):
            title = f"{name}: {dataset}"
            if suite == "retrieval_errors":
                scores = ("found_score", "right_score")
                rows = [
                    Row([e["query"], e["found"], e["right"]], [Cell(f"{e[s]:.2f}") for s in scores])
                    for e in drawing["errors"]
                ]
                title += f", {drawing['num_errors']} of {drawing['num_queries']} find something else"
                headings = ["query", "found", "right", "score of found", "of right"]
                tables.append(Table(title, headings, rows))
                continue
            figure = Figure(figsize=(5, 5), layout="constrained")
            axes = figure.subplots()
            if "points" in drawing:
                markers = zip(drawing["points"].items(), itertools.cycle("os^DP*"), strict=False)
                for (group, of), marker in markers:
                    axes.scatter(of["x"], of["y"], s=12, marker=marker, alpha=0.7, label=group)
                axes.set(xticks=[], yticks=[])
                axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=6, frameon=False)
            else:
                axes.imshow(drawing["similarities"], cmap="Blues", vmin=0, vmax=1)
                first, second = ([text[:24] for text in texts] for texts in drawing["texts"])
                axes.set_xticks(range(len(second)), second, rotation=60, ha="right", fontsize=7)
                axes.set_yticks(range(len(first)), first, fontsize=7)
            charts.append((f"{title}, {suite.replace('_', ' ')}", _image(figure)))
    return [Section("Pictures of the space", "", tables, charts)] if tables or charts else []


if __name__ == "__main__":
    flags.DEFINE_string("output", None, "The page; default report.html if no --markdown.")
    flags.DEFINE_string("markdown", None, "Tables in Markdown; - prints them.")
    flags.DEFINE_multi_string("training", [], "Run folder for the curves. Repeatable.")
    flags.DEFINE_multi_string("sweep", [], "results.jsonl of training/sweep.py, to draw. Repeatable.")
    flags.DEFINE_list("scores", [], "Only these in Markdown: senteval/MR/network/accuracy,sts/...")
    flags.DEFINE_multi_string(
        "published",
        [],
        "Beside --scores: a paper's system, 'Yang et al. 2019/USE_CNN'. Repeatable.",
    )
    app.run(main, flags_parser=parse_flags_and_files)
