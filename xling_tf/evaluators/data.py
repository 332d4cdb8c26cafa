"""Evaluation data: data sets, suites of them, which of them a run takes, and the tables they are read from.

A table is tab-separated lines below a line that names the columns.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from absl import logging
from tabulate import tabulate

from xling_tf.corpora.line_files import read_every_line
from xling_tf.errors import UserError
from xling_tf.evaluators.encoding import Evaluator
from xling_tf.files import NOTES, PACKED, first_names

LANGUAGE = "[a-z]{2,3}(?:_[A-Za-z]+)?"  # a code in a file's name, as a regular expression
Tables = Mapping[str, Mapping[str, Path]]  # language, split ("" where there is none)
_TABLE_END = re.compile(rf"\.(?i:tsv){PACKED}$")
_TABLE = re.compile(rf"(.+?)\.((?!dev\b){LANGUAGE})(?:\.([a-z_]{{3,}}))?")


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A data set that was found; it is read when its turn comes."""

    name: str  # within its suite, as "MR" or "stsb.en.dev"
    files: tuple[Path, ...]
    load: Callable[[], Evaluator]


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A data set that was not found."""

    name: str
    expected: str  # files that would make it, with their columns and the format of `data/convert.py`


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A kind of evaluation: what one table of the papers shows."""

    name: str  # in `--suite` and result files
    title: str  # what it measures, in a few words
    source: str  # the papers' sections and tables
    find: Callable[[Path, int], Iterable[Dataset | Missing]]  # in a data folder, with a seed
    illustrates: bool = False  # gives things to be drawn instead of scores


class Selected(NamedTuple):
    """A data set to be evaluated, and its suite."""

    suite: Suite
    dataset: Dataset

    @property
    def name(self) -> str:
        """The full name, as `senteval/MR`."""
        return f"{self.suite.name}/{self.dataset.name}"


class Selection(NamedTuple):
    """What a run evaluates, and by full name the files that it would have evaluated as well."""

    selected: list[Selected]
    missing: dict[str, str]


def select(suites: Mapping[str, Suite], folder: Path, wanted: Sequence[str], seed: int) -> Selection:
    """Finds the data sets of a run: of all suites, or those named as "sts", "sts/stsb.en.dev", "bitext/*"."""
    if not folder.is_dir():
        raise UserError(
            f"--data must be a folder with evaluation data, but {folder} is none; correct the path"
        )
    selection = Selection([], {})
    patterns = [name if "/" in name else f"{name}/*" for name in wanted or suites]
    for pattern in patterns:
        if pattern.partition("/")[0] not in suites:
            raise UserError(
                f"--suite must name suites, as {', '.join(suites)}, but has {pattern.removesuffix('/*')!r}"
            )
    for suite in suites.values():
        of_suite = [pattern for pattern in patterns if pattern.partition("/")[0] == suite.name]
        items = [(f"{suite.name}/{item.name}", item) for item in suite.find(folder, seed)] if of_suite else []
        for pattern in of_suite:
            found = [item for name, item in items if fnmatchcase(name, pattern)]
            if wanted and not any(isinstance(item, Dataset) for item in found):
                expected = [item.expected for item in found if isinstance(item, Missing)]
                raise UserError(
                    f"{pattern} must be evaluated, but {folder} does not have it; expected: "
                    f"{'; or '.join(expected or [name for name, _ in items]) or suite.title}"
                )
        for name, item in items:
            if not any(fnmatchcase(name, pattern) for pattern in of_suite):
                continue
            if isinstance(item, Dataset):
                selection.selected.append(Selected(suite, item))
            else:
                selection.missing[name] = item.expected
    if not selection.selected:
        raise UserError(
            f"{folder} must hold evaluation data, but none of its layouts was found there, as "
            f"{next(iter(selection.missing.values()), 'sts/stsb.en.dev.tsv')}; correct --data"
        )
    return selection


def warn_of_unread(suites: Mapping[str, Suite], folder: Path) -> None:
    """Warns of the files in a data folder that none of the suites reads."""
    items = [item for suite in suites.values() for item in suite.find(folder, 0)]
    used = {path for item in items if isinstance(item, Dataset) for path in item.files}
    # The training parts are for training; hidden folders are Git's or a download's.
    paths = [path for path in folder.rglob("*") if path.is_file() and ".train." not in path.name]
    unread = sorted(path for path in paths if path not in used and not NOTES.fullmatch(path.name))
    names = [str(path.relative_to(folder)) for path in unread]
    if names := [name for name in names if not re.search(r"(?:^|/)\.", name)]:
        logging.warning("no suite reads these files in %s: %s", folder, first_names(names))


def read_table(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Reads some columns of a table, stripped; nothing is left out: scores on a part compare with none."""
    lines = read_every_line(path)
    header = next(lines, (1, ""))[1].split("\t")
    wrong = [column for column in columns if header.count(column) != 1]
    if wrong:
        raise UserError(
            f"{path} must name the columns {', '.join(columns)} in its first line, separated by tabs, "
            f"but {', '.join(wrong)} is not in {'|'.join(header)[:80]!r} once; correct that line"
        )
    places = [header.index(column) for column in columns]
    rows = []
    for number, line in lines:
        fields = line.split("\t")
        if len(fields) != len(header):
            raise UserError(
                f"{path} must have {len(header)} fields in every line ({' TAB '.join(header)[:80]}), but "
                f"line {number} is {len(fields)} fields: {line[:80]!r}; correct that line"
            )
        rows.append(tuple(fields[place].strip() for place in places))
    return rows


def format_table(results: Mapping[str, Mapping[str, float]]) -> str:
    """Formats scores by data set and name as a plain text table, counts ("num_...") without decimals.

    Example:
        >>> print(format_table({"stsb.en.dev": {"pearson_angular": 0.75, "num_pairs": 1500.0}}))
        suite        metric             value
        -----------  ---------------  -------
        stsb.en.dev  pearson_angular   0.7500
        stsb.en.dev  num_pairs           1500
    """
    rows = [
        (suite, metric, f"{value:.0f}" if metric.startswith("num_") else f"{value:.4f}")
        for suite, scores in results.items()
        for metric, value in scores.items()
    ]
    alignment = ("left", "left", "right")
    headers = ("suite", "metric", "value")
    return tabulate(rows, headers=headers, colalign=alignment, disable_numparse=True)


def header_of(path: Path) -> list[str]:
    """Reads the names of a table's columns."""
    return next(read_every_line(path), (1, ""))[1].split("\t")


def find_file(folder: Path, name: str) -> Path | None:
    """Finds a table by its name, plain or compressed."""
    path = folder / name
    return tables_in(path.parent).get(stem_of(path))


def tables_in(folder: Path) -> dict[str, Path]:
    """Finds the tables of a folder by their `stem_of`; a plain one goes before a packed one."""
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("[!.]*")):
        if path.is_file() and _TABLE_END.search(path.name):
            found.setdefault(stem_of(path), path)
    return dict(sorted(found.items()))


def stem_of(path: Path) -> str:
    """The name of a table without `.tsv` and an ending such as `.gz`: `stsb.en.dev`."""
    return _TABLE_END.sub("", path.name)


def find_tables(folder: Path) -> dict[str, Tables]:
    """Finds the tables `<name>.<language>[.<split>].tsv` of a folder, by name."""
    found: dict[str, dict[str, dict[str, Path]]] = {}
    for stem, path in tables_in(folder).items():
        if match := _TABLE.fullmatch(stem):
            name, language, split = match.groups(default="")
            found.setdefault(name, {}).setdefault(language, {})[split] = path
    return dict(found)
