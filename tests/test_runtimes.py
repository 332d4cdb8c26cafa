"""Exports for LiteRT and ONNX Runtime: the vectors of the SavedModel, without TensorFlow."""

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from programs import run_python
from testing import SENTENCES, TINY

from xling_tf.config import ExperimentConfig
from xling_tf.errors import UserError
from xling_tf.hub import module as hub
from xling_tf.model import Model
from xling_tf.overrides import to_json
from xling_tf.runtimes import RuntimeEncoder, load
from xling_tf.runtimes.exporting import export_litert, export_onnx
from xling_tf.text.preprocessor import fit_text

_EXPORTERS = {"litert": export_litert, "onnx": export_onnx}
# Lengths from none to beyond the cut, and many words that no vocabulary has.
_TEXTS = [
    *SENTENCES,
    "我爱你 😀",
    "Donaudampfschifffahrt, x.y z!",
    "a b c d e f g h i j k l m n o p",
    "\ufffd \0 " + "é" * 1000,
]


class _Exported(NamedTuple):
    """The folder of an exported model, its vectors of `_TEXTS`, and the encoders made of it."""

    folder: Path
    vectors: np.ndarray
    encoders: Mapping[str, RuntimeEncoder]


def _exported(config: ExperimentConfig, module: hub.HubModule, place: Path) -> _Exported:
    hub.export(module, place / "model", {"config.json": to_json(config)})
    for name, export in _EXPORTERS.items():
        export(place / "model", place / name)
    encoders = {name: load(place / name) for name in _EXPORTERS}
    return _Exported(place / "model", module(tf.constant(_TEXTS)).numpy(), encoders)


@pytest.fixture(scope="module")
def spelt(
    hub_model: Model, hub_module: hub.HubModule, tmp_path_factory: pytest.TempPathFactory
) -> _Exported:
    """A transformer of words and their n-grams."""
    return _exported(hub_model.config, hub_module, tmp_path_factory.mktemp("spelt"))


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> _Exported:
    """A CNN of marked pieces, as the published one is."""
    request = dataclasses.replace(
        TINY.text, tokenizer="sentencepiece", sentencepiece_size=60, sentence_marks=True
    )
    text, vocabulary = fit_text(request, {"en": [*SENTENCES, "我爱北京", "ABC abc"]})
    encoder = dataclasses.replace(TINY.encoder, kind="cnn", num_layers=2, num_filters=4)
    config = dataclasses.replace(TINY, text=text, encoder=encoder)
    module = Model.build(config, vocabulary).hub_module()
    return _exported(config, module, tmp_path_factory.mktemp("pieces"))


@pytest.fixture(params=[(kind, name) for kind in ("spelt", "pieces") for name in _EXPORTERS])
def case(request: pytest.FixtureRequest) -> tuple[RuntimeEncoder, np.ndarray]:
    """Each kind of model in each runtime, and the vectors that are expected of it."""
    kind, name = request.param
    exported = request.getfixturevalue(kind)
    return exported.encoders[name], exported.vectors


def test_vectors_are_those_of_the_saved_model(case: tuple[RuntimeEncoder, np.ndarray]) -> None:
    encoder, expected = case
    vectors = encoder.encode(_TEXTS)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    # They differ from text to text, or equality would say little.
    assert len(np.unique(vectors.round(4), axis=0)) == len(_TEXTS)


def test_a_sentence_has_its_vector_in_any_company(case: tuple[RuntimeEncoder, np.ndarray]) -> None:
    encoder, expected = case
    alone = [encoder.encode([text])[0] for text in _TEXTS]
    np.testing.assert_allclose(alone, expected, atol=1e-5)
    repeated = encoder.encode(_TEXTS[::-1] * 30, batch_size=7)
    np.testing.assert_allclose(repeated, np.tile(expected[::-1], (30, 1)), atol=1e-5)


def test_no_sentences_have_no_vectors(case: tuple[RuntimeEncoder, np.ndarray]) -> None:
    assert case[0].encode([]).shape == (0, TINY.encoder.hidden_dim)


_WITHOUT_TENSORFLOW = """
import sys
for name in ("tensorflow", "keras", "tensorflow_text", "tf2onnx"):
    sys.modules[name] = None  # importing it fails
import numpy
from xling_tf.runtimes import load
numpy.save("vectors.npy", [load(folder).encode(["Hola", "xyz"]) for folder in sys.argv[1:]])
"""


def test_tensorflow_is_not_needed(spelt: _Exported, pieces: _Exported, tmp_path: Path) -> None:
    folders = [str(e.folder.parent / name) for e in (spelt, pieces) for name in _EXPORTERS]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TENSORFLOW, *folders],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[1]), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    here = [
        e.encoders[name].encode(["Hola", "xyz"]) for e in (spelt, pieces) for name in _EXPORTERS
    ]
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), here, atol=1e-6)


