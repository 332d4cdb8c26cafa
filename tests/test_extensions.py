"""Kinds of users: trained, exported, served and read back by `--import`; found in packages."""

import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from programs import ONE_TASK, ROOT, run_python
from serving_servers import server_in_thread
from testing import SENTENCES

from xling_tf import Model, SentenceEncoder
from xling_tf.config import ENCODERS, TASKS, TOKENIZERS, further_kinds
from xling_tf.errors import UserError
from xling_tf.presets import PRESETS, get_preset
from xling_tf.settings import apply_overrides

SETTINGS = (
    "tokenizer.kind=letters",
    "tokenizer.max_tokens=20",
    "encoder.kind=max",
    "encoder.hidden_dim=24",
    "tasks.hypothesis_only.weight=1",
    "training.precision=float32",
    *ONE_TASK,
)
# What the page's module needs beside its own kinds, on the built-in sample.
SMALL = (
    "--preset=smoke",
    "--steps=4",
    *(f"--set={s}" for s in ("tokenizer.ngram_sizes=", *ONE_TASK)),
)


@pytest.fixture
def registries(monkeypatch):
    """Takes away what the test registers, and the modules that it imports."""
    for registry in (TOKENIZERS, ENCODERS, TASKS, PRESETS):
        monkeypatch.setattr(registry, "data", dict(registry.data))
    for name in ("toys", "a_module"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    further_kinds.cache_clear()
    yield
    further_kinds.cache_clear()


def install(site: Path, points: dict[str, str], modules: dict[str, str]) -> None:
    """Writes what pip would: modules, and the metadata of a package with entry points."""
    lines = [f"{name} = {module}\n" for name, module in points.items()]
    folder = site / "others-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[xling_tf.kinds]\n" + "".join(lines))
    for name, code in modules.items():
        (site / f"{name}.py").write_text(code)


ENTRIES = {
    "encoder.wide": "a_module",
    "preset.mine": "a_module",
    "task.absent": "a_module",
    "tokenizer.broken": "no_module",
}
CODE = """
from dataclasses import dataclass
from xling_tf.config import ENCODERS, EncoderConfig
from xling_tf.presets import PRESETS, get_preset

@dataclass(frozen=True, kw_only=True)
class WideConfig(EncoderConfig):
    hidden_dim: int = 7

ENCODERS.register("wide", WideConfig, type)
PRESETS.register("mine", get_preset("smoke"))
"""


def test_kinds_of_packages_are_listed_without_their_import_and_imported_when_used(
    tmp_path, monkeypatch, registries
):
    install(tmp_path, ENTRIES, {"a_module": CODE})
    monkeypatch.syspath_prepend(tmp_path)
    before = [*ENCODERS]
    assert before[-1] == "wide"
    assert ("wide" in ENCODERS, "narrow" in ENCODERS, "mine" in PRESETS) == (True, False, True)
    with pytest.raises(UserError, match=r"\bp_mean,.* wide, got 'narrow'"):
        ENCODERS.config_type("narrow")
    assert "a_module" not in sys.modules

    config = apply_overrides(
        get_preset("mine"),
        ["tokenizer.ngram_sizes=", "encoder.kind=wide", "stages.average.share=0"],
    )
    assert config.encoder.hidden_dim == 7
    assert ENCODERS.name_of(config.encoder) == "wide"
    # The names do not depend on what was asked before.
    assert [*ENCODERS] == before
    with pytest.raises(UserError, match="a_module does not register absent"):
        TASKS.config_type("absent")
    with pytest.raises(UserError, match=r"no_module cannot be imported for broken .*no_module"):
        TOKENIZERS.config_type("broken")


def test_a_name_that_nobody_registered_advises_the_import(tmp_path):
    with pytest.raises(UserError, match="`import`"):
        ENCODERS.config_type("xyz")
    run = run_python(tmp_path, str(ROOT / "training/main.py"), "--set=encoder.kind=xyz")
    assert (run.status, "--import" in run.errors) == (2, True)
    run = run_python(tmp_path, str(ROOT / "evaluation/main.py"), "--import=xyz", "--list")
    assert (run.status, run.output) == (2, "")
    (line,) = run.errors.splitlines()
    assert line.startswith("error: --import xyz")


def flags(settings):
    return [f"--set={setting}" for setting in settings]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toys")
    (folder / "toys.py").write_bytes((ROOT / "tests" / "toys.py").read_bytes())
    program = str(ROOT / "training" / "main.py")
    return run_python(
        folder, program, "--import=toys", "--preset=smoke", "--steps=4", *flags(SETTINGS)
    )


@pytest.mark.slow
def test_is_trained_and_exported(run):
    assert run.status == 0, run.errors
    assert "task/hypothesis_only_en" in run.results["scores"]
    config = json.loads((run.model / "config.json").read_text("utf-8"))
    assert config["encoder"] == {"kind": "max", "hidden_dim": 24, "num_words": 31}
    card = (run.model / "README.md").read_text("utf-8")
    assert "| `label` | `text` | probabilities of three labels |" in card


@pytest.mark.slow
def test_is_called_served_and_read_back_as_it_was_exported(run, tmp_path, registries):
    with pytest.raises(UserError, match="registers it"):
        Model.from_pretrained(run.model)
    import toys

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


@pytest.mark.slow
def test_the_page_leads_from_a_module_to_a_training_a_score_and_an_export(tmp_path):
    page = (ROOT / "docs" / "extending.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "max_pooling.py").write_text(code, "utf-8")
    commands = re.findall(r"^    xling-tf (.+)$", page, re.MULTILINE)
    for command in commands:
        name, *words = command.split()
        words = [word.replace("my_corpora", "sample") for word in words]
        if name == "train":
            words = [word for word in words if word not in ("--data", "sample")] + [*SMALL]
        start = ("-c", "from xling_tf.cli import main; main()", name)
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = run_python(tmp_path, *start, *words, environment=environment)
        assert done.status == 0, done.errors
    assert len(commands) == 3
    weights = tmp_path / "exported" / "max-keras" / "config.json"
    assert json.loads(weights.read_text("utf-8"))["encoder"]["kind"] == "max"
