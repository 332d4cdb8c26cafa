"""Multilingual similarity search: every language of a corpus against every other."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.evaluators.bitext.multilingual_files import find_multilingual
from xling_tf.evaluators.bitext.parallel_files import ParallelTexts
from xling_tf.evaluators.bitext.parallel_search import ParallelSearch
from xling_tf.evaluators.data import Dataset, Missing, Suite
from xling_tf.evaluators.encoding import Encode

_WELL_KNOWN = {
    "europarl": "similarity_search/europarl.<language>, the same 5,000 sentences in each language, one a "
    "line (Yu et al. 2018)",
    "newstest2012": "similarity_search/newstest2012.<language>, a sentence a line (WMT)",
    "xnli.15way": "similarity_search/xnli.15way.orig.tsv, a column a language below their codes",
}


class SimilaritySearch:
    """The error of finding each sentence's translation, for every ordered pair of languages.

    A sentence of one language is an error where the nearest sentence of the other, by cosine, is not
    its translation (Yu et al. 2018, sec. 4 and Table 2, which gives the accuracy; Schwenk and Douze
    2017). What counts as found is told in `ParallelSearch`; in Yu et al. copies of the translation are
    errors.

    Args:
        rows: Sentences that translate each other, one of each language.
        languages: Their codes.
        name: What results call this evaluator.

    Raises:
        UserError: A language has no two different sentences.

    Example:
        >>> rows = [("one", "uno", "eins"), ("two", "dos", "zwei")]
        >>> evaluator = SimilaritySearch(rows, ("en", "es", "de"), name="numbers")
        >>> ones = dict.fromkeys(rows[0], [1, 0])
        >>> vectors = {**ones, "two": [0, 1], "dos": [0, 1], "zwei": [1, 0]}
        >>> scores = evaluator(lambda texts: np.array([vectors[text] for text in texts]))
        >>> scores["en-es/error_rate"], scores["en-de/error_rate"], scores["de-es/error_rate"]
        (0.0, 1.0, 0.5)
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
            "mean/error_rate", and "<query language>-<candidate language>/error_rate" of every
            ordered pair.

        Raises:
            UserError: A vector is zero or not finite, or FAISS is not installed.
        """
        errors = {pair: 1 - found for pair, found in self._search.precisions(encode).items()}
        return {
            "mean/error_rate": float(np.mean(list(errors.values()))),
            **{f"{pair}/error_rate": error for pair, error in errors.items()},
        }


def _find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    del seed  # nothing is drawn
    found = find_multilingual(folder)
    for texts in found:
        yield Dataset(name=texts.name, files=texts.files, load=partial(_load, texts))
    for name, expected in _WELL_KNOWN.items():
        if not any(texts.name.startswith(name) for texts in found):
            yield Missing(name=name, expected=expected)


def _load(texts: ParallelTexts) -> SimilaritySearch:
    return SimilaritySearch(texts.read(), texts.languages, name=texts.name)


SUITE = Suite(
    name="similarity_search",
    title="Every language's sentences searched by every other's",
    source="Yu et al. 2018, sec. 4, Table 2",
    find=_find,
)
