r"""Compares results with each other and with the papers' figures.

    xling-tf report runs/evaluation/en-es.json runs/evaluation/theirs.json
    xling-tf report runs/evaluation/en-es.json --output report.md
    xling-tf report runs/en-es/results.json runs/no-snli/results.json --output -
    xling-tf report --papers evaluation/results/papers.json runs/evaluation/en-es.json \
        --output docs/research/papers.md

Files are results of `xling-tf evaluate` or of trainings (`results.json`).
"""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

# Works in a checkout without installation.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from absl import flags

from evaluation.comparison import Interval, Values, difference, interval_of_mean, interval_of_score
from evaluation.paper_tables import (
    OTHER_CONTENT,
    Cell,
    Key,
    Row,
    Section,
    Table,
    add_results,
    beside,
    formatted,
    is_correlation,
    is_cost,
    is_fraction,
    label,
    marked,
    with_best,
)
from xling_tf.errors import UserError, as_user_error
from xling_tf.files import read_json, replacing, require_writable_file
from xling_tf.program import run

ABOUT_PAPERS = """# The papers, table by table

Our scores (**bold**) beside the figures of the papers. `xling-tf report --papers` writes this page
from [our scores](../../evaluation/results/papers.json) and
[the papers' figures](../../evaluation/papers.json). The [end of the page](#our-systems) lists our
commands and machines. Below each table, a note says why a row or column has no score of ours.

To repeat a row, [make the data](../data.md#the-papers-data), and type its command. `DIR` is the
collection. `xling-tf prepare collection --output DIR` makes its evaluation sets, with the same text
as ours. Its training text cannot be made again; `xling-tf prepare` makes text of the same kind, so
a repeated training has other scores. `xling-tf prepare papers` makes only evaluation sets, also
those that the collection lacks, and `make evaluate MODEL=exported/NAME` scores a model on them.

"""
_OF_SEED = "-seed-"  # xling-tf train --seed 2 trains en-es-seed-2
_LACKING = "that not all models have"


@dataclass(frozen=True, kw_only=True)
class Results:
    """A results file of xling-tf evaluate.

    Attributes:
        accounts: Protocol and checksums by suite and data set; only if these are equal, scores
            compare.
        trained_on: By suite and data set, the shares of its pairs, if it has any, and of its texts
            that the encoder was trained on, if that is known.
        origin: What was trained; equal for runs that differ in their seed alone.
        seed: The seed of the training, as far as the file or its name tells.
        deviations: Of scores that are means over several seeds.
    """

    name: str
    complete: bool
    scores: Mapping[Key, float]
    accounts: Mapping[tuple[str, str], Mapping[str, str]]
    trained_on: Mapping[tuple[str, str], Mapping[str, float]]
    skipped: Mapping[str, str]
    provenance: Mapping[str, Any]
    origin: Any
    seed: str
    deviations: Mapping[Key, float] = field(default_factory=dict)

    def interval(self, key: Key) -> Interval | None:
        """The 95% interval of a score for the choice of examples, if their number is known."""
        counts = [round(self.scores.get((*key[:2], f"num_{w}"), 0)) for w in ("queries", "pairs")]
        # Tasks without test data are scored by cross-validation on their training data.
        account = self.accounts.get(key[:2], {})
        counts += [
            int(n) for part in ("test", "train") if (n := account.get(f"num_{part}", "")).isdigit()
        ]
        return interval_of_score(key[2], self.scores[key], next(filter(None, counts), 0))


def main(*names: str) -> None:
    """Reads the results that the arguments name, and writes the report."""
    values = flags.FLAGS
    if values.papers is not None:
        results = [result for name in names for result in read_results([Path(name)])]
        added = ((result.name, result.scores, result.provenance) for result in results)
        sections_beside = beside(add_results(Path(values.papers), added))
        page = ABOUT_PAPERS + render(sections_beside, [], as_page=False)
        _write(values.output or "papers.md", page)
        return
    results = over_seeds(read_results([Path(name) for name in names]))
    output = values.output or "report.html"
    is_markdown = output == "-" or output.endswith(".md")
    _write(output, render(sections(results), results, as_page=not is_markdown))


