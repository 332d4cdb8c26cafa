"""The training loop in this process: what comes when, and that a restart sees the same."""

import dataclasses
import json
from collections import Counter

import keras
import pytest
import tensorflow as tf
from testing import TINY, make_examples, tiny_model, two_replicas

from xling_tf.distribution import make_strategy
from xling_tf.overrides import apply_overrides
from xling_tf.trainer import Trainer, make_schedule

# Keras warns of one key alone, which is what a sentence of one word has.
pytestmark = pytest.mark.filterwarnings("ignore:You are using a softmax over axis:UserWarning")

WORDS = [*"abcdefghij"]
EXAMPLES = {
    "translation_ranking_en-es": make_examples(WORDS, [f"{word} hola" for word in WORDS]),
    "inference": make_examples(WORDS, WORDS[::-1], labels=[0, 1, 2, 0, 1, 2, 0, 1, 2, 0]),
}
SIZES = {name: len(examples) for name, examples in EXAMPLES.items()}
TWO_TASKS = apply_overrides(
    TINY,
    [
        *("tasks.response_prediction.weight=0", "tasks.quick_thought.weight=0"),
        *("tasks.alignment_steps=3", "tasks.inference.weight=2"),
        *("tasks.translation_ranking.examples_per_batch=2", "tasks.inference.examples_per_batch=2"),
    ],
)
# The lead, then the cycle of the weights 1 and 2.
ORDER = ["translation_ranking_en-es"] * 3 + [
    "inference",
    "translation_ranking_en-es",
    "inference",
] * 2


@pytest.fixture(scope="module")
def model():
    return tiny_model(TWO_TASKS)


def with_alignment(model, steps):
    tasks = dataclasses.replace(model.config.tasks, alignment_steps=steps)
    return model._replace(config=dataclasses.replace(model.config, tasks=tasks))


def make_trainer(model, folder, strategy):
    return Trainer(model=model, examples=EXAMPLES, strategy=strategy, run_dir=folder)


def test_translation_ranking_leads_and_the_cycle_follows(model):
    schedule = make_schedule(model, SIZES)
    assert [schedule.task(step) for step in range(9)] == ORDER


def test_without_alignment_steps_the_cycle_begins_at_once(model):
    schedule = make_schedule(with_alignment(model, 0), SIZES)
    assert schedule.lead == ()
    assert Counter(schedule.cycle) == {"translation_ranking_en-es": 1, "inference": 2}


def test_nothing_leads_where_there_are_no_translations(model):
    alone = model._replace(tasks=[task for task in model.tasks if task.name == "inference"])
    schedule = make_schedule(with_alignment(alone, 1000), SIZES)
    assert schedule.lead == ()
    assert schedule.task(0) == "inference"


def train(folder, *budgets):
    """Trains up to each number of steps in turn, always a new model; returns the last trainer."""
    folder.mkdir(exist_ok=True)
    strategy = make_strategy()
    for steps in budgets:
        training = dataclasses.replace(TWO_TASKS.training, steps=steps)
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = tiny_model(dataclasses.replace(TWO_TASKS, training=training))
        trainer = make_trainer(model, folder, strategy)
        assert trainer.train()
    return trainer


def metrics(folder):
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_a_restart_within_the_lead_and_one_after_it_change_nothing(tmp_path):
    whole = train(tmp_path / "whole", 9)
    parts = train(tmp_path / "parts", 2, 5, 9)
    assert whole.step == parts.step == 9
    curve, expected = metrics(tmp_path / "parts"), metrics(tmp_path / "whole")
    assert [line["task"] for line in curve] == ORDER
    for line, other in zip(curve, expected, strict=True):
        for key in ("task", "sentences", "learning_rate"):
            assert line[key] == other[key]
        assert line["loss"] == pytest.approx(other["loss"], rel=1e-5)
    assert parts.seconds > 0


def test_a_finished_training_trains_no_more(tmp_path):
    train(tmp_path, 2)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    assert train(tmp_path, 2).step == 2
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_one_replica_reads_its_batches_without_a_distributed_iterator(model, tmp_path):
    batches = make_trainer(model, tmp_path, make_strategy())._batches("inference")
    assert not isinstance(batches, tf.distribute.DistributedIterator)
    assert len(next(batches).labels) > 0


def test_each_replica_reads_batches_of_its_own(tmp_path):
    strategy = two_replicas()
    with strategy.scope():
        trainer = make_trainer(tiny_model(TWO_TASKS), tmp_path, strategy)
    trainer._step = 4  # one step of inference before: two batches
    batch = next(trainer._batches("inference"))
    first, second = strategy.experimental_local_results(batch.labels)
    sampler = trainer._samplers["inference"]
    labels = EXAMPLES["inference"].labels
    assert first.numpy().tolist() == labels[sampler.batch(2)].tolist()
    assert second.numpy().tolist() == labels[sampler.batch(3)].tolist()
