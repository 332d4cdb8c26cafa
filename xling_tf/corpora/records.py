"""The records that tasks train on, their types' description, and the base class of corpora."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from xling_tf.compressed import PACKED
from xling_tf.corpora.tables import TABLE_ENDINGS

NLI_LABELS: tuple[str, ...] = ("entailment", "neutral", "contradiction")


class TranslationPair(NamedTuple):
    """A sentence, its translation, and mined wrong translations of it (translation ranking)."""

    source: str
    target: str
    negatives: tuple[str, ...] = ()


class ResponsePair(NamedTuple):
    """A message and the reply to it (conversational response prediction)."""

    message: str
    response: str


class SentenceTriplet(NamedTuple):
    """Three contiguous sentences of a document (quick thought)."""

    previous: str
    sentence: str
    following: str


class InferencePair(NamedTuple):
    """A premise, a hypothesis, and the index of their relation in `NLI_LABELS`."""

    premise: str
    hypothesis: str
    label: int


class QuestionAnswer(NamedTuple):
    """A question, its answer, and its paragraph (or the answer: Yang et al. 2019, listing 2)."""

    question: str
    answer: str
    context: str


class SimilarityPair(NamedTuple):
    """Two sentences and the similarity of their meanings in percent (graded similarity)."""

    first: str
    second: str
    label: int


Record = tuple[Any, ...]  # the named tuple of a `RecordType`
# A record and the key of its document, or None if it stands alone. A split never separates records
# with the same key.
Row = tuple[Record, str | None]


@dataclass(frozen=True)
class FileLayout:
    """Files of a data folder that hold one type of record."""

    folders: tuple[str, ...]  # relative to the data folder
    # A regular expression of the file names without shard, ending and compression. The groups are
    # `name`, the languages `source` and `target` (without them, English), and `split`.
    stem: str
    # Takes the path, and perhaps the `languages`; returns a `Reading`.
    read: Callable[..., Any]
    ending: str = TABLE_ENDINGS  # a regular expression of the endings of names, in any case

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches the file names; the groups `shard` and `of` are as Apache Beam names shards."""
        shard = r"(?:-(?P<shard>\d{5,})-of-(?P<of>\d{5,}))?"
        return re.compile(rf"{self.stem}{shard}(?i:\.{self.ending}){PACKED}")


@dataclass(frozen=True, kw_only=True)
class RecordType:
    """A type of record: its fields, its files, and how held-out records are split off."""

    name: str  # the `record_type` of its corpora and tasks, and its folder in a data folder
    description: str  # plural noun for messages, such as "translations"
    # A named tuple: texts, then perhaps `negatives` (more texts) and `label` (an integer).
    record: type[Any]
    layouts: tuple[FileLayout, ...]
    split_by: str | None  # the field whose hash decides if a record is held out; None: its document
    # The usual file name, for messages; may contain `{target}`.
    template: str = "NAME.{source}.tsv"
    # The fields whose held-out texts are kept out of training records of the same type. Those of
    # any field are kept out of records of other types. `corpora.split` has an exception for texts
    # that many share.
    hidden: tuple[str, ...] = ()
    # A corpus has two languages; the first field is in the first of them.
    is_bilingual: bool = False
    # The order of the first two fields says nothing: each decides like `split_by`.
    is_symmetric: bool = False
    num_contexts: int = 0  # how many of the last text fields do not count for a record's length

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The fields that hold texts."""
        return tuple(name for name in self.record._fields if name not in ("negatives", "label"))

    @cached_property
    def deciding(self) -> tuple[str, ...]:
        """The fields whose hashes decide if a record is held out; none if its document does."""
        return self.fields[:2] if self.is_symmetric else (self.split_by,) if self.split_by else ()

    def texts_of(self, record: Any) -> tuple[str, ...]:
        """Returns the texts of a record: its fields, then its negatives."""
        return (*record[: len(self.fields)], *getattr(record, "negatives", ()))

    def make(self, texts: Sequence[str], label: int) -> Record:
        """Makes a record of its texts (fields, then negatives) and its label, if any."""
        count = len(self.fields)
        more = {"negatives": tuple(texts[count:]), "label": label}
        return self.record(*texts[:count], *(more[name] for name in self.record._fields[count:]))

    def missing(self, languages: Sequence[str]) -> str:
        """Returns the message for users whose data lack this type in some languages or pairs."""
        source, _, target = languages[0].partition("-")
        file = f"{self.name}/{self.template.format(source=source, target=target)}"
        return f"no {self.description} in {', '.join(languages)}; add {file} to the data folder"


@dataclass(frozen=True, kw_only=True)
class Corpus(ABC):
    """Records of one type, read lazily; they need not fit in memory."""

    name: str  # the file name up to the languages
    record_type: str  # the name of a `RecordType`
    languages: str  # "en-es" for translations, "en" for everything else
    # "train", "dev", "dev_matched", "dev_mismatched" or "test" if the publisher split it.
    split: str = ""

    @property
    def title(self) -> str:
        """The name of the corpus in messages and results, such as "nli/snli_1.0.en.train"."""
        return ".".join(
            filter(None, (f"{self.record_type}/{self.name}", self.languages, self.split))
        )

    @abstractmethod
    def version(self) -> str:
        """Returns a text that changes when the records change."""

    @abstractmethod
    def __iter__(self) -> Iterator[Row]:
        """Yields the rows in the same order each time; raises a `UserError` if there are none."""


def columns_of(languages: str) -> list[tuple[str, slice]]:
    """Returns each language of a corpus with the positions of its texts in a record.

    Examples:
        >>> columns_of("en-es")
        [('en', slice(0, 1, None)), ('es', slice(1, None, None))]
    """
    source, *targets = languages.split("-")
    return [(source, slice(0, 1 if targets else None)), *((t, slice(1, None)) for t in targets)]
