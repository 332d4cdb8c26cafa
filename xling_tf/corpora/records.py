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


class QuestionAnswer(NamedTuple):
    """A question, the sentence that answers it and the paragraph that this is from.

    Where the paragraph is not known, `context` is the answer again, as the published question
    answering encoders have it (Yang et al. 2019, listing 2).
    """

    question: str
    answer: str
    context: str


Record = TranslationPair | ResponsePair | SentenceTriplet | InferencePair | QuestionAnswer
