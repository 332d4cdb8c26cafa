"""A training that starts from another model: its layers, its weights, and the pull back to it."""

import shutil

import numpy as np
import pytest
import tensorflow as tf
from testing import (
    KINDS,
    SENTENCES,
    accept,
    corpus,
    find_task,
    make_batch,
    make_examples,
    make_model,
    tiny_config,
    tiny_model,
)

from xling_tf.client.neighbours import cosine_similarity
from xling_tf.corpora.records import TranslationPair
from xling_tf.corpora.store import open_store
from xling_tf.errors import UserError
from xling_tf.files import CHECKPOINTS
from xling_tf.model import Model
from xling_tf.tasks.base import Anchor
from xling_tf.trainer.checkpoints import Checkpoints
from xling_tf.trainer.context import Run
from xling_tf.trainer.distribution import Workers, make_strategy
from xling_tf.trainer.experiment import make_tasks, run_experiment
from xling_tf.trainer.resolution import START, resolve
from xling_tf.trainer.start import average_with_start, copy_start, weights_from_model
from xling_tf.weights import arrays


def start(folder, run_dir, *overrides):
    """The model of a run that starts from `folder`, and the names of tasks with new heads."""
    config = tiny_config(f"initial.model={folder}", *overrides)
    run = Run(name="x", config=config, run_dir=run_dir, output=run_dir / "exported")
    run_dir.mkdir(exist_ok=True)
    store = open_store(
        run_dir / "corpora", [corpus("parallel", [TranslationPair("a", "b")])], accept
    )
    copy_start(run.config, run.folder)
    resolved = run.folder.resolved() or resolve(config, config.data, store, run_dir)
    run.folder.begin(config, store.contents(), resolved)
    model = Model.from_config(resolved.model, resolved.files.__getitem__)
    _, new_heads = make_tasks(config, config.data, model)
    weights_from_model(Workers(make_strategy()), run_dir, model, new_heads)
    return model, list(new_heads)


def assert_same(weights, expected):
    assert weights.keys() == expected.keys()
    for name in weights:
        np.testing.assert_allclose(weights[name], expected[name], atol=1e-6, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_from_an_export_is_the_exported_model(kind, exports, tmp_path):
    model, folder = exports(kind)
    live, new_heads = start(folder, tmp_path)
    assert new_heads == []
    assert_same(arrays(live.weights), arrays(model.weights))
    texts = tf.constant([*SENTENCES, "我爱你 😀", b"\xff\0x", "a" * 2**12])
    loaded = tf.saved_model.load(str(folder))
    with tf.GradientTape() as tape:
        vectors = loaded(texts)
    assert len(np.unique(vectors.numpy().round(4), axis=0)) == len(texts)
    np.testing.assert_allclose(live(texts), vectors, atol=1e-5)
    # The loaded graph knows no ranks, of which a gradient may have need.
    assert None not in tape.gradient(vectors, loaded.trainable_variables)


def test_a_start_from_a_run_has_its_newest_weights(tmp_path):
    model, other = make_model("cnn"), tmp_path / "other"
    other.mkdir()
    for name, content in model.description_files().items():
        (other / name).write_bytes(content)
    weights = {name: variable.value for name, variable in model.weights.items()}
    Checkpoints(other / CHECKPOINTS, weights, {"step": tf.Variable(3.0)}).save(3, {"step": 3})
    live, _ = start(other, tmp_path / "newest")
    assert_same(arrays(live.weights), arrays(weights))


def test_a_restart_needs_no_model_to_start_from(exports, tmp_path):
    folder, run_dir = shutil.copytree(exports("cnn")[1], tmp_path / "gone"), tmp_path / "run"
    first, _ = start(folder, run_dir)
    shutil.rmtree(folder)
    again, _ = start(folder, run_dir)
    assert_same(arrays(again.weights), arrays(first.weights))
    with pytest.raises(UserError, match="gone"):
        start(folder, tmp_path / "another")
    shutil.rmtree(run_dir / START)
    with pytest.raises(
        UserError, match=r"start/model\.safetensors must hold weights, but cannot be read"
    ):
        start(folder, run_dir)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("stages.average.share=0.5", r"a transformer with .* set stages.average.share=0"),
        # Its vectors have 8 numbers.
        ("similarity.matryoshka_dims=4,8", "below the width of the vectors, 8, got 4,8"),
    ],
)
def test_a_start_that_cannot_be_used_is_refused_before_corpora_are_read(
    setting, message, exports, tmp_path
):
    config = tiny_config(f"initial.model={exports('cnn')[1]}", setting)
    corpora = [corpus("parallel", [TranslationPair("a", "b")])]
    folders = {"run_dir": tmp_path / "run", "output": tmp_path / "exported"}
    run = Run(name="x", config=config, corpora=corpora, **folders)
    with pytest.raises(UserError, match=message):
        run_experiment(run)
    assert not (run.run_dir / "corpora").exists()


