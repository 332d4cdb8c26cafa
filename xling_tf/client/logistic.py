"""Logistic regression on one value: the probability that a pair is right, from its score.

The log odds are a linear function of the value, fitted as in Platt 1999 ("Probabilistic outputs for
support vector machines", sec. 2.2). Both classes count equally, as if half of all pairs were right.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError

Line = tuple[float, float]  # slope and intercept of the log odds as a function of the value

_STEPS = 50


def fit_line(values: NDArray[np.floating], is_true: NDArray[np.bool_]) -> Line:
    """Fits the line by Newton's method; a `UserError` unless there are values of both classes."""
    counts = np.array([np.sum(~is_true), np.sum(is_true)])
    if not counts.all():
        kinds = f"{counts[1]} that mean the same, {counts[0]} that do not"
        raise UserError(f"expected pairs that mean the same and pairs that do not, got {kinds}")
    # Targets short of 0 and 1 keep the line finite if values separate both kinds (Platt, eq. 6).
    targets = np.array([1 / (counts[0] + 2), (counts[1] + 1) / (counts[1] + 2)])[
        is_true.astype(int)
    ]
    weights = (0.5 / counts)[is_true.astype(int)]
    center, scale = np.mean(values), max(float(np.std(values)), 1e-6)
    inputs = np.stack([(values - center) / scale, np.ones(len(values))])
    line = np.zeros(2)
    for _ in range(_STEPS):
        predicted = probabilities(inputs[0], (line[0], line[1]))
        gradient = inputs @ (weights * (predicted - targets))
        hessian = (inputs * weights * predicted * (1 - predicted)) @ inputs.T + 1e-9 * np.eye(2)
        line -= np.linalg.solve(hessian, gradient)
    slope = line[0] / scale
    return float(slope), float(line[1] - slope * center)


def probabilities(values: NDArray[np.floating], line: Sequence[float]) -> NDArray[np.float64]:
    """The probabilities of the true class at `[values]`."""
    return 0.5 * (1 + np.tanh((line[0] * np.asarray(values, np.float64) + line[1]) / 2))
