"""Reads texts from files of any common format, local or remote, as Arrow record batches in bounded memory."""

import io
import json
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import PurePosixPath
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
from absl import logging
from fsspec.core import url_to_fs
from pyarrow import compute, csv, ipc, parquet, types

from xling_tf.bulk.record_batches import column_of_bytes, column_of_texts
from xling_tf.compressed import PACKED, unpacked
from xling_tf.corpora.line_files import MAX_LINE, Unreadable, decoded, split_blocks
from xling_tf.errors import UserError, as_user_error, one_line

_BATCH_ROWS = 4096  # rows read at once from Parquet
_CSV_PART = 1 << 18  # bytes parsed at once
_CSV_FIELD = rb'(?:"(?:[^"]++|"")*+"|[^",\r\n][^,\r\n]*+)?+'
_CSV_ROW = re.compile(rb"%b(?:,%b)*+" % (_CSV_FIELD, _CSV_FIELD))
# The ends of a file's rows, by the first one, and what else ends rows for Arrow.
_ROW_ENDS = {b"\n": (rb"\r?\n", re.compile(rb"\r(?=[^\n])")), b"\r": (rb"\r", re.compile(rb"\n"))}
_STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"  # of Arrow's streams
_DAMAGE = (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, UserError)


class InputFile(NamedTuple):
    """A file on a file system of fsspec."""

    name: str
    size: int  # bytes
    version: str  # changes with the content; "" if the file system has no such value
    open: Callable[[], BinaryIO]


class Position(NamedTuple):
    """A place in a sequence of files, from which reading can continue."""

    file: int = 0
    row: int = 0  # number of sound rows of the file before the place
    counts: dict[str, int] = {}  # `TextFiles.counts` of the files before


class _FinalError(UserError):
    """An error that --skip_damaged does not skip."""


def find_files(patterns: Sequence[str]) -> list[InputFile]:
    """Finds the files that match patterns, each at least one, in the order of patterns and names."""
    files: dict[str, InputFile] = {}
    for pattern in patterns:
        message = f"{pattern} cannot be looked up: {{error}}; correct the name"
        with as_user_error(message, ImportError, OSError, ValueError):
            system, path = url_to_fs(pattern)
            matches = {path: system.info(path)} if system.isfile(path) else system.glob(path, detail=True)
        matches = {path: info for path, info in sorted(matches.items()) if info["type"] == "file"}
        if not matches:
            raise UserError(f"expected files, but {pattern} matches none; correct it")
        for path, info in matches.items():
            name = path if "file" in system.protocol else system.unstrip_protocol(path)
            version = str(info.get("mtime") or info.get("ETag") or info.get("LastModified") or "")
            _reader(name)  # an error for an unclear name
            files[name] = InputFile(name, info["size"] or 0, version, partial(system.open, path, "rb"))
    return list(files.values())


