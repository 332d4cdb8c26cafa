"""A training that starts from another model: its settings, its weights, and the pull back to it."""

import dataclasses
import shutil
from functools import cache

import keras
import numpy as np
import pytest
import tensorflow as tf
from starting_models import KINDS, encode, export_model, make_model, tiny_config
from testing import SENTENCES, find_task, make_batch, make_examples, tiny_model

from xling_tf.config import apply_overrides, to_json
from xling_tf.errors import UserError
from xling_tf.hub.module import reexport
from xling_tf.model import Model
from xling_tf.presets import get_preset
from xling_tf.tasks.base import StartingEncoder
from xling_tf.trainer.checkpoints import Checkpoints
from xling_tf.trainer.run_folder import RunFolder
from xling_tf.trainer.warm_start import StartingPoint, StartRecord, apply_start, average_with_start


@pytest.fixture
def cnn(tmp_path):
    """The folder of an exported CNN, as far as settings go."""
    folder = tmp_path / "cnn"
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(b"")
    (folder / "config.json").write_text(to_json(tiny_config("cnn")))
    return folder


def test_text_encoder_and_heads_are_the_models_and_the_rest_the_presets(cnn, tmp_path):
    start, preset = tiny_config("cnn"), get_preset("multilingual")
    settings = [f"initial.model={cnn}", "training.steps=3", "text.max_tokens=5"]
    config = apply_start(preset, settings, tmp_path / "run")
    assert config.encoder == start.encoder
    assert config.text == apply_overrides(start, ["text.max_tokens=5"]).text
    assert config.tasks.tower_dims == start.tasks.tower_dims
    assert config.tasks.inference_dim == start.tasks.inference_dim
    assert (config.data, config.optimizer) == (preset.data, preset.optimizer)
    assert config.training.steps == 3


@pytest.mark.parametrize(
    ("preset", "settings", "said"),
    [
        ("en-es", [], r"encoder\.kind=transformer, but \S+cnn, .* has cnn: set encoder\.kind=cnn, as"),
        ("multilingual", ["text.lowercase=true"], r"text\.lowercase=True, but .* has False"),
        # As the preset has it, and so no change to it, but asked for.
        ("multilingual", ["encoder.filter_widths=1,2"], r"filter_widths=1,2, but .* has 1,2,3,5"),
    ],
)
def test_another_family_or_size_is_refused(preset, settings, said, cnn, tmp_path):
    with pytest.raises(UserError, match=said):
        apply_start(get_preset(preset), [f"initial.model={cnn}", *settings], tmp_path / "run")


def test_a_run_goes_on_with_what_it_has_kept_of_a_model_that_is_gone(cnn, tmp_path):
    preset, settings = get_preset("multilingual"), [f"initial.model={cnn}"]
    begun = apply_start(preset, settings, tmp_path)
    StartRecord.of(str(cnn)).write(RunFolder(tmp_path))
    (cnn / "config.json").unlink()
    assert apply_start(preset, settings, tmp_path) == begun
    with pytest.raises(UserError, match="--init expects the folder of a run"):
        apply_start(preset, settings, tmp_path / "another")


HEADS = ["response_tower", "inference_head"]


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """Maps a kind to a model and the folder that it was exported to, once."""

    @cache
    def export(kind):
        model = make_model(kind)
        return model, export_model(model, tmp_path_factory.mktemp("start") / "model")

    return export


def started(start: StartingPoint) -> tuple[Model, list[str]]:
    """Another model with the weights of `start`, and which heads it got."""
    keras.utils.set_random_seed(99)
    model = Model.build(start.config, start.vocabulary)
    return model, start.give(model)


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_from_an_export_is_the_exported_model(kind, exports):
    model, folder = exports(kind)
    live, given = started(StartingPoint.open(folder))
    loaded = tf.saved_model.load(str(folder))
    tf.random.set_seed(1)  # clears TensorFlow's caches, in which nothing must be lost
    texts = [*SENTENCES, "我爱你 😀", b"\xff\0x", "a" * 2**20]
    vectors = loaded(texts).numpy()
    assert len(np.unique(vectors.round(4), axis=0)) == len(texts)
    np.testing.assert_allclose(encode(live, texts), vectors, atol=1e-5)
    assert given == HEADS
    for name in HEADS:
        heads = (m.heads[name].trainable_variables for m in (live, model))
        for variable, expected in zip(*heads, strict=True):
            np.testing.assert_array_equal(variable, expected)
    encoders = ([*m.encoder.table_variables, *m.encoder.dense_variables] for m in (live, model))
    for variable, expected in zip(*encoders, strict=True):
        np.testing.assert_array_equal(variable, expected)


def changed(folder, path):
    """Exports a loaded model again, changed as by a fine-tuning elsewhere; returns the new vectors."""
    loaded = tf.saved_model.load(str(folder))
    for variable in loaded.trainable_variables:
        variable.assign(variable + 0.01)
    reexport(loaded, folder, path)
    return loaded(SENTENCES).numpy()


def test_a_model_fine_tuned_elsewhere_is_started_from_as_it_is_now(exports, tmp_path):
    vectors = changed(exports("cnn")[1], tmp_path / "changed")
    live, given = started(StartingPoint.open(tmp_path / "changed"))
    np.testing.assert_allclose(encode(live, SENTENCES), vectors, atol=1e-5)
    assert given == HEADS


def test_folded_words_that_were_changed_elsewhere_are_refused(exports, tmp_path):
    changed(exports("words and n-grams")[1], tmp_path / "changed")
    with pytest.raises(UserError, match=r"changed was changed after its export.*from its run"):
        StartingPoint.open(tmp_path / "changed")


