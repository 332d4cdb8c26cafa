"""The training loop in one process: checkpoints, clocks, signals, learning rates, draws."""

import itertools
import logging as std_logging
import signal
from collections import Counter

import numpy as np
import pytest
from tensorflow.python.framework import op_callbacks
from testing import TWO_TASKS, find_task, make_trainer, tiny_config, tiny_model

from xling_tf.settings import apply_overrides
from xling_tf.trainer.checkpoints import CheckpointError, Checkpoints
from xling_tf.trainer.distribution import ALONE, Workers, make_strategy
from xling_tf.trainer.loop import Trainer, _stop_requests
from xling_tf.trainer.schedule import Schedule, learning_rate_factor
from xling_tf.trainer.stages import make_schedule

pytestmark = pytest.mark.usefixtures("without_graphs")


def test_a_checkpoint_that_finds_no_room_is_a_warning_but_the_last_one_must(
    tmp_path, monkeypatch, caplog
):
    save, steps = Checkpoints.save, []

    def on_a_full_disk(checkpoints, step, state):
        steps.append(step)
        if len(steps) in (1, 2, 5):
            raise CheckpointError("no room")
        save(checkpoints, step, state)

    monkeypatch.setattr(Checkpoints, "save", on_a_full_disk)
    trainer = make_trainer(tmp_path, apply_overrides(TWO_TASKS, ["training.checkpoint_minutes=0"]))
    with (
        caplog.at_level(std_logging.WARNING, logger="absl"),
        pytest.raises(CheckpointError, match="no room"),
    ):
        trainer.train()
    warnings = [record.getMessage() for record in caplog.records if record.name == "absl"]
    # TensorFlow's own logger may count the traces of earlier tests.
    assert warnings == ["no room; training continues"] * 2
    assert steps == [1, 2, 3, 4, 4]  # after each step, and at the end


class Follower(Workers):
    """A worker that is not the chief, whose chief's clock stands still at `seconds`."""

    def __init__(self, seconds, stops=0):
        super().__init__(make_strategy(), ALONE)
        self.seconds, self.stops, self.is_chief = seconds, stops, False

    def add_up(self, numbers):
        assert numbers == [0.0, 0.0, 0.0]  # its own clock does not count
        return [self.seconds, self.stops, 0.0]

    def from_chief(self, make):
        return None


@pytest.mark.parametrize(("seconds", "stops", "finished"), [(60.0, 0, True), (30.0, 1, False)])
def test_the_chiefs_clock_and_the_signal_of_any_decide_for_all(seconds, stops, finished, tmp_path):
    config = apply_overrides(TWO_TASKS, ["training.minutes=1", "training.checkpoint_minutes=0"])
    trainer = make_trainer(tmp_path, config, workers=Follower(seconds, stops))
    assert trainer.train() == finished
    assert (trainer.step, trainer.seconds) == (1, seconds)
    assert not list(tmp_path.iterdir())  # only the chief writes


