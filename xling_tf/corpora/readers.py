"""One reader for each file format: it yields records and counts the lines that it leaves out."""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from xling_tf.client.texts import is_blank
from xling_tf.corpora.line_files import Unreadable, read_every_line, read_lines, stripped
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
from xling_tf.corpora.tables import LeftOut, read_columns
from xling_tf.errors import UserError

MINED_FOLDER = "hard_negatives"
SNLI_COLUMNS = ("gold_label", "sentence1", "sentence2")
SCORED_COLUMNS = ("sentence1", "sentence2", "score")
NO_LABEL, NO_ANSWER = "no gold label", "question without an answer"
_TWO_WAY = "not_entailment"  # in sets such as RTE-1, which have only this and entailment
# Why sound records of published sets are left out: they say nothing that a model can learn.
_SAYS_NOTHING = (NO_LABEL, NO_ANSWER, _TWO_WAY)
_MAX_DOCUMENT = 1 << 25  # bytes of sentences in memory

R = TypeVar("R", bound=Record)


class MalformedLineError(Exception):
    """Raised for a line or row without a record; the message is the reason that is counted."""


@dataclass(eq=False)
class Reading(Generic[R]):
    """The records of a file, read as they are consumed, and the count of lines left out."""

    path: Path
    expected: str  # the content that the file should have, for messages
    # Yields each record with the key of its document, or None; calls `leave_out` for other lines.
    rows: Callable[["Reading[R]"], Iterator[tuple[R, str | None]]]
    num_records: int = 0  # read so far
    malformed: LeftOut = field(default_factory=LeftOut)  # lines left out so far, by reason

    def __iter__(self) -> Iterator[tuple[R, str | None]]:
        """Reads the file; raises a `UserError` if the file cannot be read to its end."""
        for row in self.rows(self):
            self.num_records += 1
            yield row

    def converted(self, convert: Callable[[list[Any]], Iterable[Record]]) -> "Reading[Any]":
        """Returns a reading whose records are made of all records of this one."""
        read = self.rows

        def rows(reading: Reading[Any]) -> Iterator[tuple[Record, None]]:
            return ((record, None) for record in convert([record for record, _ in read(reading)]))

        return Reading(self.path, self.expected, rows)

    def summary(self) -> str:
        """Returns the numbers of records and of lines left out, in one line."""
        left_out = f"; left out: {self.malformed}" if self.malformed else ""
        return f"{self.path}: {self.num_records} records{left_out}"

    def nothing_usable(self) -> UserError:
        """Makes the error for a file without a record."""
        advice = "correct the file or remove it from the folder"
        if self.malformed[str(Unreadable.NOT_UTF8)] * 2 > self.malformed.total():
            advice = "convert it with `iconv -f ENCODING -t UTF-8`"
        return UserError(
            f"{self.path} must hold {self.expected}, but has no usable record "
            f"({str(self.malformed) or 'it is empty'}); {advice}"
        )

    def require_few_left_out(self) -> None:
        """Raises a `UserError` if a tenth of the lines is left out, and should not be."""
        self.malformed.require_few(str(self.path), self.num_records, _SAYS_NOTHING)


def read_records(
    path: Path | tuple[Path, ...],
    columns: Sequence[str],
    make: Callable[..., R],
    *,
    others: Sequence[str] = (),
    optional: int = 0,
) -> Reading[R]:
    """Reads a table with one record per row, see `read_columns`.

    `make` takes the cells, and returns the record or raises a `MalformedLineError`. Only the cells
    of the `optional` columns may be empty.
    """
    num_texts = len(columns) - optional

    def rows(reading: Reading[R]) -> Iterator[tuple[R, None]]:
        read = read_columns(path, columns, reading.malformed.add, others=others, optional=optional)
        for number, cells in read:
            try:
                if any(map(is_blank, cells[:num_texts])):
                    raise MalformedLineError("empty column")
                yield make(*cells), None
            except MalformedLineError as error:
                reading.malformed.add(str(error), number)

    first = path if isinstance(path, Path) else path[0]
    return Reading(first, f"rows of {', '.join(columns)}", rows)


def read_parallel(path: Path, languages: Sequence[str] = ()) -> Reading[TranslationPair]:
    """Reads source and target; the codes of their languages may name the columns."""
    return read_records(path, ("source", "target"), TranslationPair, others=languages)


def read_conversations(path: Path) -> Reading[ResponsePair]:
    """Reads message and response."""
    return read_records(path, ("message", "response"), ResponsePair)


def read_nli(path: Path) -> Reading[InferencePair]:
    """Reads label, premise and hypothesis."""
    return read_records(path, ("label", "premise", "hypothesis"), _inference_pair)


def read_snli(path: Path) -> Reading[InferencePair]:
    """Reads the JSON lines of SNLI and MultiNLI."""
    return read_records(path, SNLI_COLUMNS, _inference_pair)


def _inference_pair(label: str, premise: str, hypothesis: str) -> InferencePair:
    # If annotators disagreed, the label is "-"; Bowman et al. 2015 (sec. 2.2) leave the pair out.
    if label not in NLI_LABELS:
        reasons = {"-": NO_LABEL, _TWO_WAY: _TWO_WAY}
        raise MalformedLineError(reasons.get(label, f"label not of {', '.join(NLI_LABELS)}"))
    return InferencePair(premise, hypothesis, NLI_LABELS.index(label))


