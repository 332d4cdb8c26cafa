"""Files that a killed program leaves whole, folders of one process, and where a result comes from."""

import atexit
import bz2
import errno
import fcntl
import functools
import glob
import importlib.metadata
import itertools
import json
import lzma
import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from absl import logging

from xling_tf import __version__
from xling_tf.errors import UserError, library

# What makes a folder an exported model.
SAVED_MODEL = "saved_model.pb"
# What makes it a model for LiteRT or ONNX Runtime.
RUNTIME_SETTINGS = "runtime.json"
_PACKAGES = ("tensorflow", "keras", "numpy", "scipy", "scikit-learn")
_MAX_JSON = 1 << 28  # bytes; SQuAD has 30 million

_PIECE = 1 << 16  # bytes read at once
_PACKED_PIECE = 1 << 10  # bytes unpacked at once: the worst bomb, of zstd, makes 32 MiB of them


def _zstd() -> Any:
    zstandard = library("zstandard", "zstandard, for .zst files,", "beam")
    # Dumps of Reddit are packed with windows of 2 GiB.
    return zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()


# What unpacks a file, by the end of its name and by its first bytes.
_UNPACKERS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.decompressobj(zlib.MAX_WBITS | 16),
    ".bz2": bz2.BZ2Decompressor,
    ".xz": lzma.LZMADecompressor,
    ".lzma": lzma.LZMADecompressor,
    ".zst": _zstd,
    ".zstd": _zstd,
    ".deflate": zlib.decompressobj,
}
_FIRST_BYTES = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\0": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}
_BZIP2_BLOCK = b"1AY&SY"  # follows "BZh" and a digit; without it, text may begin like bzip2
# The first bytes of formats that are not read: zip, 7z, rar, compress and lz4; tar has "ustar" in `_TAR`.
_OTHERS = (b"PK\x03\x04", b"7z\xbc\xaf", b"Rar!\x1a", b"\x1f\x9d", b"\x04\x22\x4d\x18")
_TAR = slice(257, 262)
HEAD_BYTES = 512  # enough to recognise an archive or a packed file
# Ends of the names of packed tables and texts, as a regular expression.
PACKED = r"(?:\.(?i:gz|bz2|xz|zst))?"
# Files in a data folder that need no warning although they are no data: notes, the pipelines' report, the
# rest of the archives of SNLI and MultiNLI, and what makes the sample's folder a part of the package.
NOTES = re.compile(
    r"(?i)(?:readme|licen[cs]e|copying|notice|sources)\b.*|.*\.(?:md|pdf)|preparation\.json|icon\s?"
    r"|__init__\.py|__pycache__|(?:snli|multinli)_1\.0_\w+\.txt"
)
_MAX_NAMED = 20


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
    """Makes a folder that is deleted when this process ends, but not by processes forked from it."""
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


def packing(name: Path | str, head: bytes) -> str | None:
    """Tells how a file is packed, such as ".gz", by its first bytes or else by its name.

    Returns:
        A key of `_UNPACKERS`, or None for a plain file.

    Raises:
        UserError: It is an archive, or packed in another way.
    """
    if head.startswith(_OTHERS) or head[_TAR] == b"ustar":
        raise UserError(
            f"{name} must be text, plain or compressed ({', '.join(_UNPACKERS)}), but is an archive or "
            "compressed in another way; unpack it first"
        )
    for first, ending in _FIRST_BYTES.items():
        if head.startswith(first) and (ending != ".bz2" or head[4:10] == _BZIP2_BLOCK):
            return ending
    return next((ending for ending in _UNPACKERS if str(name).lower().endswith(ending)), None)


def unpacked(file: BinaryIO, name: Path | str) -> Iterator[bytes]:
    """Yields the content of a file piece by piece, unpacked if it is packed, in bounded memory.

    Args:
        file: At its beginning.
        name: Its path, which tells how it is packed if the first bytes do not.

    Yields:
        Pieces of about 64 KiB, or of up to 32 MiB more if a kilobyte unpacks to that much.

    Raises:
        UserError: It is an archive, or a packed file that is damaged, ends too early or has other bytes after
            its end.
    """
    head = file.read(_PIECE)
    pieces: Iterator[bytes] = itertools.chain([head], iter(functools.partial(file.read, _PIECE), b""))
    if ending := packing(name, head):
        pieces = _unpack(pieces, ending, name)
        head = next(pieces, b"")
        if packing(f"{name} (unpacked)", head):
            raise UserError(f"{name} must be text, packed once, but is packed twice; unpack it first")
        yield head
    yield from pieces


def _unpack(pieces: Iterable[bytes], ending: str, name: Path | str) -> Iterator[bytes]:
    unpacker, pending = _UNPACKERS[ending](), bytearray()
    for piece in pieces:
        for begin in range(0, len(piece), _PACKED_PIECE):
            rest = piece[begin : begin + _PACKED_PIECE]
            while rest:
                if unpacker.eof:
                    # Another member may follow, perhaps after zeros.
                    rest = rest.lstrip(b"\0")
                    if not rest:
                        break
                    unpacker = _UNPACKERS[ending]()
                try:
                    pending += unpacker.decompress(rest)
                # zstandard raises plain Exceptions, bzip2 OSErrors.
                except Exception as error:
                    raise _damaged(name, ending, f"it is damaged: {error}") from error
                rest = unpacker.unused_data
            if len(pending) >= _PIECE:
                yield bytes(pending)
                pending.clear()
    if not unpacker.eof:
        raise _damaged(name, ending, "it ends too early")
    if pending:
        yield bytes(pending)


def _damaged(name: Path | str, ending: str, reason: str) -> UserError:
    return UserError(
        f"{name} must be a whole {ending} file, but {reason}; fetch it again, or take {ending} off its name "
        "if it is not packed"
    )


def first_names(names: Sequence[str]) -> str:
    """Joins the first twenty names of files for a message, with bytes that are not UTF-8 escaped."""
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{', '.join(names[:_MAX_NAMED])}{more}".encode("utf-8", "backslashreplace").decode()


def read_json(path: Path) -> Any:
    """Reads JSON, plain or compressed; a `ValueError` if it is something else or has more than 256 MiB."""
    content = bytearray()
    with path.open("rb") as file:
        for piece in unpacked(file, path):
            content += piece
            if len(content) > _MAX_JSON:
                raise ValueError(f"larger than {_MAX_JSON >> 20} MiB")
    try:
        return json.loads(content.decode("utf-8-sig"))
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