def test_an_export_without_its_vocabulary_says_what_to_do(exports, tmp_path):
    folder = shutil.copytree(exports("cnn")[1], tmp_path / "model")
    shutil.rmtree(folder / "training")
    with pytest.raises(UserError, match=r"training/\S+ is expected .*copy config\.json and training/"):
        StartingPoint.open(folder)


def test_a_vocabulary_of_another_model_is_refused(exports):
    start = StartingPoint.open(exports("cnn")[1])
    table, *rest = start.weights
    cut = start._replace(weights=[table[:-3], *rest])
    with pytest.raises(UserError, match=rf"has {len(table) - 3} rows, but its vocabulary has {len(table)} "):
        started(cut)
    with pytest.raises(UserError, match=r"not of the sizes its config\.json says"):
        started(start._replace(weights=start.weights[:-1]))


def run_folder(path):
    """A run with a checkpoint after three steps, and its model as it then is."""
    made = make_model("words and n-grams")
    config = apply_overrides(made.config, ["tasks.quick_thought.weight=0"])
    model = Model.build(config, made.preprocessor.vocabulary)
    # As where there was nothing to train response prediction on.
    model = model._replace(tasks=[t for t in model.tasks if "response" not in t.name])
    path.mkdir()
    run = RunFolder(path)
    run.start(config, config, model.preprocessor.vocabulary, {})
    run.write_tasks([task.name for task in model.tasks])
    # The state of optimizers comes after the weights.
    variables = [*model.weights, tf.Variable(3.0)]
    Checkpoints(path / "checkpoints", variables).save(3, {"step": 3, "seconds": 1.0})
    return model


def test_a_start_from_a_run_is_its_newest_checkpoint(tmp_path):
    model = run_folder(tmp_path / "run")
    start = StartingPoint.open(tmp_path / "run")
    assert list(start.heads) == ["inference_head"]
    live, given = started(start)
    assert given == ["inference_head"]
    np.testing.assert_allclose(encode(live, SENTENCES), encode(model, SENTENCES), atol=1e-6)
    # Nothing in the other run's folder is touched.
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-000000003"]
    # The best weights come before the newest.
    variables = [*model.encoder.trainable_variables, *model.head_variables]
    for variable in variables:
        variable.assign(variable * 0.5)
    best = Checkpoints(tmp_path / "run" / "checkpoints" / "best", [v.value for v in variables])
    best.save(2, {"step": 2, "loss": 1.0})
    StartingPoint.open(tmp_path / "run").give(live)
    np.testing.assert_allclose(encode(live, SENTENCES), encode(model, SENTENCES), atol=1e-6)


def test_what_is_exported_can_be_a_mean_of_the_start_and_the_end(tmp_path):
    start, model = make_model("cnn", seed=1), make_model("cnn", seed=2)
    begin, end = ([v.numpy() for v in m.weights] for m in (start, model))
    with pytest.raises(UserError, match="must have the weights that training started from"):
        average_with_start(tmp_path, model, 0.25)
    # The last are those of a head that no task trains.
    Checkpoints(tmp_path / "start", [*start.weights, tf.Variable([1.0])]).save(0, {})
    average_with_start(tmp_path, model, 0.25)
    for value, first, last in zip(model.weights, begin, end, strict=True):
        np.testing.assert_allclose(value, 0.25 * first + 0.75 * last, rtol=1e-6)


def test_folders_that_are_neither_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"--init expects .* but \S+ has nothing"):
        StartingPoint.open(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"--init expects .* but \S+ has config\.json"):
        StartingPoint.open(tmp_path)


def test_heads_of_another_size_stay_random(exports):
    start = StartingPoint.open(exports("cnn")[1])
    tasks = dataclasses.replace(start.config.tasks, inference_dim=3)
    config = dataclasses.replace(start.config, tasks=tasks)
    model = Model.build(config, start.vocabulary)
    before = model.heads["inference_head"].get_weights()
    assert start.give(model) == ["response_tower"]
    for weight, expected in zip(model.heads["inference_head"].get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, expected)


SOURCES = ["a b", "hello", "c d e", "f g", "world", "i"]
TARGETS = ["hola", "mundo a", "j", "i j", "hola mundo", "d e"]
TASK = "translation_ranking_en-es"


def test_the_loss_by_hand():
    # Column 1: cos((3, 4), (4, 3)) = 24 / 25, a distance of 0.04; column 2: at a right angle, 1. Their
    # mean, 0.52, times 2. Twice as long a vector is as near.
    start = StartingEncoder([], 2.0)
    now = [tf.constant([[3.0, 4.0]]), tf.constant([[0.0, 5.0]])]
    then = [tf.constant([[8.0, 6.0]]), tf.constant([[1.0, 0.0]])]
    assert start.losses(now, then).numpy() == pytest.approx([1.04])


def test_the_encoder_stands_in_for_what_it_was():
    model = tiny_model()
    task, encoder = find_task(model, TASK), model.encoder
    variables = [*encoder.table_variables, *encoder.dense_variables]
    start = StartingEncoder(variables, 1.0)
    batch = make_batch(model, make_examples(SOURCES, TARGETS))
    before = encoder(batch.features).numpy()
    for variable in variables:
        variable.assign(variable * 1.5 + 0.1)

    @tf.function
    def losses(batch):
        return task.losses(encoder, batch, start)[0] - task.losses(encoder, batch)[0]

    added = losses(batch)
    after = encoder(batch.features).numpy()
    cosines = np.sum(before * after, axis=1) / (
        np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    )
    assert cosines.min() < 0.99
    # Texts 0 to 5 are the sources and 6 to 11 the targets of the same examples.
    expected = (2 - cosines[:6] - cosines[6:]) / 2
    np.testing.assert_allclose(added, expected, atol=1e-5)
