"""Names and numbers: which models and versions a serving folder has, and which number comes next."""

import re
from pathlib import Path

from xling_tf.errors import UserError
from xling_tf.files import SAVED_MODEL
from xling_tf.serving.versions import find_versions

_MAX_VERSION = 2**63 - 1
# In URLs and in configuration files they need no quoting.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def require_model_name(name: str) -> None:
    """Refuses what cannot stand in `/v1/models/<name>`, or can be taken for a version.

    Raises:
        UserError: Such a name.
    """
    if not _NAME.fullmatch(name) or name.isdecimal():
        raise UserError(
            "a model's name must be letters, digits, '.', '_' and '-', begin with a letter or a digit "
            f"and be no number, but it is {name!r}; give another one with --name"
        )


def next_version(base: Path) -> int:
    """One more than any number used, by a version or by `3.bad`, which was one before a rollback.

    Args:
        base: The model's folder, which may be missing.
    """
    names = [path.name for path in base.iterdir()] if base.is_dir() else []
    numbers = [int(found[0]) for name in names if (found := re.match(r"[0-9]+", name))]
    return max(numbers, default=0) + 1


def require_free(base: Path, version: int) -> None:
    """Refuses a version that cannot be added.

    Args:
        base: The model's folder, which may be missing.
        version: The number.

    Raises:
        UserError: The number is none of a version, or it is taken.
    """
    if not 1 <= version <= _MAX_VERSION:
        raise UserError(
            f"a version must be a number from 1 to {_MAX_VERSION}, but it is {version}; leave out "
            "--version for the next free one"
        )
    taken = find_versions(base).get(version)
    if taken:
        raise UserError(
            f"a new version is expected, but {taken} is there and is never overwritten; leave out "
            f"--version for the next free one, {next_version(base)}"
        )


def find_models(serving: Path) -> list[str]:
    """Names of the models of a serving folder: those with a version that is a SavedModel."""
    return sorted(
        base.name
        for base in serving.iterdir()
        # An exported model beside them is no folder of versions.
        if not (base / SAVED_MODEL).exists()
        and any((version / SAVED_MODEL).is_file() for version in find_versions(base).values())
    )
