"""Library calls leave the process unchanged; models in forked, pickled-to and ending processes."""

import multiprocessing
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
from contextlib import suppress
from pathlib import Path
from unittest import mock

import huggingface_hub
import keras
import numpy as np
import pytest
import tensorflow as tf
from huggingface_hub.utils import filter_repo_objects
from programs import ROOT
from raw_files import read_files, write_files
from testing import SENTENCES

import xling_tf
from xling_tf import processes
from xling_tf.errors import UserError
from xling_tf.evaluators.embedders import open_embedder
from xling_tf.importers.base import read_base_model
from xling_tf.savedmodel import saved_models
from xling_tf.savedmodel.saved_models import find_model, model_name
from xling_tf.sentence_encoder import SentenceEncoder

PAIRS = [(f"word {i}", f"palabra {i}") for i in range(16)]


@pytest.fixture(scope="module")
def loaded(hub_folder):
    return xling_tf.load(hub_folder)


def process_state():
    descriptors = {number: os.readlink(f"/proc/self/fd/{number}") for number in (0, 1, 2)}
    signals = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    randoms = random.getstate(), str(np.random.get_state())
    policy = keras.config.dtype_policy().name
    return descriptors, dict(os.environ), [*sys.path], signals, randoms, policy, [*warnings.filters]


