"""Files that a killed program leaves whole, folders of one process, and where a result comes from."""

import atexit
import errno
import fcntl
import glob
import importlib.metadata
import json
import os
import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from absl import logging

from xling_tf import __version__
from xling_tf.errors import UserError

# What makes a folder an exported model.
SAVED_MODEL = "saved_model.pb"
# What makes it a model for LiteRT or ONNX Runtime.
RUNTIME_SETTINGS = "runtime.json"
_PACKAGES = ("tensorflow", "keras", "numpy", "scipy", "scikit-learn")
_MAX_JSON = 1 << 28  # bytes; SQuAD has 30 million


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary file name beside `path` that is renamed to it if the block succeeds."""
    temporary = _temporary(path)
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yields a temporary folder beside `path` that takes its place if the block succeeds.

    A folder cannot be renamed over a full one, so the old one steps aside for an instant; a kill
    between the two renames is mended by `recover_folder`, which this calls first.
    """
    recover_folder(path)
    with _temporary_folder(path) as temporary:
        yield temporary
        aside = _aside(path)
        if path.exists():
            os.replace(path, aside)
        os.replace(temporary, path)
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yields a temporary folder beside `path` that gets its name, if it is free, and the block succeeds."""
    with _temporary_folder(path) as temporary:
        yield temporary
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        os.rename(temporary, path)


@contextmanager
def _temporary_folder(path: Path) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    temporary.mkdir()
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def folder_of_this_process() -> Path:
    """Makes a folder that goes with this process; processes forked from it leave it alone."""
    folder, process = Path(tempfile.mkdtemp(prefix="xling_tf-")), os.getpid()

    def remove() -> None:
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def recover_folder(path: Path) -> None:
    """Puts the previous folder back if a kill came between the two renames of a replacement."""
    if _aside(path).exists():
        if path.exists():
            shutil.rmtree(_aside(path), ignore_errors=True)
        else:
            os.replace(_aside(path), path)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps other processes out of a folder that they lock as well, until this one ends.

    The system gives the lock back when the process dies, so nothing is left to clean up.
    """
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"{folder} is expected to be free, but another training uses it now; wait for its "
                "end, or start this one with another --run_dir"
            ) from error
        except OSError as error:
            logging.warning("%s cannot be locked (%s): start no other there", folder, error.strerror)
        yield


def read_json(path: Path) -> Any:
    """Reads a file that may hold anything: JSON, UTF-8 of 256 MiB at most, or it is a `ValueError`."""
    if path.stat().st_size > _MAX_JSON:
        raise ValueError(f"larger than {_MAX_JSON >> 20} MiB")
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except RecursionError:
        raise ValueError("too many brackets in one another") from None
    except UnicodeDecodeError as error:  # whose `repr` holds the whole file
        raise ValueError(str(error)) from None


def require_writable_folder(path: Path, remedy: str) -> None:
    """Makes `path` and proves that a file can be written there, before hours go into its content."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".writable.{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"{path} must be a folder that can be written, but it cannot: {error.strerror}; {remedy}"
        ) from error


def provenance() -> dict[str, Any]:
    """Describes the command, the software and the machine, for result files."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # bytes
    return {
        "command": shlex.join(["python", *sys.argv]),
        "versions": {"python": platform.python_version(), **_versions()},
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "cpus": os.process_cpu_count() if hasattr(os, "process_cpu_count") else os.cpu_count(),
            "memory_gib": round(memory / 2**30, 1),
        },
    }


def _versions() -> dict[str, str]:
    found = {"xling_tf": __version__}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.previous")


def _temporary(path: Path) -> Path:
    """A free name beside `path`; what killed processes left under such names is removed."""
    names = f".{glob.escape(path.name)}.*.tmp"
    for leftover in path.parent.glob(names):
        if not _is_running(leftover.name.split(".")[-2]):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink(missing_ok=True)
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def _is_running(number: str) -> bool:
    """Whether another process of this machine has the number."""
    if not number.isdigit() or int(number) == os.getpid():
        return False
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # It is another user's.
        pass
    return True
