"""Exports for LiteRT and ONNX Runtime: the ids and the vectors of the SavedModel, without TensorFlow."""

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import conversion
import numpy as np
import pytest
import tensorflow as tf
from conversion import export_litert, export_onnx
from programs import ROOT, run_python
from testing import SENTENCES, TINY

from xling_tf.config import ExperimentConfig, to_json
from xling_tf.errors import UserError
from xling_tf.hub import module as hub
from xling_tf.hub.runtimes import Pieces, RuntimeEncoder, Words, load
from xling_tf.model import Model
from xling_tf.text.preprocessor import (
    TextPreprocessor,
    build_preprocessor,
    fit_text,
    vocabulary_file,
)
from xling_tf.text.tokenization import EMPTY_TOKEN
from xling_tf.text.words import WordPreprocessor

EXPORTERS = {"litert": export_litert, "onnx": export_onnx}
# Lengths from none to beyond the cut, and many words that no vocabulary has.
TEXTS = [
    *SENTENCES,
    "我爱你 😀",
    "Donaudampfschifffahrt, x.y z!",
    "a b c d e f g h i j k l m n o p",
    "\ufffd \0 " + "é" * 1000,
]
# What rules look at, what splits or joins words, and what tokenizers stumble over.
_VISIBLE = """don't DON'T he's IT'Sſ 'ſ l'eau 'quoted' ’tis `` " «no» U.S. x.y 1,234 1,2,3 10:30 ٣,٤ ½
    ... .... … -- - _ . ' , : hola HOLA ΣΑΣ İI ß é नमस्ते สวัสดี שלום مرحبا ａｂ 我爱北京 カー ひらがなー
    ー 한국어 𠮷 😀 👍🏽 👩‍👩‍👧 🇪🇸 <empty> <s> </s> <unk> ▁ ▁▁a"""
FRAGMENTS = [
    *_VISIBLE.split(),
    *("e\u0301", "\0", "\x7f", "\x85", "\u00a0", "\u200b", "\u200d", "\u202e", "\u3000", "\ufeff"),
    *("\ufffd", "\uffff", "\ue000", "\U0010ffff", "\ud800", "x" * 600, "猫" * 300, "\n", "\t", " "),
]
VOCABULARY = [EMPTY_TOKEN, "hola", "don", "n't", ",", "北京", "北", "é", "'", "1,234"]
KINDS: Mapping[str, Mapping[str, Any]] = {
    "spelt": {},
    "words alone": {"ngram_sizes": (), "lowercase": True},
    "pieces": {"tokenizer": "sentencepiece", "sentencepiece_size": 60},
    "marked pieces": {
        "tokenizer": "sentencepiece",
        "sentencepiece_size": 60,
        "sentence_marks": True,
        "max_tokens": 7,
    },
}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[TextPreprocessor, Any]]:
    """By the names of `KINDS`: what is in the graph, and what is not."""
    made = {}
    _, learnt = fit_text(
        dataclasses.replace(TINY.text, **KINDS["pieces"]),
        {"en": [*SENTENCES, "我爱北京", "ABC abc"]},
    )
    for name, changes in KINDS.items():
        config = dataclasses.replace(TINY.text, **changes)
        is_pieces = config.tokenizer == "sentencepiece"
        inside = build_preprocessor(config, learnt if is_pieces else VOCABULARY)
        file, content = vocabulary_file(inside.vocabulary)
        path = tmp_path_factory.mktemp("text") / file
        path.write_bytes(content)
        kind = Pieces if is_pieces else Words
        made[name] = inside, kind(path, json.loads(json.dumps(conversion.text_settings(inside))))
    return made


