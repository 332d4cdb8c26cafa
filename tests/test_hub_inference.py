"""The head for inference in an exported model."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from testing import SENTENCES, TINY, find_task, tiny_config, tiny_model

from xling_tf.corpora.records import NLI_LABELS
from xling_tf.hub import module as hub
from xling_tf.hub.card import model_card
from xling_tf.layers.pooling import unit_length
from xling_tf.model import Model
from xling_tf.tasks.inference import Inference

PREMISES, HYPOTHESES = SENTENCES, SENTENCES[::-1]


def live(model: Model) -> np.ndarray:
    """Probabilities of the head in training, fed as `Task.losses` feeds it."""
    task = find_task(model, "inference")
    assert isinstance(task, Inference)
    encodings = model.encoder(model.preprocessor(tf.constant([*PREMISES, *HYPOTHESES])))
    if task.normalize:
        encodings = unit_length(encodings)
    return tf.nn.softmax(task.head(*tf.split(encodings, 2))).numpy()


@pytest.mark.parametrize("normalize", [False, True])
def test_the_export_infers_what_the_head_in_training_infers(normalize: bool) -> None:
    model = tiny_model(tiny_config(normalize=normalize))
    # Encodings far from unit length, so that it matters whether they are normalised.
    for variable in model.encoder.variables:
        variable.assign(3 * variable)
    exported = model.hub_module().inference(PREMISES, HYPOTHESES)
    np.testing.assert_allclose(exported, live(model), atol=1e-6)
    assert np.ptp(exported, axis=0).max() > 1e-3


def test_loaded_equals_live(hub_loaded: Any, hub_model: Model) -> None:
    probabilities = hub_loaded.inference(PREMISES, HYPOTHESES)
    assert probabilities.dtype == tf.float32
    assert probabilities.shape == (len(PREMISES), len(NLI_LABELS))
    np.testing.assert_allclose(probabilities, live(hub_model), atol=1e-6)
    np.testing.assert_allclose(np.sum(probabilities, axis=1), 1, atol=1e-6)


def test_a_head_trained_in_bfloat16_is_exported_in_float32() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = tiny_model()
    inference = model.hub_module().inference
    assert {variable.dtype for variable in inference.variables} == {tf.float32}
    # bfloat16 has 8 bits of mantissa.
    np.testing.assert_allclose(inference(PREMISES, HYPOTHESES), live(model), atol=0.05)


@pytest.mark.parametrize(
    "form",
    [
        tuple,
        np.array,
        tf.constant,
        lambda texts: np.array(texts).reshape(2, 3),
        lambda texts: [texts[:3], texts[3:]],
    ],
    ids=["tuple", "array", "tensor", "array of rank 2", "list of lists"],
)
def test_every_form_of_call_gives_the_same(form: Any, hub_loaded: Any) -> None:
    expected = hub_loaded.inference(PREMISES, HYPOTHESES)
    np.testing.assert_array_equal(hub_loaded.inference(form(PREMISES), form(HYPOTHESES)), expected)


def test_a_single_pair_and_none(hub_loaded: Any) -> None:
    expected = hub_loaded.inference(PREMISES, HYPOTHESES)
    single = hub_loaded.inference(PREMISES[0], HYPOTHESES[0])
    np.testing.assert_allclose(single, expected[:1], atol=1e-6)
    assert hub_loaded.inference([], []).shape == (0, 3)


def test_sides_of_different_length_are_an_error(hub_loaded: Any) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many hypotheses as premises"):
        hub_loaded.inference(PREMISES[:3], HYPOTHESES[:1])


def test_the_signature_names_both_sides(hub_loaded: Any) -> None:
    signature = hub_loaded.signatures["inference"]
    ((), inputs) = signature.structured_input_signature
    assert inputs == {
        name: tf.TensorSpec([None], tf.string, name=name) for name in ("premise", "hypothesis")
    }
    result = signature(hypothesis=tf.constant(HYPOTHESES), premise=tf.constant(PREMISES))
    assert list(result) == ["outputs"]
    assert result["outputs"].shape == (len(PREMISES), len(NLI_LABELS))
    expected = hub_loaded.inference(PREMISES, HYPOTHESES)
    np.testing.assert_allclose(result["outputs"], expected, atol=1e-6)


def test_calls_trace_nothing_anew(hub_loaded: Any) -> None:
    call = hub_loaded.inference.__call__
    hub_loaded.inference(PREMISES, HYPOTHESES)
    before = call.experimental_get_tracing_count()
    for count in range(1, 20):
        hub_loaded.inference(["hola"] * count, ["hello"] * count)
    assert call.experimental_get_tracing_count() == before


def test_encoder_and_head_can_be_trained_on(hub_loaded: Any) -> None:
    inference = hub_loaded.inference
    # Hidden layer and logits: two kernels, two biases.
    assert len(inference.variables) == len(hub_loaded.variables) + 4
    assert len(inference.variables) == len(inference.trainable_variables)
    assert list(inference.regularization_losses) == []
    with tf.GradientTape() as tape:
        loss = -tf.reduce_sum(tf.math.log(inference(PREMISES, HYPOTHESES)[:, 0]))
    variables = inference.trainable_variables
    for gradient, variable in zip(tape.gradient(loss, variables), variables, strict=True):
        assert np.isfinite(tf.convert_to_tensor(gradient)).all(), variable.name


def test_without_the_task_there_is_no_head(hub_model: Model, tmp_path: Any) -> None:
    others = [task for task in hub_model.tasks if not isinstance(task, Inference)]
    hub.export(hub_model._replace(tasks=others).hub_module(), tmp_path / "model", {})
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    assert not hasattr(loaded, "inference")
    assert "inference" not in loaded.signatures
    assert loaded(SENTENCES).shape == (len(SENTENCES), TINY.encoder.hidden_dim)


def test_the_card_shows_the_head_where_there_is_one() -> None:
    results = {"versions": {"xling_tf": "1"}, "steps": 1, "minutes": 1, "corpora": {}}
    without = model_card("en-es", TINY, {**results, "scores": {}})
    assert "inference" not in without
    card = model_card("en-es", TINY, {**results, "scores": {"task/inference": {"accuracy": 0.5}}})
    assert "encoder.inference([" in card
    assert "entailment, neutral, contradiction" in card
    assert "`inference` takes `premise` and `hypothesis`;" in card