@dataclass
class TextFiles:
    """Reads the rows of files one after another.

    The ending of a file's name tells its format, see `_READERS`; texts may be compressed.
    """

    files: Sequence[InputFile]
    text_column: str  # the only column of plain lines
    columns: Sequence[str] | None = None  # to keep; None keeps all
    header: bool = True  # False: tables do not begin with the names of their columns: they are f0, f1, ...
    skip_damaged: bool = False  # skips and counts damaged rows, and the rest of damaged files
    schema: pa.Schema | None = None  # the columns' types, if earlier rows have set them
    counts: Counter[str] = field(default_factory=Counter)  # "empty texts", "damaged rows", "damaged files"
    bytes_read: int = 0
    _starts: deque[tuple[int, Position]] = field(default_factory=deque)  # number of rows before a file

    def batches(self, start: Position, rows_before: int) -> Iterator[pa.RecordBatch]:
        """Yields the rows from a position on; `rows_before` counts the rows of all files before it."""
        self.counts = Counter(start.counts)
        rows, skipped = rows_before - start.row, start.row
        self.bytes_read = sum(file.size for file in self.files[: start.file])
        for number, file in enumerate(self.files[start.file :], start.file):
            self._starts.append((rows, Position(number, 0, dict(self.counts))))
            bytes_before, first = self.bytes_read, rows
            for batch in self._read(file):
                batch = self._in_utf8(batch, file.name, rows - first)
                rows += len(batch)
                is_empty = compute.equal(column_of_texts(batch, self.text_column).fill_null(""), "")
                self.counts["empty texts"] += compute.sum(is_empty).as_py() or 0
                if len(batch) > skipped:
                    yield self._selected(batch, file.name).slice(skipped)
                skipped = max(0, skipped - len(batch))
            self.bytes_read = bytes_before + file.size

    def position(self, rows: int) -> Position:
        """Returns the position after a number of rows, which must not decrease from call to call."""
        while len(self._starts) > 1 and self._starts[1][0] < rows:
            self._starts.popleft()
        rows_before, start = self._starts[0]
        return start._replace(row=rows - rows_before)

    def _read(self, file: InputFile) -> Iterator[pa.RecordBatch]:
        """Yields the sound rows of a file, with all columns or the chosen ones."""
        reader, bytes_before, row = _reader(file.name), self.bytes_read, 0
        try:
            with file.open() as stream:
                for batch in reader(self, stream, file.name):
                    self.bytes_read = bytes_before + stream.tell()
                    yield batch
                    row += len(batch)
        except _FinalError:
            raise
        except _DAMAGE as error:
            # Arrow raises plain OSErrors for damaged files; others are of disks and networks.
            if isinstance(error, OSError) and (error.errno or type(error) is not OSError):
                reason = one_line(error) or type(error).__name__
                message = f"{file.name} cannot be read: {reason}; run the same command again"
                raise _FinalError(message) from error
            self._damaged("file", f"{file.name} is damaged after row {row}: {one_line(error)}")

    def _damaged(self, kind: str, message: str) -> None:
        """Counts a damaged "row" or "file", or raises an error."""
        if not self.skip_damaged:
            raise _FinalError(f"{message}; repair the file, or skip what is damaged with --skip_damaged")
        self.counts[f"damaged {kind}s"] += 1
        if kind == "file" or self.counts[f"damaged {kind}s"] == 1:
            logging.warning("%s; skipped", message)

    def _chosen(self, columns: list[str], name: str) -> list[str]:
        """Returns the columns of a file to read: the text's and those to keep."""
        wanted = list(dict.fromkeys([self.text_column, *(self.columns or [])]))
        if missing := [column for column in wanted if column not in columns]:
            raise _FinalError(
                f"{name}: expected the column {missing[0]}, but there is only {', '.join(columns)}"
            )
        chosen = list(columns) if self.columns is None else wanted
        if repeated := [column for column in chosen if columns.count(column) > 1]:
            raise _FinalError(
                f"{name} must have one column {repeated[0]!r}, but has more; rename them, or choose other "
                "columns with --columns"
            )
        return chosen

    def _selected(self, batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
        """Brings a batch's columns into the order and types of the first; a null type becomes strings."""
        if self.schema is None:
            fields = {key: batch.schema.field(key).type for key in self._chosen(batch.schema.names, name)}
            self.schema = pa.schema({f: pa.string() if types.is_null(t) else t for f, t in fields.items()})
        expected, columns = (
            ", ".join(f"{f.name} {f.type}" for f in schema) for schema in (self.schema, batch.schema)
        )
        message = (
            f"{name} must have the columns of the rows before, {expected}, but has {columns}; choose "
            "common ones with --columns"
        )
        with as_user_error(message, KeyError, pa.ArrowException):
            if self.columns is None and len(batch.schema) != len(self.schema):
                raise KeyError("other columns")
            arrays = [_cast(batch.column(column.name), column.type) for column in self.schema]
            return pa.record_batch(arrays, schema=self.schema)

    def _lines(self, stream: BinaryIO, name: str) -> Iterator[pa.RecordBatch]:
        number = 0
        for block in split_blocks(unpacked(stream, name), b"\n", MAX_LINE):
            # Decoding all lines at once is faster.
            joined = b"\n".join([line or b"" for line in block])
            whole = Unreadable.TOO_LONG if None in block else decoded(joined)
            texts = self._sound(block, name, number) if isinstance(whole, Unreadable) else whole.split("\n")
            column = pa.array([text.removesuffix("\r") for text in texts], pa.string())
            yield pa.record_batch([column], [self.text_column])
            number += len(block)

    def _sound(self, block: Iterable[bytes | None], name: str, number: int) -> Iterator[str]:
        """Decodes lines that can be; `number` counts earlier lines."""
        for row, text in enumerate(map(decoded, block), number + 1):
            if isinstance(text, Unreadable):
                self._damaged("row", f"row {row} of {name} is {text}")
            else:
                yield text

    def _table(self, stream: BinaryIO, name: str, delimiter: str) -> Iterator[pa.RecordBatch]:
        is_quoted, names, columns = delimiter == ",", list[str](), list[str]()
        row, faults = -int(self.header), list[str]()  # the header is row 0

        def skip(fault: csv.InvalidRow) -> str:
            message = f"has {fault.actual_columns} columns, not {fault.expected_columns}"
            faults.append(f"row {row + fault.number} of {name} {message}")
            return "skip"

        def read(rows: bytes, given: Sequence[str], **conversion: Any) -> pa.Table:
            layout = csv.ReadOptions(column_names=given, block_size=len(rows) + 1, use_threads=False)
            layout.autogenerate_column_names = not (given or self.header)
            syntax = csv.ParseOptions(delimiter=delimiter, quote_char=is_quoted and '"')
            syntax.newlines_in_values, syntax.invalid_row_handler = is_quoted, skip
            syntax.ignore_empty_lines = len(names) != 1  # of a single column, it is an empty text
            return csv.read_csv(io.BytesIO(rows), layout, syntax, csv.ConvertOptions(**conversion))

        for rows in _whole_rows(unpacked(stream, name), is_quoted, name):
            if isinstance(rows, str):
                if self.header and not names:
                    raise UserError(f"its header {rows}")
                row += 1
                self._damaged("row", f"row {row} of {name} {rows}")
                continue
            if isinstance(decoded(rows), Unreadable):  # Arrow cannot skip rows that are not UTF-8
                rows = re.sub("[\udc80-\udcff]", "\0", rows.decode(errors="surrogateescape")).encode()
            given = names
            if not names:
                rows = rows.lstrip(b"\r\n") if self.header else rows
                if not rows.strip(b"\r\n"):
                    continue
                names = read(rows.lstrip(b"\r\n"), []).schema.names
                given = [] if self.header else names
                if "\0" in "".join(names):
                    raise UserError(f"its header is {Unreadable.NOT_UTF8}")
                columns = self._chosen(names, name)
                faults.clear()
            as_texts = dict.fromkeys(names, pa.string())
            table = read(rows, given, column_types=as_texts, include_columns=columns)
            for fault in faults:
                self._damaged("row", fault)
            for batch in table.to_batches():
                has_nul = [compute.match_substring(column, "\0").to_numpy(False) for column in batch.columns]
                yield self._sound_rows(batch, np.any(has_nul, axis=0), name, max(row, 0))
            row += len(table) + len(faults) + (not given)
            faults.clear()

    def _json_lines(self, stream: BinaryIO, name: str) -> Iterator[pa.RecordBatch]:
        columns, number = list[str](), 0
        blocks = split_blocks(unpacked(stream, name), b"\n", MAX_LINE)
        # The last line is a block if it has no line feed; it should set types, too, in a small file.
        for block in chain([[*next(blocks, []), *next(blocks, [])]], blocks):
            rows, arrays = list(self._objects(block, name, number)), {}
            number += len(block)
            if not rows:
                continue
            columns = self._chosen(list(dict.fromkeys(chain(columns, *rows))), name)
            for key in columns:
                try:
                    arrays[key] = pa.array([row.get(key) for row in rows])
                except (pa.ArrowException, OverflowError) as error:  # not damage: the rows are sound
                    fault = f"one type in the field {key}, but up to line {number}: {one_line(error)}"
                    advice = "choose other fields with --columns, or write all its values as strings"
                    raise _FinalError(f"{name} must have {fault}; {advice}") from error
            yield pa.record_batch(arrays)

    def _objects(self, block: Sequence[bytes | None], name: str, number: int) -> Iterator[dict[str, Any]]:
        """Parses JSON lines that can be; `number` counts earlier lines."""
        with suppress(ValueError):
            yield from _parsed(block, self.text_column)
            return
        for row, line in enumerate(block, number + 1):
            try:
                yield from _parsed([line], self.text_column)
            except ValueError:
                text = decoded(line)
                fault = text if isinstance(text, Unreadable) else "no JSON object with a text"
                self._damaged("row", f"line {row} of {name} is {fault}")

    def _parquet(self, stream: BinaryIO, name: str) -> Iterator[pa.RecordBatch]:
        # Without buffering ahead, which would hold whole row groups.
        file = parquet.ParquetFile(stream, pre_buffer=False, buffer_size=1 << 20)
        columns = self._chosen(file.schema_arrow.names, name)
        yield from file.iter_batches(_BATCH_ROWS, columns=columns)

    def _arrow(self, stream: BinaryIO, name: str) -> Iterator[pa.RecordBatch]:
        try:
            file = ipc.open_file(stream)
            batches: Iterator[pa.RecordBatch] = map(file.get_batch, range(file.num_record_batches))
        except pa.ArrowInvalid:  # the format of streams, which Hugging Face's datasets write
            stream.seek(0)
            file = batches = ipc.open_stream(stream)
        chosen = self._chosen(file.schema.names, name)
        yield from (batch.select(chosen) for batch in batches)
        if file is batches:  # Arrow reads no further where a stream is cut, or another one follows
            stream.seek(stream.tell() - len(_STREAM_END))
            if stream.read(len(_STREAM_END) + 1) != _STREAM_END:
                raise UserError("expected Arrow's end marker at the end, and only there")

    def _in_utf8(self, batch: pa.RecordBatch, name: str, row: int) -> pa.RecordBatch:
        """Leaves out the rows whose text is not UTF-8; `row` counts earlier rows."""
        column = column_of_bytes(batch, self.text_column)
        with suppress(pa.ArrowInvalid):
            column.cast(pa.large_string())
            return batch
        texts = (value.replace(b"\0", b"") for value in column.fill_null(b"").to_pylist())  # strings have NUL
        return self._sound_rows(batch, [isinstance(decoded(text), Unreadable) for text in texts], name, row)

    def _sound_rows(self, batch: pa.RecordBatch, is_damaged: Any, name: str, row: int) -> pa.RecordBatch:
        """Counts and leaves out damaged rows."""
        for number in np.flatnonzero(is_damaged) + row + 1:
            self._damaged("row", f"row {number} of {name} is {Unreadable.NOT_UTF8}")
        return batch.filter(pa.array(np.logical_not(is_damaged)))


def _reader(name: str) -> Callable[[TextFiles, BinaryIO, str], Iterator[pa.RecordBatch]]:
    """Returns the reader for the ending of a file's name."""
    plain = re.sub(r"(https?://[^?]*)\?.*", r"\1", name)  # an address may end in a query
    path = PurePosixPath(re.sub(f"{PACKED}$", "", plain).lower())
    formats = "|".join(map(re.escape, _READERS))
    other = re.search(rf"({formats})(?![a-z0-9])", name.lower().rpartition("/")[2])
    if other and path.suffix not in _READERS:
        raise UserError(f"{name} must end in {other[1]}, or not have it in its name; rename it")
    return _READERS.get(path.suffix, TextFiles._lines)


def _whole_rows(pieces: Iterable[bytes], is_quoted: bool, name: str) -> Iterator[bytes | str]:
    """Yields whole rows of a table, many at once, and the fault of a damaged row in its place.

    Arrow reads on after an open quote, takes what follows a closing quote as text, and ends rows at single
    carriage returns, which pandas does not quote.
    """
    rest, row_end, row = b"", b"", _CSV_ROW if is_quoted else re.compile(rb"[^\r\n]*+")
    for piece in chain(pieces, [None]):
        rest += piece or b""
        if piece is not None and len(rest) < _CSV_PART:  # large parts are faster
            continue
        if not row_end:
            end = next(row.finditer(rest)).end()
            row_end = b"\r" if re.match(rb"\r[^\n]", rest[end : end + 2]) else b"\n"
            pattern, other_end = _ROW_ENDS[row_end]
            rows = re.compile(rb"(?:%b%b)*+" % (row.pattern, pattern))
        if piece is None:
            rest = rest and rest.removesuffix(row_end) + row_end  # the last row may have none
        while rest:
            if (is_quoted and b'"' in rest) or other_end.search(rest):
                end = next(rows.finditer(rest)).end()
                stop = next(row.finditer(rest, end)).end()  # of the whole fields of the next row
            else:
                end = rest.rfind(row_end) + 1
                stop = len(rest)
            if end:
                yield rest[:end]
            line_end = rest.find(row_end, stop) + 1
            if rest[stop : stop + 2] in (b"", b"\r") or rest[stop : stop + 1] == b'"' or not line_end:
                rest = rest[end:]
                break
            if rest[stop - 2 : stop] == b'\\"':
                advice = 'double them (in Spark: option("escape", "\\"")), or write Parquet'
                raise _FinalError(f"{name} must not have backslashes before quotes; {advice}")
            faults = {b"\r": "an unquoted carriage return", b"\n": "an unquoted line feed"}
            yield f"has {faults.get(rest[stop : stop + 1], 'text behind a closing quote')}"
            rest = rest[line_end:]
        if len(rest) > 4 * MAX_LINE:
            raise UserError("the next row is longer than 4 MiB, or has an open quote")
    if rest:
        raise UserError("the next row has an open quote")


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Casts a column to another type, or raises an `ArrowInvalid` if a value changes, as "007" to 7."""
    result = column.cast(kind)
    # Every float fits a wider type; NaN differs from itself.
    is_wider = all(map(types.is_floating, (kind, column.type))) and kind.bit_width >= column.type.bit_width
    is_kept = is_wider or column.type in (kind, pa.null())
    is_kept = is_kept or (_family(column.type) == _family(kind) and result.cast(column.type).equals(column))
    if not is_kept:
        raise pa.ArrowInvalid("other values")
    return result


def _family(kind: pa.DataType) -> tuple[Any, ...]:
    """Returns what types must have in common to be cast to each other."""
    kind = kind.value_type if types.is_dictionary(kind) else kind
    tests = (types.is_primitive, types.is_boolean, types.is_temporal, types.is_decimal, types.is_nested)
    inner = [_family(kind.field(number).type) for number in range(kind.num_fields)]
    return *(test(kind) for test in tests), getattr(kind, "tz", None), inner


def _parsed(lines: Sequence[bytes | None], text_column: str) -> list[dict[str, Any]]:
    """Parses JSON lines, many at once, or raises a `ValueError` if one is no object with a text or null."""
    text = decoded(None if None in lines else b"\n".join(filter(None, lines)))
    with suppress(AttributeError, RecursionError):
        filled = [line for line in text.split("\n") if line.strip()]
        rows = _JSON.decode(f"[{','.join(filled)}]")
        if "\\ud" in text.lower():
            json.dumps(rows, ensure_ascii=False).encode()  # an error for half a surrogate pair
        if len(rows) == len(filled) and all(isinstance(row.get(text_column), str | None) for row in rows):
            return rows
    raise ValueError("other values")


def _without_repeated(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(fields)
    if len(values) < len(fields):
        raise ValueError("a field occurs twice")
    return values


_JSON = json.JSONDecoder(object_pairs_hook=_without_repeated)
_READERS: dict[str, Callable[[TextFiles, BinaryIO, str], Iterator[pa.RecordBatch]]] = {
    **dict.fromkeys((".parquet", ".pq"), TextFiles._parquet),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), TextFiles._arrow),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), TextFiles._json_lines),
    ".tsv": partial(TextFiles._table, delimiter="\t"),
    ".csv": partial(TextFiles._table, delimiter=","),
}
