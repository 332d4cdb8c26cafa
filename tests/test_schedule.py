from collections import Counter

import pytest

from xling_tf.trainer.schedule import Schedule, learning_rate_factor


@pytest.mark.parametrize(
    "weights", [{"a": 1}, {"a": 2, "b": 1}, {"a": 8, "b": 1, "c": 1, "d": 1}, {"x": 3, "y": 5}]
)
def test_a_cycle_holds_each_task_as_often_as_it_weighs(weights):
    schedule = Schedule.from_weights(weights)
    assert Counter(schedule.cycle) == weights
    for step in range(3 * len(schedule.cycle)):
        assert schedule.task(step) == schedule.cycle[step % sum(weights.values())]


def test_order_by_hand():
    # Credits (a, b) with weights 2, 1: (2, 1) -> a, (1, 2) -> b, (3, 0) -> a, (0, 0) again.
    assert Schedule.from_weights({"a": 2, "b": 1}).cycle == ("a", "b", "a")


def test_the_lead_comes_first_and_the_cycle_begins_after_it():
    schedule = Schedule(("a", "b"), lead=("b", "b", "c"))
    assert [schedule.task(step) for step in range(8)] == list("bbcababa")


@pytest.mark.parametrize(
    "lead", ["", "a", "c", "aaaaa", "abacabad", "a" * 41], ids=lambda lead: f"lead of {len(lead)}"
)
@pytest.mark.parametrize("weights", [{"a": 1}, {"a": 5, "b": 2, "c": 1}])
def test_count_equals_counting(weights, lead):
    schedule = Schedule.from_weights(weights, tuple(lead))
    for steps in range(60):
        counted = Counter(schedule.task(step) for step in range(steps))
        for name in "abcd":
            assert schedule.count(name, steps) == counted[name]


@pytest.mark.parametrize(
    ("progress", "warmup", "decay", "factor"),
    [
        (0.0, 0.0, "constant", 1.0),
        (0.7, 0.0, "constant", 1.0),
        (0.0, 0.1, "constant", 0.0),
        (0.025, 0.1, "constant", 0.25),
        (0.1, 0.1, "constant", 1.0),
        (0.9, 0.1, "constant", 1.0),
        (0.0, 0.0, "linear", 1.0),
        (0.25, 0.0, "linear", 0.75),
        (0.1, 0.1, "linear", 1.0),
        (0.55, 0.1, "linear", 0.5),  # half of the 0.9 that are left after the rise
        (1.0, 0.1, "linear", 0.0),
    ],
)
def test_learning_rate_factor(progress, warmup, decay, factor):
    assert learning_rate_factor(progress, warmup=warmup, decay=decay) == pytest.approx(factor, abs=1e-4)
