"""Presets: their tasks, and that each trains on the sample corpus, with few and narrow layers."""

import itertools
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from serving_servers import server_in_thread
from tensorflow.python.framework import kernels
from testing import AtOnce

from xling_tf.corpora.folder import SAMPLE_FOLDER
from xling_tf.errors import UserError
from xling_tf.presets import FORMER_NAMES, get_preset, with_languages
from xling_tf.settings import apply_overrides
from xling_tf.trainer import validation
from xling_tf.trainer.context import Run, plan_tasks
from xling_tf.trainer.experiment import run_experiment
from xling_tf.trainer.loop import Trainer
from xling_tf.trainer.stages import make_schedule
from xling_tf.trainer.training import experiment, name_of_run


def six_tasks(target):
    return [
        f"translation_ranking_en-{target}",
        "response_prediction_en",
        f"response_prediction_{target}",
        "quick_thought_en",
        f"quick_thought_{target}",
        "inference",
    ]


def added_tasks(target):
    return [
        "question_answering_en",
        f"question_answering_{target}",
        f"distillation_en-{target}",
        "graded_similarity_en",
        f"graded_similarity_{target}",
        f"graded_similarity_en-{target}",
    ]


def tasks_of(name, target="es"):
    preset = with_languages(get_preset(name), "en", (target,))
    return [task.name for task in plan_tasks(preset, preset.data)]


def test_every_pair_has_the_six_tasks_a_baseline_and_the_literal_recipe():
    # 2019, sec. 2.2: "six total tasks are used in training, as the first two tasks are mirrored".
    for target in ("es", "fr", "de", "zh"):
        assert tasks_of("multi-task", target) == [*six_tasks(target), *added_tasks(target)]
        assert tasks_of("paper", target) == six_tasks(target)
        ranking = f"translation_ranking_en-{target}"
        assert tasks_of("translation-ranking", target) == [ranking]
    for name, left_out in {
        "no-snli": ["inference"],
        "no-wiki": ["quick_thought_en", "quick_thought_es"],
        "no-target-native": ["response_prediction_es", "quick_thought_es"],
        "smoke": [],
    }.items():
        found = [task for task in tasks_of(name) if task not in added_tasks("es")]
        assert found == [task for task in six_tasks("es") if task not in left_out]


REGULARIZERS = {
    "similarity": ("similarity", 1.0),
    "contrastive": ("contrastive", 1.0),
    "weight-decay": ("weight_decay", 5e-5),
    "no-similarity": ("none", 0.0),
}


def test_a_name_of_the_last_version_means_what_it_meant_then():
    assert len(FORMER_NAMES) == 31
    # Runs and exports keep the names that scripts have.
    assert {name: name_of_run(name, get_preset(name)) for name in FORMER_NAMES} == dict(
        zip(FORMER_NAMES, FORMER_NAMES, strict=True)
    )
    static = get_preset("static")
    for target in ("es", "fr", "de", "zh"):
        data = replace(static.data, targets=(target,))
        assert get_preset(f"en-{target}-static") == replace(static, data=data)
    data = replace(static.data, targets=("es", "fr", "de", "zh"), sampling_temperature=5.0)
    tokenizer = replace(static.tokenizer, num_oov_buckets=1)
    assert get_preset("multilingual-static") == replace(static, data=data, tokenizer=tokenizer)
    for name, values in REGULARIZERS.items():
        task = get_preset(f"seq2seq-{name}").task("translation")
        assert (task.regularizer, task.alpha) == values
    for name, task in {"td": "translation_detection", "mt-td": "inference_and_detection"}.items():
        trained = get_preset(f"infersent-{name}").active_tasks
        assert {key: each.examples_per_batch for key, each in trained.items()} == {task: 64}


def test_arguments_name_languages_limits_and_seed():
    name, config = experiment("multi-task", pair="en-fr", minutes=0, steps=7, seed=3)
    assert (name, config.data.languages) == ("en-fr-seed-3", ("en", "fr"))
    training = config.training
    assert (training.minutes, training.steps, training.seed) == (0, 7, 3)
    # A limit leaves the other one as it is.
    _, config = experiment("multi-task", source="fr", target=["en", "es"], minutes=5)
    assert (config.data.source, config.data.targets) == ("fr", ("en", "es"))
    assert (config.training.minutes, config.training.steps) == (
        5,
        get_preset("multi-task").training.steps,
    )
    settings = ["initial.anchor_weight=0.5"]
    _, config = experiment("multi-task", teacher="a/b", init="c", settings=settings)
    assert config.task("distillation").teacher == "a/b"
    assert (config.initial.model, config.initial.anchor_weight) == ("c", 0.5)
    for languages in ({"pair": "en-es", "target": "fr"}, {"pair": "en"}, {"pair": "en-es-fr"}):
        with pytest.raises(UserError, match="`pair`"):
            experiment("multi-task", **languages)


