"""The probability of a match: what a score means, by two numbers that are fitted."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UserError

Line = tuple[float, float]  # slope and intercept of the log odds as a function of the score

_STEPS = 50

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


def equal_weights(is_match: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Returns `[pairs]` weights with which matches and others count equally, a sum of 0.5 each."""
    counts = np.maximum([np.sum(~is_match), np.sum(is_match)], 1)
    return (0.5 / counts)[is_match.astype(int)]


def fit_line(
    scores: NDArray[np.floating],
    is_match: NDArray[np.bool_],
    num_candidates: ArrayLike = 1,
    weights: NDArray[np.floating] | None = None,
) -> Line:
    """Fits the line of `probabilities` by Newton's method (Platt 1999, sec. 2.2).

    Args:
        scores: `[pairs]` cosines or other scores.
        is_match: `[pairs]`.
        num_candidates: Number of texts with which the first text of a pair was compared.
        weights: `[pairs]`; None stands for `equal_weights`, as if half of all pairs matched.

    Raises:
        UserError: There are not pairs of both kinds.

    Examples:
        >>> line = fit_line(np.array([0.0, 1.0]), np.array([False, True]))
        >>> probabilities([0.0, 0.5, 1.0], line).round(2).tolist()
        [0.33, 0.5, 0.67]
    """
    counts = np.array([np.sum(~is_match), np.sum(is_match)])
    if not counts.all():
        kinds = f"{counts[1]} that match, {counts[0]} that do not"
        raise UserError(f"expected pairs that match and pairs that do not, got {kinds}")
    # Targets short of 0 and 1 keep the line finite if scores separate both kinds (Platt, eq. 6).
    targets = np.array([1 / (counts[0] + 2), (counts[1] + 1) / (counts[1] + 2)])[
        is_match.astype(int)
    ]
    weights = equal_weights(is_match) if weights is None else weights
    numbers = np.broadcast_to(num_candidates, scores.shape)
    center, scale = np.mean(scores), max(float(np.std(scores)), 1e-6)
    inputs = np.stack([(scores - center) / scale, np.ones(len(scores))])
    # Begins where an average pair has the log odds 0.
    line = np.array([0.0, np.average(np.log(numbers) / 2, weights=weights)])
    for _ in range(_STEPS):
        predicted = probabilities(inputs[0], (line[0], line[1]), numbers)
        gradient = inputs @ (weights * (predicted - targets))
        hessian = (inputs * weights * predicted * (1 - predicted)) @ inputs.T + 1e-9 * np.eye(2)
        line -= np.linalg.solve(hessian, gradient)
    slope = line[0] / scale
    return float(slope), float(line[1] - slope * center)


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
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1:
        raise UserError(f"{name} must be a number from 0 to 1, got {value!r}")
