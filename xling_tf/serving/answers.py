"""Arrays to the JSON of answers, laid out as RapidJSON's PrettyWriter does in both forms."""

import base64
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from xling_tf.serving.decimals import decimals
from xling_tf.serving.errors import ServingError
from xling_tf.serving.json_writing import string
from xling_tf.serving.tensors import type_name

_INTEGERS = ("DT_INT8", "DT_INT16", "DT_INT32", "DT_INT64", "DT_UINT8", "DT_UINT32", "DT_UINT64")
_FLOATS = {"DT_FLOAT": np.float32, "DT_DOUBLE": np.float64}


def rows(outputs: Mapping[str, np.ndarray], types: Mapping[str, str]) -> bytes:
    """`predictions`, an element for each row (MakeRowFormatJsonFromTensors).

    Args:
        outputs: `[batch, ...]` each.
        types: Their types, "DT_FLOAT" and so on, in the order in which they are written.

    Raises:
        ServingError: An output is a scalar, has another batch size, or a type that JSON lacks.
    """
    size = _batch_size(outputs, types)
    named = len(types) > 1
    texts = {
        alias: _elements(outputs[alias], alias, dtype, 3 if named else 2, one_line=True)
        for alias, dtype in types.items()
    }
    if not named:
        (elements,) = texts.values()
        inner = b", ".join(elements)
    else:
        keys = [b"            " + string(alias.encode()) + b": " for alias in types]
        inner = b",".join(
            b"\n        {\n"
            + b",\n".join(key + text for key, text in zip(keys, row, strict=True))
            + b"\n        }"
            for row in zip(*texts.values(), strict=True)
        )
    end = b"\n    ]\n}" if size else b"]\n}"
    return b'{\n    "predictions": [' + inner + end


def columns(outputs: Mapping[str, np.ndarray], types: Mapping[str, str]) -> bytes:
    """`outputs`, whole arrays (MakeColumnarFormatJsonFromTensors).

    Raises:
        ServingError: An output has a type that JSON lacks.
    """
    named = len(types) > 1
    depth = 2 if named else 1
    texts = {
        alias: _elements(np.asarray(outputs[alias])[None], alias, dtype, depth, one_line=False)[0]
        for alias, dtype in types.items()
    }
    if not named:
        (inner,) = texts.values()
    else:
        members = (
            b"        " + string(alias.encode()) + b": " + text for alias, text in texts.items()
        )
        inner = b"{\n" + b",\n".join(members) + b"\n    }"
    return b'{\n    "outputs": ' + inner + b"\n}"


def _batch_size(outputs: Mapping[str, np.ndarray], types: Mapping[str, str]) -> int:
    size = -1
    for alias in types:
        shape = np.shape(outputs[alias])
        if not shape:
            raise ServingError.invalid_argument(f"Tensor name: {alias} has no shape information ")
        if size not in (-1, shape[0]):
            raise ServingError.invalid_argument(
                f"Tensor name: {alias} has inconsistent batch size: {shape[0]} expecting: {size}"
            )
        size = shape[0]
    return size


def _elements(array: np.ndarray, alias: str, dtype: str, depth: int, one_line: bool) -> list[bytes]:
    """The JSON of each element of the first dimension, `depth` levels inside the document."""
    array = np.asarray(array)
    inside = depth + array.ndim - 1
    size = array.shape[-1] if array.ndim > 1 else 1
    lists = array.reshape(math.prod(array.shape[:-1]) if array.ndim > 1 else -1, size)
    if array.ndim == 1:
        return _joined(lists, alias, dtype, inside, b"")
    start, between, end = _brackets(inside - 1, one_line)
    texts = _joined(lists, alias, dtype, inside, between) if size else []
    texts = [start + text + end for text in texts] if size else [b"[]"] * len(lists)
    for axis in range(array.ndim - 2, 0, -1):
        size, count = array.shape[axis], math.prod(array.shape[:axis])
        start, between, end = _brackets(depth + axis - 1, one_line) if size else (b"[", b"", b"]")
        texts = [
            start + between.join(texts[index * size : (index + 1) * size]) + end
            for index in range(count)
        ]
    return texts


def _brackets(depth: int, one_line: bool) -> tuple[bytes, bytes, bytes]:
    """What stands before, between and after the elements of a list that opens at a depth."""
    if one_line:
        return b"[", b", ", b"]"
    indent = b"\n" + b"    " * (depth + 1)
    return b"[" + indent, b"," + indent, b"\n" + b"    " * depth + b"]"


def _joined(lists: np.ndarray, alias: str, dtype: str, depth: int, between: bytes) -> list[bytes]:
    """The elements of each row of a matrix, joined."""
    if dtype in _FLOATS:
        text = decimals(lists.astype(_FLOATS[dtype], copy=False))
        return text.replace(b",", between).split(b";")[:-1]
    write: Callable[[Any], bytes]
    if dtype == "DT_STRING":
        write = _Base64(depth) if alias.endswith("_bytes") else string
    elif dtype in _INTEGERS or dtype == "DT_BOOL":
        write = _literal
    else:
        raise ServingError.invalid_argument(
            f"Failed to write JSON value for tensor type: {type_name(dtype)}"
        )
    return [between.join(map(write, row)) for row in lists.tolist()]


def _literal(value: bool | int) -> bytes:
    return str(value).lower().encode()


class _Base64:
    """Writes bytes as an object at a depth."""

    def __init__(self, depth: int) -> None:
        self.start = b"{\n" + b"    " * (depth + 1) + b'"b64": "'
        self.end = b'"\n' + b"    " * depth + b"}"

    def __call__(self, raw: bytes) -> bytes:
        return self.start + base64.b64encode(raw) + self.end
