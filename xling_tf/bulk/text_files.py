"""Reads texts of any common format, local or remote, as Arrow batches in bounded memory."""

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import PurePosixPath
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
from absl import logging
from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from pyarrow import parquet, types

from xling_tf.bulk.record_batches import column_of_texts
from xling_tf.client.texts import is_blank
from xling_tf.compressed import PACKED, unpacked
from xling_tf.corpora.line_files import MAX_LINE, Unreadable, decoded, json_object, split_blocks
from xling_tf.errors import UserError, as_user_error, one_line

_BATCH_ROWS = 4096  # rows read at once from Parquet
_TEXT_ROWS = 1024  # rows read at once from text
_MAX_ROW = 4 * MAX_LINE  # of such a table
_DAMAGE = (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, UserError)


class InputFile(NamedTuple):
    """A file on a file system of fsspec."""

    name: str
    size: int  # bytes
    version: str  # changes with the content; "" if the file system has no such value
    open: Callable[[], BinaryIO]
    state: Callable[[], tuple[int, str]] | None = None  # asks for the size and the version of now

    @property
    def is_local(self) -> bool:
        """Whether the file is on this machine, where asking for its state costs nothing."""
        return "://" not in self.name


class _FinalError(UserError):
    """An error that `skip_damaged` does not skip."""


def find_files(patterns: Sequence[str]) -> list[InputFile]:
    """Finds the files that match each pattern, in order of pattern and name.

    Raises:
        UserError: A pattern matches no file, or the name of a file does not tell its format.
    """
    files: dict[str, InputFile] = {}
    for pattern in patterns:
        message = f"{pattern} cannot be looked up: {{error}}; correct the name"
        with as_user_error(message, ImportError, OSError, ValueError):
            system, path = url_to_fs(pattern)
            matches = (
                {path: system.info(path)} if system.isfile(path) else system.glob(path, detail=True)
            )
        matches = {path: info for path, info in sorted(matches.items()) if info["type"] == "file"}
        if not matches:
            raise UserError(f"expected files, but {pattern!r} matches none; correct it")
        for path, info in matches.items():
            name = path if "file" in system.protocol else system.unstrip_protocol(path)
            _reader(name)  # an error for an unclear name
            opened, state = partial(system.open, path, "rb"), partial(_state_now, system, path)
            files[name] = InputFile(name, *_state(info), opened, state)
    return list(files.values())


def _state(info: Mapping[str, Any]) -> tuple[int, str]:
    """Returns a file's size and version of what fsspec knows about it."""
    version = str(info.get("mtime") or info.get("ETag") or info.get("LastModified") or "")
    return info["size"] or 0, version


def _state_now(system: AbstractFileSystem, path: str) -> tuple[int, str]:
    system.invalidate_cache()
    return _state(system.info(path))


