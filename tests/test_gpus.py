"""Training on GPUs, as far as a CPU can show it: the kernels that TensorFlow's wheel has."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from starting_models import export_model, make_model
from tensorflow.python.framework import kernels
from test_presets import NARROW, SHALLOW

from xling_tf.corpora.folder import SAMPLE_FOLDER
from xling_tf.presets import get_preset
from xling_tf.settings import apply_overrides
from xling_tf.trainer.experiment import Run, run_experiment
from xling_tf.trainer.loop import Trainer


def nodes(graph: tf.Graph) -> Iterator[Any]:
    """The operations of a graph and of the functions that it calls."""
    definition = graph.as_graph_def()
    yield from definition.node
    for function in definition.library.function:
        yield from function.node_def


def types(node: Any) -> set[tf.DType]:
    """The types that a node is made for."""
    lists = [value.list.type for value in node.attr.values()]
    return {tf.as_dtype(number) for numbers in ([v.type for v in node.attr.values()], *lists) for number in numbers if number}


def has_gpu_kernel(node: Any) -> bool:
    """Whether the wheel registers a kernel for the types of a node."""
    for kernel in kernels.get_registered_kernels_for_op(node.op).kernel:
        if kernel.device_type in ("GPU", "DEFAULT") and all(
            node.attr[constraint.name].type in constraint.allowed_values.list.type
            for constraint in kernel.constraint
        ):
            return True
    return False


def missing_kernels(graph: tf.Graph) -> set[str]:
    """The operations with floats that would run on the CPU."""
    functions = {function.signature.name for function in graph.as_graph_def().library.function}
    return {
        node.op
        for node in nodes(graph)
        if node.op not in {"Placeholder", *functions}
        and any(dtype.is_floating for dtype in types(node))
        and not has_gpu_kernel(node)
    }


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("en-es", SHALLOW),
        ("paper-en-es", [*SHALLOW, "tasks.translation_ranking.hard_negatives=0"]),
        ("multilingual", ["encoder.num_layers=1", "tokenizer.num_pieces=700"]),
        ("multilingual-qa", [*SHALLOW, "tokenizer.num_pieces=700"]),
        ("seq2seq-contrastive", ["initial.vectors=bivcd:8"]),
        ("infersent-mt-td", ["encoder.intermediate_dim=4", "initial.vectors=bivcd:8"]),
    ],
)
def test_what_computes_with_floats_in_a_step_has_a_gpu_kernel(name, settings, tmp_path, monkeypatch):
    missing = {}

    def compile_all(trainer: Trainer) -> bool:
        for phase in trainer._phases:
            for task in {task.trace_key: task for task in phase.tasks.values()}.values():
                missing[phase.name, task.name] = missing_kernels(trainer._compile(phase, task).graph)
        return False

    monkeypatch.setattr(Trainer, "train", compile_all)
    without = [f"tasks.{task}.weight=0" for task in ("distillation",) if get_preset(name).task(task).weight]
    config = apply_overrides(get_preset(name), [*NARROW, *without, *settings])
    run = Run(name=name, config=config, data=SAMPLE_FOLDER, run_dir=tmp_path / "run", output=tmp_path / "model")
    assert run_experiment(run) is None
    assert missing
    assert set().union(*missing.values()) == set()
