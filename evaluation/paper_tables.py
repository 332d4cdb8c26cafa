"""The papers' tables, with our scores beside their figures, or the reason why there is none."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from xling_tf.errors import as_user_error
from xling_tf.files import read_json, replacing

Key = tuple[str, str, str]  # suite, data set, metric
Scores = Mapping[Key, float]

# Smaller is better.
_COSTS = ("error", "own_language_share", "eigen_similarity", "seconds", "mib", "loss")
# Printed times 100, as in the papers.
_FRACTIONS = ("accuracy", "f1", "precision", "recall", "reciprocal_rank", "error", "share")
_CORRELATIONS = ("pearson", "spearman")
# Metrics of which neither high nor low values are better.
_NEITHER = ("threshold", "steps", "minutes", "own_language_share_by_chance")
_WORDS = {
    **{f"precision_at_{k}": f"P@{k}" for k in (1, 3, 10)},
    "mean_average_precision_at_100": "MAP@100",
    "mean_reciprocal_rank": "MRR",
    "macro_f1": "macro F1",
    "f1": "F1",
    "pearson_angular": "Pearson",
    "spearman_angular": "Spearman",
}
# Errors about a file of other content.
OTHER_CONTENT = (OSError, ValueError, LookupError, TypeError, AttributeError)
_PAPERS = Path(__file__).with_name("papers.json")
_MAX_COLUMNS = 10  # a table of more is turned
# What a command says about places on a machine.
_PLACES = re.compile(r" --(?:data|cache|run_dir|output)[= ]\S+|(?<=[= :])/(?!/)\S*/")
# By files that recorded commands name, what makes or holds them: a space of word vectors, which is
# learned in seconds, a file of the collection, or a model.
_MADE_BY = {
    r"spaces/project-dictionary\.(en-..)\.\{\}\.bin": r"project:cvm@wiktionary.\1.tsv.gz:300",
    r"spaces/project-(\w+)\.en-..\.\{\}\.bin": r"project:\1:300",
    r"(?:spaces/)?bivcd\.en-..(?:\.\{\})?\.bin": "bivcd:300",
    r"(?:spaces/bivcd-128|bivcd)\.\{\}\.bin": "bivcd:128",
    r"spaces/wikipedia\.en\.vec\.gz": "DIR/vectors/ubilexat_wikipedia50d.es-en.en.vec.gz",
    r"@(?=wiktionary)": "@DIR/dictionaries/",
    r"--teacher use8": "--teacher exported/use-multilingual",
}
_QUOTED = "the paper quotes others"
# By the start of data sets' names, regular expressions of the corpora that are their training
# parts: a model that learned from one is not measured as the papers' models are.
_TRAINING_PARTS = {
    "stsb.": "similarity/.*stsb",
    "multi30k.": "parallel/.*multi30k",
    "squad11_dev.": "questions/.*squad(?!shifts)",
    "piaf_part.": "questions/.*piaf",
    "cmrc2018_trial.": "questions/.*cmrc2018",
}
_LEARNED = "†"


class Cell(NamedTuple):
    """A score as it is printed; "" without one."""

    text: str = ""
    is_best: bool = False


class Measured(NamedTuple):
    """A score of ours for a column of a paper, and how its data differ from the paper's."""

    value: float | None = None
    note: str = ""
    is_learned: bool = False  # whether the model learned from the training part of the data set


class Row(NamedTuple):
    """Names and scores; `kind` is "published" for a paper's own systems."""

    names: Sequence[str]
    cells: Sequence[Cell] = ()
    kind: str = "measured"


