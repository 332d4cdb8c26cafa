"""One loaded version of a model: its signatures, and calls of them in NumPy."""

import gc
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from xling_tf.files import SAVED_MODEL
from xling_tf.hub.saved_models import load_saved_model, release_resources
from xling_tf.serving.batches import Tensors
from xling_tf.serving.batching import Lane
from xling_tf.serving.model_errors import told_by_tensorflow
from xling_tf.serving.signatures import Signature, TensorInfo


class Servable:
    """A version of a model that is loaded.

    Attributes:
        model_name: The model.
        version: Of it.
        signatures: All of its SignatureDefs.
        lanes: What can be called, by the signature's name.
    """

    def __init__(self, model_name: str, version: int, folder: Path, *, batched: bool) -> None:
        """Loads it.

        Args:
            model_name: The model.
            version: Of it.
            folder: An exported model.
            batched: Whether signatures with a row of outputs for each of inputs are batched.

        Raises:
            UserError: The folder cannot be loaded.
        """
        self.model_name = model_name
        self.version = version
        self._model = load_saved_model(folder)
        self.signatures = read_signatures(folder)
        self.lanes = {
            name: Lane(model_name, self._caller(name), batched and is_batchable(signature))
            for name, signature in self.signatures.items()
            if name in self._model.signatures
        }
        self._leases = 0
        self._retired: Callable[[], None] | None = None
        self._lock = Lock()

    def lease(self) -> bool:
        """Keeps it loaded for a request, until `release`; False if it is being unloaded."""
        with self._lock:
            if self._retired is not None:
                return False
            self._leases += 1
            return True

    def release(self) -> None:
        """Ends a lease; the last one of a retired version unloads it."""
        with self._lock:
            self._leases -= 1
        self._unload_if_idle()

    def retire(self, unloaded: Callable[[], None]) -> None:
        """Takes no more leases, and unloads it after the last one.

        Args:
            unloaded: Called when its memory is given back.
        """
        with self._lock:
            self._retired = unloaded
        self._unload_if_idle()

    def _unload_if_idle(self) -> None:
        with self._lock:
            unloaded = self._retired
            if unloaded is None or self._leases or self._model is None:
                return
            model, self._model = self._model, None
            self.lanes = {}
        release_resources(model)
        del model
        # A SavedModel's objects refer to each other.
        gc.collect()
        unloaded()

    def _caller(self, name: str) -> Callable[[Tensors], Tensors]:
        # Looked up at each call: a lane may outlive the version, in the thread that served its last
        # request, and must not keep it in memory.
        def call(inputs: Tensors) -> Tensors:
            function = self._model.signatures[name]
            with told_by_tensorflow():
                outputs = function(**{key: tf.constant(value) for key, value in inputs.items()})
                return {key: value.numpy() for key, value in outputs.items()}

        return call


def read_signatures(folder: Path) -> dict[str, Signature]:
    """The SignatureDefs of an exported model, with the names of its graph."""
    saved_model = saved_model_pb2.SavedModel.FromString((folder / SAVED_MODEL).read_bytes())
    graph = next(
        graph
        for graph in saved_model.meta_graphs
        if tf.saved_model.SERVING in graph.meta_info_def.tags
    )
    return {
        name: Signature(
            definition.method_name, _tensors(definition.inputs), _tensors(definition.outputs)
        )
        for name, definition in graph.signature_def.items()
    }


def is_batchable(signature: Signature) -> bool:
    """Whether a signature takes and gives any number of rows."""
    tensors = [*signature.inputs.values(), *signature.outputs.values()]
    return bool(signature.inputs) and all(info.shape and info.shape[0] == -1 for info in tensors)


def _tensors(infos: Mapping[str, meta_graph_pb2.TensorInfo]) -> dict[str, TensorInfo]:
    return {alias: _tensor_info(info) for alias, info in infos.items()}


def _tensor_info(info: Any) -> TensorInfo:
    shape = info.tensor_shape
    sizes = None if shape.unknown_rank else tuple(dimension.size for dimension in shape.dim)
    return TensorInfo(info.name, types_pb2.DataType.Name(info.dtype), sizes)
