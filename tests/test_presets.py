"""Presets: which tasks they have, and that each trains on the sample corpus, few and narrow layers deep."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from programs import read_lines
from serving_servers import server_in_thread
from starting_models import export_model, make_model

from xling_tf.config import OptimizerConfig, apply_overrides
from xling_tf.corpora.sample import SAMPLE_FOLDER
from xling_tf.errors import UserError
from xling_tf.presets import PUBLISHED, get_preset
from xling_tf.serving.models import ModelConfig
from xling_tf.tasks.base import TASKS, build_tasks
from xling_tf.trainer.experiment import Run, run_experiment
from xling_tf.trainer.loop import make_schedule
from xling_tf.trainer.warm_start import apply_start


def six_tasks(target):
    return [
        f"translation_ranking_en-{target}",
        *("response_prediction_en", f"response_prediction_{target}"),
        *("quick_thought_en", f"quick_thought_{target}"),
        "inference",
    ]


def tasks_of(name):
    return [task.name for task in build_tasks(get_preset(name))]


def test_every_pair_has_the_six_tasks_a_baseline_and_the_literal_recipe():
    # 2019, sec. 2.2: "six total tasks are used in training, as the first two tasks are mirrored".
    for target in ("es", "fr", "de", "zh"):
        assert tasks_of(f"en-{target}") == [*six_tasks(target), f"distillation_en-{target}"]
        assert tasks_of(f"paper-en-{target}") == six_tasks(target)
        assert tasks_of(f"translation-ranking-en-{target}") == [f"translation_ranking_en-{target}"]
    for name, left_out in {
        "no-snli": ["inference"],
        "no-wiki": ["quick_thought_en", "quick_thought_es"],
        "no-target-native": ["response_prediction_es", "quick_thought_es"],
        "smoke": [],
    }.items():
        found = [task for task in tasks_of(name) if not task.startswith("distillation")]
        assert found == [task for task in six_tasks("es") if task not in left_out]


def test_the_literal_recipe():
    # 2019, sec. 3.2: "All of our models are trained for 30 million steps."
    paper = get_preset("paper-en-es")
    assert (paper.training.steps, paper.training.minutes) == (30_000_000, 0)
    # "a batch size of 100 using stochastic gradient descent with a learning rate of 0.008"
    assert {getattr(paper.tasks, name).examples_per_batch for name in TASKS} == {100}
    assert paper.data.equal_batches
    assert paper.optimizer == OptimizerConfig()  # test_config.py
    assert paper.text.max_tokens == 64  # 2018, sec. 4.2
    assert paper.tasks.hard_negatives == 5  # sec. 2.2
    # "cycling through the different tasks [...] and performing an optimization step for a single task"
    tasks = build_tasks(paper)
    assert make_schedule(tasks, {task.name: 1 for task in tasks}, paper).cycle == tuple(six_tasks("es"))


NARROW = (
    *("encoder.embedding_dim=8", "encoder.hidden_dim=8", "encoder.intermediate_dim=8"),
    *("encoder.num_layers=1", "encoder.num_heads=2", "encoder.num_filters=8"),
    *("tasks.tower_dims=8,8", "tasks.inference_dim=8"),
    *("text.num_oov_buckets=8", "text.num_ngram_buckets=64", "text.sentencepiece_size=700"),
    *("training.precision=float32", "training.minutes=0", "training.steps=3"),
    *("tasks.hard_negatives=0", "tasks.distillation.weight=0"),  # the sample has none, nor a teacher
)


# One of each kind of text and tasks; the others differ in languages and numbers alone.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("paper-en-zh", []),
        ("multilingual-qa", []),
        ("seq2seq-contrastive", ["encoder.num_layers=2", "initial.vectors=bivcd:8"]),
        ("infersent-mt-td", ["encoder.intermediate_dim=4", "initial.vectors=bivcd:8"]),
    ],
)
def test_it_trains_and_is_served(name: str, settings: list[str], tmp_path: Path) -> None:
    config = apply_overrides(get_preset(name), [*NARROW, *settings])
    run_dir, output = tmp_path / "run", tmp_path / "model"
    run = Run(name=name, config=config, data=SAMPLE_FOLDER, run_dir=run_dir, output=output)
    assert run_experiment(run)["steps"] == 3
    with server_in_thread([ModelConfig("m", output)]) as server:
        served = server.predict(["Hello", ""]).json["predictions"]
    assert np.linalg.norm(served, axis=1) == pytest.approx([1, 1], abs=1e-5)


def test_the_best_recipes_start_from_the_published_weights(tmp_path, monkeypatch):
    for name in ("en-es-best", "en-fr-best", "en-de-best", "en-zh-best", "multilingual-best"):
        preset = get_preset(name)
        assert preset.initial.model == preset.tasks.distillation.teacher == PUBLISHED
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"{PUBLISHED}.*export/import_published.py"):
        apply_start(get_preset("en-es-best"), (), tmp_path / "run")


@pytest.mark.slow
def test_the_best_recipe_trains_all_tasks_and_leaves_the_table(tmp_path):
    start = export_model(make_model("cnn"), tmp_path / "cnn")
    run_dir, output = tmp_path / "run", tmp_path / "model"
    settings = (
        *(f"initial.model={start}", f"tasks.distillation.teacher={start}"),
        *("training.steps=5", "training.precision=float32", "training.dev_batches=1"),
        *("data.sample=true", "data.pool_batches=1"),
    )
    config = apply_start(get_preset("multilingual-best"), settings, run_dir)
    results = run_experiment(Run(name="best", config=config, run_dir=run_dir, output=output))
    assert results["steps"] == 5
    trained = {line["task"].rpartition("_")[0] for line in read_lines(run_dir / "metrics.jsonl")}
    learnt = {"translation_ranking", "distillation", "entailment_ranking", "question_answering"}
    assert trained <= learnt
    assert "question_answering" in trained
    before, after = (tf.saved_model.load(str(path)).variables for path in (start, output))
    # A mean of two equal weights may be rounded.
    same = [np.allclose(a, b, rtol=1e-6) for a, b in zip(before, after, strict=True)]
    assert same == [True] + [False] * (len(same) - 1)
