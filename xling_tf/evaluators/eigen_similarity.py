"""Eigen-similarity: do sentences and their translations form graphs of the same shape?"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform

from xling_tf.errors import UserError
from xling_tf.evaluators.data import Dataset, Missing, Suite
from xling_tf.evaluators.encoding import Encode, encode_units
from xling_tf.evaluators.parallel_texts import NO_BITEXTS, ParallelTexts, find_bitexts


class EigenSimilarity:
    """Distance between the spectra of two languages' sentence graphs; 0 where they have one shape.

    In each of N samples of K translations the sentences of a language make a complete graph whose
    edges weigh as much as their vectors are apart. The eigenvalues of its Laplacian are compared with
    those of the other language's: Psi(S, T) = 1/N sum_i sum_j (lambda_j(L_i^s) - lambda_j(L_i^t))^2
    (Chidambaram et al. 2019, sec. 5, eq. 3, K = 10, N = 1000). The paper does not name its distance;
    here it is the Euclidean one of unit vectors, so that longer vectors do not seem worse.

    Args:
        pairs: Translations. Of those that share a sentence only one stays.
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
        pairs_a_sample: int = 10,
        num_samples: int = 1000,
        seed: int = 0,
    ) -> None:
        self.name = name
        seen: set[tuple[int, str]] = set()
        distinct = []
        for pair in sorted(set(pairs)):
            if seen.isdisjoint(enumerate(pair)):
                distinct.append(pair)
                seen.update(enumerate(pair))
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
        rng, size = np.random.default_rng(seed), (len(distinct), pairs_a_sample)
        draws = [rng.choice(*size, replace=False) for _ in range(num_samples)]
        # Only what is drawn is encoded.
        drawn, places = np.unique(draws, return_inverse=True)
        self._samples = places.reshape(num_samples, pairs_a_sample)
        self.pairs = [distinct[index] for index in drawn]
        self._texts = [[pair[side] for pair in self.pairs] for side in (0, 1)]

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "eigen_similarity" (Psi: the less the more similar), its standard error, "num_pairs"."""
        spectra = []
        for texts in self._texts:
            units = encode_units(encode, texts)
            graphs = np.stack([squareform(pdist(units[rows])) for rows in self._samples])
            spectra.append(laplacian_spectrum(graphs))
        distances = np.sum((spectra[0] - spectra[1]) ** 2, axis=1)
        deviation = np.std(distances, ddof=1) if len(distances) > 1 else 0.0
        return {
            "eigen_similarity": float(np.mean(distances)),
            "eigen_similarity_stderr": float(deviation / np.sqrt(len(distances))),
            "num_pairs": float(len(self._texts[0])),
        }


def laplacian_spectrum(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The eigenvalues of degrees minus weights of graphs' edges, `[..., n, n]`; ascending, `[..., n]`."""
    degrees = np.sum(weights, axis=-1)
    return np.linalg.eigvalsh(degrees[..., np.newaxis] * np.eye(weights.shape[-1]) - weights)


def _find(folder: Path, seed: int) -> Iterable[Dataset | Missing]:
    """The pairs of languages, each with all of its files."""
    groups: defaultdict[tuple[str, ...], list[ParallelTexts]] = defaultdict(list)
    for bitext in find_bitexts(folder):
        # The measure is symmetric: en-de and de-en are one pair.
        key = tuple(sorted(bitext.languages, key=lambda language: (language != "en", language)))
        groups[key].append(bitext)

    def load(name: str, languages: tuple[str, ...]) -> EigenSimilarity:
        pairs = []
        for bitext in groups[languages]:
            first, second = (bitext.languages.index(language) for language in languages)
            pairs += [(row[first], row[second]) for row in bitext.read()]
        return EigenSimilarity(pairs, name=name, seed=seed)

    found = []
    for languages, bitexts in sorted(groups.items()):
        name = "-".join(languages)
        files = tuple(file for bitext in bitexts for file in bitext.files)
        found.append(Dataset(name=name, files=files, load=partial(load, name, languages)))
    return found or [NO_BITEXTS]


SUITE = Suite(
    name="eigen_similarity",
    title="Similarity of the graphs of sentences and of their translations",
    source="Chidambaram et al. 2019, sec. 5, table 7",
    find=_find,
)
