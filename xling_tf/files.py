"""Writes files and folders so that a killed program leaves them whole, and reads JSON."""

import errno
import glob
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from absl import logging

from xling_tf.compressed import unpacked
from xling_tf.errors import UserError

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

# The file that makes a folder an exported model.
SAVED_MODEL = "saved_model.pb"
CHECKPOINTS = "checkpoints"  # of a training, in its run folder
# Files in a data folder that are not data and need no warning: notes, the pipelines' report, and
# other files of SNLI's and MultiNLI's archives.
NOTES = re.compile(
    r"(?i)(?:readme|licen[cs]e|copying|notice|sources)\b.*|.*\.(?:md|pdf)|preparation\.json|icon\s?"
    r"|(?:snli|multinli)_1\.0_\w+\.txt"
)
_MAX_JSON = 1 << 28  # bytes; SQuAD has 30 million
_SECONDS_TO_WRITE = 86400  # most time between two writes to a temporary file


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary file name beside `path`, which is renamed to `path` if the block succeeds.

    The folder is made if it is missing. The file that a symbolic link points to is replaced, and
    the link stays.
    """
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    temporary.touch(exist_ok=False)
    try:
        with _in_use(temporary, path):
            yield temporary
        _to_disk(temporary)
        os.replace(temporary, path)
        _to_disk(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yields a temporary folder beside `path`, which replaces `path` if the block succeeds.

    A folder cannot be renamed over one with content, so the old folder is first renamed to a hidden
    name. If the process is killed between the two renames, the next call restores the old folder
    first. The folder that a symbolic link points to, perhaps on another disk, is replaced, and the
    link stays.
    """
    path = path.resolve()
    recover_folder(path)
    with new_folder(path) as temporary:
        yield temporary
        _all_to_disk(temporary)
        if path.exists():
            os.replace(path, _previous(path))
    shutil.rmtree(_previous(path), ignore_errors=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Like `replacing_folder`, but raises an `OSError` if `path` is a folder that is not empty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    temporary.mkdir()
    try:
        with _in_use(temporary, path):
            yield temporary
        _all_to_disk(temporary)
        os.replace(temporary, path)
        _to_disk(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def folder_of_this_process() -> Path:
    """Makes a folder that is deleted when this process ends, but not when a fork of it ends.

    It uses the private `Finalize`, because forked workers of multiprocessing ignore `atexit`.
    """
    folder = Path(tempfile.mkdtemp(prefix="xling_tf-"))
    Finalize(None, shutil.rmtree, args=(folder, True), exitpriority=0)
    return folder


def recover_folder(path: Path) -> None:
    """Restores the previous folder if a kill came between a replacement's two renames."""
    path = path.resolve()
    if _previous(path).exists():
        if path.exists():
            shutil.rmtree(_previous(path), ignore_errors=True)
        else:
            os.replace(_previous(path), path)


@contextmanager
def locked(folder: Path, argument: str = "run_dir", name: str = "") -> Iterator[None]:
    """Locks a folder, or a file in it, against other processes that use this function.

    The folder is made if it is missing. The end of the process unlocks it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / (f".{name}.lock" if name else "lock")).open("w") as file:
        if fcntl is None:
            logging.warning("%s cannot be locked here: use it in one process only", folder)
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"{folder / name} is used by another process; wait until it ends, or give another "
                f"`{argument}`"
            ) from error
        except OSError as error:
            logging.warning(
                "%s cannot be locked (%s): use it in one process only", folder, error.strerror
            )
        yield


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Makes processes wait for each other that use this with the same folder, or the same lock
    file, which is made; if the file system has locks.
    """
    if fcntl is None:
        yield
        return
    mode = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, mode, 0o666)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def first_names(names: Sequence[str], most: int = 20) -> str:
    """Joins the first names for a message, with bytes that are not UTF-8 escaped."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}".encode("utf-8", "backslashreplace").decode()


def read_json(path: Path) -> Any:
    """Reads JSON, plain or compressed; a `ValueError` if it is no JSON or above 256 MiB."""
    content = bytearray()
    with path.open("rb") as file:
        for piece in unpacked(file, path):
            content += piece
            if len(content) > _MAX_JSON:
                raise ValueError(f"larger than {_MAX_JSON >> 20} MiB")
    try:
        return json.loads(content.decode("utf-8-sig"))
    except RecursionError:
        raise ValueError("brackets are nested too deeply") from None
    except UnicodeDecodeError as error:  # its `repr` holds the whole file
        raise ValueError(str(error)) from None


def read_json_dict(path: Path) -> dict[str, Any]:
    """Returns the object in a JSON file; {} if the file is missing, damaged or of other content."""
    with suppress(OSError, ValueError):
        if isinstance(content := read_json(path), dict):
            return content
    return {}


def folder_bytes(folder: Path) -> int:
    """Returns the size of all files in a folder and below it."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def file_digest(path: Path, algorithm: str = "blake2b") -> str:
    """Returns the digest of a file's content in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def write_json(path: Path, content: Any) -> None:
    """Writes a JSON file, and its folder if that is missing."""
    with replacing(path) as temporary:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
        # Surrogates, which stand for the bytes of a path that is not UTF-8, become JSON's escapes.
        temporary.write_text(f"{text}\n", encoding="utf-8", errors="backslashreplace")


def require_writable_folder(path: Path, remedy: str) -> None:
    """Checks before hours of work that files can be written to a folder, which may be missing.

    It is not made: a mistake that is found later in the arguments leaves nothing behind.
    """
    existing = next(
        folder for folder in (path, *path.absolute().parents) if os.path.lexists(folder)
    )
    try:
        with tempfile.NamedTemporaryFile(prefix=".writable.", dir=existing):
            pass
    except OSError as error:
        raise UserError(
            f"{path} must be a writable folder, but is not: {error.strerror}; {remedy}"
        ) from error


def require_writable_file(path: Path, remedy: str) -> None:
    """Checks that a file can be written or replaced; its folder may be missing."""
    if path.is_dir():
        raise UserError(f"{path} must be a file, but is a folder; {remedy}")
    require_writable_folder(path.parent, remedy)


def _previous(path: Path) -> Path:
    return path.with_name(f".{path.name}.previous")


def _temporary(path: Path) -> Path:
    """A free name beside `path`; threads, and blocks inside one another, get different ones."""
    return path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")


@contextmanager
def _in_use(temporary: Path, path: Path) -> Iterator[None]:
    """Locks a new temporary file or folder; removes what killed processes left there long ago."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(temporary, os.O_RDONLY)
    try:
        with suppress(OSError):  # the file system has no locks: the age alone protects it
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        # The file system's own clock: another machine's may show another time.
        _remove_leftovers(path, os.fstat(descriptor).st_mtime)
        yield
    finally:
        os.close(descriptor)


def _remove_leftovers(path: Path, now: float) -> None:
    names = re.compile(
        rf"\.{re.escape(path.name)}\.(?:\w{{8}}-\w{{8}}-\d+|\d+|[0-9a-f]{{16}})\.tmp"
    )
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with suppress(OSError):  # another process may own it, or be removing it
            age = now - leftover.stat().st_mtime
            if (
                names.fullmatch(leftover.name)
                and age > _SECONDS_TO_WRITE
                and not _is_locked(leftover)
            ):
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()


def _is_locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # no locks here
    finally:
        os.close(descriptor)
    return False


def _to_disk(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk and outlast a loss of power."""
    if os.name == "nt":  # where a file must be open for writing, and a folder cannot be opened
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:  # not all file systems can do it, above all for folders
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EACCES):
            raise
    finally:
        os.close(descriptor)


def _all_to_disk(folder: Path) -> None:
    """Works like `_to_disk` for all that is in a folder and below it."""
    for path in (*folder.rglob("*"), folder):
        if path.is_file() or path.is_dir():  # a link may lead nowhere
            _to_disk(path)


def newest_first(folder: Path) -> list[Path]:
    """Returns the checkpoints in a folder, the newest first."""
    steps = (path for path in folder.glob("step-*") if path.name.removeprefix("step-").isdigit())
    return sorted(steps, reverse=True)
