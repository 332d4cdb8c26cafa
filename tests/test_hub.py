"""What an exported model computes, however it is called."""

from collections import Counter
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from testing import SENTENCES, TINY, tiny_model

from xling_tf.layers.pooling import unit_length
from xling_tf.model import Model
from xling_tf.tasks.ranking import ResponsePrediction
from xling_tf.text.words import select_vocabulary

DIM = TINY.encoder.hidden_dim
MEGABYTE = "the cat is sleeping. " * 50_000
ODD = {
    "empty": "",
    "whitespace": " \t\n\u00a0\u3000",
    "emoji": "👩‍👩‍👧‍👦🏽🇪🇸",
    "right-to-left": "مرحبا بالعالم שלום",
    "Chinese": "猫在睡觉。",
    "control characters": "a\0b\x07c\ufeff",
    "combining marks": "e" + "\u0301" * 500,
    "one long word": "x" * 100_000,
    "invalid UTF-8": b"\xff\xfe hola \xc3",
    "a character cut in half": "señor".encode()[:3],
    "a megabyte": MEGABYTE,
}


def live(hub_model: Model, sentences: list[str]) -> tf.Tensor:
    return hub_model.encoder(hub_model.preprocessor(tf.constant(sentences)))


def response_tower(hub_model: Model) -> keras.layers.Layer:
    return next(task.tower for task in hub_model.tasks if isinstance(task, ResponsePrediction))


@pytest.mark.parametrize(
    "inputs",
    [
        SENTENCES,
        tuple(SENTENCES),
        np.array(SENTENCES),
        np.array(SENTENCES, object),
        np.array([sentence.encode() for sentence in SENTENCES], object),
        tf.constant(SENTENCES),
        np.array(SENTENCES).reshape(2, 3),
        tf.reshape(tf.constant(SENTENCES), [3, 2]),
        [SENTENCES[:3], SENTENCES[3:]],
    ],
    ids=lambda inputs: type(inputs).__name__,
)
def test_every_form_of_call_gives_the_same(
    inputs: Any, hub_loaded: Any, hub_vectors: np.ndarray
) -> None:
    result = hub_loaded(inputs)
    assert result.dtype == tf.float32
    assert result.shape == (len(SENTENCES), DIM)
    np.testing.assert_array_equal(result, hub_vectors)


@pytest.mark.parametrize("form", [str, np.array, tf.constant])
def test_a_single_string_is_a_batch_of_one(
    form: Any, hub_loaded: Any, hub_vectors: np.ndarray
) -> None:
    np.testing.assert_allclose(hub_loaded(form(SENTENCES[1])), hub_vectors[1:2], atol=1e-6)


def test_a_pandas_series_is_a_list(hub_loaded: Any, hub_vectors: np.ndarray) -> None:
    import pandas

    np.testing.assert_array_equal(hub_loaded(pandas.Series(SENTENCES)), hub_vectors)


@pytest.mark.parametrize("inputs", [[], (), tf.zeros([0], tf.string), tf.zeros([0, 3], tf.string)])
def test_nothing_gives_no_rows(inputs: Any, hub_loaded: Any) -> None:
    assert hub_loaded(inputs).shape == (0, DIM)


@pytest.mark.parametrize("name", ODD)
def test_any_string_gives_a_finite_unit_vector_alone_and_in_a_batch(
    name: str, hub_loaded: Any
) -> None:
    alone = hub_loaded([ODD[name]]).numpy()
    assert np.isfinite(alone).all()
    assert np.linalg.norm(alone) == pytest.approx(1, abs=1e-6)
    batch = hub_loaded([*(text.encode() for text in SENTENCES), ODD[name], b"hello"]).numpy()
    np.testing.assert_allclose(batch[[-2]], alone, atol=2e-6)


