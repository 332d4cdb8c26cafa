"""Tables of texts: TSV, CSV, JSON lines and Parquet, with or without the names of their columns."""

import csv
import math
import re
import unicodedata
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import chain, zip_longest
from pathlib import Path
from threading import Lock
from typing import Any

from xling_tf.compressed import PACKED
from xling_tf.corpora.column_names import (
    find_columns,
    is_header,
    is_language,
    is_row_number,
    name_key,
    role_of,
)
from xling_tf.corpora.line_files import (
    MAX_LINE,
    Unreadable,
    as_cell,
    decoded,
    json_object,
    read_every_line,
    read_lines,
    stripped,
)
from xling_tf.errors import UserError, as_user_error, library

# The endings of tables' names, without compression. A file with another ending is read as TSV.
TABLE_ENDINGS = "(?:tsv|csv|jsonl|parquet)"


def read_columns(
    path: Path | tuple[Path, ...],
    columns: Sequence[str],
    leave_out: Callable[[str, int], None],
    *,
    others: Sequence[str] = (),
    optional: int = 0,
) -> Iterator[tuple[int, list[str]]]:
    """Yields the number of each row of a table, and its `stripped` cells in the order of `columns`.

    The first line may name the columns, in any order and among others; otherwise the table has
    exactly these columns. JSON lines and Parquet files name them always. The file may be
    compressed.

    Args:
        path: The table, in the format of its name's ending; or a file of lines for each column.
        columns: The names of the columns, see `find_columns`.
        leave_out: Called with the reason and the number of each row that cannot be used.
        others: Another name of each column, such as the code of its language.
        optional: How many of the last columns may be missing: their cells are empty.
    """
    find = cache(partial(find_columns, columns=columns, others=others, optional=optional))
    header: tuple[str, ...] = ()
    widths = " or ".join(map(str, range(len(columns) - optional, len(columns) + 1)))
    for number, names, row in _rows(path):
        if isinstance(row, Unreadable):
            leave_out(row, number)
            continue
        if number == 1 and not names:
            if find(tuple(row)):
                header, widths = tuple(row), str(len(row))
                continue
            if is_header(row) or not {*map(name_key, row)}.isdisjoint(map(name_key, columns)):
                leave_out("line of names of columns", number)
                continue
        row_names = names or header or tuple(columns[: len(row)])
        places = find(row_names)
        if places is None and names:
            leave_out(f"without the columns {', '.join(columns)}", number)
        elif places is None or len(row) != len(row_names):
            leave_out(f"not {widths} columns", number)
        else:
            values = ["" if place is None else row[place] for place in places]
            cells = [*map(_text, values, columns)] if names else [*map(stripped, values)]
            if faults := [cell for cell in cells if isinstance(cell, Unreadable)]:
                leave_out(faults[0], number)
            else:
                yield number, cells


def read_table(
    path: Path | tuple[Path, ...],
    columns: Sequence[str],
    *,
    others: Sequence[str] = (),
    optional: int = 0,
) -> list[tuple[str, ...]]:
    """Reads a table's rows, see `read_columns`; one that cannot be used raises a `UserError`."""
    name = path if isinstance(path, Path) else " and ".join(map(str, path))

    def refuse(reason: str, number: int) -> None:
        is_encoded = reason == Unreadable.NOT_UTF8
        advice = "convert it with `iconv -f ENCODING -t UTF-8`" if is_encoded else "correct it"
        raise UserError(
            f"{name} must have the columns {', '.join(columns)}, in this order or named in line "
            f"1; line {number}: {reason}; {advice}"
        )

    read = read_columns(path, columns, refuse, others=others, optional=optional)
    rows = [tuple(cells) for _, cells in read]
    if not rows:
        raise UserError(f"{name} has no rows; fetch it again or remove it")
    return rows


def header_of(path: Path) -> list[str]:
    """The columns' names, or what the first line has in their place; none of a faulty file."""
    with suppress(UserError):
        _, names, row = next(_rows(path), (0, (), ()))
        return [*names] or ([] if isinstance(row, Unreadable) else [*row])
    return []


# The number of a row, the names of its columns (none in TSV and CSV), and its values.
_Row = tuple[int, tuple[str, ...], Sequence[Any] | Unreadable]


def _rows(path: Path | tuple[Path, ...]) -> Iterator[_Row]:
    if not isinstance(path, Path):
        return _side_by_side(path)
    ending = re.search(rf"\.({TABLE_ENDINGS}){PACKED}$", path.name, re.IGNORECASE)
    return _READERS[ending[1].lower() if ending else "tsv"](path)


def _side_by_side(paths: tuple[Path, ...]) -> Iterator[_Row]:
    for number, lines in enumerate(zip_longest(*map(read_lines, paths)), 1):
        if None in lines:
            short, names = paths[lines.index(None)], ", ".join(path.name for path in paths)
            raise UserError(f"{short} ends before line {number}, but {names} must be as long")
        texts = [text for _, text in lines]
        yield number, (), next((text for text in texts if isinstance(text, Unreadable)), texts)


def _tsv(path: Path) -> Iterator[_Row]:
    for number, line in read_lines(path):
        yield number, (), line if isinstance(line, Unreadable) else line.split("\t")


# The limit of `csv` is one for the whole process, so one thread at a time may change it.
_csv_limit = Lock()


