"""The model in the box: it opens by NumPy alone, is small, and one command makes it again."""

import json
import re
import subprocess
import sys
import textwrap
from dataclasses import replace

import box
import numpy as np
import pytest
from programs import ROOT
from serving_servers import server_in_thread

import xling_tf
from xling_tf.corpora.folder import SAMPLE_FOLDER
from xling_tf.files import folder_bytes
from xling_tf.models import BOX_FOLDER, IN_THE_BOX
from xling_tf.presets import get_preset
from xling_tf.settings import apply_overrides
from xling_tf.trainer.context import Run
from xling_tf.trainer.experiment import run_experiment

needs_box = pytest.mark.skipif(
    not (BOX_FOLDER / "runtime.json").is_file(), reason=f"{BOX_FOLDER} is made by `make model`"
)

# Each import of what the base package does not need fails.
ALONE = """
import sys

others = "tensorflow keras onnxruntime safetensors sentencepiece scipy faiss wordfreq"
sys.modules |= dict.fromkeys(others.split())
import xling_tf
model = xling_tf.load()
corpus = ["El gato duerme en la cocina.", "Morgen regnet es.", "Où est la gare ?", "我喜欢它。"]
((hit,),) = model.semantic_search("Where is the station?", corpus, top_k=1)
print(model, hit["corpus_id"], model.encode(corpus).shape)
"""
MEANINGS = {
    "Where is the train station?": [
        "أين محطة القطار؟",
        "Wo ist der Bahnhof?",
        "¿Dónde está la estación de tren?",
        "Où est la gare ?",
        "Dov'è la stazione dei treni?",
        "駅はどこですか？",
        "기차역이 어디에 있나요?",
        "Waar is het treinstation?",
        "Gdzie jest dworzec kolejowy?",
        "Onde fica a estação de trem?",
        "Где находится вокзал?",
        "Tren istasyonu nerede?",
        "火车站在哪里？",
    ],
    "The computer is broken and the file is lost.": [],
    "I like to eat fresh bread for breakfast.": [],
}


@needs_box
def test_it_opens_without_tensorflow(tmp_path):
    command = [sys.executable, "-c", ALONE]
    environment = {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.stderr == ""
    assert ended.stdout.startswith(f"SentenceEncoder({IN_THE_BOX!r}, ")
    assert ended.stdout.endswith(") 2 (4, 384)\n")


# As on Windows, in a process that has none of these.
WINDOWS = """
import json, os, sys
sys.modules["fcntl"] = None
del os.register_at_fork, os.fork, os.sched_getaffinity
import xling_tf
texts = json.load(sys.stdin)
print(json.dumps(xling_tf.load().encode(texts).tolist()))
"""


@needs_box
def test_without_modules_of_unix_its_vectors_are_those_of_conformance(tmp_path):
    file = json.loads((BOX_FOLDER / "conformance.json").read_text("utf-8"))
    texts = json.dumps([text["text"] for text in file["texts"]])
    environment = {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", WINDOWS]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, input=texts
    )
    assert ended.stderr == ""
    vectors = np.array([text["vector"] for text in file["texts"]])
    found = np.array(json.loads(ended.stdout))[:, :: file["step"]]
    np.testing.assert_allclose(found, vectors, atol=file["tolerance"])


@needs_box
def test_readme_begins_with_what_it_prints(tmp_path):
    text = (ROOT / "README.md").read_text("utf-8")
    code, printed = re.search(r"```python\n(.*?)```\n\n((?:    [^\n]*\n)+)", text, re.S).groups()
    environment = {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.stdout == textwrap.dedent(printed)


@needs_box
def test_it_is_small_and_says_whose_texts_it_learned_from():
    assert folder_bytes(BOX_FOLDER) <= 20e6
    notice = (BOX_FOLDER / "NOTICE").read_text("utf-8")
    for fact in ("GPL-2+", "MPL-2.0", "wesnoth", "universal-sentence-encoder-multilingual"):
        assert fact in notice, fact
    assert "| zh" in (BOX_FOLDER / "README.md").read_text("utf-8")


@needs_box
def test_it_finds_translations_in_all_its_languages():
    model, queries = xling_tf.load(), [*MEANINGS]
    scores = model.similarity(MEANINGS[queries[0]], queries)
    assert np.argmax(scores, axis=1).tolist() == [0] * len(scores)


def test_its_name_is_that_of_a_folder_if_there_is_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / IN_THE_BOX).mkdir()
    with pytest.raises(xling_tf.UserError, match="it is empty"):
        xling_tf.load()


TINY = """encoder.hidden_dim=16 encoder.embedding_dim=12 similarity.matryoshka_dims=
tokenizer.num_oov_buckets=1 tokenizer.common_words=0 tokenizer.num_ngram_buckets=1000
tasks.distillation.weight=0 tasks.graded_similarity.weight=0
tasks.translation_ranking.examples_per_batch=32
training.steps=3 training.minutes=0 training.precision=float32""".split()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two short trainings of the same settings."""
    folder = tmp_path_factory.mktemp("box")
    run = Run(
        name="tiny",
        config=apply_overrides(get_preset("static"), TINY),
        data=SAMPLE_FOLDER,
        run_dir=folder / "run",
        output=folder / "tiny",
    )
    again = replace(run, run_dir=folder / "again", output=folder / "other" / "tiny")
    for each in (run, again):
        run_experiment(each)
    return run, again


@pytest.fixture(scope="module")
def made(runs, tmp_path_factory):
    """The models that two trainings become."""
    data = tmp_path_factory.mktemp("data")
    (data / "eval" / "sts").mkdir(parents=True)
    rows = "Hola\tHola\t5\nHola\tUn gato duerme\t0\nEl gato\tUn gato\t3\n"
    (data / "eval" / "sts" / "stsb.es.dev.tsv").write_text(rows, "utf-8")
    folders = [tmp_path_factory.mktemp("made") / name for name in ("first", "second")]
    for run, folder in zip(runs, folders, strict=True):
        box.make(run, folder, data)
    return folders


def test_two_makings_have_the_same_bytes_and_the_scores_of_the_file(made):
    first, second = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in made)
    assert {"runtime.json", "model.safetensors", "vocabulary.txt", "NOTICE"} <= first.keys()
    assert [name for name in first if first[name] != second[name]] == []
    assert b"| es" in first["README.md"]
    assert b"| stsb.es.dev" in first["README.md"]


def test_a_server_gives_its_vectors(made):
    with server_in_thread({"m": made[0]}) as server:
        answer = server.predict(["Hola", "", "Hello"]).json["predictions"]
        info = server.ask("/v1/models/m/metadata").json
    expected = xling_tf.load(made[0]).encode(["Hola", "", "Hello"])
    np.testing.assert_allclose(answer, expected, atol=1e-6)
    assert "serving_default" in str(info)
