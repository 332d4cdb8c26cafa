"""SavedModels, and models in training, as the backends of a `SentenceEncoder`."""

import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xling_tf.client.backends import Backend, Function
from xling_tf.client.batches import BATCHES_AT_ONCE
from xling_tf.client.match import as_lines
from xling_tf.client.neighbours import unit_vectors
from xling_tf.client.texts import describe
from xling_tf.errors import UserError
from xling_tf.processes import require_not_forked

# The signatures that encode texts of a role.
ROLE_SIGNATURES = {"query": "question_encoder", "document": "response_encoder"}


def as_backend(model: Any, info: Mapping[str, Any], dtype: str) -> Backend:
    """Returns a `Model`, a SavedModel, a TensorFlow module or layer, or a function as a backend.

    `info` has the model's "prompts", "default_prompt_name" and "match"; `dtype` is that of `load`.
    """
    if isinstance(model, Backend):
        backend = model
    elif hasattr(model, "encoder_settings"):
        backend = LiveModel(model)
    elif not callable(model):
        raise UserError(
            f"expected a model that can be called with sentences, but got {describe(model)}"
        )
    elif getattr(model, "signatures", {}):
        return SavedModel(model, info, dtype)
    elif _takes_tensors(model):
        backend = Function(lambda texts: model(string_tensor(texts)))
    else:
        backend = Function(model)
    if dtype != "float32":
        raise UserError(f"dtype must be float32, or bfloat16 with an exported model, not {dtype!r}")
    return backend


def _takes_tensors(model: Any) -> bool:
    """True for modules, layers, loaded SavedModels and `tf.function`s; others get lists."""
    tensorflow: Any = sys.modules.get("tensorflow")  # None: then it has made no model
    return tensorflow is not None and isinstance(model, tensorflow.__internal__.tracking.Trackable)


class InTensorFlow(Backend):
    """A model that TensorFlow runs."""

    threads = BATCHES_AT_ONCE
    _model: Any

    @property
    def device(self) -> str:  # type: ignore[override]
        """Returns "cuda" if TensorFlow sees a GPU."""
        return device()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({describe(self._model)})"

    def __reduce__(self) -> Any:
        raise UserError("only an encoder that was loaded by its model's name can be pickled")


class SavedModel(InTensorFlow):
    """A loaded SavedModel, or the result of `Model.module`."""

    def __init__(self, model: Any, info: Mapping[str, Any], dtype: str) -> None:
        self._model = model
        self.prompts = info.get("prompts", {})
        self.default_prompt_name = info.get("default_prompt_name")
        self.match = as_lines(info.get("match"))
        self.signatures: dict[str, Any] = {
            # The result of `Model.module` has not been traced.
            name: part.concrete_function() if hasattr(part, "concrete_function") else part
            for name, part in model.signatures.items()
        }
        if dtype not in ("float32", "bfloat16"):
            raise UserError(f"dtype must be float32 or bfloat16, but is {dtype!r}")
        if dtype == "bfloat16" and self.device == "cuda":
            raise UserError("dtype bfloat16 is for CPUs, but TensorFlow sees a GPU; take float32")
        self._in_dtype = in_bfloat16 if dtype == "bfloat16" else lambda function, _: function
        own = [role for role, name in ROLE_SIGNATURES.items() if name in self.signatures]
        self.roles = ["default", *own]
        self.takes_contexts = "context" in self._inputs(ROLE_SIGNATURES["document"])
        self._function = cache(self._make_function)

    def embed(self, texts: list[str], role: str, *contexts: list[str]) -> NDArray[np.float32]:
        """Returns vectors of unit length."""
        if not role and "unprompted" in self.signatures:
            return unit_vectors(self._call("unprompted", texts), "vectors")
        return self._call(ROLE_SIGNATURES.get(role, ""), texts, *contexts)

    def embed_raw(self, texts: list[str], role: str, *contexts: list[str]) -> ArrayLike:
        """Returns vectors of the encoder's own lengths."""
        if role in ROLE_SIGNATURES:
            raise UserError(
                "normalize_embeddings=False: questions and responses have only unit vectors"
            )
        if "raw" not in self.signatures:
            return super().embed_raw(texts, role)
        has_other = not role and "unprompted" in self.signatures
        return self._call("unprompted" if has_other else "raw", texts)

    def _call(self, signature: str, *columns: list[str]) -> NDArray[np.float32]:
        require_not_forked()
        return np.asarray(self._function(signature)(*map(string_tensor, columns)))

    def _make_function(self, name: str) -> Callable[..., Any]:
        """Returns a signature, or the model itself for "", as a function of its inputs."""
        if not name:
            return self._in_dtype(self._model, 1)
        function = self.signatures[name]
        names = [key for key in ("inputs", "input", "context") if key in self._inputs(name)]

        def embed(*columns: Any) -> Any:
            return function(**dict(zip(names, columns, strict=True)))["outputs"]

        return self._in_dtype(embed, len(names))

    def _inputs(self, name: str) -> Mapping[str, Any]:
        has_signature = name in self.signatures
        return self.signatures[name].structured_input_signature[1] if has_signature else {}


class LiveModel(InTensorFlow):
    """A `Model`, whose later changes count."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.prompts = model.info.prompts
        self.default_prompt_name = model.info.default_prompt_name
        self.match = as_lines(model.info.match)
        # The vectors of these may be those of heads.
        self.roles = [*ROLE_SIGNATURES] if model.heads else []

    def embed(self, texts: list[str], role: str, *contexts: list[str]) -> NDArray[Any]:
        """Returns vectors of unit length."""
        if role:
            raise UserError(
                f"a {role} needs the signature {ROLE_SIGNATURES[role]}, which a `Model` with heads "
                "gets only when it is exported; export it, and load the export"
            )
        return unit_vectors(self.embed_raw(texts, role), "vectors")

    def embed_raw(self, texts: list[str], role: str, *contexts: list[str]) -> NDArray[Any]:
        """Returns vectors of the encoder's own lengths."""
        require_not_forked()
        return np.asarray(self._model.raw(string_tensor(texts)))


def string_tensor(texts: list[str]) -> Any:
    """Returns texts as a tensor, `[texts]` tf.string."""
    import tensorflow as tf

    return tf.constant(texts, tf.string)


def in_bfloat16(function: Callable[..., Any], num_inputs: int) -> Callable[..., Any]:
    """Makes TensorFlow multiply a function's matrices in bfloat16."""
    import tensorflow as tf
    from tensorflow.core.protobuf.config_pb2 import ConfigProto
    from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

    graph = tf.function(function).get_concrete_function(
        *[tf.TensorSpec([None], tf.string)] * num_inputs
    )
    # For this function alone: options of tf.config would change a training in the same process too.
    config = ConfigProto()
    config.graph_options.rewrite_options.auto_mixed_precision_onednn_bfloat16 = RewriterConfig.ON
    options = {"f": graph, "Tout": [tf.float32], "config_proto": config.SerializeToString()}

    def compute(*texts: Any) -> Any:
        return tf.raw_ops.StatefulPartitionedCall(args=[*texts, *graph.captured_inputs], **options)[
            0
        ]

    return compute


def device() -> str:
    """Returns "cuda" if TensorFlow is installed and sees a GPU, else "cpu"."""
    if find_spec("tensorflow") is None:
        return "cpu"
    import tensorflow as tf

    return "cuda" if tf.config.get_visible_devices("GPU") else "cpu"
