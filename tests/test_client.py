"""One client: every encoder does the same, whatever model it has, and a wheel does too without this
package.
"""

import inspect
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import client_behaviour as behaviour
import numpy as np
import pytest
from testing import add_noise, export_package, tiny_config, tiny_model
from tricky_texts import sample_sentences

import xling_tf
from xling_tf.client import neighbours
from xling_tf.client.encoder import SentenceEncoder
from xling_tf.client.runtimes import open_folder
from xling_tf.client.search import semantic_search
from xling_tf.evaluators.embedders import open_embedder
from xling_tf.exporters import wheel
from xling_tf.exporters.base import OriginalModel, export

WORDS = ["<empty>", "the", "cat", "dog", "a", "sleeps", "perro", "el", "query", "text", ":"]
STATIC = (
    "encoder.kind=static",
    "encoder.hidden_dim=16",
    "encoder.embedding_dim=12",
)
PIECES = ("tokenizer.kind=sentencepiece", "tokenizer.num_pieces=900", "tokenizer.max_tokens=32")
PROMPTS = {"query": "query: ", "document": "text: "}


def make_model(*settings: str, words=WORDS):
    model = tiny_model(tiny_config(*STATIC, *settings), words)
    add_noise(model.weights.values(), 0.3)
    model.heads.clear()
    return model


class Models:
    """A model of words and one of pieces with prompts, and what they are exported to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.words = make_model("tokenizer.num_oov_buckets=1")
        self.pieces = make_model(*PIECES, words={"en": sample_sentences()})
        self.pieces.info = replace(self.pieces.info, prompts=PROMPTS, default_prompt_name="query")
        self.pieces.export(folder / "pieces")

    def open(self, kind: str):
        """Returns an encoder of a kind in `KINDS`."""
        return getattr(self, kind)()

    def function(self):
        return SentenceEncoder(lambda texts: self.words(texts).numpy() * 3)

    def live(self):
        return xling_tf.load(self.pieces)

    def module(self):
        return xling_tf.load(self.pieces.module())

    def saved_model(self):
        return xling_tf.load(self.folder / "pieces")

    def save_pretrained(self):
        self.pieces.save_pretrained(folder := self.folder / "pretrained")
        return xling_tf.load(folder)

    def onnx(self):
        return self._exported("onnx")

    def litert(self):
        return self._exported("litert")

    def _exported(self, form: str):
        if not (self.folder / form).exists():
            export(self.folder / "pieces", form, self.folder / form)
        return xling_tf.load(self.folder / form)

    def wheel(self, name: str) -> Path:
        """Returns the folder with the unpacked wheel of a model."""
        folder = self.folder / f"{name}-wheel"
        if not folder.exists():
            model = getattr(self, name)
            source = OriginalModel(
                self.folder / "pieces", model, lambda t: model(list(t)).numpy(), None
            )
            folder.mkdir()
            sizes = {"bits": 8} if name == "words" else {}
            export_package(wheel, source, folder, name=f"tiny-{name}", **sizes)
            (path,) = folder.glob("*.whl")
            subprocess.run([sys.executable, "-m", "zipfile", "-e", path, folder], check=True)
        return folder

    def wheel_of_words(self):
        return SentenceEncoder(open_folder(self.wheel("words") / "tiny_words"))

    def wheel_of_pieces(self):
        (path,) = self.wheel("pieces").glob("*.whl")
        return xling_tf.load(path)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return Models(tmp_path_factory.mktemp("models"))


KINDS = [
    "function",
    "live",
    "saved_model",
    "save_pretrained",
    "onnx",
    pytest.param("litert", marks=pytest.mark.slow),
    "wheel_of_words",
    "wheel_of_pieces",
]
FILES = ["onnx", pytest.param("litert", marks=pytest.mark.slow), "wheel_of_words"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_encoder_does_the_same(kind, models):
    encoder = models.open(kind)
    for check in behaviour.EVERYWHERE:
        check(encoder)


@pytest.mark.parametrize("kind", ["module", *KINDS[2:]])
def test_every_form_has_the_vectors_of_the_model(kind, models):
    encoder, live = models.open(kind), models.live()
    if kind == "wheel_of_words":
        live = xling_tf.load(models.words)
    tolerance = 0.03 if "wheel" in kind else 1e-5  # weights of 8 bits
    for method in ("encode", "encode_query", "encode_document"):
        actual, expected = (getattr(e, method)(behaviour.TEXTS) for e in (encoder, live))
        cosines = expected @ expected.T
        np.testing.assert_allclose(actual @ actual.T, cosines, atol=tolerance)


# Runs all checks by a wheel in a process that has NumPy and nothing else, as on Windows, where
# there are no forks, if an argument is given.
ALONE = """
import os, sys
sys.path[:0] = sys.argv[1:3]
if sys.argv[4:]:
    sys.modules["fcntl"] = None
    del os.register_at_fork, os.fork, os.sched_getaffinity
