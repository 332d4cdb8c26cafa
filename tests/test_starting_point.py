"""What a training starts from is what was exported, or what a run would export."""

import dataclasses
import json
import shutil
from functools import cache

import keras
import numpy as np
import pytest
import tensorflow as tf
from starting_models import KINDS, encode, export_model, make_model
from testing import SENTENCES

from xling_tf.errors import UserError
from xling_tf.hub.module import reexport
from xling_tf.model import Model
from xling_tf.overrides import apply_overrides
from xling_tf.trainer.checkpoints import Checkpoints
from xling_tf.trainer.optimizers import Optimizers
from xling_tf.trainer.run_folder import RunFolder
from xling_tf.trainer.starting_point import StartingPoint

HEADS = ["response_tower", "inference_head"]


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """Maps a kind to a model and the folder that it was exported to, once."""

    @cache
    def export(kind):
        model = make_model(kind)
        return model, export_model(model, tmp_path_factory.mktemp("start") / "model")

    return export


@pytest.fixture(
    params=[pytest.param(kind, marks=[pytest.mark.slow] * (kind == "pieces")) for kind in KINDS]
)
def exported(request, exports):
    """A model of each kind and the folder that it was exported to."""
    return exports(request.param)


def started(start: StartingPoint) -> tuple[Model, list[str]]:
    """Another model with the weights of `start`, and which heads it got."""
    keras.utils.set_random_seed(99)
    model = Model.build(start.config, start.vocabulary)
    return model, start.give(model)


def test_a_start_from_an_export_is_the_exported_model(exported):
    model, folder = exported
    live, given = started(StartingPoint.open(folder))
    vectors = tf.saved_model.load(str(folder))(SENTENCES)
    np.testing.assert_allclose(encode(live, SENTENCES), vectors, atol=1e-5)
    assert given == HEADS
    for name in HEADS:
        for variable, expected in zip(
            live.heads[name].trainable_variables,
            model.heads[name].trainable_variables,
            strict=True,
        ):
            np.testing.assert_array_equal(variable, expected)
    ours, theirs = ([*m.encoder.table_variables, *m.encoder.dense_variables] for m in (live, model))
    for variable, expected in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(variable, expected)


def changed(folder, path):
    """Exports a loaded model again, changed as by a fine-tuning elsewhere; returns the new vectors."""
    loaded = tf.saved_model.load(str(folder))
    for variable in loaded.trainable_variables:
        variable.assign(variable + 0.01)
    reexport(loaded, folder, path)
    return loaded(SENTENCES).numpy()


@pytest.mark.parametrize("kind", ["words", "cnn"])
def test_a_model_fine_tuned_elsewhere_is_started_from_as_it_is_now(kind, exports, tmp_path):
    vectors = changed(exports(kind)[1], tmp_path / "changed")
    live, given = started(StartingPoint.open(tmp_path / "changed"))
    np.testing.assert_allclose(encode(live, SENTENCES), vectors, atol=1e-5)
    assert given == HEADS


def test_folded_words_that_were_changed_elsewhere_are_refused(exports, tmp_path):
    changed(exports("words and n-grams")[1], tmp_path / "changed")
    with pytest.raises(UserError, match=r"changed was changed after its export.*from its run"):
        StartingPoint.open(tmp_path / "changed")


def test_an_export_without_its_vocabulary_says_what_to_do(exported, tmp_path):
    folder = shutil.copytree(exported[1], tmp_path / "model")
    shutil.rmtree(folder / "training")
    with pytest.raises(
        UserError, match=r"training/\S+ is expected .*copy config\.json and training/"
    ):
        StartingPoint.open(folder)


@pytest.mark.parametrize("kind", ["words", "cnn"])
def test_a_vocabulary_of_another_model_is_refused(kind, exports):
    start = StartingPoint.open(exports(kind)[1])
    table, *rest = start.weights
    cut = start._replace(weights=[table[:-3], *rest])
    with pytest.raises(
        UserError, match=rf"has {len(table) - 3} rows, but its vocabulary has {len(table)} "
    ):
        started(cut)
    with pytest.raises(UserError, match=r"not of the sizes its config\.json says"):
        started(start._replace(weights=start.weights[:-1]))


