"""One reader per corpus format: text in, records and an account of what was left out.

Mined hard negatives lie beside a corpus: `hard_negatives/NAME.SRC-TGT.tsv.gz` belongs to the corpus
NAME of `parallel/`. A line is `source TAB target TAB negative TAB ...`, in the order of the corpus, so
that neither has to be in memory for the join; pairs without negatives have no line.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Generic, TypeVar

from xling_tf.corpora.line_files import Unreadable, read_every_line, read_lines, write_lines
from xling_tf.corpora.records import (
    NLI_LABELS,
    InferencePair,
    Record,
    ResponsePair,
    SentenceTriplet,
    SimilarityPair,
    TranslationPair,
)
from xling_tf.corpora.split import text_hash
from xling_tf.errors import UserError

MINED_FOLDER = "hard_negatives"
_NUM_FIRST_LINES = 5
_LARGEST_GRADE = 1e9
_MAX_DOCUMENT = 1 << 25  # bytes of its sentences in memory

R = TypeVar("R", bound=Record)


class MalformedLineError(Exception):
    """Raised by a line parser; its text is the reason under which the line is counted."""


@dataclass(eq=False)
class Reading(Generic[R]):
    """The records of a file, read once as they are asked for, and an account of what was left out.

    `rows` yields each record with its document's key, or None, and tells the reading of each line that
    is left out. `expected` says what the file holds, `unit` what is numbered, for messages.
    """

    path: Path
    expected: str
    rows: Callable[["Reading[R]"], Iterator[tuple[R, str | None]]]
    unit: str = "line"
    num_records: int = 0
    malformed: Counter[str] = field(default_factory=Counter)  # lines left out, by reason
    # Numbers from 1 of the first few of these.
    first_lines: dict[str, tuple[int, ...]] = field(default_factory=dict)
    first_bad: str = ""

    def __iter__(self) -> Iterator[tuple[R, str | None]]:
        """Reads the file; a `UserError` where it cannot be read to its end."""
        for row in self.rows(self):
            self.num_records += 1
            yield row

    def leave_out(self, reason: str, number: int, line: str | None) -> None:
        """Counts a line that gives no record."""
        self.malformed[reason] += 1
        if self.malformed[reason] <= _NUM_FIRST_LINES:
            self.first_lines[reason] = (*self.first_lines.get(reason, ()), number)
        if line is not None and not self.first_bad:
            self.first_bad = f"; {self.unit} {number} is {line[:80]!r}"

    def summary(self) -> str:
        """Returns the account in one line."""
        left_out = f"; {self.unit}s left out: {self._left_out()}" if self.malformed else ""
        return f"{self.path}: {self.num_records} records{left_out}"

    def nothing_usable(self) -> UserError:
        """Makes the error of a file without a record."""
        advice = "correct the file or take it out of the folder"
        if self.malformed[str(Unreadable.NOT_UTF8)] * 2 > self.malformed.total():
            advice = "convert it with `iconv -f ENCODING -t UTF-8`"
        return UserError(
            f"{self.path} must hold {self.expected}, but has no usable record: "
            f"{self._left_out() or 'nothing of that kind in it'}{self.first_bad}; {advice}"
        )

    def _left_out(self) -> str:
        firsts = {reason: ", ".join(map(str, lines)) for reason, lines in self.first_lines.items()}
        return "; ".join(
            f"{count} {reason} (first {self.unit}s: {firsts[reason]})"
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


def read_similarity(path: Path) -> Reading[SimilarityPair]:
    """Reads a table of sentence pairs that people have graded: STS Benchmark's, SICK's, your own.

    The first line names the columns: sentence1, sentence2 and score (SICK: relatedness). Grades may
    have any scale; a pair has them in percent of the range that the file has.
    """

    def rows(reading: Reading[SimilarityPair]) -> Iterator[tuple[SimilarityPair, None]]:
        lines = read_lines(path)
        names = str(next(lines, (1, ""))[1]).split("\t")
        grade = "relatedness" if "relatedness" in names else "score"
        if not {"sentence1", "sentence2", grade} <= {*names}:
            raise UserError(
                f"{path} must name the columns sentence1, sentence2 and score in its first line, but that "
                f"is {chr(9).join(names)[:80]!r}; add the line, with tabs between the names"
            )
        pairs: list[tuple[str, str]] = []
        grades: list[float] = []
        for number, line in lines:
            if isinstance(line, Unreadable):
                reading.leave_out(str(line), number, None)
                continue
            try:
                row = dict(zip(names, _columns(line, len(names)), strict=True))
                value = float(row[grade])
                if not abs(value) < _LARGEST_GRADE:
                    raise ValueError
            except MalformedLineError as error:
                reading.leave_out(str(error), number, line)
            except ValueError:
                reading.leave_out(f"{grade} that is no number", number, line)
            else:
                pairs.append((row["sentence1"], row["sentence2"]))
                grades.append(value)
        low, high = min(grades, default=0.0), max(grades, default=0.0)
        for pair, value in zip(pairs, grades, strict=True):
            yield SimilarityPair(*pair, round(100 * (value - low) / (high - low or 1))), None

    return Reading(path, "graded pairs below a line with the names of the columns", rows)


def read_documents(path: Path) -> Reading[SentenceTriplet]:
    """Reads a sentence a line, a blank line between documents, into its contiguous triplets.

    Their keys are digests of the documents, of those beyond 32 MiB of that much of them. A line that
    cannot be read is a gap that none spans.
    """

    def rows(reading: Reading[SentenceTriplet]) -> Iterator[tuple[SentenceTriplet, str]]:
        for key, document in _documents(path, reading):
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
            if isinstance(source, Unreadable) or isinstance(target, Unreadable):
                fault = source if isinstance(source, Unreadable) else target
                reading.leave_out(str(fault), counts[0], None)
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
    """Reads a file of one record a line; `parse` makes one or raises `MalformedLineError`."""

    def rows(reading: Reading[R]) -> Iterator[tuple[R, None]]:
        for number, line in read_lines(path):
            if isinstance(line, Unreadable):
                reading.leave_out(str(line), number, None)
                continue
            try:
                yield parse(line), None
            except MalformedLineError as error:
                reading.leave_out(str(error), number, line)

    return Reading(path, expected, rows)


def label_index(label: str) -> int:
    """Returns the index of a label in `NLI_LABELS`; a `MalformedLineError` if it is none of them."""
    if label == "not_entailment":
        raise MalformedLineError("two-way label not_entailment")
    if label not in NLI_LABELS:
        raise MalformedLineError("unknown label")
    return NLI_LABELS.index(label)


def _columns(line: str, num_columns: int) -> list[str]:
    columns = [column.strip() for column in line.split("\t")]
    if len(columns) != num_columns:
        raise MalformedLineError(f"not {num_columns} columns")
    if not all(columns):
        raise MalformedLineError("empty column")
    return columns


def _documents(path: Path, reading: Reading[Any]) -> Iterator[tuple[str, list[str]]]:
    # Yields each document's key and sentences, with "" in place of a line that cannot be read. What is
    # too large to be held comes in parts of one key, which share the two sentences where they meet.
    document: list[str] = []
    key, size = "", 0
    for number, line in read_lines(path):
        if isinstance(line, Unreadable):
            reading.leave_out(str(line), number, None)
            document.append("")
        elif sentence := line.strip():
            document.append(sentence)
        else:
            yield key or _digest(document), document
            document, key, size = [], "", 0
            continue
        size += sys.getsizeof(document[-1])
        if size > _MAX_DOCUMENT:
            key = key or _digest(document)
            yield key, document
            document, size = document[-2:], 0
    yield key or _digest(document), document


def _digest(document: list[str]) -> str:
    return f"{text_hash(' '.join(document)):x}"


def mined_path(data: Path, name: str, languages: str) -> Path:
    """Names the mined file of a corpus of a data folder; languages are as in "en-es"."""
    return data / MINED_FOLDER / f"{name}.{languages}.tsv.gz"


def write_mined(path: Path, pairs: Iterable[TranslationPair]) -> None:
    """Writes pairs with negatives, in the order of their corpus, whole or not at all."""
    rows = ((source, target, *negatives) for source, target, negatives in pairs)
    write_lines(path, ("\t".join(map(_cell, row)) for row in rows))


def read_mined(path: Path) -> Iterator[TranslationPair]:
    """Yields the pairs of a mined file; a line without a negative is a `UserError`."""
    for number, line in read_every_line(path):
        cells = line.split("\t")
        if len(cells) < 3 or not all(cells):
            raise UserError(
                f"{path} must hold lines of source TAB target TAB negative ..., but line {number} is "
                f"{line[:80]!r}; delete the file and mine it again with data/mine.py"
            )
        yield TranslationPair(cells[0], cells[1], tuple(cells[2:]))


def with_negatives(pairs: Iterable[TranslationPair], path: Path) -> Iterator[TranslationPair]:
    """Yields the pairs of a corpus, in its order, with the negatives that were mined for them.

    After the last one, a mined pair that the corpus has not, or not there, is a `UserError`.
    """
    mined = read_mined(path)
    awaited = next(mined, None)
    for pair in pairs:
        if awaited and (_cell(pair.source), _cell(pair.target)) == awaited[:2]:
            yield pair._replace(negatives=awaited.negatives)
            awaited = next(mined, None)
        else:
            yield pair
    if awaited:
        languages = path.name.removesuffix(".tsv.gz").rpartition(".")[2].split("-")
        raise UserError(
            f"{path} must have pairs of its corpus in their order, but {awaited.source[:80]!r} is "
            "not in the corpus, or not after those before it: the corpus has changed; "
            + mining_command(path.parents[1], *languages)
        )


def _cell(text: str) -> str:
    # What a reader of lines gives back: a Moses file may have tabs in a line.
    return text.replace("\t", " ").strip(" ")


def mining_command(data: Path, source: str, target: str) -> str:
    """What to do where mined negatives are missing, for messages."""
    return (
        f"mine with `python data/mine.py --model exported/translation-ranking-{source}-{target} "
        f"--data {data} --source {source} --target {target}`"
    )
