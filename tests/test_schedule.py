from collections import Counter

import pytest

from xling_tf.trainer.schedule import Schedule, learning_rate_factor


def test_a_cycle_holds_each_task_as_often_as_it_weighs():
    weights = {"a": 8, "b": 1, "c": 1, "d": 1}
    assert Counter(Schedule.from_weights(weights).cycle) == weights


def test_count_equals_counting():
    schedule = Schedule.from_weights({"a": 5, "b": 2, "c": 1})
    for steps in range(60):
        counted = Counter(schedule.task(step) for step in range(steps))
        for name in "abcd":
            assert schedule.count(name, steps) == counted[name]


@pytest.mark.parametrize(
    ("begin", "end", "warmup", "decay", "factor"),
    [
        (0.0, 0.025, 0.1, "constant", 0.25),  # the first step: a quarter of the rise is over at its end
        (0.55, 0.56, 0.1, "linear", 0.5),  # half of the 0.9 that are left after the rise
        (0.9, 1.0, 0.0, "linear", 0.1),  # the last of ten steps
        (0.0, 1.0, 0.1, "linear", 1.0),  # the only step
        (0.0, 0.5, 1.0, "linear", 0.5),
    ],
)
def test_learning_rate_factor(begin, end, warmup, decay, factor):
    computed = learning_rate_factor(begin, end, warmup=warmup, decay=decay)
    assert computed == pytest.approx(factor, abs=1e-4)