def run_folder(path, *settings):
    """A run with a checkpoint after three steps of averaging, and its model as it then is."""
    made = make_model("words and n-grams")
    config = apply_overrides(made.config, ["tasks.quick_thought.weight=0", *settings])
    model = Model.build(config, made.preprocessor.vocabulary)
    # As where there was nothing to train response prediction on.
    model = model._replace(tasks=[t for t in model.tasks if "response" not in t.name])
    path.mkdir()
    run = RunFolder(path)
    run.start(config, config, model.preprocessor.vocabulary, {})
    run.write_tasks([task.name for task in model.tasks])
    tables, dense = model.encoder.table_variables, model.encoder.dense_variables
    weights = [*tables, *dense, *model.head_variables]
    optimizers = Optimizers(config.optimizer, tables, weights[len(tables) :])
    for _ in range(3):
        gradients = [tf.IndexedSlices(table[:1] + 1.0, tf.constant([0])) for table in tables]
        gradients += [tf.ones_like(v) for v in weights[len(tables) :]]
        optimizers.apply(gradients, weights)
    variables = [v.value for v in weights] + optimizers.variables
    Checkpoints(path / "checkpoints", variables).save(3, {"step": 3, "seconds": 1.0})
    return model, optimizers


@pytest.mark.parametrize("settings", [(), ("optimizer.average_decay=0.9",)])
def test_a_start_from_a_run_is_its_newest_checkpoint_or_the_averages(settings, tmp_path):
    model, optimizers = run_folder(tmp_path / "run", *settings)
    optimizers.use_averages()
    start = StartingPoint.open(tmp_path / "run")
    assert list(start.heads) == ["inference_head"]
    live, given = started(start)
    assert given == ["inference_head"]
    np.testing.assert_allclose(encode(live, SENTENCES), encode(model, SENTENCES), atol=1e-6)
    # Two checkpoints fewer or more would show: nothing in the other run's folder is touched.
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == [
        "step-000000003"
    ]


def test_the_best_weights_come_before_the_newest(tmp_path):
    model, _ = run_folder(tmp_path / "run")
    variables = [*model.encoder.trainable_variables, *model.head_variables]
    for variable in variables:
        variable.assign(variable * 0.5)
    best = Checkpoints(tmp_path / "run" / "checkpoints" / "best", [v.value for v in variables])
    best.save(2, {"step": 2, "loss": 1.0})
    live, _ = started(StartingPoint.open(tmp_path / "run"))
    np.testing.assert_allclose(encode(live, SENTENCES), encode(model, SENTENCES), atol=1e-6)


def test_a_run_whose_checkpoints_are_damaged_is_refused_and_left_alone(tmp_path):
    run_folder(tmp_path / "run")
    state = tmp_path / "run" / "checkpoints" / "step-000000003" / "state.json"
    state.write_text("{")
    with pytest.raises(UserError, match=r"a checkpoint of the run is expected in .*none"):
        StartingPoint.open(tmp_path / "run")
    assert state.read_text() == "{"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "nothing in it"),
        ({"saved_model.pb": ""}, "saved_model.pb"),
        ({"config.json": json.dumps({})}, "config.json"),
    ],
)
def test_folders_that_are_neither_are_refused(files, said, tmp_path):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=rf"--init expects .* but \S+ has {said}"):
        StartingPoint.open(tmp_path)


def test_heads_of_another_size_stay_random(exported):
    start = StartingPoint.open(exported[1])
    tasks = dataclasses.replace(start.config.tasks, inference_dim=3)
    config = dataclasses.replace(start.config, tasks=tasks)
    model = Model.build(config, start.vocabulary)
    before = [variable.numpy() for variable in model.heads["inference_head"].trainable_variables]
    assert start.give(model) == ["response_tower"]
    for variable, expected in zip(
        model.heads["inference_head"].trainable_variables, before, strict=True
    ):
        np.testing.assert_array_equal(variable, expected)