def _csv(path: Path) -> Iterator[_Row]:
    """Yields rows under their first lines' numbers; of a faulty row, every line that it takes.

    A quote that does not close takes all lines up to the next one, or to the longest cell. If they
    are rows by themselves, only the line with the quote is faulty.
    """
    lines = (f"{line}\n" for _, line in read_every_line(path))
    pending: deque[str] = deque()  # lines to read again
    taken: list[str] = []  # lines of a row

    def next_lines() -> Iterator[str]:
        while line := pending.popleft() if pending else next(lines, ""):
            taken.append(line)
            yield line

    first = 1  # number of the row's first line
    width = 0  # of the first row
    rows = csv.reader(next_lines(), strict=True)
    while True:
        try:
            row = _next_csv_row(rows)
        except csv.Error:
            rows = csv.reader(next_lines(), strict=True)
            reason = Unreadable.OPEN_QUOTE if len(taken) > 1 else Unreadable.NOT_CSV
            if _are_rows(taken[1:], width):
                pending.extendleft(reversed(taken[1:]))
                del taken[1:]
            yield from ((number, (), reason) for number in range(first, first + len(taken)))
        else:
            if row is None:
                return
            width = width or len(row)
            yield first, (), [*map(as_cell, row)]
        first += len(taken)
        taken.clear()


# A line whose first quote, in a cell that a quote opened, is not doubled and follows a comma.
_BEGINS_A_CELL = re.compile(r'(?:(?:[^"]|"")*,)?"(?!")')


def _are_rows(lines: Sequence[str], width: int) -> bool:
    """True if the lines that an open quote takes are surely rows, and not a text of several lines.

    Each must have as many cells as the first row of the file, at least two. The last one may have
    the quote at which reading failed, if that begins a cell: after a text of several lines, it
    would end one.
    """
    if not lines or width < 2:
        return False
    has_quote = '"' in lines[-1].replace('""', "")
    unquoted = lines[:-1] if has_quote else lines
    return all(line.count(",") == width - 1 for line in unquoted) and (
        not has_quote or bool(_BEGINS_A_CELL.match(lines[-1]))
    )


def _next_csv_row(rows: Iterator[list[str]]) -> list[str] | None:
    """The next row, with cells as long as the lines of other formats; None after the last."""
    with _csv_limit:
        usual = csv.field_size_limit(MAX_LINE)
        try:
            return next(rows, None)
        finally:
            csv.field_size_limit(usual)


def _json_lines(path: Path) -> Iterator[_Row]:
    for number, line in read_lines(path):
        try:
            row = line if isinstance(line, Unreadable) else flattened(json_object(line))
        except (ValueError, RecursionError):
            row = Unreadable.NOT_JSON
        yield (
            (number, (), row) if isinstance(row, Unreadable) else (number, (*row,), [*row.values()])
        )


def _parquet(path: Path) -> Iterator[_Row]:
    parquet = library("pyarrow.parquet", "pyarrow, for .parquet files,", "bulk")
    with as_user_error(f"{path} cannot be read: {{error}}; correct it", OSError, ValueError):
        file = parquet.ParquetFile(path)
        columns = ([column.to_pylist() for column in b.columns] for b in file.iter_batches(1024))
        rows = chain.from_iterable(zip(*batch, strict=True) for batch in columns)
        names = (*file.schema_arrow.names,)
        for number, row in enumerate(rows, 1):
            if NESTED.isdisjoint(names):
                yield number, names, row
            else:
                flat = flattened(dict(zip(names, row, strict=True)))
                yield number, (*flat,), [*flat.values()]


# The columns of translation sets of `datasets`, whose values are texts by language.
NESTED = {"translation", "translations"}


def flattened(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row with a column for each language of its translations, named as in `datasets`.

    Examples:
        >>> flattened({"id": 1, "translation": {"en": "one", "es": "uno"}})
        {'id': 1, 'translation.en': 'one', 'translation.es': 'uno'}
    """
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if name in NESTED and isinstance(value, Mapping):
            flat |= {f"{name}.{language}": text for language, text in value.items()}
        else:
            flat[name] = value
    return flat


_READERS = {"tsv": _tsv, "csv": _csv, "jsonl": _json_lines, "parquet": _parquet}


def _text(value: Any, column: str) -> str | Unreadable:
    """Returns the value of a JSON or Parquet file as a cell of a TSV file.

    None and NaN, which pandas writes for a missing value, are empty cells. Bytes are UTF-8. Numbers
    and booleans are no texts, but may be scores, labels or numbers of rows.
    """
    if isinstance(value, bytes):
        value = decoded(value)
        if isinstance(value, Unreadable):
            return value
    if isinstance(value, bool) and role_of(column) == "score":
        value = int(value)
    is_missing = value is None or (isinstance(value, float) and math.isnan(value))
    holds_text = role_of(column) in ("first", "second", "wrong") or column == "context"
    holds_text |= is_language(column) and not is_row_number(column)
    if isinstance(value, dict | list) or (
        holds_text and not (is_missing or isinstance(value, str))
    ):
        return Unreadable.NOT_TEXT
    text = as_cell(unicodedata.normalize("NFC", "" if is_missing else str(value)))
    # JSON can spell half a surrogate pair, and NUL, which no line of a TSV file may have.
    if "\0" in text:
        return Unreadable.NOT_TEXT
    return Unreadable.NOT_UTF8 if re.search("[\ud800-\udfff]", text) else stripped(text)