def test_making_graphs_takes_no_time_from_the_budget_and_changes_no_weight(tmp_path, monkeypatch):
    compile_step, train_step = Trainer._compile, Trainer._train_step
    settings = ["encoder.bow_residual=true", "stages.average.share=0.4", "optimizer.name=adam"]
    settings += ["optimizer.warmup=0.5", "training.steps=0", "training.minutes=0.1"]

    def rates(delay):
        """Learning rates if each look at the clock takes half a second, and a graph `delay`."""
        clock, compiled, steps = itertools.count(), [], []

        def slow_compile(trainer, stage, task):
            assert not steps, "a graph is made within the budget"
            compiled.append((stage.name, task.name))
            return compile_step(trainer, stage, task)

        def recorded_step(trainer, stage):
            # What the trainer was made with: no weight has changed, and no step counts.
            if not steps:
                for name, variable in trainer.model.weights.items():
                    np.testing.assert_array_equal(variable.numpy(), start[name])
                state = trainer._optimizers.named_variables
                assert not any(np.any(variable.numpy()) for variable in state.values())
            steps.append(train_step(trainer, stage))
            return steps[-1]

        monkeypatch.setattr("time.monotonic", lambda: next(clock) / 2 + delay * len(compiled))
        monkeypatch.setattr(Trainer, "_compile", slow_compile)
        monkeypatch.setattr(Trainer, "_train_step", recorded_step)
        trainer = make_trainer(tmp_path / str(delay), apply_overrides(TWO_TASKS, settings))
        start = {name: variable.numpy() for name, variable in trainer.model.weights.items()}
        assert trainer.train()
        tasks = ["translation_ranking_en-es", "inference"]
        assert compiled == [(stage, task) for stage in ("average", "whole") for task in tasks]
        return [step.learning_rate for step in steps]

    at_once = rates(0)
    # The first step is taken to last a second: of the first stage's .4 of six seconds, half of
    # which is the rise to .1, 1 / 1.2.
    assert at_once[0] == pytest.approx(0.1 / 1.2)
    assert len(at_once) > 2
    assert rates(30) == at_once


def test_no_operation_runs_by_itself_between_two_steps(tmp_path):
    trainer, operations = make_trainer(tmp_path), []
    trainer._compile = lambda *_: lambda batch, factor: None
    trainer._stages[0].next_batch = lambda _: None
    op_callbacks.add_op_callback(watch := lambda kind, *_: operations.append(kind))
    for trainer.step in range(3):
        trainer._train_step(trainer._stage())
    op_callbacks.remove_op_callback(watch)
    assert not operations


def test_a_language_is_drawn_by_its_size_and_the_temperature():
    config = tiny_config("data.targets=es,fr", "data.sampling_temperature=2")
    sizes = {"translation_ranking_en-es": 900, "translation_ranking_en-fr": 100, "inference": 7}
    tasks = [task for task in tiny_model(config).tasks if task.name in sizes]
    steps = make_schedule(tasks, sizes, config).cycle
    # Roots of 900 and 100 are 30 and 10: of 2 languages' 10 steps each, 15 and 5; inference has 10.
    assert [*map(steps.count, sizes)] == [15, 5, 10]


def test_the_batches_of_a_task_before_a_step_are_counted_without_its_steps():
    schedule = Schedule.from_weights({"a": 5, "b": 2, "c": 1})
    for steps in range(60):
        counted = Counter(schedule.task(step) for step in range(steps))
        for name in "abcd":
            assert schedule.count(name, steps) == counted[name]


@pytest.mark.parametrize(
    ("begin", "end", "warmup", "decay", "factor"),
    [
        # The first step: a quarter of the rise is over at its end.
        (0.0, 0.025, 0.1, "constant", 0.25),
        (0.55, 0.56, 0.1, "linear", 0.5),  # half of the 0.9 that are left after the rise
        (0.9, 1.0, 0.0, "linear", 0.1),  # the last of ten steps
        (0.0, 1.0, 0.1, "linear", 1.0),  # the only step
        (0.0, 0.5, 1.0, "linear", 0.5),
    ],
)
def test_learning_rates_rise_and_fall_with_the_budget(begin, end, warmup, decay, factor):
    computed = learning_rate_factor(begin, end, warmup=warmup, decay=decay)
    assert computed == pytest.approx(factor, abs=1e-4)


def test_the_first_signal_asks_to_stop_and_the_second_interrupts():
    before = signal.getsignal(signal.SIGTERM)
    with _stop_requests() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_loss_that_is_no_number_stops_the_training(tmp_path):
    trainer = make_trainer(tmp_path, apply_overrides(TWO_TASKS, ["tasks.inference.weight=2"]))
    for weights in find_task(trainer.model, "inference").variables():
        weights.assign(weights * np.nan)
    with pytest.raises(ValueError, match="diverged at step 0, in task inference"):
        trainer.train()
    assert not (tmp_path / "checkpoints").exists()
