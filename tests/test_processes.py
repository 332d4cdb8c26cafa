"""What a library call leaves of the process, and models in other processes: forked, pickled, ending."""

import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import warnings
from concurrent.futures import ThreadPoolExecutor

import joblib
import keras
import numpy as np
import pytest
from starting_models import export_model, make_model
from testing import SENTENCES

import xling_tf
from xling_tf.errors import UserError
from xling_tf.hub import saved_models
from xling_tf.hub.saved_models import model_name, resolve
from xling_tf.sentence_encoder import SentenceEncoder


@pytest.fixture(scope="module")
def loaded(hub_folder):
    return xling_tf.load(hub_folder)


def process_state():
    descriptors = {number: os.readlink(f"/proc/self/fd/{number}") for number in (0, 1, 2)}
    signals = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    randoms = random.getstate(), str(np.random.get_state())
    policy = keras.config.dtype_policy().name
    return descriptors, dict(os.environ), [*sys.path], signals, randoms, policy, [*warnings.filters]


def test_a_library_call_leaves_the_process_as_it_is(tmp_path, monkeypatch):
    """Loading by threads at once too, and where there is no standard error, as under pythonw."""
    folder = export_model(make_model("words and n-grams"), tmp_path / "model")
    pairs = [(f"word {i}", f"palabra {i}") for i in range(16)]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stderr", None)
    keras.config.set_dtype_policy("mixed_bfloat16")
    before = process_state()
    with ThreadPoolExecutor(2) as threads:
        models = list(threads.map(lambda _: xling_tf.load(folder), range(4)))
    models[0].encode(SENTENCES, batch_size=2)
    xling_tf.KerasEncoder(folder)
    assert process_state() == before
    settings = ["training.precision=float32", "training.dev_steps=0"]
    with ThreadPoolExecutor(1) as thread:  # signals are the main thread's affair
        tuned = thread.submit(xling_tf.fine_tune, folder, pairs, output="tuned", steps=1, settings=settings)
        assert tuned.result()
    assert process_state() == before


def in_fork(call):
    """What a call returns or raises in a forked process, within seconds."""
    read, write = os.pipe()
    with warnings.catch_warnings(action="ignore"):  # Python warns of forks beside threads
        process = os.fork()
    if not process:
        signal.alarm(60)
        try:
            answer = repr(call())
        except UserError as error:
            answer = f"UserError: {error}"
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    assert os.waitpid(process, 0)[1] == 0
    return text


def test_a_forked_process_is_told_to_load_its_model_itself(loaded, hub_folder):
    loaded.encode(SENTENCES)
    layer = xling_tf.KerasEncoder(hub_folder)
    for call in (
        lambda: loaded.encode("a"),
        lambda: loaded.question_encoder.encode("a"),
        lambda: loaded.response_encoder.encode("a"),
        lambda: loaded.translate("a", "en"),
        lambda: xling_tf.load(hub_folder),
        lambda: layer(np.array(["a"])),
    ):
        assert "spawn" in in_fork(call)


def test_a_search_works_in_a_forked_process():
    vectors = np.random.default_rng(0).normal(size=(2000, 8))

    def nearest():
        hits = xling_tf.semantic_search(vectors, vectors, top_k=1)
        return [hit["corpus_id"] for (hit,) in hits] == [*range(2000)]

    assert nearest()
    assert in_fork(nearest) == "True"


def test_pickle_and_process_pools_carry_a_model_by_its_name(loaded, hub_folder, hub_vectors, monkeypatch):
    monkeypatch.chdir(hub_folder.parent)
    relative = xling_tf.load(hub_folder.name, dtype="bfloat16")
    monkeypatch.chdir("/")
    again = pickle.loads(pickle.dumps(relative))
    assert again._arguments == (str(hub_folder), "bfloat16")
    # One worker has loaded the model already: this process.
    vectors = joblib.Parallel(2, backend="loky")(
        joblib.delayed(encoder.encode)(SENTENCES[0])
        for encoder in (loaded, loaded.question_encoder, loaded.response_encoder)
    )
    parts = (loaded, loaded.question_encoder, loaded.response_encoder)
    for vector, part in zip(vectors, parts, strict=True):
        assert vector == pytest.approx(part.encode(SENTENCES[0]), abs=1e-6)