def require_same(inside: TextPreprocessor, outside: Any, texts: Sequence[str]) -> None:
    """The same tokens, ids, buckets and n-grams."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    ragged = inside.tokenize(tf.constant(encoded, tf.string))
    tokens = [outside.tokenize(text) for text in texts]
    expected = ragged.to_list()
    if isinstance(inside, WordPreprocessor):
        expected = [[word.decode() for word in words] for words in expected]
    assert tokens == expected
    inputs = outside.inputs(tokens)
    ids = inputs["ids"][np.arange(inputs["ids"].shape[1]) < inputs["lengths"][:, None]]
    rows = inside.word_ids(ragged.values).numpy()
    if "ngrams" not in inputs:
        assert ids.tolist() == rows.tolist()
        return
    num_known, fill = len(inside.vocabulary), inside.config.num_ngram_buckets
    is_known = rows < num_known
    assert ids[is_known].tolist() == rows[is_known].tolist()
    # An unknown word's number leads to its bucket and its n-grams.
    numbers = ids[~is_known] - num_known
    assert (num_known + inputs["buckets"][numbers]).tolist() == rows[~is_known].tolist()
    ngrams = [[n for n in row if n != fill] for row in inputs["ngrams"][numbers].tolist()]
    assert ngrams == ngram_buckets(ragged.values.numpy()[~is_known], inside)


def ngram_buckets(words: Sequence[bytes], inside: TextPreprocessor) -> list[list[int]]:
    """What TensorFlow makes of each run of characters in "<word>"."""
    found = []
    for word in words:
        marked = f"<{word.decode()[:50]}>"
        runs = [
            marked[begin : begin + size]
            for size in inside.config.ngram_sizes
            for begin in range(len(marked) - size + 1)
        ]
        hashes = tf.strings.to_hash_bucket_fast(runs, inside.config.num_ngram_buckets)
        found.append(hashes.numpy().tolist() if runs else [])
    return found


@pytest.mark.parametrize("name", KINDS)
def test_fragments_become_the_same_ids(name: str, both: Any) -> None:
    require_same(*both[name], [*SENTENCES, *FRAGMENTS, " ".join(FRAGMENTS), "".join(FRAGMENTS)])


class Exported:
    """An exported model, its vectors of `TEXTS`, and what is made of it for a runtime once asked for."""

    def __init__(self, config: ExperimentConfig, module: hub.HubModule, place: Path) -> None:
        self.place, self.folder = place, place / "model"
        hub.export(module, self.folder, {"config.json": to_json(config)})
        self.vectors = module(tf.constant(TEXTS)).numpy()

    @cache  # noqa: B019
    def encoder(self, name: str) -> RuntimeEncoder:
        EXPORTERS[name](self.folder, self.place / name)
        return load(self.place / name)


@pytest.fixture(scope="module")
def spelt(hub_model: Model, hub_module: hub.HubModule, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A transformer of words and their n-grams."""
    return Exported(hub_model.config, hub_module, tmp_path_factory.mktemp("spelt"))


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A CNN of marked pieces, as the published one is."""
    request = dataclasses.replace(TINY.text, **{**KINDS["marked pieces"], "max_tokens": 12})
    text, vocabulary = fit_text(request, {"en": [*SENTENCES, "我爱北京", "ABC abc"]})
    encoder = dataclasses.replace(TINY.encoder, kind="cnn", num_layers=2, num_filters=4)
    config = dataclasses.replace(TINY, text=text, encoder=encoder)
    module = Model.build(config, vocabulary).hub_module()
    return Exported(config, module, tmp_path_factory.mktemp("pieces"))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("spelt", "onnx"),
        ("pieces", "litert"),
        pytest.param("spelt", "litert", marks=pytest.mark.slow),
        pytest.param("pieces", "onnx", marks=pytest.mark.slow),
    ],
)
def test_vectors_are_those_of_the_saved_model_in_any_company(
    kind: str, name: str, request: pytest.FixtureRequest
) -> None:
    exported = request.getfixturevalue(kind)
    encoder, expected = exported.encoder(name), exported.vectors
    assert len(np.unique(expected.round(4), axis=0)) == len(TEXTS)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    alone = [encoder.encode([text])[0] for text in TEXTS]
    np.testing.assert_allclose(alone, expected, atol=1e-5)
    repeated = encoder.encode(TEXTS[::-1] * 30, batch_size=7)
    np.testing.assert_allclose(repeated, np.tile(expected[::-1], (30, 1)), atol=1e-5)
    assert encoder.encode([]).shape == (0, TINY.encoder.hidden_dim)
    if name == "litert":  # no operation beyond its own: those of TensorFlow are named Flex there
        assert b"Flex" not in (exported.place / name / "model.tflite").read_bytes()


_WITHOUT_TENSORFLOW = """
import sys
for name in ("tensorflow", "keras", "tensorflow_text", "tf2onnx"):
    sys.modules[name] = None  # importing it fails
