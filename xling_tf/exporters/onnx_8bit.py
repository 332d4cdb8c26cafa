"""ONNX models in 8 bits, whose vector of a text does not depend on the texts beside it.

`quantize_dynamic` of ONNX Runtime rounds the inputs of a layer by the range of the whole batch.
Here, each row (a token, or a sentence after pooling) is rounded by its own largest number.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xling_tf.errors import library
from xling_tf.exporters.litert_onnx import branches
from xling_tf.weights import as_int8

# An input of a product is a scale times (n - 128), with n in uint8, and a weight is a scale times n
# in int8. On CPUs with AVX2 but without VNNI, ONNX Runtime adds the products of two neighbours in
# an int16, and larger sums are cut off. Neighbouring weights therefore add up to at most 128: as
# 255 * 128 is less than 2 ** 15, every CPU computes the same sums.
_ZERO, _LARGEST, _LARGEST_PAIR = 128, 127, 128
_COLUMNS = (0,)
_TINY = 1e-30  # the scale of zeros

# Weights that become float32 again when the model is loaded: the inputs of an operation that have
# them, and how many of their first axes have scales of their own.
_STORED = {"Conv": ((1,), 1), "LSTM": ((1, 2), 2)}


def quantize(content: bytes) -> bytes:
    """Returns an ONNX model in 8 bits, from one in float32.

    Products with weights `[in, out]` are computed in 8 bits: each row of the inputs has a scale,
    and each column of the weights. Embedding tables and the weights of convolutions and LSTMs are
    stored in 8 bits, and computed with in float32.
    """
    onnx = library("onnx", "onnx", "export")
    model = onnx.load_from_string(content)
    _Quantizer(onnx, model.graph).run()
    return model.SerializeToString()


class _Quantizer:
    """Replaces the weights of a graph, and the nodes that compute with them."""

    def __init__(self, onnx: Any, graph: Any) -> None:
        self._onnx, self._graph, self._make = onnx, graph, onnx.helper.make_node
        self._weights = {  # those of branches and loops, too
            tensor.name: onnx.numpy_helper.to_array(tensor)
            for tensor in graph.initializer
            if tensor.data_type == onnx.TensorProto.FLOAT
        }
        self._constants: dict[str, NDArray[Any]] = {
            "quantized/step": np.array(1 / _LARGEST, np.float32),
            "quantized/tiny": np.array(_TINY, np.float32),
            "quantized/zero": np.array(_ZERO, np.uint8),
            "quantized/last": np.array([-1], np.int64),
        }

    def run(self) -> None:
        """Replaces everything, and leaves out weights that no node uses any more."""
        self._rewrite()
        used = {
            name
            for graph in self._graphs(self._graph)
            for node in graph.node
            for name in node.input
        }
        tensors = [tensor for tensor in self._graph.initializer if tensor.name in used]
        tensors += [
            self._onnx.numpy_helper.from_array(array, name)
            for name, array in self._constants.items()
            if name in used
        ]
        del self._graph.initializer[:]
        self._graph.initializer.extend(tensors)

    def _graphs(self, graph: Any) -> Iterator[Any]:
        """Yields a graph, and those of its branches and loops."""
        yield graph
        for node in graph.node:
            for branch in branches(node):
                yield from self._graphs(branch)

    def _rewrite(self) -> None:
        # Branches first: a graph that is rewritten has copies of its nodes.
        for graph in reversed([*self._graphs(self._graph)]):
            rounded: dict[str, tuple[str, str]] = {}
            nodes = [new for node in graph.node for new in self._replacement(node, rounded)]
            del graph.node[:]
            graph.node.extend(nodes)

    def _replacement(self, node: Any, rounded: dict[str, tuple[str, str]]) -> list[Any]:
        ranks = [self._weights[name].ndim if name in self._weights else 0 for name in node.input]
        if node.op_type == "MatMul" and ranks[1] == 2:
            return self._product(node, rounded)
        if node.op_type == "Gather" and ranks[0] == 2:
            return self._rows(node)
        if node.op_type in _STORED:
            return self._stored(node)
        return [node]

    def _product(self, node: Any, rounded: dict[str, tuple[str, str]]) -> list[Any]:
        (inputs, weight), (output,) = node.input, node.output
        nodes = []
        if inputs not in rounded:  # several products may have the same inputs
            rounded[inputs] = f"{output}/rounded", f"{output}/scales"
            nodes += self._round(inputs, *rounded[inputs])
        numbers, scales = rounded[inputs]
        columns, column_scales = self._quantized(weight, _COLUMNS)
        return [
            *nodes,
            self._make("MatMulInteger", [numbers, columns, "quantized/zero"], [f"{output}/sums"]),
            *self._scaled(f"{output}/sums", scales, f"{output}/scaled"),
            self._make("Mul", [f"{output}/scaled", column_scales], [output]),
        ]

    def _round(self, inputs: str, numbers: str, scales: str) -> list[Any]:
        make, zeros = self._make, np.array([_ZERO], np.uint8)
        name = f"{numbers}/{{}}".format
        value = self._onnx.numpy_helper.from_array(zeros)
        return [
            make("Abs", [inputs], [name("sizes")]),
            make("ReduceMax", [name("sizes"), "quantized/last"], [name("largest")], keepdims=1),
            make("Mul", [name("largest"), "quantized/step"], [name("steps")]),
            make("Max", [name("steps"), "quantized/tiny"], [scales]),
            # QuantizeLinear takes a scale for each row of a matrix.
            make("Flatten", [inputs], [name("matrix")], axis=-1),
            make("Reshape", [scales, "quantized/last"], [name("scales")]),
            make("Shape", [name("scales")], [name("count")]),
            make("ConstantOfShape", [name("count")], [name("zeros")], value=value),
            make(
                "QuantizeLinear",
                [name("matrix"), name("scales"), name("zeros")],
                [name("rows")],
                axis=0,
            ),
            make("Shape", [inputs], [name("shape")]),
            make("Reshape", [name("rows"), name("shape")], [numbers]),
        ]

    def _rows(self, node: Any) -> list[Any]:
        (table, ids), (output,) = node.input, node.output
        names = self._quantized(table, (1,))
        parts = f"{output}/numbers", f"{output}/scales"
        gathers = [self._make("Gather", [n, ids], [p]) for n, p in zip(names, parts, strict=True)]
        return [*gathers, *self._scaled(*parts, output)]

    def _stored(self, node: Any) -> list[Any]:
        positions, axes = _STORED[node.op_type]
        nodes = []
        for position in positions:
            if (weight := node.input[position]) in self._weights:
                rank = self._weights[weight].ndim
                numbers, scales = self._quantized(weight, tuple(range(axes, rank)))
                name = f"{node.output[0]}/{position}"
                nodes += self._scaled(numbers, scales, name)
                node.input[position] = name
        return [*nodes, node]

    def _scaled(self, numbers: str, scales: str, output: str) -> list[Any]:
        """Returns the nodes that turn numbers into floats and multiply them by scales."""
        floats = f"{output}/floats"
        to_floats = self._make("Cast", [numbers], [floats], to=self._onnx.TensorProto.FLOAT)
        return [to_floats, self._make("Mul", [floats, scales], [output])]

    def _quantized(self, weight: str, axes: tuple[int, ...]) -> tuple[str, str]:
        """Returns the names of constants: numbers, and scales, which are the same along axes."""
        names = f"{weight}/numbers/{axes[0]}", f"{weight}/scales/{axes[0]}"
        if names[0] not in self._constants:
            array = self._weights[weight]
            least: Any = 0
            if axes == _COLUMNS:
                pairs = np.pad(array, ((0, len(array) % 2), (0, 0))).reshape(-1, 2, array.shape[1])
                sums = [np.maximum(sign * pairs, 0).sum(axis=1) for sign in (1, -1)]
                largest = np.max(sums, axis=(0, 1), keepdims=True)[0]
                least = largest / (_LARGEST_PAIR - 1)  # rounding adds up to 1
            self._constants |= zip(names, as_int8(array, axes, least), strict=True)
        return names