def test_a_forked_worker_reads_its_task_and_says_why_it_cannot_encode(loaded):
    """A pool that is forked would make workers for ever that die as they read what is pickled."""
    for method in (loaded.encode, loaded.question_encoder.encode, loaded.response_encoder.encode):
        task = pickle.dumps(method)
        assert in_fork(lambda task=task: callable(pickle.loads(task))) == "True"
        assert "spawn" in in_fork(lambda task=task: pickle.loads(task)(["Hola"]))


def test_what_pickle_cannot_carry_is_said(hub_loaded):
    with pytest.raises(UserError, match="name of a model"):
        pickle.dumps(SentenceEncoder(hub_loaded))
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(SentenceEncoder(lambda texts: np.zeros((len(texts), 2))))


def test_thousands_of_texts_are_encoded_while_the_interpreter_ends(hub_folder):
    code = (
        "import atexit, threading, time, xling_tf\n"
        f"model = xling_tf.load({str(hub_folder)!r})\n"
        "encode = lambda: print(len(model.encode(['a'] * 2049)), flush=True)\n"
        "atexit.register(encode)\n"
        "threading.Thread(target=lambda: (time.sleep(1), encode())).start()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["2049", "2049"]


@pytest.mark.parametrize("ending", [".tar.gz", ".tgz", ".tar", ".tar.bz2", ".tar.xz", ".zip", ".ZIP"])
@pytest.mark.parametrize("content", ["the folder", "its content"])
def test_archives_of_every_kind_are_opened(ending, content, hub_folder, tmp_path):
    forms = {e: name for name, endings, _ in shutil.get_unpack_formats() for e in endings}
    place = (hub_folder.parent, hub_folder.name) if content == "the folder" else (hub_folder, ".")
    packed = shutil.make_archive(str(tmp_path / "packed"), forms[ending.lower()], *place)
    archive = os.path.join(tmp_path, f"model{ending}")
    os.rename(packed, archive)
    assert (resolve(archive) / "saved_model.pb").is_file()
    assert model_name(archive) == "model"


def test_a_model_is_found_however_it_is_named(hub_folder, tmp_path, monkeypatch):
    shutil.copytree(hub_folder, tmp_path / "m")
    monkeypatch.setenv("HOME", str(tmp_path))
    for number in ("2", "10"):
        (tmp_path / "served").mkdir(exist_ok=True)
        (tmp_path / "served" / number).symlink_to(hub_folder)
    for name in ("~/m", "~/m/", tmp_path / "m", f"file://{tmp_path}/m", "~/m/saved_model.pb"):
        assert resolve(name) == tmp_path / "m"
    assert resolve(tmp_path / "served") == tmp_path / "served" / "10"
    archive = tmp_path / "served.tar.gz"
    for number in ("2", "10"):  # the archive is replaced by another of its name
        with tarfile.open(archive, "w:gz", dereference=True) as file:
            file.add(tmp_path / "served" / number, f"served/{number}")
        assert resolve(archive).name == number


@pytest.mark.parametrize(
    ("files", "name", "message"),
    [
        ([], "exported/en-ex", "exported/en-es"),
        ([], "nothing", "not there"),
        ([], "", "not there"),
        ([], "broken", "a link to"),
        ([], "https://tfhub.dev/google/universal-sentence-encoder-multilingual/3", "download"),
        ([], "kaggle:owner/model/tensorFlow2/name", "download"),
        (["model.keras"], "model.keras", "keras.saving.load_model"),
        (["model.tar.gz"], "model.tar.gz", "fetch it again"),
        (["notes.txt"], "notes.txt", "another file"),
        (["run/checkpoints/1/state.json"], "run", "--output"),
        (["lite/runtime.json"], "lite", "runtimes.load"),
        (["torch/modules.json"], "torch", "sentence_transformers"),
        (["old/tfhub_module.pb"], "old", "TensorFlow 1"),
        (["a/x/saved_model.pb", "a/y/saved_model.pb"], "a", "a/x"),
        (["a/x/saved_model.pb"], "a", "a/x"),
        (["other/readme"], "other", "readme"),
        ([], "exported/en-es", "empty"),
    ],
)
def test_what_is_no_model_is_told_apart(files, name, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exported" / "en-es").mkdir(parents=True)
    (tmp_path / "broken").symlink_to("gone")
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    with pytest.raises(UserError, match=message):
        saved_models.load_saved_model(resolve(name))
