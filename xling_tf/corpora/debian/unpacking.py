"""Unpacks a package into a folder of its own, keeping the text only."""

import json
import os
import shutil
import subprocess
from pathlib import Path

from xling_tf.files import read_json

# Raised when more of a package is kept than before, so that older folders are fetched anew.
UNPACKING_VERSION = 1
_MARKER = ".package.json"
# The games are 95 % pictures and sound. "" is for usr/share/doc/PACKAGE/copyright.
_KEPT_SUFFIXES = frozenset(
    {"", ".mo", ".cfg", ".json", ".html", ".page", ".conf", ".bzs", ".bzv", ".bzz"}
)


def unpacked_version(folder: Path) -> str | None:
    """The version of the package that `folder` holds in full, or None."""
    try:
        marker = read_json(folder / _MARKER)
        is_current = marker["unpacking_version"] == UNPACKING_VERSION
        return str(marker["version"]) if is_current else None
    except (LookupError, OSError, TypeError, ValueError):
        return None


def unpack(archive: Path, temporary: Path, folder: Path) -> str | None:
    """Unpacks a package so that its folder is there in full or not at all.

    Args:
        archive: The .deb file.
        temporary: Where to unpack; renamed afterwards, so on the same file system.
        folder: What it becomes.

    Returns:
        None, or why it did not work.
    """
    try:
        version = _dpkg_deb("-f", str(archive), "Version").strip()
        _dpkg_deb("-x", str(archive), str(temporary))
    except subprocess.CalledProcessError as error:
        return f"dpkg-deb could not unpack it: {error.stderr.strip()}"
    _keep_text(temporary)
    marker = {"version": version, "unpacking_version": UNPACKING_VERSION}
    (temporary / _MARKER).write_text(json.dumps(marker) + "\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(temporary, folder)
    return None


def _dpkg_deb(*arguments: str) -> str:
    return subprocess.run(
        ["dpkg-deb", *arguments], check=True, capture_output=True, text=True
    ).stdout


def _keep_text(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_symlink() or (path.is_file() and path.suffix not in _KEPT_SUFFIXES):
            path.unlink()
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
