"""Models from folders, archives and Hugging Face; TensorFlow is imported when a SavedModel is loaded."""

import difflib
import os
import shutil
import sys
import tarfile
import zipfile
import zlib
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from xling_tf.errors import UserError, library
from xling_tf.files import RUNTIME_SETTINGS, SAVED_MODEL, folder_of_this_process

HUGGING_FACE = "hf://"

# `shutil`'s names of the formats, by the endings of file names such as ".tar.gz".
_ARCHIVES = {ending: form for form, endings, _ in shutil.get_unpack_formats() for ending in endings}
_CHECKPOINTS = "checkpoints"  # of a training, in its run folder
_PYTORCH = ("modules.json", "model.safetensors", "pytorch_model.bin")
_KERAS = (".keras", ".h5", ".hdf5")


def resolve(name: str | os.PathLike[str]) -> Path:
    """Finds the folder of a model, unpacking or downloading it where that is needed.

    Args:
        name: The folder itself; a folder of versions named by numbers, of which the largest is taken; an
            archive (.tar.gz, as TF Hub and Kaggle give it, .zip and others) of the folder or of its content;
            or `hf://owner/name`, perhaps with `@revision`, which is downloaded once, to Hugging Face's
            cache. "~" is the home folder.

    Raises:
        UserError: There is no such folder, archive or repository, or the archive is damaged.

    Example:
        >>> resolve("exported/en-es")  # doctest: +SKIP
        PosixPath('exported/en-es')
    """
    given = os.fsdecode(name)
    if given.startswith(HUGGING_FACE):
        return _downloaded(given)
    address = urlsplit(given)
    if address.scheme in ("http", "https", "kaggle", "gs", "s3") or given.startswith("kaggle:"):
        raise UserError(
            f"the folder of a model is expected, but {given} is an address; download it first "
            "(kagglehub.model_download gives the folder of a model at Kaggle or TF Hub)"
        )
    path = Path(url2pathname(address.path) if address.scheme == "file" else os.path.expanduser(given))
    try:
        if not given.strip() or not path.exists():
            raise _missing(path, given)
        if path.name == SAVED_MODEL:
            return path.parent
        return _latest_version(path if path.is_dir() else _unpacked(path.resolve(), path.stat().st_mtime_ns))
    except OSError as error:
        raise UserError(
            f"the folder of a model is expected, but {given} cannot be read: {one_line(error)}; correct the "
            "name, or the folder's permissions"
        ) from error


def model_name(name: str | os.PathLike[str]) -> str:
    """The last part of what `resolve` takes, without the revision and the ending of an archive.

    Example:
        >>> model_name("hf://owner/en-es@v1"), model_name("share/en-es.tar.gz")
        ('en-es', 'en-es')
    """
    last = Path(os.path.expanduser(os.fsdecode(name).partition("@")[0])).resolve().name
    return last[: len(last) - len(_archive_ending(last))]


def _archive_ending(name: str) -> str:
    return max((ending for ending in _ARCHIVES if name.lower().endswith(ending)), key=len, default="")


def _missing(path: Path, given: str) -> UserError:
    target = f"a link to {os.readlink(path)}, where there is nothing" if path.is_symlink() else "not there"
    folder = path.parent
    names = [each.name for each in folder.iterdir()] if given.strip() and folder.is_dir() else []
    similar = [str(folder / each) for each in difflib.get_close_matches(path.name, names)]
    hint = f" ({', '.join(similar)}?)" if similar else ""
    return UserError(
        f"the folder of a model is expected, but {given!r} is {target}{hint}; correct the name; a model at "
        f"Hugging Face is {HUGGING_FACE}owner/name"
    )


