import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from encode_functions import numbers
from testing import SENTENCES, add_noise, encode_responses, tiny_config, tiny_model

import xling_tf
from xling_tf.errors import UserError
from xling_tf.sentence_encoder import SentenceEncoder


@pytest.fixture(scope="module")
def loaded(hub_folder):
    return xling_tf.load(str(hub_folder))


def test_a_loaded_model_encodes_like_the_saved_model(loaded, hub_vectors):
    hub_vectors = without_blanks(hub_vectors)
    assert loaded.encode(SENTENCES, batch_size=4) == pytest.approx(hub_vectors, abs=1e-6)
    assert loaded.dim == hub_vectors.shape[1]
    with ThreadPoolExecutor(4) as threads:
        for vectors in threads.map(lambda _: loaded.encode(SENTENCES, batch_size=4), range(8)):
            assert vectors == pytest.approx(hub_vectors, abs=1e-6)
    assert loaded.encode([], precision="ubinary").shape == (0, 1)
    # json.loads gives such halves of emoji.
    assert np.isfinite(loaded.encode(["\ud83d", "hola \udc00"])).all()


def without_blanks(vectors):
    """The vectors of `SENTENCES`, with zeros for the blank one."""
    return np.where([[text != ""] for text in SENTENCES], vectors, 0)


@pytest.mark.parametrize(
    ("precision", "zeros"), [("float32", 0), ("int8", 0), ("binary", -128), ("ubinary", 0)]
)
def test_blank_texts_have_zero_vectors_without_the_model(precision, zeros):
    seen = []

    def embed(texts):
        seen.extend(texts)
        return np.ones((len(texts), 8), np.float32) / np.sqrt(8)

    encoder = SentenceEncoder(embed)
    texts = ["", "hola", " \n", "\u200b"]
    vectors = encoder.encode(texts, prompt="query: ", precision=precision)
    assert seen == ["query: hola"]
    assert vectors[[0, 2, 3]].tolist() == [[zeros] * vectors.shape[1]] * 3
    assert (vectors[1] != zeros).all()
    assert encoder.encode(" ", precision=precision).tolist() == [zeros] * vectors.shape[1]
    assert encoder.encode(texts, normalize_embeddings=False)[0].tolist() == [0] * 8


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_seq_length", 4),
        ("prompts", {"query": "a "}),
        ("default_prompt_name", "query"),
        ("truncate_dim", 2),
        ("similarity_fn_name", "dot"),
        ("tokenizer", None),
        ("device", "cuda"),
    ],
)
def test_attributes_that_would_change_nothing_cannot_be_set(name, value):
    encoder = SentenceEncoder(numbers)
    before = getattr(encoder, name, None)
    with pytest.raises(UserError, match=name):
        setattr(encoder, name, value)
    assert getattr(encoder, name, None) == before


@pytest.fixture(scope="module")
def prompted():
    """A trainable model of words with the prompts "query: " (the default) and "text: "."""
    words = ["<empty>", "hola", "don", "query", "text", ":"]
    model = tiny_model(tiny_config("tokenizer.ngram_sizes="), words)
    add_noise(model.weights.values(), 0.3)
    model.heads.clear()
    prompts = {"query": "query: ", "document": "text: "}
    model.info = replace(model.info, prompts=prompts, default_prompt_name="query")
    return model


@pytest.mark.parametrize("form", ["model", "module", "folder", "export", "loaded export"])
def test_a_model_gives_its_own_lengths_and_each_prompt_once_in_every_form(form, prompted, tmp_path):
    model: object = prompted
    if form == "module":
        model = prompted.module()
    elif form == "folder":
        prompted.save_pretrained(model := tmp_path / "model")
    elif form != "model":
        prompted.export(model := tmp_path / "model")
        model = tf.saved_model.load(model) if form == "loaded export" else model
    encoder = xling_tf.load(model)
    lengths = np.linalg.norm(prompted.raw(tf.constant(["query: hola", "text: don"])), axis=1)
    assert np.abs(lengths - 1).min() > 0.01

    def require(vectors, text):
        assert vectors == pytest.approx(prompted.raw(tf.constant([text])).numpy()[0], abs=1e-5)

    require(encoder.encode("hola", normalize_embeddings=False), "query: hola")
    require(encoder.encode("don", prompt="text: ", normalize_embeddings=False), "text: don")
    require(encoder.encode("don", prompt="", normalize_embeddings=False), "don")
    require(encoder.encode("hola") * lengths[0], "query: hola")
    require(encoder.encode("don", prompt="text: ") * lengths[1], "text: don")
    if form not in ("module", "loaded export"):  # which have no names of prompts
        require(encoder.encode("don", prompt_name="document") * lengths[1], "text: don")
    if form != "model":
        require(encoder.encode_document("don") * lengths[1], "text: don")


