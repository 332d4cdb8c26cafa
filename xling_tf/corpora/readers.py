"""One reader per corpus format: text in, records and an account of what was left out."""

import gzip
import hashlib
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from io import BufferedReader
from itertools import zip_longest
from pathlib import Path
from typing import Any, Generic, TypeVar

from xling_tf.corpora.records import (
    NLI_LABELS,
    InferencePair,
    Record,
    ResponsePair,
    SentenceTriplet,
    TranslationPair,
)
from xling_tf.errors import UserError

NOT_UTF8 = "not UTF-8"
_NUM_FIRST_LINES = 5
_BLOCK_LINES = 4096

R = TypeVar("R", bound=Record)


class MalformedLineError(Exception):
    """Raised by a line parser; its text is the reason under which the line is counted."""


class Reading(Generic[R]):
    """The records of a file, read once as they are asked for, and an account of what was left out.

    Args:
        path: The file (of a Moses pair, the source side).
        expected: What it holds, for error messages.
        rows: (the reading) to each record with its document's key, or None; tells the reading of each
            line that is left out.
        unit: What is left out and numbered, where that is not a line.

    Attributes:
        num_records: How many records came out.
        malformed: How many lines were left out, by reason.
        first_lines: The numbers (from 1) of the first few of these lines, by reason.
    """

    def __init__(
        self,
        path: Path,
        expected: str,
        rows: Callable[["Reading[R]"], Iterator[tuple[R, str | None]]],
        unit: str = "line",
    ) -> None:
        self._path = path
        self._expected = expected
        self._rows = rows
        self._unit = unit
        self._first_bad = ""
        self.num_records = 0
        self.malformed: Counter[str] = Counter()
        self.first_lines: dict[str, tuple[int, ...]] = {}

    def __iter__(self) -> Iterator[tuple[R, str | None]]:
        """Reads the file.

        Raises:
            UserError: It cannot be read to its end.
        """
        for row in self._rows(self):
            self.num_records += 1
            yield row

    def leave_out(self, reason: str, number: int, line: str | None) -> None:
        """Counts a line that gives no record."""
        self.malformed[reason] += 1
        if self.malformed[reason] <= _NUM_FIRST_LINES:
            self.first_lines[reason] = (*self.first_lines.get(reason, ()), number)
        if line is not None and not self._first_bad:
            self._first_bad = f"; {self._unit} {number} is {line[:80]!r}"

    def summary(self) -> str:
        """Returns the account in one line."""
        left_out = f"; {self._unit}s left out: {self._left_out()}" if self.malformed else ""
        return f"{self._path}: {self.num_records} records{left_out}"

    def nothing_usable(self) -> UserError:
        """Makes the error of a file without a record."""
        advice = "correct the file or take it out of the folder"
        if self.malformed[NOT_UTF8] * 2 > self.malformed.total():
            advice = "convert it with `iconv -f ENCODING -t UTF-8`, or name it .gz if it is gzip"
        return UserError(
            f"{self._path} must hold {self._expected}, but has no usable record: "
            f"{self._left_out() or 'nothing of that kind in it'}{self._first_bad}; {advice}"
        )

    def _left_out(self) -> str:
        return "; ".join(
            f"{count} {reason} (first {self._unit}s: "
            f"{', '.join(map(str, self.first_lines[reason]))})"
            for reason, count in self.malformed.items()
        )


def read_parallel(path: Path) -> Reading[TranslationPair]:
    """Reads `source TAB target` lines."""
    expected = "lines of source TAB target"
    return read_records(path, expected, lambda row: TranslationPair._make([*_columns(row, 2), ()]))


def read_conversations(path: Path) -> Reading[ResponsePair]:
    """Reads `message TAB response` lines."""
    expected = "lines of message TAB response"
    return read_records(path, expected, lambda line: ResponsePair(*_columns(line, 2)))


def read_nli(path: Path) -> Reading[InferencePair]:
    """Reads `label TAB premise TAB hypothesis` lines.

    Of two-way sets only "entailment" is usable: "not_entailment" is one of two others.
    """

    def parse(line: str) -> InferencePair:
        label, premise, hypothesis = _columns(line, 3)
        return InferencePair(premise, hypothesis, label_index(label))

    expected = f"lines of label TAB premise TAB hypothesis (label: {', '.join(NLI_LABELS)})"
    return read_records(path, expected, parse)


def read_documents(path: Path) -> Reading[SentenceTriplet]:
    """Reads a sentence a line, a blank line between documents, into its contiguous triplets.

    Their keys are digests of the documents. A line that is not UTF-8 is a gap that none spans.
    """

    def rows(reading: Reading[SentenceTriplet]) -> Iterator[tuple[SentenceTriplet, str]]:
        for document in _documents(path, reading):
            key = hashlib.blake2b("\n".join(document).encode(), digest_size=16).hexdigest()
            for three in zip(document, document[1:], document[2:], strict=False):
                if all(three):
                    yield SentenceTriplet._make(three), key

    return Reading(path, "a sentence a line, in documents of three sentences or more", rows)


