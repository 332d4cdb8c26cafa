"""Which versions of a model a folder holds, and whether their files have changed."""

import re
from pathlib import Path

from xling_tf.files import SAVED_MODEL

# A file's name inside the version, its inode, size in bytes and time of change in nanoseconds.
Fingerprint = tuple[tuple[str, int, int, int], ...]

_SERVED = (SAVED_MODEL, "variables/*", "assets/*", "assets.extra/*")
_LARGEST_VERSION = 2**63 - 1


def find_versions(path: Path) -> dict[int, Path]:
    """The versions of a model and their folders, as TensorFlow Serving counts them.

    Args:
        path: An exported model, which is version 1, or a folder of such, named by integers (TensorFlow
            Serving's `sources/storage_path/file_system_storage_path_source.cc`); other names in it
            are ignored.

    Returns:
        Nothing where the folder is missing, as it is for an instant while it is replaced.
    """
    if (path / SAVED_MODEL).is_file():
        return {1: path}
    if not path.is_dir():
        return {}
    numbered = {
        int(child.name): child
        for child in sorted(path.iterdir())
        if re.fullmatch("[0-9]{1,19}", child.name) and child.is_dir()
    }
    return {version: path for version, path in numbered.items() if version <= _LARGEST_VERSION}


def fingerprint(folder: Path) -> Fingerprint:
    """Tells the files of an exported model from those that replace them, without reading them."""
    files = sorted(path for pattern in _SERVED for path in folder.glob(pattern))
    return tuple(
        (str(path.relative_to(folder)), status.st_ino, status.st_size, status.st_mtime_ns)
        for path in files
        if (status := path.stat())
    )
