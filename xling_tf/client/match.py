"""The probability of a match: what a cosine means, by two numbers that are fitted for a model."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UserError

Line = tuple[float, float]  # slope and intercept of the log odds as a function of the cosine

# What may match, with the roles of both texts.
KINDS: Mapping[str, tuple[str, str]] = {
    "same_meaning": ("default", "default"),
    "answer": ("query", "document"),
}


def probabilities(
    cosines: ArrayLike, line: Line, num_candidates: ArrayLike = 1
) -> NDArray[np.float64]:
    """Computes the probabilities of matches from cosines.

    The log odds are a linear function of the cosine (Platt 1999, "Probabilistic outputs for support
    vector machines", sec. 2.2). The best of many wrong candidates has a higher cosine than the best
    of few, so the odds are divided by the square root of their number: measured from 4 to 3,000
    documents, this preserves the share of refused questions (docs/evaluation.md).

    Args:
        cosines: `[pairs]`.
        line: Slope and intercept.
        num_candidates: Number of texts with which the first text of a pair was compared.

    Examples:
        >>> line = (10.0, -5.0)
        >>> probabilities([0.5, 0.7], line).round(2).tolist()
        [0.5, 0.88]
        >>> probabilities([0.7], line, num_candidates=50).round(2).tolist()
        [0.51]
    """
    log_odds = line[0] * np.asarray(cosines, np.float64) + line[1] - np.log(num_candidates) / 2
    return (1 + np.tanh(log_odds / 2)) / 2


def as_lines(values: Any) -> dict[str, Line]:
    """Returns the lines by kind from a file of an export, without those that are no two numbers."""
    lines: dict[str, Line] = {}
    for kind, line in values.items() if isinstance(values, Mapping) else ():
        match line:
            case [float(slope), float(intercept)] if kind in KINDS:
                lines[kind] = slope, intercept
    return lines


def line_of(lines: Mapping[str, Line], kind: str) -> Line:
    """Returns the line of a kind of match; raises a `UserError` if the model has none."""
    if kind not in lines:
        raise UserError(
            f"the model has no probability of the kind {kind}, which training and import add; add "
            "it with xling_tf.calibrate(model, pairs, output=...)"
        )
    return lines[kind]


def require_probability(value: Any, name: str) -> None:
    """Raises a `UserError` unless the argument of this name is a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise UserError(f"{name} must be a number from 0 to 1, got {value!r}")
    if not (math.isfinite(value) and 0 <= value <= 1):
        raise UserError(f"{name} must be from 0 to 1, got {value}")
