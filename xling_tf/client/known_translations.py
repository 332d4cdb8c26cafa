"""Chooses the margin of mined translations by some translations that are known.

The known translations are hidden among the texts. Their margins are those of right pairs; without
their translations, the same sentences show which margins wrong pairs reach. A logistic regression
tells both apart. The share of right pairs among all others is not known: it is estimated from their
margins as in Saerens et al. 2002 ("Adjusting the outputs of a classifier to new a priori
probabilities: a simple procedure", eq. 2.9).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from .match import fit_line, probabilities
from .neighbours import Neighbours

_MIN_KNOWN = 20  # fewer say nothing about a share
_LEAST = 0.5  # lower margins, also negative ones, count as this one
_STEPS = 1000
_CONVERGED = 1e-9


class MarginChoice(NamedTuple):
    """A margin, and what pairs that reach it are worth."""

    margin: float
    precision: float  # estimated share of translations among the pairs without a known sentence
    recall: float  # share of the known translations that are found


class Pairs(NamedTuple):
    """Pairs by their margins, best first, as `best_pairs` returns them."""

    margins: NDArray[np.float64]
    firsts: NDArray[np.int64]
    seconds: NDArray[np.int64]

    def from_margin(self, margin: float) -> "Pairs":
        """Returns the pairs that reach a margin."""
        is_kept = self.margins >= margin
        return Pairs(self.margins[is_kept], self.firsts[is_kept], self.seconds[is_kept])


class WithoutKnown:
    """The neighbours of one side's sentences, without those that are their known translations."""

    def __init__(self, parts: Iterable[Neighbours], known: NDArray[np.int64]) -> None:
        self._parts, self._known = parts, known  # `[known, 2]`: a sentence, and its translation

    def __iter__(self) -> Iterator[Neighbours]:
        start = 0
        for part in self._parts:
            is_here = (start <= self._known[:, 0]) & (self._known[:, 0] < start + len(part.scores))
            scores, indices = part.scores.copy(), part.indices.copy()
            for row, translation in (self._known[is_here] - [start, 0]).tolist():
                (others,) = np.nonzero(indices[row] != translation)
                if len(others):
                    # The farthest of the rest stands for the next one, which was not searched.
                    order = others[np.minimum(np.arange(indices.shape[1]), len(others) - 1)]
                    scores[row], indices[row] = scores[row, order], indices[row, order]
                else:
                    scores[row], indices[row] = -np.inf, -1
            yield Neighbours(scores, indices)
            start += len(scores)


def choose_margin(
    pairs: Pairs, without_known: Pairs, known: NDArray[np.int64], precision: float
) -> MarginChoice:
    """Returns the smallest margin from which pairs have a precision.

    Args:
        pairs: The pairs of all sentences.
        without_known: Those that `WithoutKnown` neighbours give.
        known: `[known, 2]` numbers of sentences that are translations of each other.
        precision: Wanted share of right pairs, below 1.

    Raises:
        UserError: The known translations are too few, or no margin has this precision.
    """
    require_precision(precision)
    if len(known) < _MIN_KNOWN:
        raise UserError(
            f"expected {_MIN_KNOWN} `known` translations or more with both sides among the texts, "
            f"got {len(known)}; encode them together with the texts"
        )
    is_known = _are_known(pairs, known)
    is_other = ~_touch(pairs, known)
    if not is_other.any():
        raise UserError("expected other texts beside the `known` translations, but there are none")
    wrong = without_known.margins[_touch(without_known, known) & ~_are_known(without_known, known)]
    right = pairs.margins[is_known]
    if not len(right) or not len(wrong):
        raise UserError(
            f"{len(right)} of {len(known)} `known` translations are found at any margin, and "
            f"{len(wrong)} wrong pairs; use a model that knows both languages, or more texts"
        )
    is_right = np.arange(len(right) + len(wrong)) < len(right)
    line = fit_line(_evidence(np.append(right, wrong)), is_right)
    others = pairs.margins[is_other]
    likely = _adjusted(probabilities(_evidence(others), line))
    shares = np.cumsum(likely) / np.arange(1, len(others) + 1)
    # Equal margins are kept together.
    is_last = np.append(others[1:] < others[:-1], True)
    (precise,) = np.nonzero((shares >= precision) & is_last & (line[0] > 0))
    if not len(precise):
        raise UserError(
            f"no margin has a `precision` of {precision:g}; ask for less, or use a model that "
            "knows both languages"
        )
    margin = float(others[precise[-1]])
    recall = float(np.sum(right >= margin)) / len(known)
    return MarginChoice(margin, float(shares[precise[-1]]), recall)


def require_precision(precision: float) -> None:
    """Raises a `UserError` for a precision that cannot be asked for."""
    if not 0 < precision < 1:
        raise UserError(f"`precision` must be above 0 and below 1, got {precision!r}")


def as_known(known: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Returns pairs of numbers as an array `[known, 2]`."""
    return np.unique(np.asarray(known, np.int64).reshape(-1, 2), axis=0)


def _are_known(pairs: Pairs, known: NDArray[np.int64]) -> NDArray[np.bool_]:
    width = 1 + max(pairs.seconds.max(initial=0), known[:, 1].max(initial=0))
    return np.isin(pairs.firsts * width + pairs.seconds, known[:, 0] * width + known[:, 1])


def _touch(pairs: Pairs, known: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.isin(pairs.firsts, known[:, 0]) | np.isin(pairs.seconds, known[:, 1])


def _evidence(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the negative reciprocals of margins, in which the log odds are linear.

    A reciprocal is the mean cosine to the neighbours, divided by the cosine of the pair. A line in
    the margins themselves would underestimate how many wrong pairs have high margins.
    """
    return -1 / np.maximum(margins, _LEAST)


def _adjusted(predicted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns probabilities for the share of right pairs that makes the given ones most likely.

    The given ones are for equally many right and wrong pairs.
    """
    share = 0.5
    adjusted = predicted
    for _ in range(_STEPS):
        adjusted = predicted * share / (predicted * share + (1 - predicted) * (1 - share))
        before, share = share, float(np.clip(np.mean(adjusted), 1e-9, 1 - 1e-9))
        if abs(share - before) < _CONVERGED:
            break
    return adjusted
