"""What one training example is, for each kind of corpus."""

from typing import NamedTuple

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


Record = TranslationPair | ResponsePair | SentenceTriplet | InferencePair
