"""Eigen-similarity: do sentences and their translations form graphs of the same shape?"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform

from xling_tf.errors import UserError
from xling_tf.evaluators.bitext.parallel_files import BITEXT_LAYOUTS, ParallelTexts, find_bitexts
from xling_tf.evaluators.data import Dataset, Missing, Suite
from xling_tf.evaluators.encoding import Encode, encode_checked, require

# Chidambaram et al. 2019, sec. 5.
_PAIRS_A_SAMPLE = 10
_SAMPLES = 1000


class EigenSimilarity:
    """Distance between the spectra of two languages' sentence graphs; 0 where they have one shape.

    N samples of K translations are drawn. In each of them the sentences of a language make a complete
    graph whose edges weigh as much as their vectors are apart. The eigenvalues of its Laplacian are
    compared with those of the other language's: Psi(S, T) = 1/N sum_i sum_j (lambda_j(L_i^s) -
    lambda_j(L_i^t))^2 (Chidambaram et al. 2019, sec. 5, eq. 3, K = 10, N = 1000).

    The paper does not say which distance it takes. Here it is the Euclidean one of unit vectors, so
    that systems with longer vectors do not seem worse.

    Args:
        pairs: Translations. Of those that share a sentence only one stays, so that a sample has K
            different sentences on both sides.
        name: What results call this evaluator.
        pairs_a_sample: K.
        num_samples: N.
        seed: Of the samples.

    Raises:
        UserError: There are fewer than K pairs.

    Example:
        >>> pairs = [("one", "uno"), ("two", "dos"), ("three", "tres")]
        >>> evaluator = EigenSimilarity(pairs, name="numbers", pairs_a_sample=3, num_samples=1)
        >>> vectors = {"one": [1, 0], "two": [0, 1], "three": [-1, 0]}
        >>> vectors |= {"uno": [0, 1], "dos": [1, 0], "tres": [0, -1]}  # the same, turned
        >>> scores = evaluator(lambda texts: np.array([vectors[text] for text in texts]))
        >>> round(scores["eigen_similarity"], 9)
        0.0
    """

    def __init__(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        name: str,
        pairs_a_sample: int = _PAIRS_A_SAMPLE,
        num_samples: int = _SAMPLES,
        seed: int = 0,
    ) -> None:
        self.name = name
        distinct = _distinct(pairs)
        self.protocol: Mapping[str, Any] = {
            "distance": "euclidean, of unit vectors",
            "pairs_a_sample": pairs_a_sample,
            "num_samples": num_samples,
            "seed": seed,
            "num_pairs": len(distinct),
        }
        if len(distinct) < pairs_a_sample:
            raise UserError(
                f"{name} must have {pairs_a_sample} pairs at least whose sentences differ, but has "
                f"{len(distinct)}; give more data"
            )
        rng = np.random.default_rng(seed)
        draws = [
            rng.choice(len(distinct), pairs_a_sample, replace=False) for _ in range(num_samples)
        ]
        # Only what is drawn is encoded.
        drawn, places = np.unique(draws, return_inverse=True)
        self._samples = places.reshape(num_samples, pairs_a_sample)
        self._texts = [[distinct[index][side] for index in drawn] for side in (0, 1)]

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Compares the spectra of the system's vectors.

        Args:
            encode: The system.

        Returns:
            "eigen_similarity" (Psi: at least 0, and the less the more similar), "eigen_similarity_stderr"
            (of its mean over the samples), and "num_pairs".

        Raises:
            UserError: A vector is zero or not finite.
        """
        source, target = (self._spectra(encode, texts) for texts in self._texts)
        distances = np.sum((source - target) ** 2, axis=1)
        return {
            "eigen_similarity": float(np.mean(distances)),
            "eigen_similarity_stderr": _standard_error(distances),
            "num_pairs": float(len(self._texts[0])),
        }

    def _spectra(self, encode: Encode, texts: list[str]) -> NDArray[np.float64]:
        """The eigenvalues of each sample's Laplacian: [num_samples, pairs_a_sample]."""
        vectors = encode_checked(encode, texts)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        require(lengths[:, 0] > 0, texts, "a vector with a direction", "zero only")
        units = vectors / lengths
        weights = np.stack([squareform(pdist(units[rows])) for rows in self._samples])
        return laplacian_spectrum(weights)


def laplacian_spectrum(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the eigenvalues of a graph's Laplacian, the diagonal matrix of degrees minus the weights.

    Args:
        weights: Of the edges, [..., n, n], symmetric, with zeros on the diagonal.

    Returns:
        Eigenvalues in ascending order, the first of them 0, [..., n].

    Example:
        >>> path = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
        >>> np.abs(laplacian_spectrum(path)).round(9).tolist()
        [0.0, 1.0, 3.0]
    """
    degrees = np.sum(weights, axis=-1)
    return np.linalg.eigvalsh(degrees[..., np.newaxis] * np.eye(weights.shape[-1]) - weights)


def _distinct(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Keeps pairs none of whose sentences another one has."""
    seen: tuple[set[str], set[str]] = (set(), set())
    distinct = []
    for pair in sorted(set(pairs)):
        if not any(text in texts for text, texts in zip(pair, seen, strict=True)):
            distinct.append(pair)
            for text, texts in zip(pair, seen, strict=True):
                texts.add(text)
    return distinct


def _standard_error(values: NDArray[np.float64]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def _find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    """Yields the pairs of languages, each with all of its files."""
    by_languages: defaultdict[tuple[str, ...], list[ParallelTexts]] = defaultdict(list)
    for bitext in find_bitexts(folder):
        by_languages[_english_first(bitext.languages)].append(bitext)
    for languages, bitexts in sorted(by_languages.items()):
        name = "-".join(languages)
        files = tuple(file for bitext in bitexts for file in bitext.files)
        yield Dataset(name=name, files=files, load=partial(_load, name, languages, bitexts, seed))
    if not by_languages:
        yield Missing(name="translations", expected=BITEXT_LAYOUTS)


def _english_first(languages: Iterable[str]) -> tuple[str, ...]:
    # The measure is symmetric: en-de and de-en are one pair.
    return tuple(sorted(languages, key=lambda language: (language != "en", language)))


def _load(
    name: str, languages: Sequence[str], bitexts: Iterable[ParallelTexts], seed: int
) -> EigenSimilarity:
    first, second = languages
    pairs = []
    for bitext in bitexts:
        places = bitext.languages.index(first), bitext.languages.index(second)
        pairs += [(row[places[0]], row[places[1]]) for row in bitext.read()]
    return EigenSimilarity(pairs, name=name, seed=seed)


SUITE = Suite(
    name="eigen_similarity",
    title="Similarity of the graphs of sentences and of their translations",
    source="Chidambaram et al. 2019, sec. 5, table 7",
    find=_find,
)
