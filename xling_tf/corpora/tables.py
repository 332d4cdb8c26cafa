"""Tables of texts: TSV, CSV, JSON lines, Parquet and Excel, with or without names of columns.

CSV may be separated by commas, semicolons, tabs or bars. The first line names the columns if its
names are known, or if it is unlike all others.
"""

import csv
import math
import re
import unicodedata
import warnings
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import chain, islice, zip_longest
from pathlib import Path
from threading import Lock
from typing import Any

from absl import logging

from xling_tf.compressed import PACKED
from xling_tf.corpora.column_names import (
    find_columns,
    is_header,
    is_language,
    is_row_number,
    is_unlike,
    name_key,
    names_columns,
    role_of,
)
from xling_tf.corpora.line_files import (
    MAX_LINE,
    Unreadable,
    as_cell,
    decoded,
    first_lines,
    json_object,
    read_every_line,
    read_lines,
    stripped,
)
from xling_tf.errors import UserError, as_user_error, library

# The endings of tables' names, without compression. A file with another ending is read as TSV.
TABLE_ENDINGS = "(?:tsv|csv|jsonl|parquet|xlsx)"
_SEPARATORS = (",", ";", "\t", "|")
# Share of the first lines with the same number of cells, from which a separator is one.
_REGULAR = 0.8
_FIRST_LINES = 100  # that tell separators and headers
_SPREADSHEETS = re.compile(r"\.(?:xlsm?|ods|numbers|gsheet)$", re.IGNORECASE)
_NUM_NAMED = 5  # rows left out whose numbers are shown
_MOST_LEFT_OUT = 0.1  # a file that loses this share of its rows is an error


class LeftOut(Counter[str]):
    """The rows of a file that cannot be used, by reason: the same rule for every program.

    Examples:
        >>> left_out = LeftOut()
        >>> left_out.add("empty column", 3)
        >>> print(left_out)
        empty column: 1 (first: 3)
        >>> left_out.require_few("x.csv", 100)
    """

    def __init__(self) -> None:
        super().__init__()
        self.first_rows: dict[str, tuple[int, ...]] = {}  # numbers of the first rows, by reason

    def add(self, reason: str, number: int) -> None:
        """Counts a row."""
        self[reason] += 1
        if self[reason] <= _NUM_NAMED:
            self.first_rows[reason] = (*self.first_rows.get(reason, ()), number)

    def __str__(self) -> str:
        return "; ".join(
            f"{reason}: {count} (first: {', '.join(map(str, self.first_rows[reason]))})"
            for reason, count in self.items()
        )

    def require_few(self, name: str, num_used: int, expected: Collection[str] = ()) -> None:
        """Raises a `UserError` if a tenth of the rows is left out for reasons not in `expected`."""
        count = sum(n for reason, n in self.items() if reason not in expected)
        if count and count >= _MOST_LEFT_OUT * (count + num_used):
            raise UserError(
                f"{count} of {count + num_used} rows of {name} cannot be used: {self}; correct "
                "them, or remove them from the file"
            )


def read_columns(
    path: Path | tuple[Path, ...],
    columns: Sequence[str],
    leave_out: Callable[[str, int], None],
    *,
    others: Sequence[str] = (),
    optional: int = 0,
) -> Iterator[tuple[int, list[str]]]:
    """Yields the number of each row of a table, and its `stripped` cells in the order of `columns`.

    The first line may name the columns, in any order and among others; otherwise the table must
    have exactly these columns. JSON lines and Parquet files always name them. The file may be
    compressed.

    Args:
        path: The table, in the format of its name's ending; or a file of lines for each column.
        columns: The names of the columns, see `find_columns`.
        leave_out: Called with the reason and the number of each row that cannot be used.
        others: Another name of each column, such as the code of its language.
        optional: How many of the last columns may be missing: their cells are empty.
    """
    find = cache(partial(find_columns, columns=columns, others=others, optional=optional))
    widths = range(len(columns) - optional, len(columns) + 1)
    header: tuple[str, ...] = ()
    rows = _rows(path)
    first = [*islice(rows, _FIRST_LINES)]
    lines = [row for _, names, row in first if not (names or isinstance(row, Unreadable))]
    for number, names, row in chain(first, rows):
        if isinstance(row, Unreadable):
            leave_out(row, number)
            continue
        if number == 1 and not names:
            if find(tuple(row)):
                header = tuple(row)
                continue
            if is_header(row) or not {*map(name_key, row)}.isdisjoint(map(name_key, columns)):
                leave_out("line of names of columns", number)
                continue
            if len(row) in widths and is_unlike(row, lines[1:]):
                log_header(path, row)
                continue
        row_names = names or header or tuple(columns[: len(row)])
        places = find(row_names)
        if places is None and names:
            leave_out(f"without the columns {', '.join(columns)}", number)
        elif places is None or len(row) != len(row_names):
            leave_out(f"not {len(header) or ' or '.join(map(str, widths))} columns", number)
        else:
            values = ["" if place is None else row[place] for place in places]
            cells = [*map(_text, values, columns)] if names else [*map(stripped, values)]
            if faults := [cell for cell in cells if isinstance(cell, Unreadable)]:
                leave_out(faults[0], number)
            else:
                yield number, cells


