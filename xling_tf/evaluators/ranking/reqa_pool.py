"""The candidates among which answers are sought."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from xling_tf.corpora.question_contexts import surroundings
from xling_tf.evaluators.ranking.metrics import Scores
from xling_tf.evaluators.ranking.reqa_files import Sentence

# Sentences on either side that stand for the paragraph where none is known.
NEIGHBOURS = 2


class Pool:
    """The candidates in one language: distinct sentences, by paragraph.

    Args:
        sentences: Where their paragraphs are not known, in the order of the text.

    Attributes:
        texts: Of the sentences.
        contexts: The paragraph of each, or itself between its neighbours.
        paragraphs: Distinct; "" is one where a sentence's is not known.
    """

    def __init__(self, sentences: Sequence[Sentence]) -> None:
        distinct = sorted(set(sentences), key=lambda sentence: sentence[::-1])
        self.texts = [sentence.text for sentence in distinct]
        around = surroundings([sentence.text for sentence in sentences], NEIGHBOURS)
        self.contexts = [sentence.context or around[sentence.text] for sentence in distinct]
        self.paragraphs = list(dict.fromkeys(sentence.context for sentence in distinct))
        place_of = {context: place for place, context in enumerate(self.paragraphs)}
        self._places = np.array([place_of[sentence.context] for sentence in distinct])
        self._starts = np.unique(self._places, return_index=True)[1]
        self._rows: defaultdict[str, list[int]] = defaultdict(list)
        for row, text in enumerate(self.texts):
            self._rows[text].append(row)

    def rows_of(self, answers: Iterable[str]) -> NDArray[np.int64]:
        """The sentences that have the text of an answer."""
        return np.array(sorted(row for answer in answers for row in self._rows[answer]), np.int64)

    def paragraphs_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The paragraphs of some sentences."""
        return np.unique(self._places[rows])

    def best_of_paragraphs(self, chunk: Scores) -> Scores:
        """Scores of sentences `[rows, sentences]` to those of paragraphs `[rows, paragraphs]`."""
        return np.asarray(np.maximum.reduceat(chunk, self._starts, axis=1))
