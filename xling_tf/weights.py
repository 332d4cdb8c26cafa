"""Weights by name, in layers and in files."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from xling_tf.errors import UserError, as_user_error
from xling_tf.files import first_names, replacing

Weights = dict[str, NDArray[Any]]

_LARGEST = 127  # of int8, as far as it is symmetric
# Of a row's largest number, what the largest of 4 bits stands for: smaller ones cut it off, and
# are finer for the others.
_CUTS = (1.0, 0.9, 0.8, 0.7, 0.6)
_ROWS = 1 << 12  # that are rounded at a time
_TINY = 1e-30  # the scale of zeros
_POINTER = b"version https://git-lfs"


def named_weights(layer: keras.layers.Layer, name: str) -> dict[str, keras.Variable]:
    """Returns the variables of a layer by name, in their order.

    Args:
        layer: A built layer or model.
        name: Replaces the layer's name in the paths of its variables.

    Raises:
        ValueError: Two variables have the same path: two sublayers have the same name.

    Examples:
        >>> layer = keras.layers.Dense(2, name="logits")
        >>> layer.build((None, 3))
        >>> [*named_weights(layer, "heads/sentiment")]
        ['heads/sentiment/kernel', 'heads/sentiment/bias']
    """
    named = {}
    for variable in layer.variables:
        path = variable.path.partition("/")[2] if "/" in variable.path else variable.path
        if (full := f"{name}/{path}") in named:
            raise ValueError(f"two variables are named {full}; give the sublayers different names")
        named[full] = variable
    return named


def assign_weights(
    variables: Mapping[str, Any], weights: Mapping[str, NDArray[Any]], where: str
) -> None:
    """Assigns values to the variables of the same names, or to none if `require_shapes` fails."""
    require_shapes({name: variable.shape for name, variable in variables.items()}, weights, where)
    for name, variable in variables.items():
        variable.assign(weights[name])


def as_int8(
    array: NDArray[Any], axes: int | tuple[int, ...], least: ArrayLike = 0
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Rounds weights to 8 bits.

    Args:
        array: Weights of any shape.
        axes: Axes along which the scales are the same, and where they have the size 1.
        least: Minimum of the scales, in a shape that broadcasts to theirs.

    Returns:
        The numbers, and the scales by which they are multiplied.

    Example:
        >>> numbers, scales = as_int8(np.array([[1.0, -0.5], [0.0, 254.0]]), 1)
        >>> numbers.tolist(), (127 * scales).round(3).tolist()
        ([[127, -64], [0, 127]], [[1.0], [254.0]])
    """
    largest = np.abs(array).max(axes, keepdims=True, initial=0)
    scales = np.maximum(np.maximum(largest / _LARGEST, least), _TINY).astype(np.float32)
    return np.rint(array / scales).astype(np.int8), scales