class Table(NamedTuple):
    """A table with notes below it."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Row]
    notes: Sequence[str] = ()


class Section(NamedTuple):
    """Tables under one heading, and the scores of a chart."""

    title: str
    source: str
    tables: Sequence[Table]
    chart: Sequence[Key] = ()


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A table of a paper, of `papers.json`.

    Attributes:
        paper: What the file says about the paper.
        source: The paper's name, and the table or section.
        columns: The suite, data set and metric of each column; `stand_in`, data sets to use without
            that one, and a `note` how they differ; or `mean_of`, the scores to average; or a
            `heading` with a `reason` why nothing is measured. Columns that are `added` are not the
            paper's. Error rates are `printed` as accuracies.
        values: Each system's figures; fractions and correlations.
        quoted: Systems whose figures the paper quotes from others.
        ours: The names of our systems beside each of the paper's; those of other seeds end in
            "-seed-2".
        labels: What those of our systems are called whose name says too little.
    """

    paper: Mapping[str, Any]
    source: str
    title: str
    note: str
    columns: Sequence[Mapping[str, Any]]
    values: Mapping[str, Sequence[float | None]]
    quoted: Iterable[str]
    ours: Mapping[str, Sequence[str]]
    labels: Mapping[str, str]

    def headings(self) -> tuple[list[str], str]:
        """Names the columns; the second result is what all their metrics share."""
        paths = [column["printed"].split("/") for column in self.columns]
        measured = [path for path in paths if path != [""]] or [[]]
        shared = [part for part in measured[0] if all(part in path for path in measured)]
        datasets = {column.get("dataset", "") for column in self.columns}
        headings = []
        for column, path in zip(self.columns, paths, strict=True):
            metric = label("/".join(part for part in path if part not in shared))
            dataset = column.get("dataset", "") if len(datasets) > 1 or not metric else ""
            headings.append(column.get("heading") or ": ".join(filter(None, (dataset, metric))))
        return headings, label("/".join(shared))


def label(metric: str) -> str:
    """A metric's name in words: "en-es, P@1" for "en-es/precision_at_1"."""
    *path, name = metric.split("/")
    return ", ".join(part.replace("_", " ") for part in (*path, _WORDS.get(name, name)))


def formatted(metric: str, value: float) -> str:
    """Formats a value as the papers do: fractions in percent, correlations unchanged."""
    if is_correlation(metric):
        return f"{value + 1e-9:.3f}"
    if is_fraction(metric):
        return f"{100 * value + 1e-9:.1f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def is_fraction(metric: str) -> bool:
    """True if the metric is printed in percent."""
    return any(part in metric.rpartition("/")[2] for part in _FRACTIONS)


def is_correlation(metric: str) -> bool:
    """True if the metric is a correlation."""
    return any(part in metric.rpartition("/")[2] for part in _CORRELATIONS)


def is_cost(metric: str) -> bool:
    """True if smaller is better."""
    return any(cost in metric.rpartition("/")[2] for cost in _COSTS)


def marked(metric: str, values: Sequence[float | None]) -> list[Cell]:
    """Makes cells; marks the best if there are several."""
    present = [value for value in values if value is not None]
    is_compared = len(present) > 1 and metric.rpartition("/")[2] not in _NEITHER
    best = min if is_cost(metric) else max
    winner = formatted(metric, best(present)) if is_compared else None
    texts = ["" if value is None else formatted(metric, value) for value in values]
    return [Cell(text, bool(text) and text == winner) for text in texts]


def papers() -> Iterator[PaperTable]:
    """Reads the tables of `papers.json`."""
    content = read_json(_PAPERS)
    for table in content["tables"]:
        columns = [{"printed": "", **table.get("column", {}), **c} for c in table["columns"]]
        for column in columns:
            if "mean_of" in column:  # the parts of a mean are of one suite
                suite, _, column["printed"] = _key(column["mean_of"][0])
                column.setdefault("suite", suite)
            column["printed"] = column.get("metric", column["printed"]).replace(
                "error_rate", "accuracy"
            )
        scale = 100 if table["percent"] else 1
        paper, number = content["papers"][table["paper"]], table["table"]
        quoted = table.get("prior_work", {})
        yield PaperTable(
            paper=paper,
            source=(
                f"{paper['name']}, {number if number.startswith('section') else f'table {number}'}"
            ),
            title=table["title"],
            note=table.get("note", ""),
            columns=columns,
            values={
                # Rounded, since 77.9 / 100 is not the float 0.779.
                name: [None if value is None else round(value / scale, 6) for value in row]
                for name, row in {**table.get("systems", {}), **quoted}.items()
            },
            quoted=quoted.keys(),
            ours=table.get("ours", {}),
            labels=table.get("labels", {}),
        )


