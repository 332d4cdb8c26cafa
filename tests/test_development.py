"""Scores on held-out examples during training: the best weights, and when it is enough."""

import json
import logging as std_logging
import math
import signal

import keras
import numpy as np
import pytest
from testing import TINY, make_examples, tiny_model, two_replicas

from xling_tf.errors import UserError
from xling_tf.overrides import apply_overrides
from xling_tf.trainer.checkpoints import CheckpointError, Checkpoints
from xling_tf.trainer.development import Best, Development, HeldOutScores
from xling_tf.trainer.distribution import make_strategy
from xling_tf.trainer.loop import Trainer
from xling_tf.trainer.workers import Workers

# Keras warns of one key alone, which is what a sentence of one word has.
pytestmark = pytest.mark.filterwarnings("ignore:You are using a softmax over axis:UserWarning")

RANKING = "translation_ranking_en-es"
TEXTS = [*"abcdefghij"]
EXAMPLES = {
    RANKING: make_examples(TEXTS, [f"{text} hola" for text in TEXTS]),
    "inference": make_examples(TEXTS, TEXTS[::-1], labels=[0, 1, 2, 0, 1, 2, 0, 1, 2, 0]),
}
BOTH_TASKS = apply_overrides(
    TINY,
    [
        *("tasks.response_prediction.weight=0", "tasks.quick_thought.weight=0"),
        *("tasks.translation_ranking.examples_per_batch=2", "tasks.inference.examples_per_batch=2"),
        *("training.dev_steps=2", "training.patience=2", "training.dev_batches=2"),
        "training.steps=14",
    ],
)
CONFIG = apply_overrides(BOTH_TASKS, ["tasks.inference.weight=0"])
# What is scripted to be found after each number of steps. Better than before after steps 2, 4 and 8;
# two misses after 12. A loss that is equal, or no number, is no better.
LOSSES = {2: 5.0, 4: 4.0, 6: 4.0, 8: 3.0, 10: math.nan, 12: 3.5, 14: 1.0}


class Scripted(Development):
    """Finds the scripted losses, remembers the weights it saw, and is disturbed after some step."""

    def __init__(self, model, folder, *, disturb=None, at=0):
        super().__init__(model, EXAMPLES, folder / "checkpoints" / "best")
        self.model, self.disturb, self.at = model, disturb, at
        self.seen = {}

    def score(self, step):
        of_inference = {"loss": -LOSSES[step], "accuracy": 0.5, "num_examples": 4.0}
        of_ranking = {"loss": LOSSES[step], "accuracy": 0.5, "num_examples": 4.0}
        self._score = lambda: {RANKING: of_ranking, "inference": of_inference}
        self.seen[step] = self.model.encoder.get_weights()
        scores = super().score(step)
        if step == self.at:
            self.disturb()
        return scores


def make_trainer(folder, *overrides, disturb=None, at=0, strategy=None):
    folder.mkdir(exist_ok=True)
    keras.utils.set_random_seed(1)
    strategy = strategy or make_strategy()
    with strategy.scope():
        model = tiny_model(apply_overrides(CONFIG, overrides))
    development = Scripted(model, folder, disturb=disturb, at=at)
    trainer = Trainer(
        model=model,
        examples=EXAMPLES,
        workers=Workers(strategy),
        run_dir=folder,
        development=development,
    )
    return trainer, development


def assert_same(weights, expected):
    for value, other in zip(weights, expected, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-5, atol=1e-6)


def assert_differ(weights, others):
    assert any(np.abs(a - b).max() > 2e-5 for a, b in zip(weights, others, strict=True))


def dev_lines(folder):
    lines = (folder / "dev.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("undisturbed")


@pytest.fixture(scope="module")
def undisturbed(folder):
    """What was found in a training that nothing disturbed, with the last weights in its model."""
    trainer, development = make_trainer(folder)
    assert trainer.train()
    return development


def test_it_stops_when_patience_ends(undisturbed, folder):
    assert undisturbed.best == Best(loss=3.0, step=8, misses=2)
    assert [line["step"] for line in dev_lines(folder)] == [2, 4, 6, 8, 10, 12]
    assert dev_lines(folder)[1]["scores"][RANKING]["loss"] == 4
    assert_same(undisturbed.model.encoder.get_weights(), undisturbed.seen[12])


def test_a_finished_training_trains_no_more_and_leaves_its_best_weights(undisturbed, folder):
    trainer, development = make_trainer(folder)
    assert trainer.train()
    assert not development.seen
    assert trainer.step == 12
    assert_same(development.model.encoder.get_weights(), undisturbed.seen[12])
    assert trainer.use_best_weights() == 8
    best = development.model.encoder.get_weights()
    assert_same(best, undisturbed.seen[8])
    assert_differ(best, undisturbed.seen[12])


def test_without_patience_it_trains_to_the_end_and_scores_the_last_weights_too(tmp_path):
    trainer, development = make_trainer(
        tmp_path, "training.patience=0", "training.dev_steps=4", "training.steps=6"
    )
    assert trainer.train()
    assert trainer.step == 6
    assert sorted(development.seen) == [4, 6]


def interrupted():
    """As a kill does, it leaves what was written."""
    raise KeyboardInterrupt


def asked_to_stop():
    """As SIGTERM does, it lets the training write a checkpoint, in the middle between two scores."""
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("disturb", "at"),
    [
        pytest.param(interrupted, 4, marks=pytest.mark.slow),
        (interrupted, 6),
        pytest.param(asked_to_stop, 10, marks=pytest.mark.slow),
    ],
)
def test_a_restart_in_the_middle_changes_nothing(disturb, at, undisturbed, tmp_path):
    disturbed, _ = make_trainer(tmp_path, disturb=disturb, at=at)
    try:
        assert not disturbed.train()
    except KeyboardInterrupt:
        assert disturb is interrupted
    trainer, development = make_trainer(tmp_path)
    assert trainer.train()
    assert (trainer.step, development.best) == (12, undisturbed.best)
    assert [line["step"] for line in dev_lines(tmp_path)] == [2, 4, 6, 8, 10, 12]
    assert trainer.use_best_weights() == 8
    assert_same(development.model.encoder.get_weights(), undisturbed.seen[8])