def test_neighbours_do_not_change_a_vector(hub_loaded: Any, hub_vectors: np.ndarray) -> None:
    for sentence, vector in zip(SENTENCES, hub_vectors, strict=True):
        for neighbours in ([], ["hola"], ["the cat is sleeping " * 20] * 3):
            result = hub_loaded([*neighbours, sentence])
            np.testing.assert_allclose(result[-1], vector, atol=2e-6)


def test_the_export_computes_what_the_encoder_in_training_computes(
    hub_model: Model, hub_vectors: np.ndarray
) -> None:
    np.testing.assert_allclose(hub_vectors, unit_length(live(hub_model, SENTENCES)), atol=1e-5)
    # Vectors that were all alike would prove little.
    assert np.abs(hub_vectors @ hub_vectors.T - np.eye(len(SENTENCES))).max() > 1e-3
    assert len(np.unique(hub_vectors.round(3), axis=0)) == len(SENTENCES)


def test_the_smallest_vocabulary_is_enough() -> None:
    model = Model.build(TINY, select_vocabulary(Counter(), TINY.text))
    result = model.hub_module()(SENTENCES, False)
    np.testing.assert_allclose(result, unit_length(live(model, SENTENCES)), atol=1e-5)


def test_long_lists_of_mixed_length_keep_their_order(hub_loaded: Any, hub_model: Model) -> None:
    random = np.random.default_rng(0)
    words = [*hub_model.preprocessor.vocabulary, "zebra", "okapi"]
    sentences = [" ".join(random.choice(words, random.integers(1, 12))) for _ in range(700)]
    result = hub_loaded(sentences)
    np.testing.assert_allclose(result, unit_length(live(hub_model, sentences)), atol=1e-5)


def test_a_model_trained_in_bfloat16_is_exported_in_float32() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = tiny_model()
    module = model.hub_module()
    assert keras.config.dtype_policy().name == "mixed_bfloat16"
    assert {variable.dtype for variable in module.variables} == {tf.float32}
    vectors = module(SENTENCES)
    assert vectors.dtype == tf.float32
    # bfloat16 has 8 bits of mantissa; the float32 copy must be as near as that, not equal.
    np.testing.assert_allclose(vectors, unit_length(live(model, SENTENCES)), atol=0.05)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_questions_are_encoded_as_sentences_are(hub_loaded: Any, hub_vectors: np.ndarray) -> None:
    np.testing.assert_allclose(hub_loaded.question_encoder(SENTENCES), hub_vectors, atol=1e-6)


def test_responses_pass_through_the_tower(hub_loaded: Any, hub_model: Model) -> None:
    encodings = live(hub_model, SENTENCES).numpy()
    first, first_bias, second, second_bias = response_tower(hub_model).get_weights()
    expected = np.tanh(np.tanh(encodings @ first + first_bias) @ second + second_bias)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(hub_loaded.response_encoder(SENTENCES), expected, atol=1e-5)


def test_without_a_trained_tower_responses_are_encoded_as_questions(hub_model: Model) -> None:
    others = [task for task in hub_model.tasks if not isinstance(task, ResponsePrediction)]
    module = hub_model._replace(tasks=others).hub_module()
    np.testing.assert_array_equal(
        module.response_encoder(SENTENCES), module.question_encoder(SENTENCES)
    )


def test_gradients_reach_every_weight(hub_loaded: Any) -> None:
    encoder = hub_loaded.response_encoder
    direction = np.random.default_rng(0).normal(size=DIM)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(encoder(SENTENCES, training=True) * direction)
    for gradient, variable in zip(
        tape.gradient(loss, encoder.trainable_variables), encoder.trainable_variables, strict=True
    ):
        gradient = tf.convert_to_tensor(gradient)
        assert np.isfinite(gradient).all(), variable.name
        # A bias added to every key cancels out of the softmax (Vaswani et al. 2017, eq. 1).
        assert np.abs(gradient).max() > 0 or "key" in variable.name or "qkv" in variable.name
