"""LiteRT and ONNX Runtime: the ids and the vectors of the SavedModel, without TensorFlow."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from programs import run_program
from testing import SENTENCES, TINY
from tricky_texts import FRAGMENTS

from xling_tf.client.runtimes import Pieces, WordPieces, Words
from xling_tf.client.texts import is_blank
from xling_tf.config import SentencePieceConfig, WordPieceConfig
from xling_tf.errors import UserError
from xling_tf.exporters import litert_onnx
from xling_tf.exporters.base import export
from xling_tf.savedmodel.saved_models import checksum, load_saved_model
from xling_tf.sentence_encoder import SentenceEncoder, load
from xling_tf.tokenizers.sentencepiece import SentencePieceTokenizer
from xling_tf.tokenizers.treebank import EMPTY_TOKEN
from xling_tf.tokenizers.wordpiece import WordPieceTokenizer
from xling_tf.tokenizers.words import WordTokenizer, ngram_buckets

# Lengths from none to beyond the cut, and many words that no vocabulary has.
TEXTS = [
    *SENTENCES,
    "我爱你 😀",
    "Donaudampfschifffahrt, x.y z!",
    "a b c d e f g h i j k l m n o p",
    "\ufffd \0 " + "é" * 1000,
    "Man\u0303ana \u1112\u1161\u11ab\u1100\u116e\u11a8",
]
CORPUS = {"en": [*SENTENCES, "我爱北京", "ABC abc"]}
VOCABULARY = [EMPTY_TOKEN, "hola", "don", "n't", ",", "北京", "北", "é", "'", "1,234"]
WORD_PIECES = [
    "[UNK]",
    "[CLS]",
    "[SEP]",
    *"abcdehlost'.,-猫我爱½éе",
    *(f"##{c}" for c in "abcdehlostéе猫"),
]
LOWER = dataclasses.replace(TINY.tokenizer, ngram_sizes=(), lowercase=True)
PIECES = SentencePieceConfig(num_pieces=60, max_tokens=12)
MARKED = dataclasses.replace(PIECES, sentence_marks=True, max_tokens=7)
UNACCENTED = WordPieceConfig(max_tokens=12, lowercase=True, strip_accents=True)
CASED = WordPieceConfig(max_tokens=12, sentence_marks=False)
# Makes tokenizers, and reads their files without TensorFlow.
TOKENIZERS = {
    "spelt": (lambda: WordTokenizer(VOCABULARY, TINY.tokenizer), Words),
    "words alone": (lambda: WordTokenizer(VOCABULARY, LOWER), Words),
    "pieces": (lambda: SentencePieceTokenizer.fit(PIECES, CORPUS), Pieces),
    "marked pieces": (lambda: SentencePieceTokenizer.fit(MARKED, CORPUS), Pieces),
    "word pieces": (lambda: WordPieceTokenizer(WORD_PIECES, UNACCENTED), WordPieces),
    "cased word pieces": (lambda: WordPieceTokenizer(WORD_PIECES, CASED), WordPieces),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_fragments_become_the_same_ids(name, tmp_path):
    """The same tokens, ids, buckets and n-grams in the graph and outside of it."""
    make, read = TOKENIZERS[name]
    inside = make()
    ((file, content),) = inside.files().items()
    (tmp_path / file).write_bytes(content)
    outside = read(tmp_path / file, json.loads(json.dumps(inside.rules())))

    texts = [*SENTENCES, *FRAGMENTS, " ".join(FRAGMENTS), "".join(FRAGMENTS)]
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    ragged = inside.tokenize(tf.constant(encoded, tf.string))
    tokens = outside.tokenize(texts)
    expected = ragged.to_list()
    if read is Words:
        expected = [[word.decode() for word in words] for words in expected]
    assert tokens == expected
    inputs = outside.inputs(tokens)
    ids = inputs["input_ids"][inputs["attention_mask"] == 1]
    rows = inside.word_ids(ragged.values).numpy()
    num_known = len(VOCABULARY)
    is_known = rows < num_known if name == "spelt" else np.ones(len(rows), bool)
    assert ids[is_known].tolist() == rows[is_known].tolist()
    if name == "spelt":
        # An unknown word's number leads to its bucket and its n-grams.
        numbers, fill = ids[~is_known] - num_known, inside.config.num_ngram_buckets
        assert (num_known + inputs["buckets"][numbers]).tolist() == rows[~is_known].tolist()
        ngrams = [[n for n in row if n != fill] for row in inputs["ngrams"][numbers].tolist()]
        assert ngrams == ngram_buckets(ragged.values[~is_known], inside.config).to_list()


class Exported:
    """An exported model, its vectors of `TEXTS`, and its exports for runtimes, made when asked."""

    def __init__(self, folder: Path, place: Path) -> None:
        self.folder, self.place = folder, place
        self.vectors = load_saved_model(folder)(tf.constant(TEXTS)).numpy()
        self.vectors[[is_blank(text) for text in TEXTS]] = 0

    @cache  # noqa: B019
    def encoder(self, name: str) -> SentenceEncoder:
        export(self.folder, name, self.place / name)
        return load(self.place / name)


@pytest.fixture(scope="module")
def spelt(hub_folder, tmp_path_factory):
    """A transformer of words and their n-grams."""
    return Exported(hub_folder, tmp_path_factory.mktemp("spelt"))


@pytest.fixture(scope="module")
def pieces(exports, tmp_path_factory):
    """A CNN of marked pieces, as the published one is."""
    return Exported(exports("cnn")[1], tmp_path_factory.mktemp("pieces"))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("spelt", "onnx"),
        pytest.param("pieces", "litert", marks=pytest.mark.slow),
        pytest.param("spelt", "litert", marks=pytest.mark.slow),
    ],
)
def test_vectors_are_those_of_the_saved_model_in_any_company(kind, name, request):
    exported = request.getfixturevalue(kind)
    encoder, expected = exported.encoder(name), exported.vectors
    assert len(np.unique(expected.round(4), axis=0)) > len(TEXTS) / 2
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    alone = [encoder.encode([text])[0] for text in TEXTS]
    np.testing.assert_allclose(alone, expected, atol=1e-5)
    new = load(exported.place / name)  # which has spelt no word beforehand
    with ThreadPoolExecutor(4) as threads:
        for vectors in threads.map(lambda _: new.encode(TEXTS[::-1] * 5, batch_size=7), range(8)):
            np.testing.assert_allclose(vectors, np.tile(expected[::-1], (5, 1)), atol=1e-5)
    assert encoder.encode([]).shape == (0, TINY.encoder.hidden_dim)
    np.testing.assert_allclose(encoder.encode(TEXTS[0]), expected[0], atol=1e-5)
    np.testing.assert_array_equal(encoder.encode("b", prompt="a "), encoder.encode("a b"))
    with pytest.raises(UserError, match="'topic'"):
        encoder.encode(["a"], prompt_name="topic")
    with pytest.raises(UserError, match="no signature raw"):
        encoder.encode(["a"], normalize_embeddings=False)
    if name == "litert":  # no operation beyond its own: those of TensorFlow are named Flex there
        assert b"Flex" not in (exported.place / name / "model.tflite").read_bytes()


# Processes that are forked from one that has encoded: one encodes as well, the other does not; both
# end.
FORKING = """
import os, sys
import xling_tf
before = dict(os.environ)
encoder = xling_tf.load(sys.argv[1])
assert dict(os.environ) == before
expected = encoder.encode(["a b c", "d"])
for uses_it in (True, False):
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
    else:
        sys.exit(0 if not uses_it or (encoder.encode(["a b c", "d"]) == expected).all() else 1)
