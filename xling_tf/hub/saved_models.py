"""SavedModels from folders, archives and Hugging Face; TensorFlow is imported when one is loaded."""

import atexit
import os
import shutil
import tarfile
import tempfile
import zlib
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from xling_tf.errors import UserError, library, quiet_start
from xling_tf.files import SAVED_MODEL

HUGGING_FACE = "hf://"


def resolve(name: str | os.PathLike[str]) -> Path:
    """Finds the folder of a model, unpacking or downloading it where that is needed.

    Args:
        name: The folder itself; an archive of its content (`.tar.gz`), as TF Hub and Kaggle give it; or
            `hf://owner/name`, perhaps with `@revision`, which is downloaded once, to Hugging Face's cache.

    Raises:
        UserError: The archive is damaged, or there is no such repository.

    Example:
        >>> resolve("exported/en-es")
        PosixPath('exported/en-es')
    """
    path = os.fspath(name)
    if path.startswith(HUGGING_FACE):
        return _downloaded(path)
    return _unpacked(Path(path).resolve()) if path.endswith((".tar.gz", ".tgz")) else Path(path)


def _downloaded(name: str) -> Path:
    hub = library("huggingface_hub", "huggingface_hub", "sharing")
    repository, _, revision = name.removeprefix(HUGGING_FACE).partition("@")
    try:
        return Path(hub.snapshot_download(repository, revision=revision or None))
    # Its errors of validation are values', those of HTTP the system's.
    except (OSError, ValueError) as error:
        raise UserError(
            f"{HUGGING_FACE}owner/name of a model at Hugging Face is expected, but {name} cannot be had: "
            f"{one_line(error)}; correct the name, or log in with `hf auth login` if it is private"
        ) from error


@cache
def _unpacked(archive: Path) -> Path:
    """Unpacks an archive into a folder that goes with the process."""
    folder = tempfile.mkdtemp(prefix="xling_tf-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
    except (EOFError, OSError, tarfile.TarError, zlib.error) as error:
        raise UserError(
            f"an archive of an exported model is expected, but {archive} cannot be unpacked: "
            f"{one_line(error)}; fetch it again"
        ) from error
    return Path(folder)


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

    # At once, and not as a part of a graph that this thread is making: garbage is collected at any time, and
    # `tf.init_scope` does not leave a graph of TensorFlow 1, as the loading of a model makes some.
    with tf.__internal__.eager_context.eager_mode():
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