import client_behaviour as behaviour, {module} as model
for name in ("tensorflow", "keras", "xling_tf", "absl", "tqdm", "faiss", "scipy"):
    assert name not in sys.modules
    try:
        __import__(name)
    except ImportError:
        pass
    else:
        raise AssertionError(name)
model.model.encode(behaviour.TEXTS, show_progress_bar=True)
for check in (*behaviour.EVERYWHERE, behaviour.pickling_loads_it_again):
    check(model.model)
if not sys.argv[4:]:
    behaviour.a_forked_process_encodes_and_ends(model.model)
assert model.encode_query("a dog").tolist() == model.embed_query("a dog")
"""


@pytest.mark.parametrize("platform", [[], ["without forks"]])
def test_a_wheel_does_the_same_with_numpy_alone(platform, models, tmp_path):
    folder = models.wheel("words")
    site = Path(np.__file__).parents[1]
    for path in [*site.glob("numpy"), *site.glob("numpy.libs")]:
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "client_behaviour.py").symlink_to(behaviour.__file__)
    code = ALONE.format(module="tiny_words")
    command = [sys.executable, "-I", "-S", "-c", code, tmp_path, folder, "run", *platform]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert answer.returncode == 0, answer.stderr
    assert "4 of 4, unit: sentence" in answer.stderr  # two of the texts are equal, one is blank


def test_a_wheel_has_the_arguments_of_the_library(models, monkeypatch):
    monkeypatch.syspath_prepend(models.wheel("words"))
    import tiny_words

    assert (Path(tiny_words.__file__).parent / "py.typed").is_file()
    for name in wheel._METHODS:
        library, own = getattr(xling_tf.SentenceEncoder, name), getattr(tiny_words, name)
        parameters = [*inspect.signature(library).parameters.values()]
        assert [*map(str, inspect.signature(own).parameters.values())] == [
            *map(str, parameters[1:])
        ]
    # An installed wheel is loaded by its name.
    encoder = xling_tf.load("tiny_words")
    behaviour.close(encoder.encode("a dog"), tiny_words.encode("a dog"))


@pytest.mark.parametrize("kind", FILES)
def test_what_is_loaded_from_a_file_survives_forks_and_pickling(kind, models):
    models.open(kind)
    encoder = models.open(kind)
    for check in behaviour.FROM_FILES:
        check(encoder)


def test_a_run_folder_is_loaded_with_its_newest_weights(models, tmp_path):
    models.pieces.save_pretrained(run := tmp_path / "run")
    for step in ("step-00000002", "step-00000010"):
        (run / "checkpoints" / step).mkdir(parents=True)
    (run / "checkpoints" / "step-00000002" / "model.safetensors").touch()  # damaged, and not read
    (run / "model.safetensors").rename(run / "checkpoints" / "step-00000010" / "model.safetensors")
    vectors = models.live().encode(behaviour.TEXTS)
    np.testing.assert_allclose(xling_tf.load(run).encode(behaviour.TEXTS), vectors, atol=1e-5)


def test_evaluators_open_what_load_opens(models):
    (path,) = models.wheel("pieces").glob("*.whl")
    encoder, embedder = models.wheel_of_pieces(), open_embedder(str(path))
    assert embedder.name == "tiny_pieces"
    assert embedder.checksum
    np.testing.assert_array_equal(embedder(behaviour.TEXTS), encoder.encode(behaviour.TEXTS))
    queries = embedder.encode_questions(behaviour.TEXTS)
    np.testing.assert_array_equal(queries, encoder.encode_query(behaviour.TEXTS))
    answers = embedder.encode_responses(behaviour.TEXTS, behaviour.TEXTS)
    np.testing.assert_array_equal(answers, encoder.encode_document(behaviour.TEXTS))


def test_equal_texts_are_encoded_once_and_blank_ones_never():
    calls = []

    def embed(texts):
        calls.append(texts)
        return [[len(text), 1.0] for text in texts]

    vectors = SentenceEncoder(embed).encode(["bb", "a", "", "bb", "ccc", "a"], batch_size=2)
    assert vectors.tolist() == [[2, 1], [1, 1], [0, 0], [2, 1], [3, 1], [1, 1]]
    assert calls == [["ccc", "bb"], ["a"]]  # the longest first


def test_a_search_in_numpy_finds_what_faiss_finds(monkeypatch):
    random = np.random.default_rng(1)
    queries, corpus = (random.normal(size=(count, 8)).astype(np.float32) for count in (30, 100))
    corpus[7] = 0
    for k in (1, 5, 200):
        expected = semantic_search(queries, corpus, top_k=k)
        with monkeypatch.context() as patch:
            patch.setattr(neighbours, "find_spec", lambda name: None)
            patch.setattr(neighbours, "_CHUNK", 16)
            patch.setattr(neighbours, "_QUERIES", 7)
            actual = semantic_search(queries, corpus, top_k=k)
        for hits, others in zip(actual, expected, strict=True):
            assert [hit["corpus_id"] for hit in hits] == [hit["corpus_id"] for hit in others]
            behaviour.close([hit["score"] for hit in hits], [hit["score"] for hit in others])
