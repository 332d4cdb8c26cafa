r"""Compares results with each other and with the papers' figures, on a page or in Markdown.

    python evaluation/report.py runs/evaluation/en-es.json runs/evaluation/theirs.json --training runs/en-es
    python evaluation/report.py runs/evaluation/en-es.json --markdown report.md
    python evaluation/report.py runs/en-es/results.json runs/no-snli/results.json --markdown -   # trainings
    python evaluation/report.py --recipes evaluation/results/recipes.json --output docs/recipes.svg

Files are results of evaluation/main.py or of trainings (`results.json`).
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_lowercase
from typing import Any, NamedTuple

# Works in a checkout without installation.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import jinja2
import numpy as np
import pandas as pd
from absl import app, flags

from evaluation.charts import Chart, learning_curves, picture, quality_against_speed, reading, sweep_curves
from xling_tf.errors import UserError
from xling_tf.evaluators.running import SEEN, SUITES
from xling_tf.files import read_json, replacing, require_writable_folder
from xling_tf.program import one_line_errors, parse_flags_and_files

Key = tuple[str, str, str]  # suite, data set, metric

# Smaller is better.
_COSTS = ("error", "own_language_share", "eigen_similarity", "seconds", "mib", "loss")
# Printed times 100, as in the papers.
_FRACTIONS = ("accuracy", "f1", "precision", "recall", "reciprocal_rank", "error", "share")
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
    """A score as it is printed; "" without one."""

    text: str = ""
    is_best: bool = False


class Row(NamedTuple):
    """Names and scores; `kind` is "published" for a paper's own systems."""

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
    """Tables and charts under one heading."""

    title: str
    source: str
    tables: Sequence[Table]
    charts: Sequence[Chart] = ()


@dataclass(frozen=True, kw_only=True)
class Results:
    """A results file of evaluation/main.py.

    Attributes:
        accounts: Protocol and checksums by suite and data set; scores compare only if they are equal.
        trained_on: By suite and data set, the shares of its pairs, if it has any, and of its texts that the
            encoder was trained on, if that is known.
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
    values = flags.FLAGS
    with one_line_errors("the same command makes the report again"):
        if values.recipes is not None:
            if argv[1:]:
                raise UserError(f"--recipes is drawn alone, got {argv[1:]} too; give them to another command")
            _write(values.output or "recipes.svg", quality_against_speed(Path(values.recipes)))
            return
        results = read_results([Path(name) for name in argv[1:]]) if argv[1:] or not values.sweep else []
        if values.markdown is not None:
            _write(values.markdown, render(sections(results), results, as_page=False))
        if values.output is not None or values.markdown is None:
            curves = [chart for run_dir in values.training for chart in learning_curves(Path(run_dir))]
            swept = [chart for path in values.sweep for chart in sweep_curves(Path(path))]
            parts = [*sections(results)]
            parts += [Section("Learning curves", "", (), curves)] if curves else []
            parts += [Section("Quality against minutes", "", (), swept)] if swept else []
            parts += pictures(results)
            _write(values.output or "report.html", render(parts, results, as_page=True))


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
    """Renders sections as a page without scripts and network, or as Markdown."""
    environment = jinja2.Environment(
        autoescape=as_page,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
    )
    # Escapes what would start a column or a tag in Markdown.
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
        with reading(path, "a results file of evaluation/main.py or of a training"):
            content = read_json(path)
            if "system" not in content:
                content = _from_training(content, path)
            result = _results(content)
        name = f"{result.name} ({path.stem})" if result.name in results else result.name
        if name in results:
            raise UserError(f"results must differ in their names, but {name} comes twice; rename a file")
        results[name] = replace(result, name=name)
    return list(results.values())


def _from_training(content: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """Brings a training's `results.json` into the form of an evaluation's results."""
    budget = {"steps": content["steps"], "minutes": content["minutes"]}
    scores = {name.replace("/", "."): values for name, values in content["scores"].items()}
    return {
        "system": {"name": path.parent.name if path.name == "results.json" else path.stem},
        "scores": {"training": {**scores, "budget": budget}},
        **{"complete": True, "illustrations": {}, "datasets": {}, "skipped": {}},
        **{key: value for key, value in content.items() if key != "scores"},
    }


def _results(content: Mapping[str, Any]) -> Results:
    scores = {
        (suite, dataset, metric): float(value)
        for suite, datasets in content["scores"].items()
        for dataset, values in datasets.items()
        for metric, value in values.items()
    }
    if not np.isfinite(list(scores.values())).all():
        raise ValueError("a score is not a finite number")
    datasets = {
        (suite, name): dataset
        for suite, by_name in content["datasets"].items()
        for name, dataset in by_name.items()
    }
    others = ("complete", "scores", "illustrations", "datasets", "skipped")
    return Results(
        name=str(content["system"]["name"]),
        complete=bool(content["complete"]),
        scores=scores,
        illustrations={suite: dict(drawings) for suite, drawings in content["illustrations"].items()},
        accounts={
            key: {
                **{parameter: json.dumps(value) for parameter, value in dataset["protocol"].items()},
                **{file: str(account["checksum"])[:8] for file, account in dataset["files"].items()},
            }
            for key, dataset in datasets.items()
        },
        trained_on={
            key: {str(what): float(share) for what, share in dataset["trained_on"].items()}
            for key, dataset in datasets.items()
            if "trained_on" in dataset
        },
        skipped={str(name): str(reason) for name, reason in content["skipped"].items()},
        provenance={key: value for key, value in content.items() if key not in others},
    )


# Tables.


def label(metric: str) -> str:
    """A metric's name in words: "en-es, P@1" for "en-es/precision_at_1"."""
    *path, name = metric.split("/")
    return ", ".join(part.replace("_", " ") for part in (*path, _WORDS.get(name, name)))


