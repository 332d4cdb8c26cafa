"""Evaluation data: data sets and suites of them, and the tables they are read from.

A table is tab-separated lines below a line that names the columns.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from xling_tf.corpora.line_files import read_every_line
from xling_tf.errors import UserError
from xling_tf.evaluators.encoding import Evaluator


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A data set that was found; it is read when its turn comes.

    Args:
        name: Within its suite, as "MR" or "stsb.en.dev".
        files: What it consists of.
        load: Reads them and makes the evaluator.
    """

    name: str
    files: tuple[Path, ...]
    load: Callable[[], Evaluator]


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A data set that was not found.

    Args:
        name: Within its suite.
        expected: The files that would make it, with their layout: "senteval/CR.tsv (label TAB text under
            a line with these names) or, as published, senteval/CR/custrev.pos and custrev.neg".
    """

    name: str
    expected: str


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A kind of evaluation: what one table of the papers shows.

    Args:
        name: What `--suite` and result files call it.
        title: What it measures, in a few words.
        source: The papers' sections and tables.
        find: (data folder, seed) to the data sets there, and those that are not.
        illustrates: Whether it gives things to be drawn instead of scores.
        uncached: Whether the system is to encode every text that is asked for, for suites that measure it
            at work.
    """

    name: str
    title: str
    source: str
    find: Callable[[Path, int], Iterable[Dataset | Missing]]
    illustrates: bool = False
    uncached: bool = False


def read_table(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Reads some columns of a table; nothing is left out, since scores on a part compare with none.

    Args:
        path: UTF-8 text or, by its name, gzip, without quoting.
        columns: Names in the first line of those wanted; others are passed over.

    Returns:
        Of each line its fields in the order of `columns`, stripped.

    Raises:
        UserError: A column is missing or named twice, or a line cannot be read, or has more or fewer fields
            than the first one.
    """
    lines = read_every_line(path)
    header = next(lines, (1, ""))[1].split("\t")
    missing = [column for column in columns if column not in header]
    if missing:
        raise UserError(
            f"{path} must name the columns {', '.join(columns)} in its first line, separated by tabs, "
            f"but {', '.join(missing)} is not in {'|'.join(header)[:80]!r}; add that line or correct it"
        )
    twice = [column for column in columns if header.count(column) > 1]
    if twice:
        raise UserError(
            f"{path} must name each column once in its first line, but {twice[0]} is there twice; rename one "
            "of them"
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


def header_of(path: Path) -> list[str]:
    """Reads the names of a table's columns."""
    return next(read_every_line(path), (1, ""))[1].split("\t")


def find_file(folder: Path, name: str) -> Path | None:
    """Finds a file by its name, plain or with `.gz` behind it."""
    paths = (folder / name, folder / f"{name}.gz")
    return next((path for path in paths if path.is_file()), None)


def stem_of(path: Path) -> str:
    """The name of a table without `.tsv` and `.gz`: `stsb.en.dev`."""
    return path.name.removesuffix(".gz").removesuffix(".tsv")