def test_the_literal_recipe_cycles_through_its_tasks():
    # 2019, sec. 3.2: "cycling through the different tasks [...] and performing an optimization step
    # for a single task"
    paper = get_preset("paper")
    tasks = plan_tasks(paper, paper.data)
    assert make_schedule(tasks, {task.name: 1 for task in tasks}, paper).cycle == tuple(
        six_tasks("es")
    )


SHORT = (
    "heads.tower_dims=8",
    "heads.inference_dim=8",
    "training.precision=float32",
    "training.minutes=0",
    "training.steps=3",
    "stages.average.min_steps=0",
)
NARROW = ("encoder.embedding_dim=8", "encoder.hidden_dim=8", "encoder.intermediate_dim=8")
SHALLOW = ("encoder.num_layers=1", "encoder.num_heads=2")

kernels_of = cache(kernels.get_registered_kernels_for_op)


def computes_with_floats(node: Any) -> bool:
    """Whether a type that a node is made for is one of floats."""
    numbers = [
        number
        for value in node.attr.values()
        for number in (value.type, *value.list.type)
        if number
    ]
    return any(tf.as_dtype(number).is_floating for number in numbers)


def has_gpu_kernel(node: Any) -> bool:
    """Whether the wheel registers a kernel for the types of a node."""
    return any(
        kernel.device_type in ("GPU", "DEFAULT")
        and all(node.attr[c.name].type in c.allowed_values.list.type for c in kernel.constraint)
        for kernel in kernels_of(node.op).kernel
    )


def missing_kernels(graph: tf.Graph) -> set[str]:
    """The operations with floats that would run on the CPU."""
    definition = graph.as_graph_def()
    functions = {
        function.signature.name: function.node_def for function in definition.library.function
    }
    nodes = [*definition.node, *itertools.chain(*functions.values())]
    computing = [node for node in nodes if node.op not in {"Placeholder", *functions}]
    return {
        node.op for node in computing if computes_with_floats(node) and not has_gpu_kernel(node)
    }


# One of each kind of tokenizer and tasks; the others differ in languages and numbers alone.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        # Without what the sample lacks, and the stage whose encoder is a part of the whole one.
        (
            "multi-task",
            [*NARROW, *SHALLOW, "tasks.distillation.weight=0", "stages.average.share=0"],
        ),
        ("multilingual", [*NARROW, "encoder.num_filters=4", "tokenizer.num_pieces=700"]),
        (
            "seq2seq",
            [
                *(*NARROW, "initial.vectors=bivcd:8"),
                "tasks.translation.regularizer=contrastive",
            ],
        ),
        (
            "infersent",
            [
                *(*NARROW, "encoder.intermediate_dim=4", "initial.vectors=bivcd:8"),
                *("tasks.inference.weight=0", "tasks.inference_and_detection.weight=1"),
            ],
        ),
        (
            "best",
            [
                *(
                    "initial.model={start}",
                    "tasks.distillation.teacher={start}",
                    "data.targets=es,de",
                    "data.sampling_temperature=5",
                ),
                "tasks.question_answering.miner=bm25,self,{start}",
                "tasks.question_answering.wrong_answers=2",
            ],
        ),
    ],
)
def test_it_trains_is_served_and_computes_with_floats_on_gpus(
    name, settings, exports, tmp_path, monkeypatch
):
    compile_step, missing = Trainer._compile, []

    def watched(trainer, stage, task):
        step = compile_step(trainer, stage, task)
        missing.append(missing_kernels(step.graph))
        return step

    monkeypatch.setattr(Trainer, "_compile", watched)
    monkeypatch.setattr(validation, "_BATCHES", 1)
    monkeypatch.setattr(validation, "tf", SimpleNamespace(function=AtOnce))  # a graph takes seconds
    start = exports("cnn")[1] if "{start}" in settings[0] else None
    settings = [setting.format(start=start) for setting in (*SHORT, *settings)]
    config = apply_overrides(get_preset(name), settings)
    run_dir, output = tmp_path / "run", tmp_path / "model"
    run = Run(name=name, config=config, data=SAMPLE_FOLDER, run_dir=run_dir, output=output)
    assert run_experiment(run)["steps"] == 3
    assert set().union(*missing) == set()
    with server_in_thread({"m": output}) as server:
        vectors = server.predict(["Hello", ""]).json["predictions"]
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1], abs=1e-5)