def shown(metric: str, value: float) -> str:
    """Formats a value as the papers do: fractions in percent, correlations unchanged."""
    name = metric.rpartition("/")[2]
    if any(part in name for part in _CORRELATIONS):
        return f"{value + 1e-9:.3f}"
    if any(part in name for part in _FRACTIONS):
        return f"{100 * value + 1e-9:.1f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def marked(metric: str, values: Sequence[float | None]) -> list[Cell]:
    """Makes cells; marks the best if there are several."""
    present = [value for value in values if value is not None]
    is_cost = any(cost in metric.rpartition("/")[2] for cost in _COSTS)
    winner = shown(metric, min(present) if is_cost else max(present)) if len(present) > 1 else None
    texts = ["" if value is None else shown(metric, value) for value in values]
    return [Cell(text, bool(text) and text == winner) for text in texts]


def sections(results: Sequence[Results]) -> list[Section]:
    """An overview, and for each suite the papers' tables and all scores."""
    keys = list(dict.fromkeys(key for result in results for key in result.scores))
    keys = [key for key in keys if "num_" not in key[2]]  # counts are not compared
    names = [result.name for result in results]
    parts = []
    if means := list(_means(results, keys)):
        overview = Table("Mean of first scores", ["suite", "data sets", *names], means)
        parts.append(Section("Overview", "", [overview]))
    paper_scores = list(paper_tables(results))
    for suite in dict.fromkeys(key[0] for key in keys):
        suite_keys = [key for key in keys if key[0] == suite]
        datasets = dict.fromkeys(key[1] for key in suite_keys)
        differ = {dataset: differences(results, suite, dataset) for dataset in datasets}
        seen = {dataset: [*_seen(results, suite, dataset)] for dataset in datasets}
        rows = [
            Row(
                ["⚠ " * bool(differ[key[1]]) + "† " * bool(seen[key[1]]) + key[1], label(key[2])],
                marked(key[2], [result.scores.get(key) for result in results]),
            )
            for key in suite_keys
        ]
        notes = [f"⚠ {dataset}: {note}" for dataset, texts in differ.items() for note in texts]
        notes += [f"† {dataset}: {note}" for dataset, texts in seen.items() for note in texts]
        scores = Table("All scores", ["data", "score", *names], rows, notes)
        title, source = suite.replace("_", " "), ""
        if suite in SUITES:
            title, source = SUITES[suite].title, f"{suite}: {SUITES[suite].source}"
        tables = [*(table for name, table in paper_scores if name == suite), scores]
        parts.append(Section(title, source, tables))
    return parts


