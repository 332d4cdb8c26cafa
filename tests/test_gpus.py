"""Training on GPUs, as far as a CPU can show it; test_presets.py looks for kernels in their steps."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels

from xling_tf.encoders import base
from xling_tf.layers.convolution import ConvolutionBranch

kernels_of = cache(kernels.get_registered_kernels_for_op)


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
        for kernel in kernels_of(node.op).kernel
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