@dataclass
class TextFiles:
    """Reads the rows of files one after another.

    The ending of a file's name tells its format, see `_READERS`; texts may be compressed.
    """

    files: Sequence[InputFile]
    text_column: str  # the only column of plain lines
    columns: Sequence[str] | None = None  # to keep; None keeps all
    # False if tables do not begin with the names of their columns, which are then f0, f1, ...
    header: bool = True
    skip_damaged: bool = False  # skips and counts damaged rows, and the rest of damaged files
    schema: pa.Schema | None = None  # the columns' types, which the first rows set
    # Counts of "empty texts", "damaged rows" and "damaged files".
    counts: Counter[str] = field(default_factory=Counter)
    bytes_read: int = 0

    def batches(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """Yields the rows after the first ones, which are also read, checked and counted."""
        for file in self.files:
            bytes_before = self.bytes_read
            for batch in self._read(file):
                texts = column_of_texts(batch, self.text_column).fill_null("")
                self.counts["empty texts"] += sum(map(is_blank, texts.to_pylist()))
                if len(selected := self._selected(batch, file.name)) > skip:
                    yield selected.slice(skip)
                skip = max(0, skip - len(selected))
            self.bytes_read = bytes_before + file.size

    def _read(self, file: InputFile) -> Iterator[pa.RecordBatch]:
        """Yields the sound rows of a file, with all columns or the chosen ones."""
        reader, bytes_before, row = _reader(file.name), self.bytes_read, 0
        # Remote systems may tell more of a single file than of those that match a pattern.
        state = (file.size, file.version) if file.is_local else _current(file)
        try:
            with file.open() as stream:
                for batch in reader(self, stream, file.name):
                    batch.validate(full=True)  # strings in Parquet may be other bytes
                    if file.is_local:
                        _require_unchanged(file, state)
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
            _require_unchanged(file, state)  # a mix of two contents looks damaged
            self._damaged("file", f"{file.name} is damaged after row {row}: {one_line(error)}")
        else:
            _require_unchanged(file, state)

    def _damaged(self, kind: str, message: str) -> None:
        """Counts a damaged "row" or "file", or raises an error."""
        if not self.skip_damaged:
            raise _FinalError(
                f"{message}; repair the file, or encode the rest of it with `skip_damaged`"
            )
        self.counts[f"damaged {kind}s"] += 1
        if kind == "file" or self.counts[f"damaged {kind}s"] == 1:
            logging.warning("%s; skipped", message)

    def _chosen(self, columns: list[str], name: str) -> list[str]:
        """Returns the columns of a file to read: the text's and those to keep."""
        wanted = list(dict.fromkeys([self.text_column, *(self.columns or [])]))
        if missing := [column for column in wanted if column not in columns]:
            names = ", ".join(columns)
            raise _FinalError(
                f"{name} must have the column {missing[0]}, but has only {names}; name one of these"
            )
        chosen = list(columns) if self.columns is None else wanted
        if repeated := [column for column in chosen if columns.count(column) > 1]:
            raise _FinalError(
                f"{name} must have only one column {repeated[0]!r}, but has several; rename one, "
                "or choose others with `columns`"
            )
        return chosen

    def _selected(self, batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
        """Brings a batch's columns into the order and types of the first; nulls become strings."""
        if self.schema is None:
            fields = {k: batch.schema.field(k).type for k in self._chosen(batch.schema.names, name)}
            fields |= {key: t.value_type for key, t in fields.items() if types.is_dictionary(t)}
            self.schema = pa.schema(
                {f: pa.string() if types.is_null(t) else t for f, t in fields.items()}
            )
        before, here = (
            ", ".join(f"{f.name} {f.type}" for f in s) for s in (self.schema, batch.schema)
        )
        message = (
            f"{name} must have the columns of earlier rows, {before}, but has {here}; choose "
            "common ones with `columns`"
        )
        with as_user_error(message, KeyError, pa.ArrowException):
            if self.columns is None and len(batch.schema) != len(self.schema):
                raise KeyError("other columns")
            arrays = [_cast(batch.column(column.name), column.type) for column in self.schema]
            return pa.record_batch(arrays, schema=self.schema)

    def _parsed(
        self, blocks: Iterable[list[Any]], parse: Callable[[list[Any]], list[Any]], name: str
    ) -> Iterator[list[Any]]:
        """Yields blocks of parsed rows; single rows if `parse` raises a `UserError`."""
        before = 0
        for block in blocks:
            try:
                parsed = parse(block)
            except UserError:
                parsed = []
                for number, row in enumerate(block, before + 1):
                    try:
                        parsed += parse([row])
                    except UserError as error:
                        self._damaged("row", f"row {number} of {name} {error}")
            yield parsed
            before += len(block)

    def _lines(self, stream: BinaryIO, name: str) -> Iterator[pa.RecordBatch]:
        lines = split_blocks(unpacked(stream, name), b"\n", MAX_LINE)
        for block in self._parsed(lines, _texts, name):
            column = pa.array([text.removesuffix("\r") for text in block], pa.string())
            yield pa.record_batch([column], [self.text_column])

    def _table(self, stream: BinaryIO, name: str, delimiter: str) -> Iterator[pa.RecordBatch]:
        rows = _table_rows(unpacked(stream, name), delimiter)
        first: Any = next(filter(None, rows) if self.header else rows, None)
        if first is None:
            return
        if isinstance(first, UserError):
            raise UserError(f"its first row {first}")
        if self.header:
            _require_utf8(first, "its header ")
        else:
            rows = chain([first], rows)
        names = first if self.header else [f"f{number}" for number in range(max(1, len(first)))]
        columns = self._chosen(names, name)
        places = [names.index(column) for column in columns]

        def chosen(rows: list[list[str] | UserError]) -> list[list[str]]:
            cells = []
            for row in rows:
                if isinstance(row, UserError):
                    raise row
                if len(row) != len(names):
                    raise UserError(f"has {len(row)} columns, not {len(names)}")
                cells.append([row[place] for place in places])
            _require_utf8(chain.from_iterable(cells))
            return cells

        # An empty line of a single column is an empty text.
        blocks = _blocks((row or [""] for row in rows) if len(names) == 1 else filter(None, rows))
        for block in self._parsed(blocks, chosen, name):
            if block:
                arrays = [pa.array(texts, pa.string()) for texts in zip(*block, strict=True)]
                yield pa.record_batch(arrays, columns)

    def _json_lines(self, stream: BinaryIO, name: str) -> Iterator[pa.RecordBatch]:
        columns: list[str] = []

        def parse(lines: list[bytes | None]) -> list[dict[str, Any] | None]:
            return [_json_object(text, self.text_column) for text in _texts(lines)]

        lines = chain.from_iterable(split_blocks(unpacked(stream, name), b"\n", MAX_LINE))
        for block in self._parsed(_blocks(lines), parse, name):
            arrays, rows = {}, [row for row in block if row is not None]
            if not rows:
                continue
            columns = self._chosen(list(dict.fromkeys(chain(columns, *rows))), name)
            for key in columns:
                try:
                    arrays[key] = pa.array([row.get(key) for row in rows])
                except (
                    pa.ArrowException,
                    OverflowError,
                ) as error:  # not damage: the rows are sound
                    expected = (
                        f"{name} must have values of one type in the field {key}, but has others "
                        f"({one_line(error)})"
                    )
                    advice = (
                        "choose other fields with `columns`, or write all its values as strings"
                    )
                    raise _FinalError(f"{expected}; {advice}") from error
            yield pa.record_batch(arrays)

    def _parquet(self, stream: BinaryIO, name: str) -> Iterator[pa.RecordBatch]:
        # Without buffering ahead, which would hold whole row groups.
        file = parquet.ParquetFile(stream, pre_buffer=False, buffer_size=1 << 20)
        columns = self._chosen(file.schema_arrow.names, name)
        yield from file.iter_batches(_BATCH_ROWS, columns=columns)


def _current(file: InputFile) -> tuple[int, str]:
    """Returns the state of a file now; of one that cannot be asked, as it was found."""
    if file.state is None:
        return file.size, file.version
    try:
        return file.state()
    except OSError as error:
        reason = one_line(error) or type(error).__name__
        message = f"{file.name} cannot be read: {reason}; run the same command again"
        raise _FinalError(message) from error


def _require_unchanged(file: InputFile, state: tuple[int, str]) -> None:
    """Raises an error if a file has changed: rows of two contents would be those of neither."""
    if _current(file) != state:
        raise _FinalError(
            f"{file.name} must stay the same while it is read, but was changed; start again with "
            "another folder when nothing writes to it"
        )


def _reader(name: str) -> Callable[[TextFiles, BinaryIO, str], Iterator[pa.RecordBatch]]:
    """Returns the reader for the ending of a file's name."""
    plain = re.sub(r"(https?://[^?]*)\?.*", r"\1", name)  # an address may end in a query
    path = PurePosixPath(re.sub(f"{PACKED}$", "", plain).lower())
    formats = "|".join(map(re.escape, (*_READERS, ".arrow", ".feather", ".ipc")))
    other = re.search(rf"({formats})(?![a-z0-9])", name.lower().rpartition("/")[2])
    if other and path.suffix not in _READERS:
        expected = f"end in {', '.join(_READERS)}, or have no such ending in its name"
        raise UserError(f"{name} must {expected}; rename it, or write it as Parquet")
    return _READERS.get(path.suffix, TextFiles._lines)


def _blocks(rows: Iterable[Any]) -> Iterator[list[Any]]:
    """Yields blocks of rows; an error in `rows` comes after the rows before it."""
    block: list[Any] = []
    try:
        for row in rows:
            block.append(row)
            if len(block) == _TEXT_ROWS:
                yield block
                block = []
    except UserError:
        yield block
        raise
    yield block


def _texts(lines: list[bytes | None]) -> list[str]:
    """Decodes lines; raises a `UserError` if one of them is too long (None) or not UTF-8."""
    text = decoded(None if None in lines else b"\n".join(lines))  # type: ignore[arg-type]
    if isinstance(text, Unreadable):
        raise UserError(f"is {text}")
    return text.split("\n")


def _require_utf8(cells: Iterable[str], place: str = "") -> None:
    """Raises a `UserError` if `_table_rows` found other bytes than UTF-8 in cells, or NUL."""
    if isinstance(decoded("\n".join(cells).encode("utf-8", "surrogateescape")), Unreadable):
        raise UserError(f"{place}is {Unreadable.NOT_UTF8}")


def _table_rows(pieces: Iterable[bytes], delimiter: str) -> Iterator[list[str] | UserError]:
    """Yields the cells of a table's rows, [] for an empty line, the fault of a damaged one."""
    too_long = UserError("the next row is longer than 4 MiB, or has an open quote")

    def lines() -> Iterator[str]:
        for line in chain.from_iterable(split_blocks(pieces, b"\n", _MAX_ROW)):
            if line is None:
                raise too_long
            yield (line + b"\n").decode("utf-8", "surrogateescape")

    quoting: Any = csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE
    rows = csv.reader(lines(), delimiter=delimiter, quoting=quoting, strict=True)
    cells: Any = []
    while cells is not None:
        limit = csv.field_size_limit(_MAX_ROW)  # of the whole process
        try:
            cells = next(rows, None)
        except csv.Error as error:
            if "unquoted" in str(error):
                cells = UserError("has an unquoted carriage return")
            elif "expected after" in str(error):
                advice = 'quotes in a text must be doubled (in Spark: option("escape", "\\""))'
                cells = UserError(f"has text behind a closing quote; {advice}")
            else:
                raise too_long from error
        finally:
            csv.field_size_limit(limit)
        if cells is not None:
            yield cells


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Casts a column to earlier rows' type, or raises an `ArrowInvalid` if values could change."""
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    both = column.type, kind
    families = (types.is_signed_integer, types.is_unsigned_integer, types.is_floating)
    is_wider = any(all(map(f, both)) for f in families) and kind.bit_width >= column.type.bit_width
    is_text = all(types.is_string(t) or types.is_large_string(t) for t in both)
    if not (is_wider or is_text or column.type in (kind, pa.null())):
        raise pa.ArrowInvalid("other values")
    return column.cast(kind)


def _json_object(text: str, text_column: str) -> dict[str, Any] | None:
    """Parses a line of JSON (None if empty); it must be an object with a text or null."""
    if not text.strip():
        return None
    with suppress(RecursionError, ValueError):
        row = json_object(text)
        if "\\ud" in text.lower():
            json.dumps(row, ensure_ascii=False).encode()  # an error for half a surrogate pair
        if isinstance(row.get(text_column), str | None):
            return row
    raise UserError("is not a JSON object with a text and distinct keys")


_READERS: dict[str, Callable[[TextFiles, BinaryIO, str], Iterator[pa.RecordBatch]]] = {
    **dict.fromkeys((".parquet", ".pq"), TextFiles._parquet),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), TextFiles._json_lines),
    ".tsv": partial(TextFiles._table, delimiter="\t"),
    ".csv": partial(TextFiles._table, delimiter=","),
}
