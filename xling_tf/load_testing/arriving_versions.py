"""Versions of a model that arrive while it is served."""

import shutil
from pathlib import Path

from xling_tf.files import new_folder


def put_version(export: Path, versions: Path, number: int) -> None:
    """Copies an export to a version folder, which appears whole.

    Args:
        export: An exported model; only read.
        versions: Folder of the versions.
        number: Of the new one.
    """
    with new_folder(versions / str(number)) as temporary:
        shutil.copytree(export, temporary, dirs_exist_ok=True)


def put_wreck(export: Path, versions: Path, number: int) -> None:
    """The same, but the copy of its weights ends halfway, as on a full disk."""
    with new_folder(versions / str(number)) as temporary:
        shutil.copytree(export, temporary, dirs_exist_ok=True)
        for weights in temporary.glob("variables/variables.data-*"):
            with weights.open("r+b") as file:
                file.truncate(weights.stat().st_size // 2)
