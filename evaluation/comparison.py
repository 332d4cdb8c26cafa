"""Intervals of scores and of the difference between two models, by scipy.stats."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluation.paper_tables import is_correlation
from xling_tf.errors import library

Interval = tuple[float, float]
Values = NDArray[np.float64]

MIN_DATASETS = 5  # means of fewer have no interval
# Scores that are shares of examples, each right or wrong.
_SHARES = ("accuracy", "precision_at_1", "recall_at_1", "error_rate")


class Difference(NamedTuple):
    """By how many points the first of two models is better on average over data sets.

    `chance` is the share of random swaps of the two models' scores whose means differ as much.
    """

    mean: float
    interval: Interval
    chance: float

    @property
    def is_clear(self) -> bool:
        """True if chance does not explain the difference."""
        return self.chance < 0.05 and self.interval[0] * self.interval[1] > 0


def interval_of_mean(values: Values) -> Interval | None:
    """The interval of 95% of the means of resampled data sets; None if there are too few."""
    if len(values) < MIN_DATASETS:
        return None
    stats = library("scipy.stats", "scipy", "evaluation")
    low, high = stats.bootstrap(
        (values,), np.mean, method="percentile", random_state=0
    ).confidence_interval
    return float(low), float(high)


def interval_of_score(metric: str, value: float, count: int) -> Interval | None:
    """The 95% interval for the choice of `count` examples; None for metrics without one."""
    stats = library("scipy.stats", "scipy", "evaluation")
    if count and metric.endswith(_SHARES):
        low, high = stats.binomtest(round(value * count), count).proportion_ci(method="wilson")
    elif count > 3 and is_correlation(metric) and abs(value) < 1:
        low, high = np.tanh(stats.norm.interval(0.95, np.arctanh(value), (count - 3) ** -0.5))
    else:
        return None
    return float(low), float(high)


def difference(first: Values, second: Values) -> Difference | None:
    """Compares two models on the same data sets, higher is better; None if there are too few."""
    if (interval := interval_of_mean(100 * (first - second))) is None:
        return None
    stats = library("scipy.stats", "scipy", "evaluation")
    pairs, mean = (first, second), lambda x, y, axis: np.mean(x - y, axis=axis)
    swapped = stats.permutation_test(pairs, mean, permutation_type="samples", random_state=0)
    return Difference(100 * float(swapped.statistic), interval, float(swapped.pvalue))