def read_moses(source_path: Path, target_path: Path) -> Reading[TranslationPair]:
    """Reads two files whose lines with the same number translate each other.

    That they differ in length is an error, which comes at their end.
    """

    def rows(reading: Reading[TranslationPair]) -> Iterator[tuple[TranslationPair, None]]:
        counts = [0, 0]
        sides = zip_longest(read_lines(source_path), read_lines(target_path), fillvalue=(0, ""))
        for (source_number, source), (target_number, target) in sides:
            counts = [source_number or counts[0], target_number or counts[1]]
            if source is None or target is None:
                reading.leave_out(NOT_UTF8, counts[0], None)
            elif source and target:
                yield TranslationPair(source, target), None
            else:
                reading.leave_out("empty side", counts[0], source or target)
        if counts[0] != counts[1]:
            raise UserError(
                f"{source_path} has {counts[0]} lines and {target_path} has {counts[1]}, but each "
                "line of one must translate the same line of the other; fetch or make them again "
                "together"
            )

    return Reading(source_path, f"a sentence a line, translated in {target_path.name}", rows)


def read_records(path: Path, expected: str, parse: Callable[[str], R]) -> Reading[R]:
    """Reads a file of one record a line.

    Args:
        path: Text or, by its name, gzip.
        expected: What the file holds, for error messages.
        parse: Makes a record of a line as `read_lines` yields it, or raises `MalformedLineError`.
    """

    def rows(reading: Reading[R]) -> Iterator[tuple[R, None]]:
        for number, line in read_lines(path):
            if line is None:
                reading.leave_out(NOT_UTF8, number, None)
                continue
            try:
                yield parse(line), None
            except MalformedLineError as error:
                reading.leave_out(str(error), number, line)

    return Reading(path, expected, rows)


def label_index(label: str) -> int:
    """Returns the index of an NLI label in `NLI_LABELS`.

    Raises:
        MalformedLineError: It is none of them.
    """
    if label == "not_entailment":
        raise MalformedLineError("two-way label not_entailment")
    if label not in NLI_LABELS:
        raise MalformedLineError("unknown label")
    return NLI_LABELS.index(label)


def read_lines(path: Path) -> Iterator[tuple[int, str | None]]:
    r"""Yields each line's number from 1 and its stripped NFC text, or None if it is not UTF-8.

    Only "\n" ends a line; other separators, such as U+2028, are text. Tabs are not stripped,
    because they may stand beside an empty column.

    Raises:
        UserError: The file cannot be opened, or its gzip stream is damaged.
    """
    number = 0
    block: list[bytes] = []
    try:
        with _open(path) as file:
            for raw in file:
                block.append(raw)
                if len(block) == _BLOCK_LINES:
                    yield from enumerate(_decoded(block), number + 1)
                    number += len(block)
                    block = []
        if block:
            yield from enumerate(_decoded(block), number + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(
            f"{path} must be a whole gzip file, but is truncated or corrupt gzip at line "
            f"{number + len(block) + 1} ({error}); fetch it again"
        ) from error
    except OSError as error:
        raise UserError(
            f"{path} must be a readable file, but is not ({error.strerror}); correct the path"
        ) from error


def _columns(line: str, num_columns: int) -> list[str]:
    columns = [column.strip() for column in line.split("\t")]
    if len(columns) != num_columns:
        raise MalformedLineError(f"not {num_columns} columns")
    if not all(columns):
        raise MalformedLineError("empty column")
    return columns


def _documents(path: Path, reading: Reading[Any]) -> Iterator[list[str]]:
    # Yields each document's sentences, with "" in place of a line that cannot be read.
    document: list[str] = []
    for number, line in read_lines(path):
        if line is None:
            reading.leave_out(NOT_UTF8, number, None)
            document.append("")
        elif sentence := line.strip():
            document.append(sentence)
        else:
            yield document
            document = []
    yield document


def _open(path: Path) -> gzip.GzipFile | BufferedReader:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def _decoded(block: list[bytes]) -> list[str | None]:
    # A block at a time is several times faster than a line at a time. No character composes
    # with a line feed or a tab, so normalising the block normalises each of its columns.
    text = _decoded_or_none(b"".join(block))
    lines = map(_decoded_or_none, block) if text is None else text.removesuffix("\n").split("\n")
    return [None if line is None else line.strip(" \r\n") for line in lines]


def _decoded_or_none(raw: bytes) -> str | None:
    # UTF-16 of ASCII letters is valid UTF-8 with a NUL beside each letter; no text holds NUL.
    try:
        return None if b"\0" in raw else unicodedata.normalize("NFC", raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return None