import numpy
from xling_tf.hub.runtimes import load
numpy.save("vectors.npy", [load(folder).encode(["Hola", "xyz"]) for folder in sys.argv[1:]])
"""


def test_tensorflow_is_not_needed(spelt: Exported, pieces: Exported, tmp_path: Path) -> None:
    encoders = [spelt.encoder("onnx"), pieces.encoder("litert")]
    folders = [str(spelt.place / "onnx"), str(pieces.place / "litert")]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TENSORFLOW, *folders],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    here = [encoder.encode(["Hola", "xyz"]) for encoder in encoders]
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), here, atol=1e-6)


def test_a_folder_has_all_and_says_how_to_use_it(spelt: Exported) -> None:
    spelt.encoder("onnx")
    files = {path.name for path in (spelt.place / "onnx").iterdir()}
    assert files == {"model.onnx", "vocabulary.txt", "runtime.json", "README.md"}
    card = (spelt.place / "onnx" / "README.md").read_text(encoding="utf-8")
    text = json.loads((spelt.place / "onnx" / "runtime.json").read_text(encoding="utf-8"))["text"]
    explained = [*text, "buckets", "ngrams.sizes", "ngrams.max_characters"]
    assert not [key for key in explained if key != "kind" and f"`{key}`" not in card]


@pytest.mark.slow
def test_a_fine_tuned_model_is_as_good(spelt: Exported, tmp_path: Path) -> None:
    loaded = tf.saved_model.load(str(spelt.folder))
    for variable in loaded.trainable_variables:
        variable.assign(variable * 1.1 + 0.01)
    hub.reexport(loaded, spelt.folder, tmp_path / "tuned")
    export_onnx(tmp_path / "tuned", tmp_path / "onnx")
    vectors = load(tmp_path / "onnx").encode(TEXTS)
    np.testing.assert_allclose(vectors, loaded(TEXTS), atol=1e-5)
    assert np.abs(vectors - spelt.vectors).max() > 1e-3


def change_vocabulary(folder: Path) -> None:
    (folder / "training" / "vocabulary.txt").write_text("one\n")


def change_rules(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"lowercase": true', '"lowercase": false'))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), r"config\.json is not there; copy both"),
        (change_vocabulary, r"not of the sizes .*all must be of one model; export it anew"),
        (change_rules, "with other rules for tokens"),
    ],
    ids=["no config", "another vocabulary", "other rules"],
)
def test_other_folders_are_told_and_leave_nothing(
    change: Any, message: str, spelt: Exported, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(spelt.folder, tmp_path / "model"))
    change(folder)
    with pytest.raises(UserError, match=message):
        export_onnx(folder, tmp_path / "onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_cannot_be_loaded_is_told(
    spelt: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"with runtime\.json, but .*make one with export/main\.py"):
        load(spelt.folder)
    spelt.encoder("onnx")
    folder = Path(shutil.copytree(spelt.place / "onnx", tmp_path / "onnx"))
    (folder / "model.onnx").write_bytes(b"half")
    with pytest.raises(UserError, match=r"model\.onnx must be a model as it was exported, but: "):
        load(folder)
    (folder / "runtime.json").write_text('{"format": 99}')
    with pytest.raises(UserError, match="in format 1, but is in 99"):
        load(folder)
    monkeypatch.setitem(sys.modules, "farmhash", None)  # importing it fails
    with pytest.raises(UserError, match=r"need pyfarmhash, .*'xling_tf\[runtimes\]'"):
        load(spelt.place / "onnx")


@pytest.mark.slow
def test_the_program_compares_them(spelt: Exported, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n".join([*SENTENCES, "one more"]), encoding="utf-8")
    place = spelt.place
    for name in EXPORTERS:
        spelt.encoder(name)
    folders = [f"--litert={place / 'litert'}", f"--onnx={place / 'onnx'}"]
    flags = ["--texts=texts.txt", "--count=4", "--repeats=1", "--output=figures.json"]
    program = str(ROOT / "evaluation" / "runtimes.py")
    run = run_python(tmp_path, program, f"--model={spelt.folder}", *folders, *flags)
    assert run.status == 0, run.errors
    figures = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert figures["texts"] == 4
    for name in EXPORTERS:
        assert figures[name]["least_cosine"] > 0.9999