QUESTIONS = ("tasks.question_answering.weight=1",)


def test_heads_are_the_models_and_new_where_it_has_others(tmp_path):
    model = tiny_model(tiny_config(*QUESTIONS))
    model.save_pretrained(tmp_path / "model")
    before = arrays(model.weights)
    # The sizes of the model's heads are kept, and so are the heads of tasks that are not trained.
    settings = ("heads.inference_dim=3", "tasks.quick_thought.weight=0", *QUESTIONS)
    live, new_heads = start(tmp_path / "model", tmp_path / "same", *settings)
    assert new_heads == []
    assert_same(arrays(live.weights), before)
    # Answers without contexts have another tower; the rest stays.
    settings = (*QUESTIONS, "tasks.question_answering.with_context=false")
    live, new_heads = start(tmp_path / "model", tmp_path / "other", *settings)
    assert new_heads == ["question_answering"]
    assert list(live.heads["question_answering"]) == ["question_tower", "answer_tower"]
    after = arrays(live.weights)
    tower = "heads/question_answering/question_tower/"
    assert any(
        np.abs(after[name] - before[name]).max() > 1e-3 for name in after if name.startswith(tower)
    )
    others = {name for name in before if "question_answering" not in name}
    assert_same({n: after[n] for n in others}, {n: before[n] for n in others})


def test_what_is_exported_can_be_a_mean_of_the_start_and_the_end(tmp_path):
    begin, model = make_model("cnn", seed=1), make_model("cnn", seed=2)
    end = arrays(model.weights)
    del begin.heads["inference"]
    begin.save_pretrained(tmp_path / START)
    # Heads that were new have no start, whether the starting model had others of the same sizes or
    # none.
    average_with_start(tmp_path, model, 0.25, {"inference": {}, "quick_thought": {}})
    first = arrays(begin.weights)
    for name, value in arrays(model.weights).items():
        is_new = name.startswith(("heads/inference", "heads/quick_thought"))
        expected = end[name] if is_new else 0.25 * first[name] + 0.75 * end[name]
        np.testing.assert_allclose(value, expected, rtol=1e-6)


SOURCES = ["a b", "hello", "c d e", "f g", "world", "i"]
TARGETS = ["hola", "mundo a", "j", "i j", "hola mundo", "d e"]
TASK = "translation_ranking_en-es"


def test_the_anchor_encodes_with_the_weights_of_the_start():
    model = tiny_model()
    task, encoder = find_task(model, TASK), model.encoder
    variables = [*encoder.table_variables, *encoder.dense_variables]
    anchor = Anchor(variables, 2.0)
    batch = make_batch(model, make_examples(SOURCES, TARGETS))
    before = encoder(batch.features).numpy()
    for variable in variables:
        variable.assign(variable * 1.5 + 0.1)

    added = task.losses(encoder, batch, anchor)[0] - task.losses(encoder, batch)[0]
    after = encoder(batch.features).numpy()
    cosines = np.diag(cosine_similarity(before, after))
    assert cosines.min() < 0.99
    # Texts 0 to 5 are the sources and 6 to 11 the targets of the same examples.
    expected = 2 * (2 - cosines[:6] - cosines[6:]) / 2  # twice the mean of both columns
    np.testing.assert_allclose(added, expected, atol=1e-5)
