"""Reads texts from files of any common format, local or remote, as Arrow record batches in bounded memory."""

import io
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import PurePosixPath
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
from absl import logging
from fsspec.core import url_to_fs
from pyarrow import compute, csv, ipc, parquet
from pyarrow import json as arrow_json

from xling_tf.bulk.record_batches import column_of_bytes, column_of_texts
from xling_tf.compressed import PACKED, unpacked
from xling_tf.corpora.line_files import MAX_LINE, Unreadable, decoded, split_blocks
from xling_tf.errors import UserError, as_user_error, one_line

_BATCH_ROWS = 4096  # rows read at once from Parquet
_CSV_BLOCK = 4 * MAX_LINE  # bytes parsed at once; a row must fit
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
                batch = self._in_utf8(batch, [self.text_column], file.name, rows - first)
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
        # The address of a remote file may end in a query.
        ending = PurePosixPath(re.sub(rf"{PACKED}(\?.*)?$", "", file.name)).suffix.lower()
        reader, bytes_before, row = _READERS.get(ending, TextFiles._lines), self.bytes_read, 0
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
        """Brings a batch's columns into the order and types of the first one's."""
        if self.schema is None:
            fields = [batch.schema.field(column) for column in self._chosen(batch.schema.names, name)]
            self.schema = pa.schema([column.with_nullable(True).remove_metadata() for column in fields])
        expected, columns = (
            ", ".join(f"{f.name} {f.type}" for f in schema) for schema in (self.schema, batch.schema)
        )
        message = (
            f"{name} must have the columns of the files before it, {expected}, but has {columns}; choose "
            "common ones with --columns"
        )
        with as_user_error(message, KeyError, pa.ArrowException):
            if self.columns is None and len(batch.schema) != len(self.schema):
                raise KeyError("other columns")
            return batch.select(self.schema.names).replace_schema_metadata(None).cast(self.schema)

    def _lines(self, stream: BinaryIO, name: str) -> Iterator[pa.RecordBatch]:
        number = 0
        for block in split_blocks(unpacked(stream, name), b"\n", MAX_LINE):
            if number == 0 and block[0]:
                block[0] = block[0].removeprefix(b"\xef\xbb\xbf")
            # Decoding all lines at once is faster.
            joined = b"\n".join([line or b"" for line in block])
            whole = Unreadable.TOO_LONG if None in block else decoded(joined)
            is_sound = not isinstance(whole, Unreadable)
            texts = whole.split("\n") if is_sound else self._sound(block, name, number)
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
        pieces, head = unpacked(stream, name), bytearray()
        for piece in pieces:
            head += piece
            if len(head) > 2 * _CSV_BLOCK:  # more than the first block, which tells the names of columns
                break
        if not head.strip():
            return
        is_quoted = delimiter == ","

        def skip(row: csv.InvalidRow) -> str:
            message = f"has {row.actual_columns} columns, not {row.expected_columns}"
            self._damaged("row", f"row {row.number} of {name} {message}")
            return "skip"

        def open_table(file: Any, skip: Any, **conversion: Any) -> csv.CSVStreamingReader:
            return csv.open_csv(
                file,
                csv.ReadOptions(
                    block_size=_CSV_BLOCK, autogenerate_column_names=not self.header, use_threads=False
                ),
                csv.ParseOptions(
                    delimiter=delimiter,
                    quote_char=is_quoted and '"',
                    newlines_in_values=is_quoted,
                    invalid_row_handler=skip,
                ),
                csv.ConvertOptions(**conversion),
            )

        names = open_table(io.BytesIO(head), lambda row: "skip").schema.names
        columns = self._chosen(names, name)
        whole = io.BufferedReader(_Pieces(chain([bytes(head)], pieces)), 1 << 18)
        types = dict.fromkeys(names, pa.binary())
        reader = open_table(
            whole, skip if self.skip_damaged else None, column_types=types, include_columns=columns
        )
        schema, row = pa.schema([(column, pa.string()) for column in columns]), 0
        for batch in reader:
            yield self._in_utf8(batch, columns, name, row).cast(schema)
            row += len(batch)

    def _json_lines(self, stream: BinaryIO, name: str) -> Iterator[pa.RecordBatch]:
        schema, number = None, 0
        for block in split_blocks(unpacked(stream, name), b"\n", MAX_LINE):
            schema = schema or self._json_schema(block, name)
            try:
                yield from _parsed(block, schema)
            except ValueError:
                for line_number, line in enumerate(block, number + 1):
                    try:
                        yield from _parsed([line], schema)
                    except ValueError:
                        text = decoded(line)
                        fault = text if isinstance(text, Unreadable) else "no JSON like the others"
                        self._damaged("row", f"line {line_number} of {name} is {fault}")
            number += len(block)

    def _json_schema(self, block: Sequence[bytes | None], name: str) -> pa.Schema | None:
        """Returns the types of the first lines' fields; strings for texts and where the type is unclear."""
        for lines in (block, *([line] for line in block)):
            try:
                schema = next(_parsed(lines)).schema
            except (ValueError, StopIteration):
                continue
            columns = self._chosen(schema.names, name)
            is_clear = [not (pa.types.is_null(t) or pa.types.is_timestamp(t)) for t in schema.types]
            kinds = {
                column.name: column.type if clear and column.name != self.text_column else pa.string()
                for column, clear in zip(schema, is_clear, strict=True)
            }
            return pa.schema([(column, kinds[column]) for column in columns])
        return None

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
        for batch in batches:
            yield batch.select(chosen)

    def _in_utf8(self, batch: pa.RecordBatch, columns: list[str], name: str, row: int) -> pa.RecordBatch:
        """Leaves out the rows where one of the columns is not UTF-8; `row` counts earlier rows."""
        values = [column_of_bytes(batch, column) for column in columns]
        try:
            for column in values:
                column.cast(pa.large_string())
            return batch
        except pa.ArrowInvalid:
            pass
        rows = zip(*(column.fill_null(b"").to_pylist() for column in values), strict=True)
        is_sound = [not any(isinstance(decoded(value), Unreadable) for value in values) for values in rows]
        for number in np.flatnonzero(np.logical_not(is_sound)) + row + 1:
            self._damaged("row", f"row {number} of {name} is {Unreadable.NOT_UTF8}")
        return batch.filter(pa.array(is_sound))


class _Pieces(io.RawIOBase):
    """A stream of pieces of bytes as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._piece = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._piece:
            self._piece = memoryview(next(self._pieces, b""))
        size = min(len(buffer), len(self._piece))
        buffer[:size], self._piece = self._piece[:size], self._piece[size:]
        return size


def _parsed(lines: Sequence[bytes | None], schema: pa.Schema | None = None) -> Iterator[pa.RecordBatch]:
    """Parses JSON lines, or raises a `ValueError`; a line that is too long, None, is not JSON either."""
    content = b"\n".join(b"?" if line is None else line for line in lines)
    if not content.decode().strip():  # Arrow does not check that JSON is UTF-8
        return
    extra = "infer" if schema is None else "ignore"
    table = arrow_json.read_json(
        io.BytesIO(content),
        arrow_json.ReadOptions(use_threads=False, block_size=len(content) + 1),
        arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=extra),
    )
    yield from table.to_batches()


_READERS: dict[str, Callable[[TextFiles, BinaryIO, str], Iterator[pa.RecordBatch]]] = {
    **dict.fromkeys((".parquet", ".pq"), TextFiles._parquet),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), TextFiles._arrow),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), TextFiles._json_lines),
    ".tsv": partial(TextFiles._table, delimiter="\t"),
    ".csv": partial(TextFiles._table, delimiter=","),
}
