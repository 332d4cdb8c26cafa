"""One reader per corpus format: text in, records and an account of what was left out."""

import gzip
import hashlib
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from io import BufferedReader
from itertools import zip_longest
from pathlib import Path
from typing import Generic, TypeVar

from xling_tf.corpora.records import (
    NLI_LABELS,
    InferencePair,
    ResponsePair,
    SentenceTriplet,
    TranslationPair,
)
from xling_tf.errors import UserError

NOT_UTF8 = "not UTF-8"
_NUM_FIRST_LINES = 5
_BLOCK_LINES = 4096

R = TypeVar("R")


class MalformedLineError(Exception):
    """Raised by a line parser; its text is the reason under which the line is counted."""


@dataclass(frozen=True, kw_only=True)
class ReadReport:
    """What a reader kept and what it left out.

    Attributes:
        path: The file read (of a Moses pair, the source side).
        num_records: How many records came out.
        malformed: How many lines were left out, by reason.
        first_lines: The numbers (from 1) of the first few of these lines, by reason.
    """

    path: Path
    num_records: int
    malformed: Mapping[str, int] = field(default_factory=dict)
    first_lines: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def summary(self) -> str:
        """Returns the account in one line."""
        left_out = f"; lines left out: {self.left_out()}" if self.malformed else ""
        return f"{self.path}: {self.num_records} records{left_out}"

    def left_out(self) -> str:
        """Returns the reasons, counts and first line numbers in one phrase."""
        return "; ".join(
            f"{count} {reason} (first lines: {', '.join(map(str, self.first_lines[reason]))})"
            for reason, count in self.malformed.items()
        )


@dataclass(frozen=True, kw_only=True)
class ReadResult(Generic[R]):
    """The records of one file.

    Attributes:
        records: The records in file order.
        report: What was kept and what was left out.
        groups: For each record the key of the document it came from, or None where records stand
            alone. Records with equal keys must not be separated by a split.
    """

    records: list[R]
    report: ReadReport
    groups: list[str] | None = None


def read_parallel(path: Path) -> ReadResult[TranslationPair]:
    """Reads `source TAB target` lines.

    Raises:
        UserError: No line is usable, or the file cannot be read to its end.
    """
    expected = "lines of source TAB target"
    return read_records(path, expected, lambda line: TranslationPair(*_columns(line, 2)))


def read_conversations(path: Path) -> ReadResult[ResponsePair]:
    """Reads `message TAB response` lines; errors are those of `read_parallel`."""
    expected = "lines of message TAB response"
    return read_records(path, expected, lambda line: ResponsePair(*_columns(line, 2)))


def read_nli(path: Path) -> ReadResult[InferencePair]:
    """Reads `label TAB premise TAB hypothesis` lines; errors are those of `read_parallel`.

    Of two-way sets only "entailment" is usable: "not_entailment" is one of two others.
    """

    def parse(line: str) -> InferencePair:
        label, premise, hypothesis = _columns(line, 3)
        return InferencePair(premise, hypothesis, label_index(label))

    expected = f"lines of label TAB premise TAB hypothesis (label: {', '.join(NLI_LABELS)})"
    return read_records(path, expected, parse)


def read_documents(path: Path) -> ReadResult[SentenceTriplet]:
    """Reads a sentence a line, a blank line between documents, into its contiguous triplets.

    Their groups are digests of the documents. A line that is not UTF-8 is a gap that none spans.

    Raises:
        UserError: No document has three contiguous sentences, or the file cannot be read.
    """
    tally = _Tally(path, "a sentence a line, in documents of three sentences or more")
    triplets: list[SentenceTriplet] = []
    groups: list[str] = []
    for document in _documents(path, tally):
        key = hashlib.blake2b("\n".join(document).encode(), digest_size=16).hexdigest()
        threes = zip(document, document[1:], document[2:], strict=False)
        triplets.extend(SentenceTriplet._make(three) for three in threes if all(three))
        groups.extend([key] * (len(triplets) - len(groups)))
    return ReadResult(records=triplets, report=tally.report(len(triplets)), groups=groups)


