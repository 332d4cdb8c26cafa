"""The exported model: how it is called, what it computes, what it needs, what a killed export leaves."""

import copy
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from testing import TINY

from xling_tf import hub
from xling_tf.layers.pooling import unit_length
from xling_tf.model import Model
from xling_tf.tasks.ranking import ResponsePrediction

DIM = TINY.encoder.hidden_dim
VOCABULARY = [
    "the",
    "cat",
    "el",
    "gato",
    "duerme",
    "is",
    "sleeping",
    ".",
    "hello",
    "hola",
    "¿",
    "?",
]
# Known words, unknown ones, both, and none.
SENTENCES = [
    "Hola",
    "el gato duerme.",
    "Kängurus hüpfen!",
    "the kangaroo is sleeping",
    "¿qué tal?",
    "",
]
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
FILES = {"README.md": "# A card\n", "config.json": "{}\n"}


@pytest.fixture(scope="module")
def model() -> Model:
    config = dataclasses.replace(TINY, text=dataclasses.replace(TINY.text, lowercase=True))
    keras.utils.set_random_seed(3)
    model = Model.build(config, VOCABULARY)
    # Zeros where training would have left something else hide what is forgotten.
    random = np.random.default_rng(0)
    for variable in model.encoder.variables:
        variable.assign(variable + random.normal(0, 0.1, variable.shape))
    return model


