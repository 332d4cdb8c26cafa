"""Calibrates cosines: the probability that two sentences mean the same.

The log odds are a linear function of the cosine, fitted as in Platt 1999 ("Probabilistic outputs
for support vector machines", sec. 2.2). Both classes count equally, as if half of all pairs meant
the same.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xling_tf.client.batches import Encode
from xling_tf.client.logistic import Line, fit_line
from xling_tf.corpora.pairs import read_pairs
from xling_tf.corpora.readers import percentages
from xling_tf.corpora.split import normalised
from xling_tf.errors import UserError

_POOL = 1000  # pairs among which the nearest wrong candidate of a sentence is searched
# In percent of the scores' range: pairs from `_SAME` on mean the same, those up to `_DIFFERENT` do
# not. On the STS Benchmark's scale these are 4, "mostly equivalent", and 3, "some important
# information differs".
_SAME, _DIFFERENT = 80, 60
_BINS = 10


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