def log_header(path: Any, names: Sequence[str]) -> None:
    """Logs that the first line is taken for the names of the columns."""
    logging.info(
        "%s: line 1 is unlike the others, so it names the columns: %s", path, " | ".join(names)
    )


def read_any(
    path: Path, languages: Sequence[str], leave_out: Callable[[str, int], None]
) -> tuple[list[str], list[tuple[int, Any]]]:
    """Reads a table with any columns.

    Lines that cannot be read are left out, as are rows with more or fewer cells than the others.

    Returns:
        The names of the columns, [] if they have none, and rows with their numbers. A row is a list
        of cells; in JSON lines and Parquet, whose values may be of any type, it is a dictionary.
    """
    named: list[tuple[int, Any]] = []
    lines: list[tuple[int, list[str]]] = []
    for number, names, row in _rows(path):
        if isinstance(row, Unreadable):
            leave_out(row, number)
        elif names:
            values = map(_clean, row)
            named.append((number, dict(zip(names, values, strict=True))))
        else:
            lines.append((number, [*map(stripped, row)]))
    if named or not lines:
        return [], named
    (number, first), *others = lines
    similar = [cells for _, cells in others[:_FIRST_LINES] if len(cells) == len(first)]
    header: list[str] = []
    if number == 1 and names_columns(first, languages):
        header, lines = first, others
    elif number == 1 and is_unlike(first, similar):
        header, lines = first, others
        log_header(path, header)
    widths = Counter(len(cells) for _, cells in lines)
    width = len(header) or max(widths, key=widths.__getitem__)
    for number, cells in lines:
        if len(cells) != width:
            leave_out(f"not {width} columns", number)
    return header, [row for row in lines if len(row[1]) == width]


def _clean(value: Any) -> Any:
    """Writes a text as `read_columns` does; other values stay."""
    text = decoded(value) if isinstance(value, bytes) else value
    if not isinstance(text, str) or isinstance(text, Unreadable):
        return value
    return stripped(as_cell(unicodedata.normalize("NFC", text)))


def read_table(
    path: Path | tuple[Path, ...],
    columns: Sequence[str],
    *,
    others: Sequence[str] = (),
    optional: int = 0,
) -> list[tuple[str, ...]]:
    """Reads a table's rows, see `read_columns`. A row that cannot be used raises a `UserError`."""
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
    """Returns the cells of the first line, or the columns' names; [] for a faulty file."""
    with suppress(UserError):
        _, names, row = next(_rows(path), (0, (), ()))
        return [*names] or ([] if isinstance(row, Unreadable) else [*row])
    return []


# The number of a row, the names of its columns (none in TSV and CSV), and its values.
_Row = tuple[int, tuple[str, ...], Sequence[Any] | Unreadable]


def _rows(path: Path | tuple[Path, ...]) -> Iterator[_Row]:
    if not isinstance(path, Path):
        return _side_by_side(path)
    if _SPREADSHEETS.search(path.name):
        raise UserError(f"{path} cannot be read; save it as .xlsx or .csv")
    ending = re.search(rf"\.({TABLE_ENDINGS}){PACKED}$", path.name, re.IGNORECASE)
    if ending:
        return _READERS[ending[1].lower()](path)
    is_json = any(line.startswith("{") for line in first_lines(path, 1))
    return _json_lines(path) if is_json else _csv_or_tsv(path)


def _side_by_side(paths: tuple[Path, ...]) -> Iterator[_Row]:
    for number, lines in enumerate(zip_longest(*map(read_lines, paths)), 1):
        if None in lines:
            short, names = paths[lines.index(None)], ", ".join(path.name for path in paths)
            raise UserError(
                f"{names} must have equally many lines, but {short} ends before line {number}; "
                "give files that belong together"
            )
        texts = [text for _, text in lines]
        yield number, (), next((text for text in texts if isinstance(text, Unreadable)), texts)


def _tsv(path: Path) -> Iterator[_Row]:
    for number, line in read_lines(path):
        yield number, (), line if isinstance(line, Unreadable) else line.split("\t")


# The limit of `csv` is one for the whole process, so one thread at a time may change it.
_csv_limit = Lock()


def _csv_or_tsv(path: Path) -> Iterator[_Row]:
    """Reads CSV if its separator is no tab, or if quotes are around cells, as in Excel's text."""
    if separator_of(first_lines(path, _FIRST_LINES), "\t") != "\t":
        return _csv(path)
    lines = first_lines(path, _FIRST_LINES, holding='"')
    return _csv(path) if lines and not _parsed(lines, "\t")[1] else _tsv(path)


