"""The schedule: the task, batch and learning rate of each step, as pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Budget(NamedTuple):
    """Steps and seconds: what a training has used, or its limits, which may be infinite.

    Examples:
        >>> Budget(30, 8.0).share_of(Budget(40, float("inf")))
        0.75
    """

    steps: float
    seconds: float

    def less(self, other: "Budget") -> "Budget":
        """Returns the difference."""
        return Budget(self.steps - other.steps, self.seconds - other.seconds)

    def share_of(self, limit: "Budget") -> float:
        """Returns the share of the steps or of the seconds, whichever is larger; at most 1."""
        shares = (used / most if most > 0 else 1.0 for used, most in zip(self, limit, strict=True))
        return min(1.0, max(shares))


@dataclass(frozen=True)
class Schedule:
    """Cycles through the tasks, one per step (Chidambaram et al. 2019, sec. 3.2).

    Examples:
        >>> schedule = Schedule.from_weights({"a": 2, "b": 1})
        >>> [schedule.task(step) for step in range(4)]
        ['a', 'b', 'a', 'a']
        >>> schedule.count("a", 4)  # batches of "a" used before step 4
        3
    """

    cycle: tuple[str, ...]  # names of the tasks in the order of the steps

    @classmethod
    def from_weights(cls, weights: Mapping[str, int]) -> "Schedule":
        """Returns a schedule that spreads `weights[name]` steps of each task evenly over one cycle.

        The next task is the one that is furthest behind its share; of equals, the first.
        """
        total = sum(weights.values())
        credit = dict.fromkeys(weights, 0)
        cycle = []
        for _ in range(total):
            for name, weight in weights.items():
                credit[name] += weight
            chosen = max(credit, key=lambda name: credit[name])
            credit[chosen] -= total
            cycle.append(chosen)
        return cls(tuple(cycle))

    def task(self, step: int) -> str:
        """Returns the name of the task of a step."""
        return self.cycle[step % len(self.cycle)]

    def count(self, name: str, steps: int) -> int:
        """Returns the number of steps of task `name` among the first `steps`."""
        whole, rest = divmod(steps, len(self.cycle))
        return whole * self.cycle.count(name) + self.cycle[:rest].count(name)


def sampling_weights(weight: int, sizes: Sequence[float], temperature: float) -> list[int]:
    """Divides the steps of one kind of task among its languages, by their numbers of examples.

    Steps are proportional to size ** (1 / temperature) (Arivazhagan et al. 2019, sec. 4.2).

    Returns:
        Steps of each language in ten cycles, at least 1; `weight` in one cycle if the temperature
        is 0.

    Examples:
        >>> sampling_weights(1, [900, 100], temperature=1.0)
        [18, 2]
        >>> sampling_weights(1, [900, 100], temperature=2.0)  # in proportion to 30 and 10
        [15, 5]
    """
    if not temperature:
        return [weight] * len(sizes)
    # Relative to the largest, so that a low temperature does not overflow.
    powers = [(size / max(sizes)) ** (1 / temperature) for size in sizes]
    steps = 10 * weight * len(sizes)
    return [max(1, round(steps * power / sum(powers))) for power in powers]


def learning_rate_factor(begin: float, end: float, *, warmup: float, decay: str) -> float:
    """Returns the factor on the learning rates of one step, which rises linearly and then may fall.

    The rise depends on the end of the step, and the fall on its beginning, so that neither the
    first nor the last step has a learning rate of 0. All numbers are shares of the budget; see
    `OptimizerConfig`.

    Examples:
        >>> [learning_rate_factor(i / 4, (i + 1) / 4, warmup=0.5, decay="linear") for i in range(4)]
        [0.5, 1.0, 1.0, 0.5]
    """
    rise = min(1.0, end / warmup) if warmup else 1.0
    fall = min(1.0, (1 - begin) / (1 - warmup)) if decay == "linear" and warmup < 1 else 1.0
    return min(rise, fall)
