"""The recipes that start from a trained model: they train, and keep what they are told to keep."""

import json

import numpy as np
import pytest
import tensorflow as tf
from starting_models import export_model, make_model

from xling_tf.errors import UserError
from xling_tf.presets import PRESETS, PUBLISHED, get_preset
from xling_tf.trainer.experiment import run_experiment
from xling_tf.trainer.starting_config import apply_start

# Keras warns of one key alone, which is what a sentence of one word has.
pytestmark = pytest.mark.filterwarnings("ignore:You are using a softmax over axis:UserWarning")

BEST = [name for name in PRESETS if name.endswith("-best")]


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A folder with an exported CNN, in place of the published one."""
    return export_model(make_model("cnn"), tmp_path_factory.mktemp("start") / "cnn")


def configured(name, start, run_dir):
    settings = (
        *(f"initial.model={start}", f"tasks.distillation.teacher={start}"),
        *("training.steps=5", "training.precision=float32", "training.dev_batches=1"),
        *("data.sample=true", "data.pool_batches=1"),
    )
    return apply_start(get_preset(name), settings, run_dir)


def test_they_start_from_the_published_weights_and_learn_from_them():
    assert BEST == ["en-es-best", "en-fr-best", "en-de-best", "en-zh-best"]
    for name in BEST:
        preset = get_preset(name)
        assert preset.initial.model == preset.tasks.distillation.teacher == PUBLISHED
        assert preset.training.minutes <= 60


def test_without_the_published_weights_it_is_told_how_to_make_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"{PUBLISHED}.*export/import_published.py"):
        apply_start(get_preset("en-es-best"), (), tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("name", BEST)
def test_it_trains_all_tasks_and_leaves_the_table(name, start, tmp_path):
    run_dir = tmp_path / "run"
    results = run_experiment(
        name=name,
        config=configured(name, start, run_dir),
        data=None,
        run_dir=run_dir,
        output=tmp_path / "model",
    )
    assert results["steps"] == 5
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    trained = {json.loads(line)["task"] for line in lines}
    assert {task.rpartition("_")[0] for task in trained} == {
        *("translation_ranking", "distillation", "entailment_ranking")
    }
    before, after = (tf.saved_model.load(str(p)) for p in (start, tmp_path / "model"))
    tables, dense = zip(*((a[:1], a[1:]) for a in (before.variables, after.variables)), strict=True)
    assert np.array_equal(tables[0][0], tables[1][0])
    assert not any(np.array_equal(a, b) for a, b in zip(*dense, strict=True))