def read_moses(source_path: Path, target_path: Path) -> ReadResult[TranslationPair]:
    """Reads two files whose lines with the same number translate each other.

    Raises:
        UserError: The files differ in length, no line is usable, or one cannot be read to its end.
    """
    tally = _Tally(source_path, f"a sentence a line, translated in {target_path.name}")
    records: list[TranslationPair] = []
    counts = [0, 0]
    sides = (read_lines(source_path), read_lines(target_path))
    for (source_number, source), (target_number, target) in zip_longest(*sides, fillvalue=(0, "")):
        counts = [source_number or counts[0], target_number or counts[1]]
        if source is None or target is None:
            tally.leave_out(NOT_UTF8, counts[0], None)
        elif source and target:
            records.append(TranslationPair(source, target))
        else:
            tally.leave_out("empty side", counts[0], source or target)
    if counts[0] != counts[1]:
        raise UserError(
            f"{source_path} has {counts[0]} lines and {target_path} has {counts[1]}, but each line "
            "of one must translate the same line of the other; fetch or make them again together"
        )
    return ReadResult(records=records, report=tally.report(len(records)))


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


def read_records(path: Path, expected: str, parse: Callable[[str], R]) -> ReadResult[R]:
    """Reads a file of one record a line.

    Args:
        path: Text or, by its name, gzip.
        expected: What the file holds, for error messages.
        parse: Makes a record of a line as `read_lines` yields it, or raises `MalformedLineError`.

    Raises:
        UserError: No line is usable, or the file cannot be read to its end.
    """
    tally = _Tally(path, expected)
    records: list[R] = []
    for number, line in read_lines(path):
        if line is None:
            tally.leave_out(NOT_UTF8, number, None)
            continue
        try:
            records.append(parse(line))
        except MalformedLineError as error:
            tally.leave_out(str(error), number, line)
    return ReadResult(records=records, report=tally.report(len(records)))


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


class _Tally:
    """Counts the lines left out and, at the end, makes the report or the error of them."""

    def __init__(self, path: Path, expected: str) -> None:
        self._path = path
        self._expected = expected
        self._counts: Counter[str] = Counter()
        self._lines: dict[str, tuple[int, ...]] = {}
        self._first_bad = ""

    def leave_out(self, reason: str, number: int, line: str | None) -> None:
        self._counts[reason] += 1
        if self._counts[reason] <= _NUM_FIRST_LINES:
            self._lines[reason] = (*self._lines.get(reason, ()), number)
        if line is not None and not self._first_bad:
            self._first_bad = f"; line {number} is {line[:80]!r}"

    def report(self, num_records: int) -> ReadReport:
        report = ReadReport(
            path=self._path,
            num_records=num_records,
            malformed=self._counts,
            first_lines=self._lines,
        )
        if num_records:
            return report
        advice = "correct the file or take it out of the folder"
        if self._counts[NOT_UTF8] * 2 > self._counts.total():
            advice = "convert it with `iconv -f ENCODING -t UTF-8`, or name it .gz if it is gzip"
        raise UserError(
            f"{self._path} must hold {self._expected}, but has no usable record: "
            f"{report.left_out() or 'nothing of that kind in it'}{self._first_bad}; {advice}"
        )


def _columns(line: str, num_columns: int) -> list[str]:
    columns = [column.strip() for column in line.split("\t")]
    if len(columns) != num_columns:
        raise MalformedLineError(f"not {num_columns} columns")
    if not all(columns):
        raise MalformedLineError("empty column")
    return columns


def _documents(path: Path, tally: _Tally) -> Iterator[list[str]]:
    # Yields each document's sentences, with "" in place of a line that cannot be read.
    document: list[str] = []
    for number, line in read_lines(path):
        if line is None:
            tally.leave_out(NOT_UTF8, number, None)
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
