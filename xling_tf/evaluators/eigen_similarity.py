"""Eigen-similarity: compares the graphs of sentences with those of their translations."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist, squareform

from xling_tf.errors import UserError
from xling_tf.evaluators import data
from xling_tf.evaluators.encoding import Encode, encode_units


class EigenSimilarity:
    """Distance between the spectra of two languages' sentence graphs; 0 if they have one shape.

    In each of N samples of K translations, the sentences of a language form a complete graph, whose
    edges are the distances of their vectors. The eigenvalues of its Laplacian are compared with
    those of the other language: Psi(S, T) = 1/N sum_i sum_j (lambda_j(L_i^s) - lambda_j(L_i^t))^2
    (Chidambaram et al. 2019, sec. 5, eq. 3, K = 10, N = 1000). The paper does not name its
    distance; here it is the Euclidean distance of unit vectors, so that longer vectors do not seem
    worse. Pairs that share a sentence with an earlier pair are left out.
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
        distinct, seen = [], set[tuple[int, str]]()
        for pair in sorted(pairs):
            if seen.isdisjoint(enumerate(pair)):
                distinct.append(pair)
                seen.update(enumerate(pair))
        sizes = {
            "pairs_a_sample": pairs_a_sample,
            "num_samples": num_samples,
            "num_pairs": len(distinct),
        }
        self.protocol: Mapping[str, Any] = {"seed": seed, **sizes}
        if len(distinct) < pairs_a_sample:
            raise UserError(f"{name} needs {pairs_a_sample} unrelated pairs, has {len(distinct)}")
        rng, size = np.random.default_rng(seed), (len(distinct), pairs_a_sample)
        draws = [rng.choice(*size, replace=False) for _ in range(num_samples)]
        # Only drawn pairs are encoded.
        drawn, indices = np.unique(draws, return_inverse=True)
        self._samples = indices.reshape(num_samples, pairs_a_sample)
        self.pairs = [distinct[index] for index in drawn]
        self._texts = [[pair[side] for pair in self.pairs] for side in (0, 1)]

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "eigen_similarity" (Psi; smaller is more similar) and "num_pairs"."""
        spectra = []
        for texts in self._texts:
            units = encode_units(encode, texts)
            weights = np.stack([squareform(pdist(units[rows])) for rows in self._samples])
            degrees = np.sum(weights, axis=-1)[..., np.newaxis] * np.eye(weights.shape[-1])
            spectra.append(np.linalg.eigvalsh(degrees - weights))
        distances = np.sum((spectra[0] - spectra[1]) ** 2, axis=1)
        return {
            "eigen_similarity": float(np.mean(distances)),
            "num_pairs": float(len(self._texts[0])),
        }


def _find(folder: Path, seed: int) -> Iterator[data.Dataset]:
    """Finds pairs of languages, each with all its files."""
    groups: defaultdict[tuple[str, ...], list[data.ParallelTexts]] = defaultdict(list)
    for bitext in data.find_bitexts(folder):
        # The measure is symmetric: en-de and de-en are one pair.
        key = tuple(sorted(bitext.languages, key=lambda language: (language != "en", language)))
        groups[key].append(bitext)

    def load(name: str, languages: tuple[str, ...]) -> EigenSimilarity:
        pairs = []
        for bitext in groups[languages]:
            first, second = (bitext.languages.index(language) for language in languages)
            pairs += [(row[first], row[second]) for row in bitext.read()]
        return EigenSimilarity(pairs, name=name, seed=seed)

    for languages, bitexts in sorted(groups.items()):
        name = "-".join(languages)
        files = tuple(file for bitext in bitexts for file in bitext.files)
        yield data.Dataset(name=name, files=files, load=partial(load, name, languages))


SUITE = data.Suite(
    name="eigen_similarity",
    title="Similarity of the graphs of sentences and of their translations",
    source="Chidambaram et al. 2019, sec. 5, table 7",
    layout=data.BITEXT_LAYOUT,
    find=_find,
)