@pytest.fixture(scope="module")
def folder(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "tiny"
    hub.export(model.hub_module(), path, FILES)
    return path


@pytest.fixture(scope="module")
def loaded(folder: Path) -> Any:
    return tf.saved_model.load(str(folder))


@pytest.fixture(scope="module")
def vectors(loaded: Any) -> np.ndarray:
    return loaded(SENTENCES).numpy()


def live(model: Model, sentences: list[str]) -> tf.Tensor:
    return model.encoder(model.preprocessor(tf.constant(sentences)))


def response_tower(model: Model) -> keras.layers.Layer:
    return next(task.tower for task in model.tasks if isinstance(task, ResponsePrediction))


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
def test_every_form_of_call_gives_the_same(inputs: Any, loaded: Any, vectors: np.ndarray) -> None:
    result = loaded(inputs)
    assert result.dtype == tf.float32
    assert result.shape == (len(SENTENCES), DIM)
    np.testing.assert_array_equal(result, vectors)


@pytest.mark.parametrize("form", [str, np.array, tf.constant])
def test_a_single_string_is_a_batch_of_one(form: Any, loaded: Any, vectors: np.ndarray) -> None:
    np.testing.assert_allclose(loaded(form(SENTENCES[1])), vectors[1:2], atol=1e-6)


def test_a_pandas_series_is_a_list(loaded: Any, vectors: np.ndarray) -> None:
    import pandas

    np.testing.assert_array_equal(loaded(pandas.Series(SENTENCES)), vectors)


@pytest.mark.parametrize("inputs", [[], (), tf.zeros([0], tf.string), tf.zeros([0, 3], tf.string)])
def test_nothing_gives_no_rows(inputs: Any, loaded: Any) -> None:
    assert loaded(inputs).shape == (0, DIM)


@pytest.mark.parametrize("name", ODD)
def test_any_string_gives_a_finite_unit_vector_alone_and_in_a_batch(name: str, loaded: Any) -> None:
    alone = loaded([ODD[name]]).numpy()
    assert np.isfinite(alone).all()
    assert np.linalg.norm(alone) == pytest.approx(1, abs=1e-6)
    batch = loaded([*(text.encode() for text in SENTENCES), ODD[name], b"hello"]).numpy()
    np.testing.assert_allclose(batch[[-2]], alone, atol=2e-6)


def test_neighbours_do_not_change_a_vector(loaded: Any, vectors: np.ndarray) -> None:
    for sentence, vector in zip(SENTENCES, vectors, strict=True):
        for neighbours in ([], ["hola"], ["the cat is sleeping " * 20] * 3):
            result = loaded([*neighbours, sentence])
            np.testing.assert_allclose(result[-1], vector, atol=2e-6)


def test_the_export_computes_what_the_encoder_in_training_computes(
    model: Model, vectors: np.ndarray
) -> None:
    np.testing.assert_allclose(vectors, unit_length(live(model, SENTENCES)), atol=1e-5)
    # Vectors that were all alike would prove little.
    assert np.abs(vectors @ vectors.T - np.eye(len(SENTENCES))).max() > 1e-3
    assert len(np.unique(vectors.round(3), axis=0)) == len(SENTENCES)


def test_a_vocabulary_without_words_can_be_exported(tmp_path: Path) -> None:
    model = Model.build(TINY, [])
    hub.export(model.hub_module(), tmp_path / "model", {})
    result = tf.saved_model.load(str(tmp_path / "model"))(["hola", ""])
    np.testing.assert_allclose(result, unit_length(live(model, ["hola", ""])), atol=1e-5)


def test_long_lists_of_mixed_length_keep_their_order(loaded: Any, model: Model) -> None:
    random = np.random.default_rng(0)
    sentences = [
        " ".join(random.choice([*VOCABULARY, "zebra", "okapi"], random.integers(1, 12)))
        for _ in range(700)
    ]
    result = loaded(sentences)
    np.testing.assert_allclose(result, unit_length(live(model, sentences)), atol=1e-5)


def test_a_model_trained_in_bfloat16_is_exported_in_float32() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = Model.build(TINY, VOCABULARY)
    module = model.hub_module()
    assert keras.config.dtype_policy().name == "mixed_bfloat16"
    assert {variable.dtype for variable in module.variables} == {tf.float32}
    assert module(SENTENCES).dtype == tf.float32
    # bfloat16 has 8 bits of mantissa; the float32 copy must be as near as that, not equal.
    np.testing.assert_allclose(module(SENTENCES), unit_length(live(model, SENTENCES)), atol=0.05)
    np.testing.assert_allclose(np.linalg.norm(module(SENTENCES), axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("serving_default", "inputs"),
        ("default", "inputs"),
        ("question_encoder", "input"),
        ("response_encoder", "input"),
    ],
)
def test_signatures_take_and_give_what_the_published_ones_do(
    name: str, argument: str, loaded: Any
) -> None:
    signature = loaded.signatures[name]
    ((), inputs) = signature.structured_input_signature
    assert inputs == {argument: tf.TensorSpec([None], tf.string, name=argument)}
    ((key, output),) = signature.structured_outputs.items()
    assert (key, output.dtype, output.shape.as_list()) == ("outputs", tf.float32, [None, DIM])

    encoder = loaded if argument == "inputs" else getattr(loaded, name)
    result = signature(**{argument: tf.constant(SENTENCES)})["outputs"]
    np.testing.assert_allclose(result, encoder(SENTENCES), atol=1e-6)


def test_there_are_no_other_signatures(loaded: Any) -> None:
    names = {"serving_default", "default", "question_encoder", "response_encoder"}
    assert set(loaded.signatures) == names


def test_questions_are_encoded_as_sentences_are(loaded: Any, vectors: np.ndarray) -> None:
    np.testing.assert_allclose(loaded.question_encoder(SENTENCES), vectors, atol=1e-6)


def test_responses_pass_through_the_tower(loaded: Any, model: Model) -> None:
    encodings = live(model, SENTENCES).numpy()
    first, first_bias, second, second_bias = response_tower(model).get_weights()
    expected = np.tanh(np.tanh(encodings @ first + first_bias) @ second + second_bias)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(loaded.response_encoder(SENTENCES), expected, atol=1e-5)


def test_without_a_trained_tower_responses_are_encoded_as_questions(model: Model) -> None:
    others = [task for task in model.tasks if not isinstance(task, ResponsePrediction)]
    module = model._replace(tasks=others).hub_module()
    np.testing.assert_array_equal(
        module.response_encoder(SENTENCES), module.question_encoder(SENTENCES)
    )


def test_it_has_what_the_reusable_saved_model_interface_asks_for(loaded: Any) -> None:
    for encoder in (loaded, loaded.question_encoder, loaded.response_encoder):
        assert len(encoder.variables) == len(encoder.trainable_variables) > 10
        assert all(isinstance(variable, tf.Variable) for variable in encoder.trainable_variables)
        assert list(encoder.regularization_losses) == []
        np.testing.assert_array_equal(encoder(SENTENCES, training=True), encoder(SENTENCES))
    # Two layers' kernels and biases more than the sentence encoder.
    extra = len(loaded.response_encoder.variables) - len(loaded.variables)
    assert extra == 2 * len(TINY.tasks.tower_dims)


def test_gradients_reach_every_weight(loaded: Any) -> None:
    encoder = loaded.response_encoder
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


def test_tf_keras_can_fine_tune_it(folder: Path) -> None:
    import tensorflow_hub
    import tf_keras

    layer = tensorflow_hub.KerasLayer(str(folder), trainable=True, input_shape=[], dtype=tf.string)
    classifier = tf_keras.Sequential([layer, tf_keras.layers.Dense(1)])
    classifier.compile(tf_keras.optimizers.SGD(0.1), "mse")
    before = copy.deepcopy(layer.get_weights())
    assert len(layer.trainable_weights) > 10
    texts, labels = tf.constant(SENTENCES), tf.constant([[1.0], [0.0]] * 3)
    losses = classifier.fit(texts, labels, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    changed = [np.any(old != new) for old, new in zip(before, layer.get_weights(), strict=True)]
    assert sum(changed) >= len(changed) - TINY.encoder.num_layers
    np.testing.assert_allclose(np.linalg.norm(layer(texts), axis=1), 1, atol=1e-6)


def test_hundreds_of_calls_with_lists_trace_nothing_anew(folder: Path) -> None:
    model = tf.saved_model.load(str(folder))
    traces = []
    for call in range(300):
        model(SENTENCES * (1 + call % 3) if call % 7 else "hola")
        traces.append(model.__call__.experimental_get_tracing_count())
    assert max(traces) == traces[0]
    assert len(model.__call__.concrete_functions) == 1


def test_it_can_be_exported_again_after_loading(loaded: Any, tmp_path: Path) -> None:
    tf.saved_model.save(loaded, str(tmp_path / "again"), signatures=dict(loaded.signatures))
    again = tf.saved_model.load(str(tmp_path / "again"))
    np.testing.assert_array_equal(again(SENTENCES), loaded(SENTENCES))
    assert set(again.signatures) == set(loaded.signatures)


_BARE = """
import sys
for name in ("keras", "xling_tf", "tensorflow_text"):
    sys.modules[name] = None  # importing it fails
import numpy, tensorflow
texts = ["Hola", "", "¿Qué tal?"]
vectors = tensorflow.saved_model.load(sys.argv[1])(texts).numpy()
# tensorflow_hub itself imports keras.
del sys.modules["keras"]
import tensorflow_hub
model = tensorflow_hub.load(sys.argv[1])
assert numpy.array_equal(vectors, model(texts).numpy())
assert vectors.shape == (3, 8) and numpy.isfinite(vectors).all()
assert numpy.allclose(numpy.linalg.norm(vectors, axis=1), 1, atol=1e-6)
replies = model.signatures["response_encoder"](input=tensorflow.constant(texts))
assert numpy.isfinite(replies["outputs"].numpy()).all()
"""


def test_it_needs_tensorflow_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", _BARE, str(folder)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_it_can_be_moved(folder: Path, vectors: np.ndarray, tmp_path: Path) -> None:
    moved = folder.rename(tmp_path / "elsewhere")
    try:
        np.testing.assert_array_equal(tf.saved_model.load(str(moved))(SENTENCES), vectors)
    finally:
        moved.rename(folder)


def test_card_and_config_lie_inside(folder: Path) -> None:
    for name, text in FILES.items():
        assert (folder / name).read_text(encoding="utf-8") == text
    assert (folder / "saved_model.pb").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["tiny"]


def test_an_export_that_fails_leaves_the_last_good_model(
    model: Model, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, module = Path(shutil.copytree(folder, tmp_path / "model")), model.hub_module()
    save = tf.saved_model.save

    def fail(*args: Any, **kwargs: Any) -> None:
        save(*args, **kwargs)
        raise OSError("no space left on device")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(OSError, match="no space left"):
        hub.export(module, path, {})
    with pytest.raises(OSError, match="no space left"):
        hub.export(module, tmp_path / "first", {})
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert tf.saved_model.load(str(path))(SENTENCES).shape == (len(SENTENCES), DIM)


# What export() does around TensorFlow's own writing, which is all that a kill can interrupt.
_KILLED = """
import os, signal, sys
from pathlib import Path
from xling_tf import files
with files.replacing_folder(Path(sys.argv[1])) as temporary:
    (temporary / "saved_model.pb").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_export_leaves_the_last_good_model_and_the_next_one_tidies_up(
    model: Model, folder: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(folder, tmp_path / "model"))
    before = (path / "saved_model.pb").read_bytes()
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(path)],
        cwd=Path(__file__).resolve().parents[1],
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert (path / "saved_model.pb").read_bytes() == before
    hub.export(model.hub_module(), path, FILES)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