def lengths(texts):
    """Of a string tensor: `[texts, 2]`, the number of bytes and 1."""
    numbers = tf.cast(tf.strings.length(texts), tf.float32)
    return tf.stack([numbers, tf.ones_like(numbers)], axis=1)


class Lengths(tf.Module):
    """Has the vectors of `lengths`; saved, it has no signatures."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def __call__(self, texts):
        return lengths(texts)


def test_functions_get_lists_and_what_is_of_tensorflow_gets_tensors(tmp_path):
    tf.saved_model.save(Lengths(), str(tmp_path / "lengths"))
    for model in (
        lambda texts: [[len(text), 1.0] for text in texts],
        Lengths(),
        tf.function(lengths),
        keras.layers.Lambda(lengths),
        tf.saved_model.load(str(tmp_path / "lengths")),
    ):
        assert SentenceEncoder(model).encode(["Hola", "Bye"]).tolist() == [[4, 1], [3, 1]]


def test_errors_name_what_a_model_lacks(loaded):
    for call, message in (
        (lambda: SentenceEncoder(object()), "expected a model that can be called with sentences"),
        (
            lambda: SentenceEncoder(lambda texts: np.zeros(2)).encode(["a", "b"]),
            r"shape \[2\] for 2 texts",
        ),
        (lambda: loaded.encode_document("a", contexts="b"), "was trained without them"),
        (lambda: SentenceEncoder(numbers, "bfloat16"), "dtype must be float32"),
    ):
        with pytest.raises(UserError, match=message):
            call()


def test_bfloat16_rounds_the_products(hub_folder, loaded):
    rounding = xling_tf.load(hub_folder, dtype="bfloat16")
    for method in ("encode", "encode_query", "encode_document"):
        vectors, expected = (getattr(model, method)(SENTENCES) for model in (rounding, loaded))
        assert vectors.dtype == np.float32
        assert vectors == pytest.approx(expected, abs=0.02)
        # Elsewhere oneDNN has no products of bfloat16.
        if "avx512f" in Path("/proc/cpuinfo").read_text():
            assert not np.array_equal(vectors, expected)


def test_bfloat16_is_refused_where_it_would_change_nothing(hub_folder, monkeypatch):
    monkeypatch.setattr(
        tf.config, "get_visible_devices", lambda kind: [kind] if kind == "GPU" else []
    )
    with pytest.raises(UserError, match="bfloat16 is for CPUs"):
        xling_tf.load(hub_folder, dtype="bfloat16")


def test_contexts_go_with_their_responses():
    rows = []

    def call(responses, contexts):
        rows.extend(zip(responses, contexts, strict=True))
        return np.zeros((len(responses), 2))

    encode_responses(call, ["a", "bbb", "cc"], ["x", "y", "z"], batch_size=2)
    assert sorted(rows) == [("a", "x"), ("bbb", "y"), ("cc", "z")]
    rows.clear()
    encode_responses(call, ["a", "b"], "x")
    encode_responses(call, "c")
    assert rows == [("a", "x"), ("b", "x"), ("c", "")]
    with pytest.raises(UserError, match=r"texts in contexts as inputs, but got 1 for 2"):
        encode_responses(call, ["a", "b"], ["x"])


def test_short_names_are_imported_without_tensorflow():
    code = (
        "import sys, xling_tf\n"
        "heavy = {'tensorflow', 'keras', 'numpy', 'faiss'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "[getattr(xling_tf, name) for name in set(xling_tf.__all__) - {*xling_tf._WITH_KERAS}]\n"
        "import xling_tf.presets, xling_tf.corpora.folder, xling_tf.evaluators.running\n"
        "import xling_tf.trainer.training\n"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)\n"
        "assert dir(xling_tf) == sorted(xling_tf.__all__)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_help_explains_every_name_on_one_screen():
    lines = xling_tf.__doc__.splitlines()
    explained = {match[1] for line in lines if (match := re.match(r"    (\w+)  +\w", line))}
    assert explained == set(xling_tf.__all__)
    assert len(lines) < 40


def test_the_stub_has_every_short_name():
    stub = Path(xling_tf.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    for name, home in xling_tf._MODULES.items():
        assert f"from xling_tf.{home} import {name} as {name}\n" in stub