def _latest_version(folder: Path) -> Path:
    """The folder itself if it is a model, else its largest version, as TensorFlow Serving takes it."""
    if (folder / SAVED_MODEL).exists():
        return folder
    versions = [each for each in folder.iterdir() if each.name.isdecimal() and (each / SAVED_MODEL).is_file()]
    return max(versions, key=lambda each: int(each.name), default=folder)


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
def _unpacked(archive: Path, changed: int) -> Path:
    """Unpacks an archive into a folder that is deleted when the process ends."""
    del changed  # a key of the cache: the time of the archive, which may be replaced
    if not (ending := _archive_ending(archive.name)):
        keras = "; keras.saving.load_model opens a model of Keras" if archive.suffix in _KERAS else ""
        raise UserError(
            f"the folder of a model is expected, or an archive of it ({', '.join(sorted(_ARCHIVES))}), but "
            f"{archive} is another file{keras}"
        )
    folder = folder_of_this_process()
    # Zip files are always unpacked safely.
    options: dict[str, Any] = {} if ending == ".zip" else {"filter": "data"}
    try:
        shutil.unpack_archive(archive, folder, _ARCHIVES[ending], **options)
    except (EOFError, OSError, RuntimeError, tarfile.TarError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(
            f"an archive of an exported model is expected, but {archive} cannot be unpacked: "
            f"{one_line(error)}; fetch it again"
        ) from error
    while len(inside := [each for each in folder.iterdir() if each.name != "__MACOSX"]) == 1:
        if not inside[0].is_dir():
            break
        folder = inside[0]
    return folder


def load_saved_model(folder: Path) -> Any:
    """Loads a SavedModel, with the operations of tensorflow-text where that is installed.

    Its graph runs with the rights of this process: load models only from those you trust.
    """
    require_not_forked()
    require_saved_model(folder)
    import tensorflow as tf

    with suppress(ImportError):
        import_module("tensorflow_text")  # has the operations of models with SentencePiece
    try:
        return tf.saved_model.load(str(folder))
    # A truncated or changed file may be any of these.
    except (OSError, RuntimeError, ValueError, LookupError, tf.errors.OpError) as error:
        raise UserError(
            f"the folder of an exported model is expected, but {folder} cannot be loaded: {one_line(error)}; "
            "export or fetch it again (models with SentencePiece need tensorflow-text)"
        ) from error


def require_saved_model(folder: Path) -> None:
    """Makes sure that a folder is an exported model.

    Raises:
        UserError: It is something else; the message says what, and what to do.
    """
    if not (folder / SAVED_MODEL).is_file():
        raise UserError(f"the folder of an exported model is expected, but {folder} {_what_it_is(folder)}")


def _what_it_is(folder: Path) -> str:
    """Tells what a folder without a SavedModel is, and what to do."""
    if not folder.is_dir():
        return "is not there; give the --output of a training"
    names = sorted(path.name for path in folder.iterdir())
    if RUNTIME_SETTINGS in names:
        return "is a model for LiteRT or ONNX Runtime, which xling_tf.hub.runtimes.load opens"
    if _CHECKPOINTS in names:
        return "is the run of a training; give its --output, or finish it, which exports the model"
    if "tfhub_module.pb" in names:
        return "is a TF Hub module in TensorFlow 1's format, which TensorFlow 2 cannot load; give another"
    if set(_PYTORCH) & set(names):
        return "is a PyTorch model, which sentence_transformers.SentenceTransformer opens"
    if models := [name for name in names if (folder / name / SAVED_MODEL).is_file()]:
        return f"has models in it; give one of them, such as {folder / models[0]}"
    content = f"but {', '.join(names[:5])}" if names else "as it is empty"
    return f"has no {SAVED_MODEL}, {content}; give the --output of a training"


_is_forked = False


def _notice_fork() -> None:
    """Remembers, in a process that has just been forked, whether its parent had started TensorFlow."""
    global _is_forked
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    _is_forked = _is_forked or getattr(context, "_initialized", False)


os.register_at_fork(after_in_child=_notice_fork)


def require_not_forked() -> None:
    """Refuses to run TensorFlow in a forked process, where it would wait forever for its parent's threads.

    Raises:
        UserError: This process was forked from one that had used TensorFlow.
    """
    if _is_forked:
        raise UserError(
            "a process is expected that starts TensorFlow itself, but this one was forked from one that had "
            "used it, without its threads; load models only after the fork (gunicorn without preload_app), "
            'or start processes by multiprocessing.get_context("spawn")'
        )


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
