"""Prefixes of the vectors rank as well (Kusupati et al. 2022)."""

import numpy as np
import pytest
import tensorflow as tf
from testing import find_task, make_batch, make_examples, numpy_ranking, tiny_config, tiny_model

from xling_tf.config import apply_overrides

# Keras warns of one key alone, which is what a sentence of one word has.
pytestmark = pytest.mark.filterwarnings("ignore:You are using a softmax over axis:UserWarning")

FIRST = ["a b", "hello", "c d e", "f g", "hello world"]
SECOND = ["hola", "mundo a", "b b b", "i j", "hola mundo"]


@pytest.mark.parametrize("normalize", [False, True])
def test_the_loss_is_the_mean_over_the_prefixes(normalize):
    model = tiny_model(tiny_config(normalize=normalize, scale=3.0, matryoshka_dims=(2, 5)))
    task = find_task(model, "translation_ranking_en-es")
    found, hits = task.losses(model.encoder, make_batch(model, make_examples(FIRST, SECOND)))
    source, target = (
        model.encoder(model.preprocessor(tf.constant(texts))).numpy() for texts in (FIRST, SECOND)
    )
    options = {"normalize": normalize, "scale": 3.0}
    expected = [numpy_ranking(target[:, :dim], source[:, :dim], **options) for dim in (2, 5, 8)]
    np.testing.assert_allclose(found, np.mean(expected, axis=0), rtol=1e-4, atol=1e-5)
    if normalize:
        source /= np.linalg.norm(source, axis=1, keepdims=True)
    # Whole vectors decide what is a hit, as without prefixes; their targets' lengths do not matter.
    np.testing.assert_array_equal(hits, np.argmax(target @ source.T, axis=1) == np.arange(5))


def test_negatives_are_cut_too():
    config = tiny_config(normalize=True, matryoshka_dims=(3,), bidirectional=True)
    config = apply_overrides(config, ["tasks.hard_negatives=1"])
    model = tiny_model(config)
    task = find_task(model, "translation_ranking_en-es")
    third = ["d", "e e", "f f f", "a j", "c i"]
    found, _ = task.losses(model.encoder, make_batch(model, make_examples(FIRST, SECOND, third)))
    source, target, wrong = (
        model.encoder(model.preprocessor(tf.constant(texts))).numpy() for texts in (FIRST, SECOND, third)
    )
    candidates = np.concatenate([target, wrong])
    expected = [
        numpy_ranking(target[:, :dim], source[:, :dim], normalize=True)
        + numpy_ranking(source[:, :dim], candidates[:, :dim], normalize=True)
        for dim in (3, 8)
    ]
    np.testing.assert_allclose(found, np.mean(expected, axis=0) / 2, rtol=1e-4, atol=1e-5)
