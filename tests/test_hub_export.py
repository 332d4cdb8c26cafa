"""The exported model as a file: its interface, what it needs, what a killed export leaves."""

import copy
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from testing import CARD_FILES, SENTENCES, TINY, tiny_model

from xling_tf.hub import module as hub
from xling_tf.layers.pooling import unit_length
from xling_tf.model import Model
from xling_tf.text.preprocessor import fit_text

DIM = TINY.encoder.hidden_dim


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
    name: str, argument: str, hub_loaded: Any
) -> None:
    signature = hub_loaded.signatures[name]
    ((), inputs) = signature.structured_input_signature
    assert inputs == {argument: tf.TensorSpec([None], tf.string, name=argument)}
    ((key, output),) = signature.structured_outputs.items()
    assert (key, output.dtype, output.shape.as_list()) == ("outputs", tf.float32, [None, DIM])

    encoder = hub_loaded if argument == "inputs" else getattr(hub_loaded, name)
    result = signature(**{argument: tf.constant(SENTENCES)})["outputs"]
    np.testing.assert_allclose(result, encoder(SENTENCES), atol=1e-6)


def test_there_are_no_other_signatures(hub_loaded: Any) -> None:
    names = {"serving_default", "default", "question_encoder", "response_encoder", "inference"}
    assert set(hub_loaded.signatures) == names


def test_it_has_what_the_reusable_saved_model_interface_asks_for(hub_loaded: Any) -> None:
    for encoder in (hub_loaded, hub_loaded.question_encoder, hub_loaded.response_encoder):
        assert len(encoder.variables) == len(encoder.trainable_variables) > 10
        assert all(isinstance(variable, tf.Variable) for variable in encoder.trainable_variables)
        assert list(encoder.regularization_losses) == []
        np.testing.assert_array_equal(encoder(SENTENCES, training=True), encoder(SENTENCES))
    # Two layers' kernels and biases more than the sentence encoder.
    extra = len(hub_loaded.response_encoder.variables) - len(hub_loaded.variables)
    assert extra == 2 * len(TINY.tasks.tower_dims)


@pytest.mark.slow
def test_tf_keras_can_fine_tune_it(hub_folder: Path) -> None:
    import tensorflow_hub
    import tf_keras

    layer = tensorflow_hub.KerasLayer(
        str(hub_folder), trainable=True, input_shape=[], dtype=tf.string
    )
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


def test_hundreds_of_calls_with_lists_trace_nothing_anew(hub_folder: Path) -> None:
    model = tf.saved_model.load(str(hub_folder))
    traces = []
    for call in range(300):
        model(SENTENCES * (1 + call % 3) if call % 7 else "hola")
        traces.append(model.__call__.experimental_get_tracing_count())
    assert max(traces) == traces[0]
    assert len(model.__call__.concrete_functions) == 1


def test_it_can_be_exported_again_after_loading(hub_loaded: Any, tmp_path: Path) -> None:
    tf.saved_model.save(hub_loaded, str(tmp_path / "again"), signatures=dict(hub_loaded.signatures))
    again = tf.saved_model.load(str(tmp_path / "again"))
    np.testing.assert_array_equal(again(SENTENCES), hub_loaded(SENTENCES))
    assert set(again.signatures) == set(hub_loaded.signatures)


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