@pytest.mark.slow
def test_a_library_call_leaves_the_process_as_it_is(hub_folder, headless, tmp_path, monkeypatch):
    """Also if threads load at once, and without standard error, as under pythonw."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stderr", None)
    keras.config.set_dtype_policy("mixed_bfloat16")
    before = process_state()
    with ThreadPoolExecutor(2) as threads:
        models = list(threads.map(lambda _: xling_tf.load(hub_folder), range(4)))
    models[0].encode(SENTENCES, batch_size=2)
    xling_tf.KerasEncoder(hub_folder)
    assert process_state() == before
    settings = ["training.precision=float32"]
    with ThreadPoolExecutor(1) as thread:  # signal handlers need the main thread
        options = {"output": "tuned", "steps": 1, "settings": settings}
        assert thread.submit(xling_tf.fine_tune, headless, PAIRS, **options).result()
    assert process_state() == before


# What prints a note long after the import: a product that TensorFlow rounds to bfloat16.
NOTES = """
import os
from xling_tf.processes import start_tensorflow
before = dict(os.environ)
tf = start_tensorflow()
assert dict(os.environ) == before
tf.config.optimizer.set_experimental_options({"auto_mixed_precision_onednn_bfloat16": True})
tf.function(lambda x: tf.nn.relu(tf.matmul(x, x)))(tf.ones([64, 64]))
"""


@pytest.mark.slow
def test_tensorflow_prints_no_notes_later_either():
    for level in (None, "3", "0"):
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": level}
        if level is None:
            del environment["TF_CPP_MIN_LOG_LEVEL"]
        command = [sys.executable, "-c", NOTES]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        assert (done.stderr == b"") == (level != "0"), done.stderr.decode()


def in_fork(call):
    """The result or error of a call in a forked process."""
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


def test_a_forked_process_must_load_its_own_model(loaded, hub_folder):
    loaded.encode(SENTENCES)
    layer, model = xling_tf.KerasEncoder(hub_folder), xling_tf.Model.from_pretrained(hub_folder)
    assert model("a").shape == layer(np.array(["a"])).shape
    features = model.tokenizer(tf.constant(["a"]))
    for call in (
        lambda: model.encoder(features),
        lambda: xling_tf.Model.from_config(model.config(), model.tokenizer.files().__getitem__),
        lambda: model("a"),
        lambda: model.module(),
        lambda: xling_tf.Model.from_pretrained(hub_folder),
        lambda: loaded.encode("a"),
        lambda: loaded.encode_query("a"),
        lambda: loaded.call("inference", premise="a", hypothesis="b"),
        lambda: xling_tf.load(hub_folder),
        lambda: layer(np.array(["a"])),
    ):
        assert "spawn" in in_fork(call)


@pytest.mark.parametrize(
    "call",
    [
        xling_tf.load,
        xling_tf.KerasEncoder,
        xling_tf.Model.from_pretrained,
        lambda folder: xling_tf.fine_tune(folder, PAIRS, output=folder / "saved_model.pb"),
    ],
)
def test_gpus_are_exact_and_shared_wherever_the_library_starts(call, hub_folder, monkeypatch):
    """Once in a process, before the first operation; a GPU that was used before stays as it is."""
    was_used = RuntimeError("Physical devices cannot be modified after being initialized")
    done = mock.Mock(**{"set_growth.side_effect": [was_used, None]})
    processes._prepare_gpus.cache_clear()
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: ["GPU:0", "GPU:1"])
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", done.set_growth)
    monkeypatch.setattr(
        tf.config.experimental, "enable_tensor_float_32_execution", done.set_rounding
    )
    for _ in range(2):
        with suppress(UserError):  # of fine_tune, whose output is a file
            call(hub_folder)
    growths = [mock.call.set_growth(gpu, True) for gpu in ("GPU:0", "GPU:1")]
    assert done.mock_calls == [mock.call.set_rounding(False), *growths]
    processes._prepare_gpus.cache_clear()


def test_another_backend_of_keras_is_refused(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(UserError, match="set KERAS_BACKEND=tensorflow"):
        _ = xling_tf.Model


def test_a_search_works_in_a_forked_process():
    vectors = np.random.default_rng(0).normal(size=(2000, 8))

    def nearest():
        hits = xling_tf.semantic_search(vectors, vectors, top_k=1)
        return [hit["corpus_id"] for (hit,) in hits] == [*range(2000)]

    assert nearest()
    assert in_fork(nearest) == "True"


@pytest.mark.slow
def test_pickle_and_process_pools_carry_a_model_by_its_name(
    loaded, hub_folder, hub_vectors, monkeypatch
):
    monkeypatch.chdir(hub_folder.parent)
    relative = xling_tf.load(hub_folder.name, dtype="bfloat16")
    monkeypatch.chdir("/")
    again = pickle.loads(pickle.dumps(relative))
    assert again._arguments == (str(hub_folder), "bfloat16")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for encode in (loaded.encode, loaded.encode_query, loaded.encode_document):
            vector = pool.apply(encode, [SENTENCES[0]])
            assert vector == pytest.approx(encode(SENTENCES[0]), abs=1e-6)


def test_a_forked_worker_reads_its_task_and_says_why_it_cannot_encode(loaded, hub_loaded):
    """Workers that died as they read their tasks would be replaced by a forked pool forever."""
    task = pickle.dumps(loaded.encode_document)
    assert in_fork(lambda: callable(pickle.loads(task))) == "True"
    assert "spawn" in in_fork(lambda: pickle.loads(task)(["Hola"]))
    with pytest.raises(UserError, match="by its model's name"):
        pickle.dumps(SentenceEncoder(hub_loaded))


@pytest.mark.parametrize(
    ("kind", "ending"),
    [("gztar", ".tgz"), ("zip", ".ZIP"), ("bztar", ".tar.bz2"), ("xztar", ".tar.xz")],
)
def test_archives_of_every_kind_are_opened_and_damage_is_reported(
    kind, ending, hub_folder, tmp_path
):
    packed = shutil.make_archive(str(tmp_path / "packed"), kind, hub_folder.parent, hub_folder.name)
    archive = Path(packed).rename(tmp_path / f"model{ending}")
    assert (find_model(archive) / "saved_model.pb").is_file()
    assert model_name(archive) == "model"
    content = bytearray(archive.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 9] = b"\xff" * 9
    (damaged := archive.with_name(f"damaged{ending}")).write_bytes(content)
    with pytest.raises(UserError, match=r"damaged.*; download it again"):
        find_model(damaged)


def test_a_model_is_found_however_it_is_named(hub_folder, tmp_path, monkeypatch):
    shutil.copytree(hub_folder, tmp_path / "m")
    monkeypatch.setenv("HOME", str(tmp_path))
    for number in ("2", "10"):
        (tmp_path / "served").mkdir(exist_ok=True)
        (tmp_path / "served" / number).symlink_to(hub_folder)
    for name in ("~/m", "~/m/", tmp_path / "m"):
        assert find_model(name) == tmp_path / "m"
    assert find_model(tmp_path / "served") == tmp_path / "served" / "10"
    names = ("/home/me@example.org/en-es", "hf://owner/en-es@v1", "hf://owner/en-es")
    assert [model_name(name) for name in names] == ["en-es"] * 3
    archive = tmp_path / "served.tar.gz"
    for number in ("2", "10"):  # another archive replaces it
        with tarfile.open(archive, "w:gz", dereference=True) as file:
            file.add(tmp_path / "served" / number, f"served/{number}")
        assert find_model(archive).name == number


def test_a_model_at_hugging_face_is_loaded_by_its_name(
    hub_folder, hub_vectors, tmp_path, monkeypatch
):
    repository = shutil.copytree(hub_folder, tmp_path / "repository")
    for name in ("pytorch_model.bin", "onnx/model.onnx"):  # formats that nobody reads
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).touch()

    def download(name, revision, ignore_patterns):
        if name != "a/b":
            raise OSError("404")
        names = read_files(repository).keys()
        for name in names - filter_repo_objects(names, ignore_patterns=ignore_patterns):
            (repository / name).unlink()
        return str(repository)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    texts = SENTENCES[:-1]  # the last is blank
    assert xling_tf.load("hf://a/b").encode(texts) == pytest.approx(hub_vectors[:-1], abs=1e-6)
    assert read_files(repository) == read_files(hub_folder)
    assert open_embedder("hf://a/b@main").name == "b"
    names = [read_base_model(name) for name in ("hf://a/b@main", hub_folder, "a/removed/folder")]
    assert names == ["a/b", "", ""]
    with pytest.raises(UserError, match="hf://a/other cannot be downloaded"):
        xling_tf.load("hf://a/other")


def test_other_files_and_folders_are_described_in_the_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exported" / "en-es").mkdir(parents=True)
    for files, name, message in (
        ([], "exported/en-ex", "exported/en-es"),
        ([], "", "does not exist"),
        ([], "https://tfhub.dev/google/universal-sentence-encoder-multilingual/3", "download"),
        (["model.tar.gz"], "model.tar.gz", "download it again"),
        (["notes.txt"], "notes.txt", "is neither"),
        (["run/checkpoints/1/state.json"], "run", "run folder"),
        (["lite/runtime.json"], "lite", "ONNX Runtime"),
        (["torch/modules.json"], "torch", "xling-tf import"),
        (["old/tfhub_module.pb"], "old", "TensorFlow 1"),
        (["a/x/saved_model.pb", "a/y/saved_model.pb"], "a", "a/x"),
        (["other/readme"], "other", "readme"),
    ):
        write_files(tmp_path, dict.fromkeys(files, b""))
        with pytest.raises(UserError, match=message):
            saved_models.load_saved_model(find_model(name))