def test_the_averages_are_scored_and_kept_while_the_weights_train_on(undisturbed, tmp_path):
    trainer, development = make_trainer(tmp_path, "optimizer.average_decay=0.5", "training.steps=4")
    assert trainer.train()
    encoder = development.model.encoder
    assert_same(encoder.get_weights(), undisturbed.seen[4])
    with trainer._optimizers.averaged():
        averages = encoder.get_weights()
    assert_differ(averages, undisturbed.seen[4])
    assert_same(development.seen[4], averages)
    assert trainer.use_best_weights() == 4
    assert_same(encoder.get_weights(), averages)


def test_without_scores_the_averages_of_the_last_weights_are_left(tmp_path):
    none = ("training.dev_steps=0", "training.patience=0", "training.steps=4")
    trainer, development = make_trainer(tmp_path, *none, "optimizer.average_decay=0.5")
    trainer._development = None
    trainer.train()
    model = development.model
    last = model.encoder.get_weights()
    with trainer._optimizers.averaged():
        averages = model.encoder.get_weights()
    assert trainer.use_best_weights() == 4
    assert_same(model.encoder.get_weights(), averages)
    assert_differ(last, averages)


@pytest.mark.slow
def test_every_replica_gets_the_best_weights(tmp_path):
    strategy = two_replicas()
    trainer, development = make_trainer(
        tmp_path, "optimizer.average_decay=0.5", "training.steps=4", strategy=strategy
    )
    assert trainer.train()
    scores = HeldOutScores(development.model, EXAMPLES)
    last = scores()
    assert trainer.use_best_weights() == 4
    for variable, best in zip(
        development.model.encoder.trainable_variables, development.seen[4], strict=True
    ):
        for replica in strategy.experimental_local_results(variable.value):
            np.testing.assert_allclose(replica, best, rtol=1e-6)
    assert scores() != last


def test_best_weights_that_find_no_room_are_a_warning(tmp_path, monkeypatch, caplog):
    def save(checkpoints, step, state):
        raise CheckpointError("no room")

    development = Scripted(tiny_model(CONFIG), tmp_path)
    development.score(4)
    monkeypatch.setattr(Checkpoints, "save", save)
    with caplog.at_level(std_logging.WARNING, logger="absl"):
        development.score(8)
    assert caplog.messages == ["no room; training goes on, and the best weights stay those before"]
    assert development.best == Best(loss=4.0, step=4)
    assert development.restore_best() == 4


def test_translations_alone_decide_where_there_are_some(tmp_path):
    model = tiny_model(BOTH_TASKS)
    development = Scripted(model, tmp_path)
    for step in (2, 4):
        development.score(step)
    # The losses of inference, -5 and then -4, are left out.
    assert development.best == Best(loss=4.0, step=4)


def test_without_translations_the_mean_of_all_tasks_decides(tmp_path):
    model = tiny_model(BOTH_TASKS)
    (inference,) = (task for task in model.tasks if task.name == "inference")
    of_others = {**EXAMPLES, RANKING: make_examples([], [])}
    development = Development(model._replace(tasks=[inference]), EXAMPLES, tmp_path)
    scores = development.score(1)
    assert development.best == Best(scores["inference"]["loss"], 1)
    of_none_held_out = Development(model, of_others, tmp_path / "other").score(1)
    assert list(of_none_held_out) == ["inference"]


def test_without_held_out_examples_it_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"training\.dev_steps expects held-out examples"):
        Development(tiny_model(CONFIG), {}, tmp_path)


def test_the_same_examples_are_scored_each_time_however_many_training_ranks():
    model = tiny_model(apply_overrides(CONFIG, ["tasks.translation_ranking.candidates=10"]))
    score = HeldOutScores(model, EXAMPLES)
    first = score()
    assert first == score()
    other = tiny_model(CONFIG)
    other.encoder.set_weights(model.encoder.get_weights())
    assert HeldOutScores(other, EXAMPLES)()[RANKING] == pytest.approx(first[RANKING], rel=1e-5)