def separator_of(lines: Sequence[str], usual: str) -> str:
    """Returns the separator of cells in the first lines of CSV: `usual`, or one that fits better.

    It gives nearly all rows the same number of cells; of several, the one that a space follows the
    least often, as it does after punctuation; of several, `usual` or the most usual one.

    Examples:
        >>> separator_of(["Hola, amigo;Hello, friend", "Adiós, amigo;Bye, friend"], ",")
        ';'
    """
    best, found = (0.0, 0), usual
    for separator in dict.fromkeys((usual, *_SEPARATORS)):
        rows, num_faults = _parsed(lines, separator)
        widths = Counter(map(len, rows))
        width = max(widths, key=widths.__getitem__, default=0)
        share = round(widths[width] / max(1, len(rows) + num_faults), 1)
        num_spaces = sum(cell.startswith(" ") for row in rows for cell in row[1:])
        if width > 1 and share >= _REGULAR and (share, -num_spaces) > best:
            best, found = (share, -num_spaces), separator
    return found


def _parsed(lines: Sequence[str], separator: str) -> tuple[list[list[str]], int]:
    """Returns the rows of the first lines of CSV, and how often they are none."""
    rest = (f"{line}\n" for line in lines)
    rows: list[list[str]] = []
    num_faults = 0
    while True:
        reader = csv.reader(rest, delimiter=separator, strict=True)
        try:
            rows += filter(None, reader)
            return rows, num_faults
        except csv.Error as error:
            # The last cell may go on after these lines.
            num_faults += "unexpected end" not in str(error)


def _csv(path: Path) -> Iterator[_Row]:
    """Yields rows under their first lines' numbers; of a faulty row, every line that it takes.

    A quote that does not close takes all lines up to the next one, or to the longest cell. If they
    are rows by themselves, only the line with the quote is faulty.
    """
    separator = separator_of(first_lines(path, _FIRST_LINES), ",")
    lines = (f"{line}\n" for _, line in read_every_line(path))
    pending: deque[str] = deque()  # lines to read again
    taken: list[str] = []  # lines of a row

    def next_lines() -> Iterator[str]:
        while line := pending.popleft() if pending else next(lines, ""):
            taken.append(line)
            yield line

    first = 1  # number of the row's first line
    width = 0  # of the first row
    rows = csv.reader(next_lines(), delimiter=separator, strict=True)
    while True:
        try:
            row = _next_csv_row(rows)
        except csv.Error:
            rows = csv.reader(next_lines(), delimiter=separator, strict=True)
            reason = Unreadable.OPEN_QUOTE if len(taken) > 1 else Unreadable.NOT_CSV
            if _are_rows(taken[1:], width, separator):
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


def _are_rows(lines: Sequence[str], width: int, separator: str) -> bool:
    """True if the lines that an open quote takes are surely rows, and not a text of several lines.

    Each must have as many cells as the first row of the file, at least two. The last one may have
    the quote at which reading failed, if that begins a cell: after a text of several lines, it
    would end one.
    """
    if not lines or width < 2:
        return False
    # A line whose first quote, in a cell that a quote opened, is not doubled and follows a
    # separator.
    begins_a_cell = rf'(?:(?:[^"]|"")*{re.escape(separator)})?"(?!")'
    has_quote = '"' in lines[-1].replace('""', "")
    unquoted = lines[:-1] if has_quote else lines
    return all(line.count(separator) == width - 1 for line in unquoted) and (
        not has_quote or bool(re.match(begins_a_cell, lines[-1]))
    )


def _next_csv_row(rows: Iterator[list[str]]) -> list[str] | None:
    """The next row, with cells as long as the lines of other formats; None after the last."""
    with _csv_limit:
        usual = csv.field_size_limit(MAX_LINE)
        try:
            return next(rows, None)
        finally:
            csv.field_size_limit(usual)


def _xlsx(path: Path) -> Iterator[_Row]:
    """Yields the rows of the first sheet that has any; empty ones are left out."""
    openpyxl = library("openpyxl", "openpyxl, for .xlsx files (or save it as .csv),", "xlsx")
    message = f"{path} cannot be read ({{error}}); save it as .csv"
    with as_user_error(message, Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of formats and formulas
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheets = {sheet.title: [*sheet.iter_rows(values_only=True)] for sheet in book.worksheets}
        book.close()
    used = {name: rows for name, rows in sheets.items() if any(map(any, rows))}
    if len(used) > 1:
        name, *others = used
        logging.warning("%s: sheet %s is read; left out: %s", path, name, ", ".join(others))
    rows = next(iter(used.values()), [])
    filled = [place for row in rows for place, cell in enumerate(row, 1) if cell is not None]
    for number, row in enumerate(rows, 1):
        if any(cell is not None for cell in row):
            cells = (*row, *[None] * max(filled))[: max(filled)]
            texts = ["" if cell is None else str(cell) for cell in cells]
            yield number, (), [as_cell(unicodedata.normalize("NFC", text)) for text in texts]


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


_READERS = {
    "tsv": _tsv,
    "csv": _csv,
    "jsonl": _json_lines,
    "parquet": _parquet,
    "xlsx": _xlsx,
}


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
