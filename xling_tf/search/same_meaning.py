"""Calibrates cosines: the probability that two sentences mean the same.

The log odds are a linear function of the cosine, fitted as in Platt 1999 ("Probabilistic outputs
for support vector machines", sec. 2.2). Both classes count equally, as if half of all pairs meant
the same.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from xling_tf.client.batches import Encode
from xling_tf.corpora.pairs import read_pairs
from xling_tf.corpora.readers import percentages
from xling_tf.corpora.split import normalised
from xling_tf.errors import UserError

Line = tuple[float, float]  # slope and intercept of the log odds as a function of the cosine

_POOL = 1000  # pairs among which the nearest wrong candidate of a sentence is searched
# In percent of the scores' range: pairs from `_SAME` on mean the same, those up to `_DIFFERENT` do
# not. On the STS Benchmark's scale these are 4, "mostly equivalent", and 3, "some important
# information differs".
_SAME, _DIFFERENT = 80, 60
_STEPS = 50
_BINS = 10


def fit_line(cosines: NDArray[np.floating], is_same: NDArray[np.bool_]) -> Line:
    """Fits the line by Newton's method; a `UserError` unless there are pairs of both kinds."""
    counts = np.array([np.sum(~is_same), np.sum(is_same)])
    if not counts.all():
        kinds = f"{counts[1]} that mean the same, {counts[0]} that do not"
        raise UserError(f"expected pairs that mean the same and pairs that do not, got {kinds}")
    # Targets short of 0 and 1 keep the line finite if cosines separate both kinds (Platt, eq. 6).
    targets = np.array([1 / (counts[0] + 2), (counts[1] + 1) / (counts[1] + 2)])[
        is_same.astype(int)
    ]
    weights = (0.5 / counts)[is_same.astype(int)]
    center, scale = np.mean(cosines), max(float(np.std(cosines)), 1e-6)
    inputs = np.stack([(cosines - center) / scale, np.ones(len(cosines))])
    line = np.zeros(2)
    for _ in range(_STEPS):
        predicted = probabilities(inputs[0], (line[0], line[1]))
        gradient = inputs @ (weights * (predicted - targets))
        hessian = (inputs * weights * predicted * (1 - predicted)) @ inputs.T + 1e-9 * np.eye(2)
        line -= np.linalg.solve(hessian, gradient)
    slope = line[0] / scale
    return float(slope), float(line[1] - slope * center)


def probabilities(cosines: NDArray[np.floating], line: Sequence[float]) -> NDArray[np.float64]:
    """The probabilities `[pairs]` that pairs with these cosines mean the same."""
    return expit(line[0] * np.asarray(cosines, np.float64) + line[1])


def calibration_error(predicted: NDArray[np.floating], is_same: NDArray[np.bool_]) -> float:
    """Expected calibration error in ten bins (Guo et al. 2017, eq. 3), both classes equal."""
    counts = np.array([np.sum(~is_same), np.sum(is_same)])
    weights = (0.5 / counts)[is_same.astype(int)]
    bins = np.minimum((predicted * _BINS).astype(int), _BINS - 1)
    return float(np.abs(np.bincount(bins, weights * (predicted - is_same), _BINS)).sum())


def translation_cosines(
    encode: Encode, pairs: Sequence[tuple[str, str]]
) -> tuple[NDArray[np.floating], NDArray[np.bool_]]:
    """The cosines of up to 1,000 translations, and of each source and its nearest wrong target.

    `encode` returns unit vectors. The second result marks the cosines of translations, which are
    half of them.
    """
    pairs = pairs[:: -(-len(pairs) // _POOL) or 1]
    first_vectors, second_vectors = (encode([pair[side] for pair in pairs]) for side in (0, 1))
    scores = first_vectors @ second_vectors.T
    sides = ([normalised(pair[side]) for pair in pairs] for side in (0, 1))
    first, second = (np.unique(side, return_inverse=True)[1] for side in sides)
    is_right = (first[:, np.newaxis] == first) | (second[:, np.newaxis] == second)
    wrong = np.where(is_right, -np.inf, scores).max(axis=1, initial=-np.inf)
    has_wrong = np.isfinite(wrong)
    cosines = np.concatenate([np.diagonal(scores)[has_wrong], wrong[has_wrong]])
    return cosines, np.arange(len(cosines)) < len(cosines) // 2


def fit_pairs(encode: Encode, pairs: Any) -> Line:
    """Fits the line on scored or labelled pairs, or on translations and their nearest wrong ones.

    Pairs are in any form of `corpora.pairs.read_pairs`. With scores, pairs from 80% of the range on
    mean the same, those up to 60% do not, and others are left out. Raises a `UserError` if the
    probability would fall as the cosine rises.
    """
    rows = read_pairs(pairs)
    if scores := [row.score for row in rows if row.score is not None]:
        percents = np.array(percentages(scores))
        is_clear = (percents >= _SAME) | (percents <= _DIFFERENT)
        first, second = encode([row.first for row in rows]), encode([row.second for row in rows])
        line = fit_line(np.sum(first * second, axis=1)[is_clear], percents[is_clear] >= _SAME)
    else:
        line = fit_line(*translation_cosines(encode, [row[:2] for row in rows]))
    if round(line[0], 3) <= 0:
        raise UserError(
            "expected higher cosines for pairs that mean the same (the highest score, or label 1) "
            "than for others, but they are not higher; reverse the labels if 0 means the same, or "
            "use another model"
        )
    return line