def test_it_needs_tensorflow_and_nothing_else(hub_folder: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", _BARE, str(hub_folder)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


_INPUTS = {
    "words alone": {"ngram_sizes": ()},
    "runs of Han": {"split_han": False, "ngram_sizes": (1, 2)},
    "pieces": {"tokenizer": "sentencepiece", "sentencepiece_size": 60},
}
_TEXTS = [*SENTENCES, "我爱你 😀", b"\xff\0x", "a" * 2**20]

_WITH_TENSORFLOW_TEXT = """
import sys
for name in ("xling_tf", "sentencepiece"):
    sys.modules[name] = None  # importing it fails
import numpy, tensorflow, tensorflow_text
model = tensorflow.saved_model.load(sys.argv[1])
texts = numpy.load("texts.npy", allow_pickle=True)
numpy.save("vectors.npy", model(texts))
"""


@pytest.mark.parametrize(
    "name",
    [
        "pieces",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("words alone", "runs of Han")),
    ],
)
def test_every_kind_of_input_is_exported(name: str, tmp_path: Path) -> None:
    request = dataclasses.replace(TINY.text, **_INPUTS[name])
    text, vocabulary = fit_text(request, {"en": [*SENTENCES, "我爱北京", "ABC abc"]})
    model = Model.build(dataclasses.replace(TINY, text=text), vocabulary)
    live = unit_length(model.encoder(model.preprocessor(tf.constant(_TEXTS)))).numpy()
    assert len(np.unique(live.round(4), axis=0)) == len(_TEXTS)
    module = model.hub_module()
    np.testing.assert_allclose(module(_TEXTS), live, atol=1e-5)
    hub.export(module, tmp_path / "model", CARD_FILES)
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    tf.random.set_seed(1)  # clears TensorFlow's caches, in which nothing must be lost
    np.testing.assert_allclose(loaded(_TEXTS), live, atol=1e-5)
    if name == "pieces":
        np.testing.assert_allclose(_loaded_elsewhere(tmp_path), live, atol=1e-5)


def _loaded_elsewhere(folder: Path) -> np.ndarray:
    """Vectors of `_TEXTS` from a process with TensorFlow and tensorflow-text."""
    np.save(folder / "texts.npy", np.array(_TEXTS, object))
    done = subprocess.run(
        [sys.executable, "-c", _WITH_TENSORFLOW_TEXT, "model"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return np.load(folder / "vectors.npy")


def test_words_alone_are_exported_without_a_table_of_ngrams() -> None:
    text = dataclasses.replace(TINY.text, ngram_sizes=())
    model = tiny_model(dataclasses.replace(TINY, text=text))
    # One row a word, hash buckets included, as it is trained.
    shapes = [variable.shape.as_list() for variable in model.hub_module().variables]
    assert shapes[0] == [model.preprocessor.num_words, TINY.encoder.embedding_dim]
    assert [TINY.text.num_ngram_buckets, TINY.encoder.embedding_dim] not in shapes


def test_it_can_be_moved(hub_folder: Path, hub_vectors: np.ndarray, tmp_path: Path) -> None:
    moved = hub_folder.rename(tmp_path / "elsewhere")
    try:
        np.testing.assert_array_equal(tf.saved_model.load(str(moved))(SENTENCES), hub_vectors)
    finally:
        moved.rename(hub_folder)


def test_card_and_config_lie_inside(hub_folder: Path) -> None:
    for name, text in CARD_FILES.items():
        assert (hub_folder / name).read_text(encoding="utf-8") == text
    assert (hub_folder / "saved_model.pb").exists()
    assert [path.name for path in hub_folder.parent.iterdir()] == ["tiny"]


def test_an_export_that_fails_leaves_the_last_good_model(
    hub_module: hub.HubModule, hub_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shutil.copytree(hub_folder, tmp_path / "model"))

    def fail(module: Any, folder: str, **kwargs: Any) -> None:
        (Path(folder) / "saved_model.pb").write_text("half")
        raise OSError("no space left on device")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(OSError, match="no space left"):
        hub.export(hub_module, path, {})
    with pytest.raises(OSError, match="no space left"):
        hub.export(hub_module, tmp_path / "first", {})
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
    hub_module: hub.HubModule, hub_folder: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(hub_folder, tmp_path / "model"))
    before = (path / "saved_model.pb").read_bytes()
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(path)],
        cwd=Path(__file__).resolve().parents[1],
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert (path / "saved_model.pb").read_bytes() == before
    hub.export(hub_module, path, CARD_FILES)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
