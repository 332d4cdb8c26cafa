"""From paragraphs as found to sentences fit for training, source by source."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from xling_tf.corpora.cleaning import PairCleaner, normalise, sentence_fault
from xling_tf.corpora.debian.extraction import Document, Extraction
from xling_tf.corpora.debian.sentences import aligned_sentences, sentences
from xling_tf.corpora.records import ResponsePair, TranslationPair

_MIN_SENTENCES = 3  # quick thought needs a sentence with both of its neighbours
# Stock phrases answer anything; more of them would be false negatives of one another in a batch.
_MAX_SAME_RESPONSES = 10


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """The text of one source as the corpus files hold it."""

    parallel: list[TranslationPair]
    documents: dict[str, list[list[str]]]
    conversations: dict[str, list[ResponsePair]]


class CorpusCleaner:
    """Cleans source after source, dropping what an earlier one had already.

    Args:
        source_language: ISO code.
        target_language: ISO code.

    Attributes:
        dropped: How many items each reason cost, by kind ("parallel", "documents en", ...).
    """

    def __init__(self, source_language: str, target_language: str) -> None:
        self._languages = (source_language, target_language)
        self._pairs = PairCleaner(source_language, target_language)
        self._paragraphs: set[tuple[str, str]] = set()
        self._exchanges: set[tuple[str, ResponsePair]] = set()
        self._responses: Counter[tuple[str, str]] = Counter()
        self.dropped: dict[str, Counter[str]] = {"parallel": self._pairs.dropped}

    def clean(self, extraction: Extraction) -> Cleaned:
        """The sentences of `extraction` that are fit and new."""
        return Cleaned(
            parallel=[
                pair
                for text in extraction.parallel
                for pair in aligned_sentences(text, *self._languages)
                if self._pairs.keeps(pair)
            ],
            documents={
                language: list(self._documents(documents, language))
                for language, documents in extraction.documents.items()
            },
            conversations={
                language: list(self._conversations(pairs, language))
                for language, pairs in extraction.conversations.items()
            },
        )

    def _documents(self, documents: Iterable[Document], language: str) -> Iterator[list[str]]:
        dropped = self.dropped.setdefault(f"documents {language}", Counter())
        for document in documents:
            for run in self._runs(document, language, dropped):
                if len(run) >= _MIN_SENTENCES:
                    yield run
                else:
                    dropped["fewer than three sentences in a row"] += len(run)

    def _runs(
        self, document: Document, language: str, dropped: Counter[str]
    ) -> Iterator[list[str]]:
        # A sentence that is left out parts the document: its neighbours are no neighbours.
        run: list[str] = []
        for paragraph in document:
            repeated = (language, paragraph) in self._paragraphs
            self._paragraphs.add((language, paragraph))
            for sentence in sentences(paragraph, language):
                reason = "repeated paragraph" if repeated else sentence_fault(sentence, language)
                if reason is None:
                    run.append(sentence)
                    continue
                dropped[reason] += 1
                yield run
                run = []
        yield run

    def _conversations(
        self, pairs: Sequence[ResponsePair], language: str
    ) -> Iterator[ResponsePair]:
        dropped = self.dropped.setdefault(f"conversations {language}", Counter())
        for raw in pairs:
            pair = ResponsePair(*map(normalise, raw))
            reason = sentence_fault(pair.message, language) or sentence_fault(
                pair.response, language
            )
            if reason is None and (language, pair) in self._exchanges:
                reason = "duplicate"
            if reason is None and self._responses[language, pair.response] == _MAX_SAME_RESPONSES:
                reason = "frequent response"
            if reason:
                dropped[reason] += 1
                continue
            self._exchanges.add((language, pair))
            self._responses[language, pair.response] += 1
            yield pair