"""


@pytest.mark.parametrize("name", ["onnx", pytest.param("litert", marks=pytest.mark.slow)])
def test_a_forked_process_encodes_and_ends(name, spelt):
    spelt.encoder(name)
    environment = {key: text for key, text in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    command = [sys.executable, "-c", FORKING, spelt.place / name]
    subprocess.run(command, check=True, timeout=60, env=environment)


@pytest.mark.slow
def test_a_model_with_changed_rules_is_refused_and_an_earlier_export_stays(spelt, tmp_path):
    spelt.encoder("onnx")
    output = shutil.copytree(spelt.place / "onnx", tmp_path / "onnx")
    folder = shutil.copytree(spelt.folder, tmp_path / "model")
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"lowercase": false', '"lowercase": true'))
    with pytest.raises(UserError, match="other rules for tokens"):
        export(folder, "onnx", output)
    assert {path.name for path in tmp_path.iterdir()} == {"model", "onnx"}
    assert (output / "model.onnx").read_bytes() == (
        spelt.place / "onnx" / "model.onnx"
    ).read_bytes()


def test_what_cannot_be_loaded_is_told(spelt, tmp_path, monkeypatch):
    spelt.encoder("onnx")
    folder = Path(shutil.copytree(spelt.place / "onnx", tmp_path / "onnx"))
    (folder / "model.onnx").write_bytes(b"half")
    assert checksum(folder) != checksum(spelt.place / "onnx")
    with pytest.raises(UserError, match=r"model\.onnx must be an exported model"):
        load(folder)
    (folder / "runtime.json").write_text('{"format": 99}')
    with pytest.raises(UserError, match="in format 4, but is in 99"):
        load(folder)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # importing it fails
    with pytest.raises(UserError, match=r"needs onnxruntime, .*'xling_tf\[runtime\]'"):
        load(spelt.place / "onnx").encode("hola")


@pytest.mark.parametrize(
    "changes",
    [
        {"dim": None},
        {"dim": "8"},
        {"runtime": None},
        {"runtime": "torch"},
        {"runtime": ["onnx"]},
        {"prompts": 3},
        {"vocabulary": None},
        {"vocabulary": 3},
        {"vocabulary": "missing.txt"},
        {"vocabulary": "/etc/passwd"},
        {"vocabulary": "../vocabulary.txt"},
        {"text": None},
        {"text": "words"},
        {"text": {}},
        {"text": {"kind": "letters"}},
        {"text": {"kind": "words"}},
        {"text": {"kind": "pieces", "max_tokens": 8}},
    ],
)
def test_settings_that_are_missing_or_of_another_type_are_told_in_one_line(
    spelt, tmp_path, changes
):
    spelt.encoder("onnx")
    folder = Path(shutil.copytree(spelt.place / "onnx", tmp_path / "onnx"))
    settings = json.loads((folder / "runtime.json").read_text("utf-8")) | changes
    kept = {name: value for name, value in settings.items() if value is not None}
    (folder / "runtime.json").write_text(json.dumps(kept), "utf-8")
    shutil.copy(
        folder / settings["vocabulary"] if "vocabulary" not in changes else folder / "runtime.json",
        tmp_path / "vocabulary.txt",
    )
    with pytest.raises(UserError) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def test_a_vocabulary_that_is_no_model_of_sentencepiece_is_told(tmp_path):
    rules = SentencePieceTokenizer.fit(PIECES, CORPUS).rules()
    for content in (b"", b"\n\xff", b"hola\n" * 50):
        (tmp_path / "v").write_bytes(content)
        with pytest.raises(UserError, match="must be a model of SentencePiece"):
            Pieces(tmp_path / "v", rules).tokenize(["a"])


@pytest.mark.slow
def test_the_program_compares_them(spelt, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    flags = ["--texts=texts.txt", "--output=figures.json"]
    for name in ("litert", "onnx"):
        spelt.encoder(name)
        flags.append(f"--{name}={spelt.place / name}")
    run_program(tmp_path, "evaluation/benchmarks/runtimes.py", f"--model={spelt.folder}", *flags)
    figures = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert figures["texts"] == len([*filter(None, SENTENCES)])
    assert min(figures[name]["least_cosine"] for name in ("litert", "onnx")) > 0.9999


def test_a_graph_has_the_same_bytes_whatever_its_order_and_names():
    helper = pytest.importorskip("onnx.helper")
    # (x + c) * (x - d), its sum and difference in either order.
    forms = set()
    for swapped, (total, difference, c, d) in enumerate(("stcd", "uvef")):
        nodes = [
            helper.make_node("Add", ["x", c], [total], name=f"node_{total}"),
            helper.make_node("Sub", ["x", d], [difference]),
        ]
        product = helper.make_node("Mul", [total, difference], ["y"])
        constants = [helper.make_tensor(c, 1, [1], [2.0]), helper.make_tensor(d, 1, [1], [3.0])]
        if swapped:
            nodes.reverse()
            constants.reverse()
        graph = helper.make_graph([*nodes, product], "g", [value("x")], [value("y")], constants)
        litert_onnx.number_values(graph, {"x": "x", "y": "y"})
        assert [node.op_type for node in graph.node] == ["Add", "Sub", "Mul"]
        forms.add(graph.SerializeToString())
    assert len(forms) == 1


def value(name):
    return pytest.importorskip("onnx.helper").make_tensor_value_info(name, 1, ["n"])
