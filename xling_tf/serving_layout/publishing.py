"""An exported model as the next version of a served one."""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from absl import logging

from xling_tf.errors import UserError, quiet_start
from xling_tf.files import SAVED_MODEL, new_folder, require_writable_folder
from xling_tf.hub.saved_models import load_saved_model
from xling_tf.serving_layout.configuration import (
    configure,
    find_pinned_versions,
    require_configurable,
)
from xling_tf.serving_layout.versions import next_version, require_free, require_model_name
from xling_tf.serving_layout.warmup import make_warmup_requests, write_warmup_requests


class Published(NamedTuple):
    """What was made."""

    folder: Path
    """`<serving>/<name>/<version>`."""
    warmup: dict[str, int]
    """How many warm-up requests each signature has."""


def publish(model: Path, serving: Path, name: str, version: int | None = None) -> Published:
    """Makes a version of an exported model that TensorFlow Serving can serve, with warm-up requests.

    It is a copy, so that it stays as it is whatever becomes of the export, and can be mounted into a
    container. It is written under a name that no server takes for a version and renamed when it is
    whole. A version is never overwritten. What is copied was loaded and has answered all requests.

    Args:
        model: Folder of the exported model.
        serving: The folder of all models that are served; made where it is missing.
        name: The model's name there.
        version: Its number; None: the next free one.

    Raises:
        UserError: The model cannot be served, the version cannot be added, or files not be written.
    """
    require_model_name(name)
    base = serving / name
    _require_folder_of_versions(base)
    if version is not None:
        require_free(base, version)
    require_configurable(serving, name)
    before = _identity(model)
    loaded = load_saved_model(model)
    if not loaded.signatures:
        raise UserError(
            f"a model with signatures is expected, which are what a server calls, but {model} has "
            "none; save it with them (tf.saved_model.save(..., signatures=...); a loaded model of "
            "this package with xling_tf.hub.module.reexport)"
        )
    with quiet_start():  # TensorFlow's libraries print notes about a model's first calls
        requests = make_warmup_requests(loaded, name)
    require_writable_folder(serving, "give another --serving, or mend its rights")
    with _one_at_a_time(serving):
        number = next_version(base) if version is None else version
        require_free(base, number)
        with _errors_named(model, base / str(number)), new_folder(base / str(number)) as temporary:
            _copy(model, temporary)
            if _identity(model) != before:
                raise UserError(f"{model} was replaced while it was being copied; start this again")
            write_warmup_requests(requests, temporary)
        configured = configure(serving, name)
    for path in configured:
        logging.info("%s written", path)
    pinned = find_pinned_versions(serving, name)
    if pinned and number not in pinned:
        logging.warning("models.config pins versions %s of %s; add %d there", pinned, name, number)
    warmup = {signature: len(records) for signature, records in requests.items()}
    for signature in (signature for signature, count in warmup.items() if not count):
        logging.warning("signature %s takes no texts, and gets no warm-up requests", signature)
    return Published(base / str(number), warmup)


def _require_folder_of_versions(base: Path) -> None:
    for folder in (base.resolve(), *base.resolve().parents):
        if (folder / SAVED_MODEL).is_file():
            raise UserError(
                f"{base} is expected to be a folder of versions, but {folder} is an exported model; give "
                "another --serving or --name"
            )


def _identity(model: Path) -> tuple[int, int] | None:
    """Tells the folder from one that is renamed to its place."""
    with suppress(FileNotFoundError):
        status = model.stat()
        return (status.st_dev, status.st_ino)
    return None


def _copy(source: Path, target: Path) -> None:
    """Copies a folder's files, also those behind links, which a container would not see."""
    for folder, _, names in os.walk(source, followlinks=True):
        inner = target / Path(folder).relative_to(source)
        inner.mkdir(exist_ok=True)
        for name in names:
            shutil.copyfile(Path(folder) / name, inner / name)


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Lets processes that publish into the same folder wait for each other.

    Where the file system has no locks they do not wait; a version is not overwritten even then.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _errors_named(model: Path, version: Path) -> Iterator[None]:
    """Says in one line what could not be copied; a full disk is told by the program."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UserError(
            f"{model} is expected to be copied to {version}, but {error.filename or version}: "
            f"{error.strerror or error}; nothing was published"
        ) from error