def as_int4(rows: NDArray[np.floating]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Rounds rows to 4 bits, two numbers a byte: the one of an even column in the lower half.

    A half of a byte holds a number from -7 to 7, plus 8. The scale of a row is the one of five with
    the least squared error.

    Args:
        rows: `[rows, columns]` weights in an even number of columns.

    Returns:
        The `[rows, columns / 2]` bytes, and the `[rows, 1]` scales of their numbers.

    Example:
        >>> numbers, scales = as_int4(np.array([[7.0, -14.0, 0.0, 3.9]]))
        >>> [f"{byte:02x}" for byte in numbers[0]], scales.tolist()
        (['1c', 'a8'], [[2.0]])
    """
    blocks = [rows[begin : begin + _ROWS] for begin in range(0, len(rows), _ROWS)]
    packed, scales = zip(*map(_block_as_int4, blocks or [rows]), strict=True)
    return np.concatenate(packed), np.concatenate(scales)


def _block_as_int4(
    rows: NDArray[np.floating],
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    largest = np.maximum(np.abs(rows).max(1, keepdims=True, initial=0) / 7, _TINY)
    tried = [(cut * largest).astype(np.float32) for cut in _CUTS]
    numbers = np.stack([np.clip(np.rint(rows / scales), -7, 7) for scales in tried])
    errors = np.sum((numbers * tried - rows) ** 2, axis=2)
    best = np.argmin(errors, axis=0), np.arange(len(rows))
    halves = (numbers[best] + 8).astype(np.uint8)
    return halves[:, ::2] | halves[:, 1::2] << 4, np.stack(tried)[best]


@contextmanager
def to_be_replaced(weights: Weights, where: str) -> Iterator[None]:
    """Makes variables of zeros, which `weights` will replace.

    Raises:
        UserError: The variables would take more than twice the memory of the weights, which does
            not happen.
    """
    # Some layers share tables that an export stores apart.
    left = 2 * sum(array.size for array in weights.values()) + 1024
    shapes = tf.Graph()

    def create(next_creator: Callable[..., tf.Variable], **options: Any) -> tf.Variable:
        nonlocal left
        value = options["initial_value"]
        with shapes.as_default():  # where nothing is computed
            value = value() if callable(value) else value
        left -= math.prod(value.shape)
        if left < 0:
            raise ValueError
        return next_creator(**{**options, "initial_value": tf.zeros(value.shape, value.dtype)})

    try:
        with tf.variable_creator_scope(create):
            yield
    except Exception as error:
        if left >= 0:
            raise
        raise UserError(
            f"the weights in {where} are much smaller than the model that config.json describes; "
            "use both from the same model"
        ) from error


def require_shapes(
    shapes: Mapping[str, Sequence[int] | None], weights: Mapping[str, NDArray[Any]], where: str
) -> None:
    """Raises a `UserError` for weights missing, unexpected or of another shape (None: any)."""
    missing = [name for name in shapes if name not in weights]
    unexpected = [name for name in weights if name not in shapes]
    misshapen = [
        f"{name} {list(weights[name].shape)} instead of {list(shape)}"
        for name, shape in shapes.items()
        if name in weights and shape is not None and tuple(weights[name].shape) != tuple(shape)
    ]
    faults = {"missing": missing, "unexpected": unexpected, "of another shape": misshapen}
    if any(faults.values()):
        described = "; ".join(
            f"{fault}: {first_names(names, 3)}" for fault, names in faults.items() if names
        )
        raise UserError(
            f"the weights in {where} do not fit the model that config.json describes "
            f"({described}); use both from the same model"
        )


def arrays(variables: Mapping[str, Any]) -> Weights:
    """Returns the values of variables by name."""
    return {name: np.asarray(variable) for name, variable in variables.items()}


def write_weights(path: Path, weights: Mapping[str, NDArray[Any]]) -> None:
    """Writes values by name as a safetensors file, whole or not at all."""
    content = save({name: np.asarray(array, order="C") for name, array in weights.items()})
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def read_weights(path: Path) -> Weights:
    """Returns a safetensors file's values by name; raises a `UserError` if it is unreadable."""
    try:
        # Unlike `safetensors.numpy.load`, this reads bfloat16, which TensorFlow adds to NumPy.
        with safe_open(path, "numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError as error:
        message = f"{path} must hold weights, but cannot be read ({error}); restore it from a copy"
        raise UserError(message) from error
    except (SafetensorError, KeyError, ValueError) as error:
        fault, remedy = f"is damaged ({error})", "download it again, or restore it from a backup"
        with path.open("rb") as content:
            if content.read(len(_POINTER)) == _POINTER:
                fault, remedy = "is a pointer of Git LFS", "run git lfs pull in its folder"
        raise UserError(f"{path} must be a safetensors file, but {fault}; {remedy}") from error


def read_saved_model_weights(folder: Path) -> Weights:
    """Returns the `named_weights` of a SavedModel's root without loading its graph."""
    from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

    message = (
        f"{folder} must be a model exported by this version of xling_tf, but its weights have no "
        "names ({error}); export or train it again"
    )
    with as_user_error(message, LookupError, RuntimeError, ValueError, tf.errors.OpError):
        reader = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
        graph = TrackableObjectGraph.FromString(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
        root = {child.local_name: child.node_id for child in graph.nodes[0].children}
        named = graph.nodes[root["named_weights"]].children
        return {
            child.local_name: reader.get_tensor(
                graph.nodes[child.node_id].attributes[0].checkpoint_key
            )
            for child in named
        }
