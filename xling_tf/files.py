"""Writing files and folders so that a killed program leaves the old one or the new one, never half."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xling_tf.errors import UserError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary file name beside `path` that is renamed to it if the block succeeds."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
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
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        aside = _aside(path)
        if path.exists():
            os.replace(path, aside)
        os.replace(temporary, path)
        shutil.rmtree(aside, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def recover_folder(path: Path) -> None:
    """Puts the previous folder back if a kill came between the two renames of a replacement."""
    if _aside(path).exists():
        if path.exists():
            shutil.rmtree(_aside(path), ignore_errors=True)
        else:
            os.replace(_aside(path), path)


def require_writable_folder(path: Path, remedy: str) -> None:
    """Makes `path` and proves that a file can be written there, before hours go into its content.

    Args:
        path: The folder.
        remedy: What to do where it cannot be written.

    Raises:
        UserError: The folder cannot be made or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".writable.{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"{path} must be a folder that can be written, but it cannot: {error.strerror}; {remedy}"
        ) from error


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.previous")
