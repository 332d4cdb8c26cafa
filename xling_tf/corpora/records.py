"""What a corpus is to the rest: whose it is, and its training examples, read anew at each pass."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

NLI_LABELS = ("entailment", "neutral", "contradiction")


class TranslationPair(NamedTuple):
    """A sentence, its translation and mined wrong translations of it (translation ranking)."""

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
    """A premise, a hypothesis and the index of their relation in `NLI_LABELS`."""

    premise: str
    hypothesis: str
    label: int


class QuestionAnswer(NamedTuple):
    """A question, the sentence that answers it and its paragraph.

    An unknown paragraph is the answer again, as Yang et al. 2019, listing 2, have it.
    """

    question: str
    answer: str
    context: str


class SimilarityPair(NamedTuple):
    """Two sentences and how alike their meanings are, in percent (graded similarity)."""

    first: str
    second: str
    label: int


Record = TranslationPair | ResponsePair | SentenceTriplet | InferencePair | QuestionAnswer | SimilarityPair
Kind = Literal["parallel", "documents", "conversations", "nli", "questions", "similarity"]
# A record and the key of its document, None where it stands alone: a split does not separate
# records with equal keys.
Row = tuple[Record, str | None]


@dataclass(frozen=True, kw_only=True)
class Corpus(ABC):
    """A file, the shards of one, or a dataset of a library; it may be larger than the memory."""

    name: str  # a file's name up to the languages
    kind: Kind
    languages: str  # "en-es" for translations, "en" for the others
    # "train", "dev", "dev_matched", "dev_mismatched" or "test" where inference states it.
    split: str = ""

    @property
    def title(self) -> str:
        """What it is called in messages and results, as "nli/snli_1.0.en.train"."""
        return ".".join(filter(None, (f"{self.kind}/{self.name}", self.languages, self.split)))

    @abstractmethod
    def version(self) -> str:
        """Tells the corpus as it is now from one with other records."""

    @abstractmethod
    def __iter__(self) -> Iterator[Row]:
        """Yields its rows in the same order each time; a `UserError` if there are none."""


def columns_of(languages: str) -> list[tuple[str, slice]]:
    """Each language of a corpus with the places of its texts in a record.

    Example:
        >>> columns_of("en-es")
        [('en', slice(0, 1, None)), ('es', slice(1, None, None))]
        >>> columns_of("en")
        [('en', slice(0, None, None))]
    """
    source, *targets = languages.split("-")
    return [(source, slice(0, 1 if targets else None)), *((t, slice(1, None)) for t in targets)]
