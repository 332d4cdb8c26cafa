"""Calls of a loaded model: in batches, in bfloat16, and in another process."""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xling_tf.errors import UserError
from xling_tf.length_batches import available_cpus, compute_in_batches
from xling_tf.processes import require_not_forked
from xling_tf.search.neighbours import require_positive

# One core splits a batch into words while another multiplies the matrices of the next.
_BATCHES_AT_ONCE = min(4, available_cpus())


def call_in_batches(
    function: Callable[..., Mapping[str, Any]],
    columns: Sequence[list[str]],
    batch_size: int,
    show_progress_bar: bool | None,
    to_input: Callable[[list[str]], Any],
) -> dict[str, NDArray[Any]]:
    """Calls a function with the input that each column becomes, with rows of similar length
    together.

    Returns its outputs by name, `[rows, ...]` in the order of the rows.
    """
    require_positive(batch_size, "batch_size")
    require_not_forked()

    def call(*texts: list[str]) -> dict[str, NDArray[Any]]:
        return {
            name: np.asarray(output) for name, output in function(*map(to_input, texts)).items()
        }

    results = compute_in_batches(
        call,
        columns,
        max_rows=batch_size,
        threads=_BATCHES_AT_ONCE,
        show_progress=show_progress_bar,
    )
    return results or call(*([] for _ in columns))


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


class _Unavailable:
    """Stands in for an encoder in a forked process; calls raise the `UserError` about forks."""

    def __getattr__(self, name: str) -> "_Unavailable":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **options: Any) -> None:
        require_not_forked()


def unpickled(kind: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Loads an encoder by its constructor's arguments; in a forked process, calls are errors."""
    try:
        require_not_forked()
    except UserError:
        # An error here would end each worker of a pool as it reads its task; the pool would wait
        # forever.
        return _Unavailable()
    return kind(*arguments, **options)
