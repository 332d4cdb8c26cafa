"""Training on GPUs, as far as a CPU can show it: the kernels that TensorFlow's wheel has."""

from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels
from test_presets import NARROW, SHALLOW

from xling_tf.corpora.folder import SAMPLE_FOLDER
from xling_tf.encoders import base
from xling_tf.layers.convolution import ConvolutionBranch
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


def computes_with_floats(node: Any) -> bool:
    """Whether a type that a node is made for is one of floats."""
    numbers = [number for value in node.attr.values() for number in (value.type, *value.list.type) if number]
    return any(tf.as_dtype(number).is_floating for number in numbers)


def has_gpu_kernel(node: Any) -> bool:
    """Whether the wheel registers a kernel for the types of a node."""
    return any(
        kernel.device_type in ("GPU", "DEFAULT")
        and all(node.attr[c.name].type in c.allowed_values.list.type for c in kernel.constraint)
        for kernel in kernels.get_registered_kernels_for_op(node.op).kernel
    )


def missing_kernels(graph: tf.Graph) -> set[str]:
    """The operations with floats that would run on the CPU."""
    functions = {function.signature.name for function in graph.as_graph_def().library.function}
    computing = [node for node in nodes(graph) if node.op not in {"Placeholder", *functions}]
    return {node.op for node in computing if computes_with_floats(node) and not has_gpu_kernel(node)}


@pytest.mark.parametrize(("gpus", "is_of_cudnn"), [([], False), (["GPU:0"], True)])
def test_convolutions_have_the_gradient_of_cudnn_on_a_gpu(gpus, is_of_cudnn, monkeypatch):
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: gpus)
    branch, mask = ConvolutionBranch(4, 3, 1), tf.ones((2, 5, 1))

    @tf.function(input_signature=[tf.TensorSpec([2, 5, 4])])
    def gradients(inputs: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(branch(inputs, mask, training=True))
        return tape.gradient(loss, branch.trainable_variables)

    operations = {node.op for node in nodes(gradients.get_concrete_function().graph)}
    assert ("Conv2DBackpropFilter" in operations) == is_of_cudnn


@pytest.mark.parametrize(("index", "rows"), [(0, [2, 1, 1]), (1, [4])])
def test_an_export_encodes_as_much_at_once_as_its_device_takes(index, rows, monkeypatch):
    monkeypatch.setattr(base, "_MICRO_BATCHES", {"CPU": 2, "GPU": 8})
    monkeypatch.setattr(tf.raw_ops, "DeviceIndex", lambda device_names: index)
    encoded = []

    def encode(tokens: tf.RaggedTensor) -> tf.Tensor:
        encoded.append(tokens.nrows())
        return tf.cast(tokens.row_lengths(), tf.float32)[:, None]

    tokens = tf.ragged.constant([[1, 1], [1], [1], [1, 1]])
    assert base.in_micro_batches(encode, tokens, 1).numpy().tolist() == [[2], [1], [1], [2]]
    assert encoded == rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("en-es", SHALLOW),
        ("multilingual", ["encoder.num_layers=1", "tokenizer.num_pieces=700"]),
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
    config = apply_overrides(get_preset(name), [*NARROW, *settings, "tasks.distillation.weight=0"])
    run_dir, output = tmp_path / "run", tmp_path / "model"
    run = Run(name=name, config=config, data=SAMPLE_FOLDER, run_dir=run_dir, output=output)
    assert run_experiment(run) is None
    assert missing
    assert set().union(*missing.values()) == set()
