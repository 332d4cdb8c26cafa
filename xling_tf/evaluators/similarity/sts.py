"""Semantic textual similarity: do the vectors' angles follow people's judgements?"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from xling_tf.errors import UserError
from xling_tf.evaluators.data import stem_of
from xling_tf.evaluators.encoding import Encode, encode_checked, require
from xling_tf.evaluators.similarity.sts_files import find_benchmark, read_scored_pairs

# Angles (in radians) of equal vectors differ by about 1e-8 for rounding.
_CONSTANT = 1e-6
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class SemanticTextualSimilarity:
    """Correlation of angular similarity with gold scores.

    The similarity is -arccos(cosine) and the score its Pearson correlation (Chidambaram et al.
    2019, sec. 3.5, following Cer et al. 2018).

    Args:
        pairs: The sentence pairs.
        gold: Their similarity as people judged it, any scale.
        name: What results call this evaluator.
        protocol: What else is to be told of the data.

    Raises:
        UserError: There are not as many scores as pairs, or they do not differ.

    Example:
        >>> pairs = [("a", "a"), ("a", "b"), ("a", "c")]
        >>> evaluator = SemanticTextualSimilarity(pairs, [2.0, 1.0, 0.0], name="letters")
        >>> vectors = {"a": [1, 0], "b": [1, 1], "c": [0, 1]}
        >>> scores = evaluator(lambda texts: np.array([vectors[text] for text in texts]))
        >>> round(scores["pearson_angular"], 6)
        1.0
    """

    def __init__(
        self,
        pairs: Sequence[tuple[str, str]],
        gold: Sequence[float],
        *,
        name: str,
        protocol: Mapping[str, Any] = _NOTHING,
    ) -> None:
        self.name = name
        self.protocol: Mapping[str, Any] = {
            "similarity": "-arccos",
            "num_pairs": len(pairs),
            **protocol,
        }
        if len(pairs) != len(gold) or len(set(gold)) < 2:
            raise UserError(
                f"{name} must have a score for each pair, two different ones at least, but has "
                f"{len(pairs)} pairs and {len(set(gold))} different of {len(gold)} scores; "
                "correct the data"
            )
        # In order, so that sums come out the same to the last bit.
        rows = sorted(zip(pairs, gold, strict=True))
        self.gold = np.array([score for _, score in rows], np.float64)
        self._texts = sorted({text for pair in pairs for text in pair})
        row_of = {text: row for row, text in enumerate(self._texts)}
        self._rows = np.array([[row_of[text] for text in pair] for pair, _ in rows])

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Correlates the system's similarities with the gold scores.

        Args:
            encode: The system.

        Returns:
            "pearson_angular" and "spearman_angular" (0 for a system to which all pairs are equally
            similar), and "num_pairs".

        Raises:
            UserError: A vector is zero or not finite, so that it has no angle.
        """
        scores = correlations(self.similarities(encode), self.gold)
        return {**scores, "num_pairs": float(len(self.gold))}

    def similarities(self, encode: Encode) -> NDArray[np.float64]:
        """Returns the system's similarities, in the order of the attribute `gold`."""
        vectors = encode_checked(encode, self._texts)
        lengths = np.linalg.norm(vectors, axis=1)
        require(lengths > 0, self._texts, "a vector with a direction", "zero only")
        units = vectors / lengths[:, np.newaxis]
        return angular_similarity(units[self._rows[:, 0]], units[self._rows[:, 1]])


def angular_similarity(
    first: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns -arccos of the dot products of unit vectors, row by row.

    Args:
        first: Unit vectors, [n, dim].
        second: Unit vectors, [n, dim].

    Returns:
        Similarities from -pi (opposite) to 0 (equal), [n].
    """
    return -np.arccos(np.clip(np.sum(first * second, axis=1), -1.0, 1.0))


def correlations(similarity: NDArray[np.float64], gold: NDArray[np.float64]) -> dict[str, float]:
    """Correlates similarities with gold scores.

    Args:
        similarity: Of n pairs, [n].
        gold: Of the same, [n].

    Returns:
        "pearson_angular" and "spearman_angular"; 0 where all similarities are equal.
    """
    if np.ptp(similarity) <= _CONSTANT:
        return {"pearson_angular": 0.0, "spearman_angular": 0.0}
    return {
        "pearson_angular": float(stats.pearsonr(similarity, gold).statistic),
        "spearman_angular": float(stats.spearmanr(similarity, gold).statistic),
    }


def read_sts(path: Path) -> SemanticTextualSimilarity:
    """Reads a table with the columns sentence1, sentence2 and score.

    Nothing is left out: scores on part of a test set could not be compared.

    Args:
        path: Text or, by its name, gzip; its name up to `.tsv` becomes the evaluator's.

    Raises:
        UserError: The header or a line is something else.
    """
    return SemanticTextualSimilarity(*read_scored_pairs(path), name=stem_of(path))


def find_sts(folder: Path, languages: Iterable[str]) -> list[SemanticTextualSimilarity]:
    """Reads the development sets of the STS Benchmark that a data folder has.

    Args:
        folder: A data folder; the sets are `eval/sts/stsb.<language>.dev.tsv`, plain or .gz.
        languages: The languages asked for.

    Returns:
        An evaluator for each language that has a set, in the order asked.
    """
    found = find_benchmark(folder / "eval")
    return [
        SemanticTextualSimilarity(*found[language, "dev"].read(), name=f"stsb.{language}.dev")
        for language in languages
        if (language, "dev") in found
    ]
