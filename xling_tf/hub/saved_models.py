"""SavedModels from their folders, ours and others; TensorFlow is imported when one is loaded."""

from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from xling_tf.errors import UserError, quiet_start
from xling_tf.files import SAVED_MODEL


def load_saved_model(folder: Path) -> Any:
    """Loads a SavedModel, with the operations of tensorflow-text where that is installed.

    Its graph runs with the rights of this process: load models only from those you trust.
    """
    if not (folder / SAVED_MODEL).is_file():
        raise _not_loaded(folder, f"has no {SAVED_MODEL}")
    with quiet_start():
        import tensorflow as tf

        with suppress(ImportError):
            import_module("tensorflow_text")  # has the operations of models with SentencePiece
    try:
        return tf.saved_model.load(str(folder))
    # A truncated or changed file may be any of these.
    except (OSError, RuntimeError, ValueError, LookupError, tf.errors.OpError) as error:
        raise _not_loaded(folder, f"cannot be loaded: {one_line(error)}") from error


def release_resources(model: Any) -> None:
    """Frees the tables of words and the SentencePiece models of a SavedModel, which cannot be called then.

    TensorFlow frees variables with the model, but keeps these by name until the process ends: megabytes
    for each load of a model with a large vocabulary.
    """
    import tensorflow as tf

    # At once, and not as a part of a graph that this thread is tracing: garbage is collected at any time.
    with tf.init_scope():
        for part in tf.train.TrackableView(model).descendants():
            if isinstance(part, tf.saved_model.experimental.TrackableResource):
                tf.raw_ops.DestroyResourceOp(resource=part.resource_handle, ignore_lookup_error=True)


def one_line(error: Exception) -> str:
    """What an exception says, cut, on one line."""
    return " ".join(str(error).split())[:200]


def _not_loaded(folder: Path, came: str) -> UserError:
    return UserError(
        f"the folder of an exported model is expected, but {folder} {came}; give the --output of a "
        "training (models with SentencePiece need tensorflow-text)"
    )