def _means(results: Sequence[Results], keys: Sequence[Key]) -> Iterator[Row]:
    """Yields each suite's mean over the first score of each data set that all results have.

    A second mean leaves out data sets whose pairs (or texts, without pairs) are known to be in the training
    data of one of the encoders.
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
        unseen = [
            key
            for key in shared
            if all(next(iter(r.trained_on.get(key[:2], {}).values()), 0.0) < SEEN for r in results)
        ]
        groups = {suite: shared}
        if len(unseen) < len(shared):
            groups[f"{suite}, not trained on"] = unseen
        for name, group in groups.items():
            if group:
                means = [float(np.mean([r.scores[key] for key in group])) for r in results]
                yield Row([name, str(len(group))], marked(group[0][2], means))


def _seen(results: Sequence[Results], suite: str, dataset: str) -> Iterator[str]:
    """Yields a sentence for each encoder that was trained on a part of a data set."""
    for result in results:
        shares = result.trained_on.get((suite, dataset), {})
        parts = [f"{share:.0%} of its {what}" for what, share in shares.items() if share >= SEEN]
        if parts:
            yield f"{result.name} was trained on {' and '.join(parts)}"


def differences(results: Sequence[Results], suite: str, dataset: str) -> list[str]:
    """Returns a sentence for each parameter of the protocol and each file in which results differ."""
    accounts = {r.name: r.accounts[suite, dataset] for r in results if (suite, dataset) in r.accounts}
    frame = pd.DataFrame(accounts).fillna("none")
    return [
        f"{key} differs: " + ", ".join(f"{value} of {name}" for name, value in row.items())
        for key, row in frame.iterrows()
        if row.nunique() > 1
    ]


def papers() -> Iterator[tuple[str, Mapping[str, Any], dict[str, list[float | None]]]]:
    """Yields each table of papers.json: its name, its content, and the values of each system as fractions."""
    content = read_json(Path(__file__).with_name("papers.json"))
    for table in content["tables"]:
        frame = pd.DataFrame({**table.get("systems", {}), **table.get("prior_work", {})}, dtype=float)
        # Rounded, since 77.9 / 100 is not the float 0.779.
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
    """Yields the suite and the table for each table of a paper that has a measured score."""
    for source, table, systems in papers():
        columns = table["columns"]
        paths = [column["metric"].split("/") for column in columns]
        shared = [part for part in paths[0] if all(part in path for path in paths)]
        is_single_dataset = len({column["dataset"] for column in columns}) == 1
        measured = {r.name: [_measured(r, column) for column in columns] for r in results}
        notes: list[str] = []
        headings = [""]
        for place, (column, path) in enumerate(zip(columns, paths, strict=True)):
            metric = label("/".join(part for part in path if part not in shared))
            heading = f"{column['dataset']}: {metric}" if metric else column["dataset"]
            note = next((row[place][1] for row in measured.values() if row[place][1]), "")
            headings.append((metric if metric and is_single_dataset else heading) + _mark(notes, note))
        ours = {name: [value for value, _ in row] for name, row in measured.items()}
        ours = {name: values for name, values in ours.items() if values.count(None) < len(values)}
        rows = []
        for group, kind in ((ours, "measured"), (systems, "published")):
            values = zip(*group.values(), strict=True)
            cells = [marked(c["metric"], v) for c, v in zip(columns, values, strict=False)]
            for name, row in zip(group, zip(*cells, strict=True), strict=False):
                rows.append(Row([name], row, kind))
        below = [f"({letter}) {note}" for letter, note in zip(ascii_lowercase, notes, strict=False)]
        below += [table["note"]] if "note" in table else []
        if ours:
            metric = f" ({label('/'.join(shared))})" if shared else ""
            title = f"{source}: {table['title']}{metric}"
            yield columns[0]["suite"], Table(title, headings, rows, below)


def _measured(result: Results, column: Mapping[str, str]) -> tuple[float | None, str]:
    """The score for a column of a paper's table, and how its data differ from the paper's."""
    note, stand_in = column.get("note", ""), column.get("stand_in", "")
    value = result.scores.get((column["suite"], column["dataset"], column["metric"]))
    if value is not None:
        return value, "" if stand_in else note
    value = result.scores.get((column["suite"], stand_in, column["metric"]))
    return value, f"{stand_in} here: {note}" if value is not None else ""


def _mark(notes: list[str], note: str) -> str:
    """Adds a note, and returns the letter that refers to it."""
    if note and note not in notes:
        notes.append(note)
    return f" ({ascii_lowercase[notes.index(note)]})" if note else ""


def pictures(results: Sequence[Results]) -> list[Section]:
    """Makes a section of maps, heat maps and retrieval errors."""
    tables, charts = [], []
    for suite in ("sentence_map", "document_map", "heat_map", "retrieval_errors"):
        drawings = [(r.name, *item) for r in results for item in r.illustrations.get(suite, {}).items()]
        for name, dataset, drawing in sorted(drawings, key=lambda drawn: drawn[1]):
            title = f"{name}: {dataset}"
            if suite != "retrieval_errors":
                charts.append((f"{title}, {suite.replace('_', ' ')}", picture(drawing)))
                continue
            rows = [
                Row(
                    [error["query"], error["found"], error["right"]],
                    [Cell(f"{error[score]:.2f}") for score in ("found_score", "right_score")],
                )
                for error in drawing["errors"]
            ]
            title += f", {drawing['num_errors']} errors in {drawing['num_queries']} queries"
            headings = ["query", "found", "right", "score of found", "of right"]
            tables.append(Table(title, headings, rows))
    return [Section("Pictures of the space", "", tables, charts)] if tables or charts else []


if __name__ == "__main__":
    flags.DEFINE_string("output", None, "The page; default report.html, unless --markdown is given.")
    flags.DEFINE_string("markdown", None, "Tables in Markdown; - prints them.")
    flags.DEFINE_multi_string("training", [], "Run folder whose learning curves are drawn. Repeatable.")
    flags.DEFINE_string(
        "recipes", None, "Models with speeds and scores, to draw as an SVG; default recipes.svg."
    )
    flags.DEFINE_multi_string("sweep", [], "results.jsonl of training/sweep.py, to draw. Repeatable.")
    app.run(main, flags_parser=parse_flags_and_files)