def with_best(results: Mapping[str, Scores]) -> Iterator[tuple[str, Table]]:
    """Yields the suite and the table for each table of a paper that has a score of the results."""
    for table in papers():
        measured = {
            name: [_measured(scores, column) for column in table.columns]
            for name, scores in results.items()
        }
        ours = {name: [cell.value for cell in row] for name, row in measured.items()}
        ours = {name: values for name, values in ours.items() if values.count(None) < len(values)}
        if not ours:
            continue
        notes: list[str] = []
        names, shared = table.headings()
        headings = [""]
        for place, heading in enumerate(names):
            note = next((measured[n][place].note for n in ours if measured[n][place].note), "")
            headings.append(heading + _letter(notes, note))
        rows = []
        for group, kind in ((ours, "measured"), (table.values, "published")):
            values = zip(*group.values(), strict=True)
            cells = [
                marked(c["printed"], column)
                for c, column in zip(table.columns, values, strict=True)
            ]
            by_row = zip(group, zip(*cells, strict=True), strict=True)
            rows += [Row([name], row, kind) for name, row in by_row]
        title = f"{table.source}: {table.title}{shared and f' ({shared})'}"
        below = [*_lettered(notes), *filter(None, [table.note])]
        yield (
            next(c["suite"] for c in table.columns if "suite" in c),
            Table(title, headings, rows, below),
        )


def _measured(scores: Scores, column: Mapping[str, Any], learned: Iterable[str] = ()) -> Measured:
    """The score in a paper's column of a system that `learned`, see `_TRAINING_PARTS`."""
    means = [_key(name) for name in column.get("mean_of", ())]
    keys = [(column["suite"], dataset, column["metric"]) for dataset in _datasets(column)]
    if not (present := [k for k in means or keys if k in scores]) or len(present) < len(means):
        return Measured()
    used = means or present[:1]
    mean = float(np.mean([scores[key] for key in used]))
    _, dataset, metric = used[0]
    is_own = "stand_in" in column and dataset == column["dataset"]
    return Measured(
        mean if column["printed"] == metric else 1 - mean,
        "" if is_own else column.get("note", ""),
        dataset.startswith(tuple(learned)),
    )


def _letter(notes: list[str], note: str) -> str:
    """Adds a note, and returns the letter that refers to it."""
    if note and note not in notes:
        notes.append(note)
    return f" ({ascii_lowercase[notes.index(note)]})" if note else ""


def _lettered(notes: Iterable[str]) -> list[str]:
    return [f"({letter}) {note}" for letter, note in zip(ascii_lowercase, notes, strict=False)]


def beside(systems: Mapping[str, Mapping[str, Any]]) -> list[Section]:
    """Makes a section of each paper's tables with our systems' scores, and one of the systems.

    Args:
        systems: By name, what `add_results` collects.
    """
    scores = {name: flat(system["scores"]) for name, system in systems.items()}
    learned = {name: system.get("learned", ()) for name, system in systems.items()}
    by_paper: defaultdict[str, list[PaperTable]] = defaultdict(list)
    for table in papers():
        by_paper[table.paper["name"]].append(table)
    sections, in_short = [], []
    for name, tables in by_paper.items():
        paper = tables[0].paper
        parts = [Beside(table, scores, learned) for table in tables]
        if paper.get("main", {}).get("ours") in systems:
            in_short.append(_main_row(paper, parts, systems))
        pages = [part.table() for part in parts]
        if elsewhere := paper.get("elsewhere"):
            pages.append(Table("Elsewhere in the paper", (), (), [f"- {t}" for t in elsewhere]))
        sections.append(Section(name, _opening(paper, parts), pages))
    if in_short:
        overview = Table("", ["", "paper", "ours", "command"], in_short)
        sections.insert(
            0, Section("In short", "One figure of each paper; the sections have all.", [overview])
        )
    fields = ("minutes", "steps", "seed", "machine", "command")
    rows = [
        Row([f"`{name}`", *(_as_typed(str(system.get(field, ""))) for field in fields)])
        for name, system in systems.items()
    ]
    return [*sections, Section("Our systems", "", [Table("", ["", *fields], rows)])]


