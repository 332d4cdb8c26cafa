"""User-defined kinds: trained, exported, served and read back; they say what they need."""

import json

import numpy as np
import pytest
import tensorflow as tf
import toys
from programs import ONE_TASK, ROOT, run_python
from serving_servers import server_in_thread
from testing import SENTENCES

from xling_tf import Model, SentenceEncoder
from xling_tf.config import ENCODERS, TASKS, TOKENIZERS

SETTINGS = (
    "tokenizer.kind=letters",
    "tokenizer.max_tokens=20",
    "encoder.kind=max",
    "encoder.hidden_dim=24",
    "tasks.hypothesis_only.weight=1",
    "training.precision=float32",
    *ONE_TASK,
)

# A training in a process of its own.
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    for registry in (TOKENIZERS, ENCODERS, TASKS):
        monkeypatch.setattr(registry, "_kinds", dict(registry._kinds))
    toys.register()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toys")
    flags = [f"--set={setting}" for setting in SETTINGS]
    return run_python(
        folder, str(ROOT / "tests" / "toys.py"), "--preset=smoke", "--steps=4", *flags
    )


def test_is_trained_and_exported(run):
    assert run.status == 0, run.errors
    assert "task/hypothesis_only_en" in run.results["scores"]
    config = json.loads((run.model / "config.json").read_text("utf-8"))
    assert config["encoder"] == {"kind": "max", "hidden_dim": 24, "num_words": 31}
    card = (run.model / "README.md").read_text("utf-8")
    assert "| `label` | `text` | probabilities of three labels |" in card


def test_is_called_served_and_read_back_as_it_was_exported(run, tmp_path):
    loaded = tf.saved_model.load(str(run.model))
    model = Model.from_pretrained(run.model)
    assert isinstance(model.tokenizer, toys.LetterTokenizer)
    np.testing.assert_allclose(model(SENTENCES), loaded(SENTENCES), atol=1e-6)
    encodings = model.encoder(model.tokenizer(tf.constant(SENTENCES)))
    scaled = encodings / tf.sqrt(tf.reduce_mean(encodings**2, axis=1, keepdims=True))
    labels = model.heads["hypothesis_only"]["labels"](scaled)
    with server_in_thread({"m": run.model}) as server:
        body = {"signature_name": "label", "inputs": SENTENCES}
        served = server.ask("/v1/models/m:predict", json.dumps(body)).json["outputs"]
    for called in (
        loaded.label(SENTENCES),
        SentenceEncoder(run.model).call("label", text=SENTENCES),
        served,
    ):
        np.testing.assert_allclose(called, labels, atol=1e-5)
    model.save_pretrained(tmp_path / "model")
    again = Model.from_pretrained(tmp_path / "model")
    assert [*again.weights] == [*model.weights]
    for name, variable in model.weights.items():
        np.testing.assert_array_equal(again.weights[name], variable, name)
    assert "heads/hypothesis_only/labels/kernel" in again.weights
