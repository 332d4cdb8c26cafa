"""The pull back to the starting encoder: its size by hand, and what it does to a training."""

import numpy as np
import pytest
import tensorflow as tf
from testing import TINY, find_task, make_batch, make_examples, tiny_model

from xling_tf.overrides import apply_overrides
from xling_tf.tasks.base import StartingEncoder
from xling_tf.trainer.distribution import make_strategy
from xling_tf.trainer.loop import Trainer
from xling_tf.trainer.workers import Workers

# Keras warns of one key alone, which is what a sentence of one word has.
pytestmark = pytest.mark.filterwarnings("ignore:You are using a softmax over axis:UserWarning")

SOURCES = ["a b", "hello", "c d e", "f g", "world", "i"]
TARGETS = ["hola", "mundo a", "j", "i j", "hola mundo", "d e"]
TASK = "translation_ranking_en-es"


def test_the_loss_by_hand():
    # Column 1: cos((3, 4), (4, 3)) = 24 / 25, a distance of 0.04; column 2: at a right angle, 1. Their
    # mean, 0.52, times 2. Twice as long a vector is as near.
    start = StartingEncoder([], 2.0)
    now = [tf.constant([[3.0, 4.0]]), tf.constant([[0.0, 5.0]])]
    then = [tf.constant([[8.0, 6.0]]), tf.constant([[1.0, 0.0]])]
    assert start.losses(now, then).numpy() == pytest.approx([1.04])


def test_the_starting_encodings_have_no_gradient():
    start, vectors = StartingEncoder([], 1.0), tf.Variable([[3.0, 4.0]])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(start.losses([tf.constant([[1.0, 0.0]])], [vectors * 2]))
    assert tape.gradient(loss, vectors) is None


def changed_model(*settings):
    """A model whose variables have moved since its start was taken, and its encodings before and after."""
    model = tiny_model(apply_overrides(TINY, settings))
    variables = [*model.encoder.table_variables, *model.encoder.dense_variables]
    start = StartingEncoder(variables, 1.0)
    batch = make_batch(model, make_examples(SOURCES, TARGETS))
    before = model.encoder(batch.features)
    for variable in variables:
        variable.assign(variable * 1.5 + 0.1)
    return model, start, batch, before.numpy()


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("size", [6, 2])  # in one, and in three parts
def test_the_encoder_stands_in_for_what_it_was(size, in_graph):
    settings = [
        f"tasks.translation_ranking.{name}" for name in ("examples_per_batch", "candidates")
    ]
    model, start, batch, before = changed_model(f"{settings[0]}={size}", f"{settings[1]}=6")
    task, encoder = find_task(model, TASK), model.encoder

    def losses(batch):
        return task.losses(encoder, batch, start)[0] - task.losses(encoder, batch)[0]

    added = (tf.function(losses) if in_graph else losses)(batch)
    after = encoder(batch.features).numpy()
    cosines = np.sum(before * after, axis=1) / (
        np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    )
    assert cosines.min() < 0.99
    # Texts 0 to 5 are the sources and 6 to 11 the targets of the same examples.
    expected = (2 - cosines[:6] - cosines[6:]) / 2
    np.testing.assert_allclose(added, expected, atol=1e-5)


def train(tmp_path, *settings):
    """Trains a tiny model; returns the cosines of its encodings to those before, and its variables."""
    config = apply_overrides(
        TINY,
        [
            "optimizer.name=adam",
            "optimizer.learning_rate=0.01",
            "optimizer.embedding_learning_rate=0.05",
            "training.steps=40",
            "initial.model=any",
            *settings,
        ],
    )
    workers = Workers(make_strategy())
    tmp_path.mkdir(exist_ok=True)
    with workers.strategy.scope():
        model = tiny_model(config)
    model = model._replace(tasks=[find_task(model, TASK)])
    examples = make_examples(SOURCES, TARGETS)
    features = make_batch(model, examples).features
    variables = [*model.encoder.table_variables, *model.encoder.dense_variables]
    before, values = model.encoder(features).numpy(), [v.numpy() for v in variables]
    trainer = Trainer(model=model, examples={TASK: examples}, workers=workers, run_dir=tmp_path)
    assert trainer.train()
    after = model.encoder(features).numpy()
    products = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    moved = [bool(np.any(v.numpy() != old)) for v, old in zip(variables, values, strict=True)]
    return np.sum(before * after, axis=1) / products, moved


@pytest.mark.slow
def test_a_large_weight_keeps_the_space_and_none_lets_it_go(tmp_path):
    free, _ = train(tmp_path / "free")
    kept, _ = train(tmp_path / "kept", "initial.keep_weight=300")
    assert free.mean() < 0.9
    assert kept.min() > 0.99


@pytest.mark.parametrize("settings", [(), ("initial.keep_weight=1",)])
def test_frozen_tables_stay_and_all_else_moves(settings, tmp_path):
    _, moved = train(tmp_path, "optimizer.embedding_learning_rate=0", *settings)
    assert moved == [False, False] + [True] * (len(moved) - 2)