def _as_typed(command: str) -> str:
    """Names a recorded program by its command, presets by today's flags, files by their origin."""
    from xling_tf.presets import FORMER_NAMES, PRESETS

    def of_today(preset: re.Match[str]) -> str:
        is_former = preset[1] in FORMER_NAMES and preset[1] not in PRESETS
        return FORMER_NAMES[preset[1]].flags if is_former else preset[0]

    command = re.sub(r"--preset (\S+)", of_today, command)
    # Of two settings of the same name, the last counts.
    command = re.sub(r"--set ([\w.]+)=\S+ (?=.*--set \1=)", "", command)
    for pattern, made_by in _MADE_BY.items():
        command = re.sub(pattern, made_by, command)
    return re.sub(r"^(training/)?main\.py", "xling-tf train --data DIR", command)


def _main_row(
    paper: Mapping[str, Any], parts: Sequence["Beside"], systems: Mapping[str, Any]
) -> Row:
    """One figure of a paper's best system, ours, and the command for it."""
    main = paper["main"]
    (part,) = (part for part in parts if part.paper_table.title == main["table"])
    place = part.paper_table.headings()[0].index(main["column"])
    row, column = main["row"], part.paper_table.columns[place]
    ours = part.measured[row, main["ours"]][place]
    command = _as_typed(systems[main["ours"]].get("command", ""))
    texts = (_text(column, Measured(part.figures[row, place])), _text(column, ours), f"`{command}`")
    return Row(
        [f"{paper['name']}, {main['what']}: {row} and `{main['ours']}`"], [*map(Cell, texts)]
    )