def read_similarity(path: Path, scale: Sequence[float] = ()) -> Reading[SimilarityPair]:
    """Reads pairs of sentences with people's scores, such as STS Benchmark, SICK or your own.

    The scores may have any scale. A record has its score in percent of the range of the file, or of
    `scale`.
    """

    def in_percent(scored: list[tuple[str, str, float]]) -> list[SimilarityPair]:
        percents = percentages([score for *_, score in scored], scale)
        return [SimilarityPair(*row[:2], n) for row, n in zip(scored, percents, strict=True)]

    return read_records(path, SCORED_COLUMNS, _scored).converted(in_percent)


def score_scale(paths: Iterable[Path]) -> list[float]:
    """Returns the lowest and highest score of a corpus' shards; none if they have no score."""
    scores: list[float] = []
    for path in paths:
        found = [row[2] for row, _ in read_records(path, SCORED_COLUMNS, _scored)]
        scores += found and [min(found), max(found)]
    return scores and [min(scores), max(scores)]


def _scored(first: str, second: str, score: str) -> tuple[str, str, float]:
    try:
        value = float(score)
    except ValueError:
        value = math.nan
    if not abs(value) < 1e9:  # true for NaN, too
        raise MalformedLineError("score that is not a number")
    return first, second, value


def read_similarity_across(path: Path, translated: Path) -> Reading[SimilarityPair]:
    """Reads pairs across languages: sentence1 of a table with sentence2 of its translation."""

    def across(pairs: list[SimilarityPair]) -> list[SimilarityPair]:
        others = read_similarity(translated)
        return [p._replace(second=o.second) for p, (o, _) in zip(pairs, others, strict=True)]

    return read_similarity(path).converted(across)


def percentages(scores: list[float], scale: Sequence[float] = ()) -> list[int]:
    """Scales scores to whole percents of their range, or of the range of `scale`."""
    low, high = min(scale or scores, default=0.0), max(scale or scores, default=0.0)
    return [round(100 * (score - low) / (high - low or 1)) for score in scores]


def read_documents(path: Path) -> Reading[SentenceTriplet]:
    """Reads the contiguous triplets of documents: one sentence per line, with a blank line between
    documents.

    The key of a document is a digest of its first 32 MiB. No triplet spans a line that cannot be
    read.
    """

    def rows(reading: Reading[SentenceTriplet]) -> Iterator[tuple[SentenceTriplet, str]]:
        for key, document in _documents(path, reading):
            for triplet in triplets(document):
                yield triplet, key

    return Reading(path, "one sentence per line, in documents of three or more", rows)


def triplets(document: Sequence[str]) -> Iterator[SentenceTriplet]:
    """Yields the contiguous triplets of a document, except those that contain a sentence ""."""
    contiguous = zip(document, document[1:], document[2:], strict=False)
    return (SentenceTriplet._make(triplet) for triplet in contiguous if all(triplet))


def _documents(path: Path, reading: Reading[Any]) -> Iterator[tuple[str, list[str]]]:
    # Yields the key and the sentences of each document, with "" in place of a line that cannot be
    # read. A document that is too large for memory comes in parts with the same key; neighbouring
    # parts share two sentences.
    document: list[str] = []
    key, size = "", 0
    for number, line in read_lines(path):
        if isinstance(line, Unreadable):
            reading.malformed.add(str(line), number)
            document.append("")
        elif not is_blank(line):
            document.append(stripped(line))
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
    """Returns the path of a corpus' mined negatives, given its data folder, name and "en-es"."""
    return data / MINED_FOLDER / f"{name}.{languages}.tsv.gz"


def read_mined(path: Path) -> Iterator[TranslationPair]:
    """Yields the pairs of a mined file in order. A line without negatives raises a `UserError`."""
    for number, line in read_every_line(path):
        cells = line.split("\t")
        if len(cells) < 3 or not all(cells):
            raise UserError(
                f"{path} must hold lines of source TAB target TAB negative ..., but line {number} "
                f"is {line[:80]!r}; delete the file and mine it again with xling-tf mine negatives"
            )
        yield TranslationPair(cells[0], cells[1], tuple(cells[2:]))


def with_negatives(pairs: Iterable[TranslationPair], path: Path) -> Iterator[TranslationPair]:
    """Yields the pairs of a corpus with their mined negatives, reading neither into memory."""
    mined = read_mined(path)
    next_mined = next(mined, None)
    for pair in pairs:
        if next_mined and pair[:2] == next_mined[:2]:
            yield pair._replace(negatives=next_mined.negatives)
            next_mined = next(mined, None)
        else:
            yield pair
    if next_mined:
        languages = path.name.removesuffix(".tsv.gz").rpartition(".")[2].split("-")
        raise UserError(
            f"{path} must have the pairs of its corpus, but the corpus was changed (it lacks "
            f"{next_mined.source[:80]!r} at that place); "
            + mining_command(path.parents[1], *languages)
        )


def mining_command(data: Path, source: str, target: str) -> str:
    """Returns the advice for messages about missing mined negatives."""
    return (
        "mine with `xling-tf mine negatives --model "
        f"exported/translation-ranking-{source}-{target} --data {data} --source {source} --target "
        f"{target}`"
    )