@pytest.mark.parametrize("name", _EXPORTERS)
def test_its_folder_has_all_and_says_how_to_use_it(name: str, spelt: _Exported) -> None:
    folder = spelt.folder.parent / name
    model = {"litert": "model.tflite", "onnx": "model.onnx"}[name]
    files = {path.name for path in folder.iterdir()}
    assert files == {model, "vocabulary.txt", "runtime.json", "README.md"}
    card = (folder / "README.md").read_text(encoding="utf-8")
    settings = json.loads((folder / "runtime.json").read_text(encoding="utf-8"))
    # Every setting is explained but what the first lines of the file say themselves.
    explained = [*settings["text"], "buckets", "ngrams.sizes", "ngrams.max_characters"]
    assert not [key for key in explained if key != "kind" and f"`{key}`" not in card]


def test_litert_needs_no_operation_beyond_its_own(spelt: _Exported, pieces: _Exported) -> None:
    for exported in (spelt, pieces):
        content = (exported.folder.parent / "litert" / "model.tflite").read_bytes()
        assert b"Flex" not in content  # how operations of TensorFlow are named there


@pytest.mark.slow
def test_a_fine_tuned_model_is_as_good(spelt: _Exported, tmp_path: Path) -> None:
    loaded = tf.saved_model.load(str(spelt.folder))
    for variable in loaded.trainable_variables:
        variable.assign(variable * 1.1 + 0.01)
    hub.reexport(loaded, spelt.folder, tmp_path / "tuned")
    export_onnx(tmp_path / "tuned", tmp_path / "onnx")
    vectors = load(tmp_path / "onnx").encode(_TEXTS)
    np.testing.assert_allclose(vectors, loaded(_TEXTS), atol=1e-5)
    assert np.abs(vectors - spelt.vectors).max() > 1e-3


def _break(kind: str, folder: Path) -> None:
    if kind == "no config":
        (folder / "config.json").unlink()
    elif kind == "no vocabulary":
        shutil.rmtree(folder / "training")
    elif kind == "no model":
        (folder / "saved_model.pb").unlink()
    elif kind == "other vocabulary":
        (folder / "training" / "vocabulary.txt").write_text("one\n")
    else:
        path = folder / "config.json"
        path.write_text(path.read_text().replace('"lowercase": true', '"lowercase": false'))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("no config", r"by xling_tf is expected, .* but .*/config\.json is not there; copy both"),
        ("no vocabulary", r"is expected, .* but .*/vocabulary\.txt is not there; copy both from"),
        ("no model", r"exported model is expected, but .* has no saved_model\.pb; give the"),
        ("other vocabulary", r"not of the sizes .*all must be of one model; export it anew"),
        pytest.param(
            *(
                "other rules",
                r"expected from the converted model, but differ by .*; export it anew",
            ),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_other_folders_are_told_and_leave_nothing(
    kind: str, message: str, spelt: _Exported, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(spelt.folder, tmp_path / "model"))
    _break(kind, folder)
    with pytest.raises(UserError, match=message):
        export_onnx(folder, tmp_path / "onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_only_its_like_is_replaced(spelt: _Exported, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match=r"which it replaces, but .* is something else"):
        export_litert(spelt.folder, tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_what_cannot_be_loaded_is_told(
    spelt: _Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"with runtime\.json, but .*make one with export/main\.py"):
        load(spelt.folder)
    folder = Path(shutil.copytree(spelt.folder.parent / "onnx", tmp_path / "onnx"))
    (folder / "model.onnx").write_bytes(b"half")
    with pytest.raises(UserError, match=r"model\.onnx .*that onnxruntime reads, but: "):
        load(folder)
    (folder / "runtime.json").write_text('{"format": 99}')
    with pytest.raises(UserError, match="in format 1, but is in 99"):
        load(folder)

    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)  # importing it fails
    with pytest.raises(UserError, match=r"need ai-edge-litert, .*'xling_tf\[runtimes\]'"):
        load(spelt.folder.parent / "litert")


@pytest.mark.slow
def test_the_program_compares_them(spelt: _Exported, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n".join([*SENTENCES, "one more"]), encoding="utf-8")
    program = Path(__file__).parents[1] / "evaluation" / "runtimes.py"
    place = spelt.folder.parent
    folders = [f"--litert={place / 'litert'}", "--onnx", str(place / "onnx")]
    flags = ["--texts=texts.txt", "--count=4", "--repeats=1", "--output=figures.json"]
    run = run_python(tmp_path, str(program), f"--model={spelt.folder}", *folders, *flags)
    assert run.status == 0, run.errors
    figures = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert figures["texts"] == 4
    for name in _EXPORTERS:
        assert figures[name]["least_cosine"] > 0.9999
        assert figures[name]["texts_with_other_tokens"] == 0
    assert str(place) not in figures["command"]