class Beside:
    """A paper's table beside our scores; these and `learned` by system, see `add_results`."""

    def __init__(
        self,
        paper_table: PaperTable,
        scores: Mapping[str, Scores],
        learned: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        self.paper_table = paper_table
        # By row of the paper and system of ours.
        self.measured = {
            (row, name): [
                Measured()
                if figure is None and "added" not in column
                else _measured(scores[name], column, learned.get(name, ()))
                for figure, column in zip(figures, paper_table.columns, strict=True)
            ]
            for row, figures in paper_table.values.items()
            for base in paper_table.ours.get(row, ())
            for name in scores
            if name.partition("-seed-")[0] == base
        }
        self.figures = {
            (row, place): figure
            for row, figures in paper_table.values.items()
            for place, figure in enumerate(figures)
            if figure is not None
        }
        # The scores of the first system that has them and did not learn from a training part, or
        # else did.
        present = [
            ((row, place), cell)
            for (row, _), cells in reversed(self.measured.items())
            for place, cell in enumerate(cells)
            if cell.value is not None
        ]
        self.scores = dict(sorted(present, key=lambda score: not score[1].is_learned))

    def table(self) -> Table:
        """The rows and columns with a score of ours; notes say why others have none."""
        table = self.paper_table
        headings, shared = table.headings()
        lines: list[list[str]] = [["", *headings]]
        for row, figures in table.values.items():
            ours = [
                [
                    f"**{table.labels.get(name, f'`{name}`')}**",
                    *(_text(*pair) for pair in zip(table.columns, cells, strict=True)),
                ]
                for (other, name), cells in self.measured.items()
                if other == row and any(cell.value is not None for cell in cells)
            ]
            theirs = [_text(*p) for p in zip(table.columns, map(Measured, figures), strict=True)]
            lines += [[row, *theirs], *ours] if ours else []
        notes: list[str] = []
        places = sorted({place for _, place in self.scores})
        own = {place for place, column in enumerate(table.columns) if "added" not in column}
        if len(own) < len(table.columns):  # added columns stand beside all of the paper's
            places = sorted(own.union(places))
        for place in places:
            for note in dict.fromkeys(c.note for (_, p), c in self.scores.items() if p == place):
                lines[0][place + 1] += _letter(notes, note)
        lines = [[line[0], *(line[place + 1] for place in places)] for line in lines]
        if len(places) > _MAX_COLUMNS:
            lines = [list(line) for line in zip(*lines, strict=True)]
        below = _lettered(notes)
        if any(cell.is_learned for cells in self.measured.values() for cell in cells):
            below.append(f"{_LEARNED} learned from the training part of this data set")
        below += filter(None, [table.note])
        partly = {row for row, _ in self.scores}
        reasons = []
        for why, parts in self.reasons().items():
            names = [
                f"{n} ({', '.join(lacking)})" if n in partly else n for n, lacking in parts.items()
            ]
            reasons.append(f"{', '.join(names)}: {why}.")
        below += ["No score of ours: " + " ".join(reasons)] if reasons else []
        title = (
            f"{table.source.partition(', ')[2].capitalize()}: "
            f"{table.title}{shared and f' ({shared})'}"
        )
        body = lines[1:] if places else []
        rows = [Row(line[:1], [Cell(text) for text in line[1:]]) for line in body]
        return Table(title, lines[0], rows, below)

    def reasons(self) -> Mapping[str, Mapping[str, list[str]]]:
        """By reason, the rows and columns that lack our figures, each with their headings."""
        table, (headings, _) = self.paper_table, self.paper_table.headings()
        trained = {name for _, name in self.measured}
        by_reason: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for row, place in [key for key in self.figures if key not in self.scores]:
            column, ours, paper = table.columns[place], table.ours.get(row, ()), table.paper
            if "reason" in column:
                why, what = column["reason"], headings[place]
            elif row in paper.get("reasons", {}):
                why, what = paper["reasons"][row], row
            elif ours and trained.issuperset(ours):
                why, what = f"not measured; suite `{column['suite']}` does it", row
            elif row in table.quoted and not ours:
                why, what = _QUOTED, row
            else:
                why, what = paper["reason"], row
            by_reason[why][what].append(headings[place])
        return by_reason


def _opening(paper: Mapping[str, Any], parts: Sequence[Beside]) -> str:
    """How many figures have ours beside them, how far apart they are on equal data, and why."""
    own = [
        (part, key)
        for part in parts
        for key in part.figures
        if key[0] not in part.paper_table.quoted
    ]
    pairs = [(part, key) for part, key in own if key in part.scores]
    scores = [
        (part.paper_table.columns[key[1]], part.scores[key], part.figures[key])
        for part, key in pairs
    ]
    on_own = [(column, cell, figure) for column, cell, figure in scores if not cell.note]
    gaps: defaultdict[str, list[float]] = defaultdict(list)
    for column, cell, figure in on_own:
        if cell.value is None or cell.is_learned:
            continue
        if is_fraction(column["printed"]):
            gaps["{:.1f} points"].append(100 * (cell.value - figure))
        elif is_correlation(column["printed"]):
            gaps["{:.2f} of correlation"].append(cell.value - figure)
    sentences = [
        f"[{paper['title']}]({paper['url']}), {paper['where']}.",
        f"We have scores for {len(pairs)} of its {len(own)} own figures: {len(on_own)} on the "
        f"paper's own data and {len(pairs) - len(on_own)} on stand-ins for them.",
    ]
    distances = []
    for unit, values in gaps.items():
        mean = float(np.mean(values))
        than = "higher" if mean > 0 else "lower"
        distances.append(f"{unit.format(abs(mean))} {than} (n = {len(values)})")
    if distances:
        are_left_out = any(cell.is_learned for _, cell, _ in on_own)
        without = f", without figures marked {_LEARNED}," if are_left_out else ""
        sentences.append(
            f"On the paper's own data{without} ours are on average {' and '.join(distances)}."
        )
    return " ".join([*sentences, paper["why"]])


def _text(column: Mapping[str, Any], cell: Measured) -> str:
    if cell.value is None:
        return ""
    return formatted(column["printed"], cell.value) + f" {_LEARNED}" * cell.is_learned


def flat(scores: Mapping[str, Mapping[str, float]]) -> dict[Key, float]:
    """Scores by suite, data set and metric, from those by "suite/data set" and metric."""
    return {
        _key(f"{name}/{metric}"): value
        for name, values in scores.items()
        for metric, value in values.items()
    }


def add_results(
    path: Path, results: Iterable[tuple[str, Scores, Mapping[str, Any]]]
) -> dict[str, Any]:
    """Adds results to the file of our systems' scores that stand beside the papers'.

    Scores of another training or another model of the same name are dropped.

    Args:
        path: The file; it is made if there is none.
        results: The system's name, scores and provenance of each results file. Of the scores, those
            that a column of `papers.json` shows are kept.

    Returns:
        The systems by name: "scores" by "suite/data set" and metric, the model's "checksum" and, of
        the training, "command", "minutes", "steps", "seed" and what it "learned" of
        `_TRAINING_PARTS`. "machine" is written by hand.

    Raises:
        UserError: The file is of another kind.
    """
    expected = f"{path} must be a file of our systems' scores, as evaluation/results/papers.json"
    with as_user_error(f"{expected}, but is not ({{error}}); give another", *OTHER_CONTENT):
        systems: dict[str, dict[str, Any]] = dict(read_json(path).items()) if path.exists() else {}
    wanted = _wanted()
    # Trainings first.
    for name, scores, provenance in sorted(results, key=lambda result: "steps" not in result[2]):
        system = systems.setdefault(name, {"machine": ""})
        if "steps" in provenance:
            described = {
                "command": _PLACES.sub("", provenance.get("command", "")).removeprefix("python "),
                "minutes": round(provenance["minutes"], 1),
                "steps": provenance["steps"],
                "seed": provenance.get("config", {}).get("training", {}).get("seed", ""),
                "learned": [
                    start
                    for start, corpora in _TRAINING_PARTS.items()
                    if any(re.match(corpora, title) for title in provenance.get("corpora", ()))
                ],
            }
            before = system
        else:
            described = {"checksum": provenance["system"]["checksum"]}
            before = system if "checksum" in system else described
        if {key: before.get(key) for key in described} != described:
            system |= {"machine": "", "scores": {}}
            system.pop("checksum", None)
        system |= described
        kept = system.setdefault("scores", {})
        for key, value in scores.items():
            suite, dataset, metric = _held_out(key)
            if (suite, dataset, metric) in wanted:
                kept.setdefault(f"{suite}/{dataset}", {})[metric] = round(value, 5)
    text = json.dumps(dict(sorted(systems.items())), indent=1, ensure_ascii=False)
    # A line for each data set.
    text = re.sub(r"\{[^{}]*\}|\[[^][]*\]", lambda scores: " ".join(scores[0].split()), text)
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    return systems


def _held_out(key: Key) -> Key:
    """The suite and data set of a score that a training prints."""
    suite, dataset, metric = key
    if suite == "training" and dataset.startswith("stsb."):
        return "sts", dataset, metric
    if suite == "training" and (pair := re.fullmatch(r"retrieval\.(.+)\.all", dataset)):
        return "retrieval", f"held_out.{pair[1]}", metric
    return key


def _wanted() -> set[Key]:
    wanted: set[Key] = set()
    for table in papers():
        for column in table.columns:
            wanted |= {_key(name) for name in column.get("mean_of", ())}
            wanted |= {(column["suite"], name, column["metric"]) for name in _datasets(column)}
    return wanted


def _datasets(column: Mapping[str, Any]) -> list[str]:
    """A column's data set, and those that stand in for it; none if the column is a heading."""
    if not {"dataset", "metric"} <= column.keys():
        return []
    stand_ins = column.get("stand_in", [])
    return [column["dataset"], *([stand_ins] if isinstance(stand_ins, str) else stand_ins)]


def _key(name: str) -> Key:
    suite, dataset, metric = name.split("/", 2)
    return suite, dataset, metric