def _write(name: str, text: str) -> None:
    if name == "-":
        print(text, end="")
        return
    path = Path(name)
    require_writable_file(path, "give another file")
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(f"{path} is written", file=sys.stderr)


def render(parts: Sequence[Section], results: Sequence[Results], *, as_page: bool) -> str:
    """Renders sections as a page without scripts and network, or as Markdown."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=as_page,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
    )
    # Escapes what would start a column or a tag in Markdown.
    plain = {} if as_page else str.maketrans({"|": "\\|", "<": "&lt;", "\n": " "})
    environment.filters |= {
        "plain": lambda text: str(text).translate(plain),
        "formatted": formatted,
    }
    environment.filters["brackets"] = _in_brackets
    skipped: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for result in results:
        for item in result.skipped.items():
            skipped[item].append(result.name)
    context = {"as_page": as_page, "sections": parts, "results": results, "skipped": skipped}
    return environment.get_template("report.j2").render(context, verdict=verdict(results))


# Reading.


def read_results(paths: Sequence[Path]) -> list[Results]:
    """Reads results of evaluations, and those of trainings as a suite "training"."""
    if not paths:
        raise UserError("expected results files, as runs/evaluation/en-es.json, got none")
    results: dict[str, Results] = {}
    for path in paths:
        expected = f"{path} must be a results file of xling-tf evaluate or of a training"
        with as_user_error(f"{expected}, but is not ({{error}}); give another", *OTHER_CONTENT):
            content = read_json(path)
            if not any(content["scores"].values()):
                raise ValueError("it has no scores")
            if "system" not in content:
                content = _from_training(content, path)
            result = _results(content)
        name = f"{result.name} ({path.stem})" if result.name in results else result.name
        if name in results:
            raise UserError(f"results need different names, but {name} occurs twice; rename a file")
        results[name] = replace(result, name=name)
    return list(results.values())


def _from_training(content: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """Brings a training's `results.json` into the form of an evaluation's results."""
    budget = {"steps": content["steps"], "minutes": content["minutes"]}
    scores = {name.replace("/", "."): values for name, values in content["scores"].items()}
    return {
        "system": {"name": path.parent.name if path.name == "results.json" else path.stem},
        "scores": {"training": {**scores, "budget": budget}},
        **{"complete": True, "datasets": {}, "skipped": {}},
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
    others = ("complete", "scores", "datasets", "skipped")
    name = str(content["system"]["name"])
    base, _, seed = name.partition(_OF_SEED)
    origin: Any = base, (content["system"].get("description") or {}).get("config")
    if "config" in content:  # of a training
        config = {**content["config"], "description": ""}
        seed = config["training"]["seed"]
        origin = {**config, "training": {**config["training"], "seed": 0}}, content.get("corpora")
    return Results(
        name=name,
        origin=origin,
        seed=str(seed),
        complete=bool(content["complete"]),
        scores=scores,
        accounts={
            key: {
                **{parameter: json.dumps(v) for parameter, v in dataset["protocol"].items()},
                **{f: str(account["checksum"])[:8] for f, account in dataset["files"].items()},
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


def over_seeds(results: Sequence[Results]) -> list[Results]:
    """Returns one of results that differ in their seed alone: the means, with their deviations."""
    groups: list[list[Results]] = []
    for result in results:
        same = (
            group
            for group in groups
            if (group[0].origin, group[0].accounts) == (result.origin, result.accounts)
            and all(other.seed != result.seed for other in group)
        )
        if (group := next(same, None)) is not None:
            group.append(result)
        else:
            groups.append([result])
    return [_mean(group) if len(group) > 1 else group[0] for group in groups]


def _mean(group: Sequence[Results]) -> Results:
    first = group[0]
    keys = [key for key in first.scores if all(key in result.scores for result in group)]
    values = {key: [result.scores[key] for result in group] for key in keys}
    return replace(
        first,
        name=f"{first.name.partition(_OF_SEED)[0]} ({len(group)} seeds)",
        complete=all(result.complete for result in group),
        scores={key: float(np.mean(scores)) for key, scores in values.items()},
        deviations={key: float(np.std(scores, ddof=1)) for key, scores in values.items()},
        provenance={result.name: result.provenance for result in group},
    )


# Tables.


def sections(results: Sequence[Results]) -> list[Section]:
    """An overview, and for each suite a chart, the papers' tables and all scores."""
    from xling_tf.evaluators.running import SUITES

    keys = list(dict.fromkeys(key for result in results for key in result.scores))
    keys = [key for key in keys if "num_" not in key[2]]  # counts are not compared
    names = [result.name for result in results]
    parts = []
    if overview := _overview(results):
        parts.append(Section("Overview", "", [overview]))
    paper_scores = list(with_best({result.name: result.scores for result in results}))
    for suite in dict.fromkeys(key[0] for key in keys):
        suite_keys = [key for key in keys if key[0] == suite]
        datasets = dict.fromkeys(key[1] for key in suite_keys)
        differ = {dataset: differences(results, suite, dataset) for dataset in datasets}
        seen = {dataset: [*_seen(results, suite, dataset)] for dataset in datasets}
        rows = [
            Row(
                ["⚠ " * bool(differ[key[1]]) + "† " * bool(seen[key[1]]) + key[1], label(key[2])],
                _with_deviations(key, results),
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
        chart = [key for key in first_scores(results) if key[0] == suite]
        parts.append(Section(title, source, tables, chart))
    return parts


def _with_deviations(key: Key, results: Sequence[Results]) -> list[Cell]:
    cells = marked(key[2], [result.scores.get(key) for result in results])
    deviations = [result.deviations.get(key) for result in results]
    return [
        cell if by is None else cell._replace(text=f"{cell.text} ± {formatted(key[2], by)}")
        for cell, by in zip(cells, deviations, strict=True)
    ]


def first_scores(results: Sequence[Results]) -> dict[Key, str]:
    """The first score of each data set, if it is a share or a correlation.

    Returns:
        By score, why the data set does not compare the models fairly, or "". Texts decide whether a
        model has seen a data set without pairs.
    """
    from xling_tf.evaluators.running import SEEN

    firsts: dict[tuple[str, str], Key] = {}
    for key in (key for result in results for key in result.scores if "num_" not in key[2]):
        firsts.setdefault(key[:2], key)
    reasons: dict[Key, str] = {}
    for key in firsts.values():
        if is_fraction(key[2]) or is_correlation(key[2]):
            seen = [next(iter(r.trained_on.get(key[:2], {}).values()), 0.0) for r in results]
            if not all(key in result.scores for result in results):
                reasons[key] = _LACKING
            elif max(seen) >= SEEN:
                reasons[key] = "that a model was trained on"
            else:
                reasons[key] = (
                    "whose files or protocol differ" if differences(results, *key[:2]) else ""
                )
    return reasons


def _ranking(results: Sequence[Results], keys: Sequence[Key]) -> dict[str, Values]:
    """Scores by name, the best result first; errors are turned into shares of right answers."""
    is_error = np.array([is_cost(metric) for *_, metric in keys], bool)
    scores = {result.name: np.array([result.scores[key] for key in keys]) for result in results}
    ranking = {name: np.where(is_error, 1 - values, values) for name, values in scores.items()}
    return dict(sorted(ranking.items(), key=lambda item: -item[1].sum()))


def verdict(results: Sequence[Results]) -> dict[str, Any]:
    """What a verdict says: the scores on data sets where the models compare fairly, best first."""
    reasons = first_scores(results)
    fair = [key for key, why in reasons.items() if not why]
    ranking = _ranking(results, fair)
    return {
        "ranking": ranking,
        "suites": [suite for suite, *_ in fair],
        "difference": difference(*list(ranking.values())[:2]) if len(ranking) > 1 else None,
        "left_out": Counter(filter(None, reasons.values())),
        "unknown": [result.name for result in results if result.accounts and not result.trained_on],
    }


def _overview(results: Sequence[Results]) -> Table | None:
    """Each suite's means over the data sets that all results have, and how far the best is ahead.

    A second mean leaves out data sets that do not compare the models fairly.
    """
    reasons, compared = first_scores(results), verdict(results)
    order = list(compared["ranking"]) if compared["difference"] else []
    rows = []
    for suite in dict.fromkeys(key[0] for key in reasons):
        shared = [key for key, why in reasons.items() if key[0] == suite and why != _LACKING]
        fair = [key for key in shared if not reasons[key]]
        groups = {suite: shared}
        if fair != shared:
            groups[f"{suite}, compared fairly"] = fair
        rows += [_means(results, name, group, order) for name, group in groups.items() if group]
    ahead = [f"{order[0]} ahead of {other}" for other in order[1:]]
    headings = ["suite", "data sets", *(result.name for result in results), *ahead]
    return Table("Mean of first scores", headings, rows) if rows else None


def _means(results: Sequence[Results], name: str, keys: Sequence[Key], order: Sequence[str]) -> Row:
    metric = keys[0][2]
    scores = np.array([[result.scores[key] for key in keys] for result in results])
    cells = []
    for result, cell, values in zip(
        results, marked(metric, [*scores.mean(axis=1)]), scores, strict=True
    ):
        interval = interval_of_mean(values) if len(keys) > 1 else result.interval(keys[0])
        cells.append(Cell(cell.text + _in_brackets(interval, metric), cell.is_best))
    ranking = _ranking(results, keys)
    for found in (difference(ranking[order[0]], ranking[other]) for other in order[1:]):
        text = "{:+.1f} ({:+.1f} to {:+.1f})".format(found.mean, *found.interval) if found else ""
        cells.append(Cell(text, found is not None and found.is_clear))
    return Row([name, str(len(keys))], cells)


def _in_brackets(interval: Interval | None, metric: str) -> str:
    return " ({} to {})".format(*(formatted(metric, end) for end in interval)) if interval else ""


def _seen(results: Sequence[Results], suite: str, dataset: str) -> Iterator[str]:
    """Yields a sentence for each encoder that was trained on a part of a data set."""
    from xling_tf.evaluators.running import SEEN

    for result in results:
        shares = result.trained_on.get((suite, dataset), {})
        parts = [f"{share:.0%} of its {what}" for what, share in shares.items() if share >= SEEN]
        if parts:
            yield f"{result.name} was trained on {' and '.join(parts)}"


def differences(results: Sequence[Results], suite: str, dataset: str) -> list[str]:
    """Returns a sentence for each protocol parameter and each file in which results differ."""
    accounts = {
        r.name: r.accounts[suite, dataset] for r in results if (suite, dataset) in r.accounts
    }
    keys = dict.fromkeys(key for account in accounts.values() for key in account)
    values = {key: {n: account.get(key, "none") for n, account in accounts.items()} for key in keys}
    return [
        f"{key} differs: " + ", ".join(f"{value} of {name}" for name, value in by_name.items())
        for key, by_name in values.items()
        if len(set(by_name.values())) > 1
    ]


if __name__ == "__main__":
    flags.DEFINE_string(
        "output",
        None,
        "Page to write, in Markdown if its name ends in .md, otherwise in HTML; - prints Markdown. "
        "Default: report.html.",
    )
    flags.DEFINE_string(
        "papers",
        None,
        "File of our systems' scores, to which results are added; --output is then papers.md.",
    )
    run(main, "the same command makes the report again", extra="evaluation", files="FILE ...")
