"""The variables of a SavedModel as layers: what stands in one scope, partitions put together."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from xling_tf.errors import UserError

# Of one variable that was divided among machines: Embeddings/sharded_16, dense/kernel/part_3.
_PARTITION = re.compile(r"(?P<whole>.+)/(?P<kind>part|sharded)_(?P<number>\d+)")
# A kernel comes before its bias, and what scales before what shifts.
_SECOND = ("bias", "beta", "offset", "shift")

Shapes = tuple[tuple[int, ...], ...]


class FoundLayer(NamedTuple):
    """Variables of one scope.

    Attributes:
        name: The scope.
        arrays: Kernel and bias, or scale and offset, or one of them.
    """

    name: str
    arrays: tuple[np.ndarray, ...]

    @property
    def shapes(self) -> Shapes:
        """Of the arrays."""
        return tuple(array.shape for array in self.arrays)


class FoundVariables(NamedTuple):
    """All of a SavedModel's variables.

    Attributes:
        table: `[rows, dim]`, the matrix with most rows.
        layers: All others, in the order in which the SavedModel lists them.
    """

    table: np.ndarray
    layers: Sequence[FoundLayer]


def read_variables(folder: Path) -> FoundVariables:
    """Reads the variables of a SavedModel folder.

    Raises:
        UserError: They are not there, or among them is no matrix.
    """
    partitions: dict[str, dict[int, np.ndarray]] = {}
    sharded = set()
    for name, array in _named_arrays(folder):
        match = _PARTITION.fullmatch(name)
        whole, number = (match["whole"], int(match["number"])) if match else (name, 0)
        partitions.setdefault(whole, {})[number] = array
        if match and match["kind"] == "sharded":
            sharded.add(whole)
    arrays = {
        name: _join([parts[number] for number in sorted(parts)], interleaved=name in sharded)
        for name, parts in partitions.items()
    }
    matrices = [name for name, array in arrays.items() if array.ndim == 2]
    if not matrices:
        raise UserError(
            f"variables of a sentence encoder are expected in {folder}, but its {len(arrays)} variables "
            f"are no matrices: {', '.join(arrays) or 'none'}; give the folder of the CNN"
        )
    table = arrays.pop(max(matrices, key=lambda name: len(arrays[name])))
    return FoundVariables(table, _by_scope(arrays))


def _named_arrays(folder: Path) -> list[tuple[str, np.ndarray]]:
    """The floating-point variables in the order of the object graph, by names that differ."""
    try:
        reader = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
        graph = TrackableObjectGraph.FromString(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
    except tf.errors.OpError as error:
        raise UserError(
            f"a SavedModel of TensorFlow 2 is expected in {folder}, but its variables cannot be read "
            f"({' '.join(str(error).split())}); give the folder with saved_model.pb and variables/"
        ) from error
    saved = {a.checkpoint_key: a.full_name for node in graph.nodes for a in node.attributes}
    dtypes = reader.get_variable_to_dtype_map()
    kept = {key: name for key, name in saved.items() if dtypes[key].is_floating}
    # Keras calls every kernel "kernel"; the places in the object graph are told apart.
    named = len(set(kept.values())) == len(kept)
    return [
        (name if named else key.partition("/.ATTRIBUTES")[0], reader.get_tensor(key))
        for key, name in kept.items()
    ]


def _join(parts: Sequence[np.ndarray], *, interleaved: bool) -> np.ndarray:
    """Puts partitions together, the rows one after another or in turn."""
    if not interleaved:
        return np.concatenate(parts) if len(parts) > 1 else parts[0]
    # TensorFlow's partition_strategy="mod": row r of part p is that of id r * parts + p.
    table = np.empty((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
    for number, part in enumerate(parts):
        table[number :: len(parts)] = part
    return table


def _by_scope(arrays: dict[str, np.ndarray]) -> list[FoundLayer]:
    scopes: dict[str, list[str]] = {}
    for name in arrays:
        scopes.setdefault(name.rpartition("/")[0], []).append(name)
    return [
        FoundLayer(scope, tuple(arrays[name] for name in sorted(names, key=_rank)))
        for scope, names in scopes.items()
    ]


def _rank(name: str) -> bool:
    return any(word in name.rpartition("/")[2].lower() for word in _SECOND)
