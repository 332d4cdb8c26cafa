"""Bitext retrieval: is the translation the nearest of all sentences of the other language?"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.evaluators.bitext.parallel_files import ParallelTexts, find_bitexts
from xling_tf.evaluators.bitext.parallel_search import ParallelSearch
from xling_tf.evaluators.data import Dataset, Missing, Suite
from xling_tf.evaluators.encoding import Encode

_WELL_KNOWN = {
    "tatoeba": "tatoeba/tatoeba.<xxx>-eng.<xxx> and .eng, a sentence a line, as LASER has them in "
    "data/tatoeba/v1",
    "UNv1.0": "un/UNv1.0.<aa>-<bb>.<aa> and .<bb>, a sentence a line, of the UN Parallel Corpus",
}


class BitextRetrieval:
    """Precision at 1 of finding each sentence's translation among all of a corpus, both ways.

    Yang et al. 2019, sec. 5.2 and Table 5 on the UN Parallel Corpus; Artetxe and Schwenk 2019 give
    the error on Tatoeba. What counts as found is told in `ParallelSearch`.

    Args:
        rows: Sentences of two languages that translate each other.
        languages: Their codes.
        name: What results call this evaluator.

    Raises:
        UserError: A language has no two different sentences.

    Example:
        >>> evaluator = BitextRetrieval([("one", "uno"), ("two", "dos")], ("en", "es"), name="numbers")
        >>> vectors = {"one": [1, 0], "uno": [1, 0], "two": [0, 1], "dos": [0, 1]}
        >>> evaluator(lambda texts: np.array([vectors[text] for text in texts]))
        {'en-es/precision_at_1': 1.0, 'es-en/precision_at_1': 1.0, 'error_rate': 0.0}
    """

    def __init__(
        self, rows: Sequence[tuple[str, ...]], languages: Sequence[str], *, name: str
    ) -> None:
        self.name = name
        self._search = ParallelSearch(rows, languages, name=name)
        self.protocol: Mapping[str, Any] = self._search.protocol

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Searches by the system's vectors.

        Args:
            encode: The system.

        Returns:
            "<query language>-<candidate language>/precision_at_1" of both directions, and the
            "error_rate" of both together.

        Raises:
            UserError: A vector is zero or not finite, or FAISS is not installed.
        """
        precisions = self._search.precisions(encode)
        return {
            **{f"{pair}/precision_at_1": value for pair, value in precisions.items()},
            "error_rate": 1 - float(np.mean(list(precisions.values()))),
        }


def _find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    del seed  # nothing is drawn
    bitexts = find_bitexts(folder)
    for bitext in bitexts:
        yield Dataset(name=bitext.name, files=bitext.files, load=partial(_load, bitext))
    for prefix, expected in _WELL_KNOWN.items():
        if not any(bitext.name.startswith(f"{prefix}.") for bitext in bitexts):
            yield Missing(name=prefix, expected=expected)


def _load(bitext: ParallelTexts) -> BitextRetrieval:
    return BitextRetrieval(bitext.read(), bitext.languages, name=bitext.name)


SUITE = Suite(
    name="bitext",
    title="Translation retrieval from a whole corpus",
    source="Yang et al. 2019, sec. 5.2, Table 5",
    find=_find,
)
