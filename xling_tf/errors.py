"""The exception for users' mistakes, optional imports, and TensorFlow's messages in one line."""

import errno
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

# Lines that TensorFlow puts before a message, names of nodes after it, and paths of this machine.
_REPORT = re.compile(r"Graph execution error:|Detected at node|<stack traces|File |\s*\Z")
_NODES = re.compile(r"\s*\[(?:Op:|\[\{\{node ).*")
_PATH = re.compile(r"(?<![\w.>])/(?:[\w.@+-]+/)*[\w.@+-]+")
_LONGEST = 500  # letters of a message


class UserError(ValueError):
    """A mistake in arguments, files or data; its one-line message says how to fix it.

    Programs print the message without a traceback and exit with status 2. Where it names an
    argument in backticks and they have a flag of this name, they print the flag.

    Examples:
        >>> import xling_tf
        >>> xling_tf.semantic_search([[1.0]], [[1.0]], top_k=0)
        Traceback (most recent call last):
        ...
        xling_tf.errors.UserError: `top_k` must be an integer of at least 1, got 0
    """


@contextmanager
def as_user_error(message: str, *errors: type[Exception]) -> Iterator[None]:
    """Turns exceptions into a `UserError`; "{error}" in its message stands for theirs.

    A full disk or memory stays the original exception, because programs have a message for it.

    Examples:
        >>> with as_user_error("a port must be a number ({error})", ValueError):
        ...     raise ValueError("got x")
        Traceback (most recent call last):
        ...
        xling_tf.errors.UserError: a port must be a number (got x)
    """
    try:
        yield
    except errors as error:
        if isinstance(error, UserError) or is_disk_full(error) or is_out_of_memory(error):
            raise
        raise UserError(message.replace("{error}", _reason(error, message))) from error


def _reason(error: Exception, message: str) -> str:
    """Returns an exception's message; of an `OSError` without its number and a path said before."""
    if not isinstance(error, OSError) or not error.strerror:
        return one_line(error)
    path = os.fspath(error.filename) if isinstance(error.filename, str | os.PathLike) else ""
    return error.strerror if not path or path in message else f"{error.strerror}: {path}"


def is_disk_full(error: Exception) -> bool:
    """True if a disk or a user's quota is full, as Python, TensorFlow or `shutil.Error` say."""
    codes = (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "errno", None) in codes or any(
        os.strerror(code) in str(error) for code in codes
    )


def is_out_of_memory(error: Exception) -> bool:
    """True if TensorFlow says that the machine or a GPU (perhaps shared) has no memory left."""
    return any(words in str(error) for words in ("out of memory", "OOM when allocating"))


def one_line(error: Exception) -> str:
    """Returns the beginning of an exception's message, on one line."""
    return " ".join(str(error)[: 20 * _LONGEST].split())[:200]


def library(module: str, package: str, extra: str) -> Any:
    """Imports an optional package's module, or raises a `UserError` that names its extra."""
    try:
        return import_module(module)
    except ImportError as error:
        is_missing = isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(
            f"{error.name}."
        )
        fault = "is not installed" if is_missing else f"cannot be imported ({one_line(error)})"
        raise missing_package(package, extra, fault) from error


def missing_package(package: str, extra: str, fault: str = "is not installed") -> UserError:
    """Returns the error about an optional package, which names the extra to install."""
    return UserError(
        f"this needs {package}, which {fault}; install the extra with: "
        f"pip install 'xling_tf[{extra}]' (in a checkout: pip install -e '.[{extra}]')"
    )


def first_line(message: str) -> str:
    """Returns the first line of TensorFlow's message, without names of nodes and paths.

    Examples:
        >>> first_line("/models/en-es/3/saved_model.pb; No such file or directory")
        '...; No such file or directory'
    """
    # A message may repeat a text of any length, on which the expressions would take minutes.
    shortened = (line[:_LONGEST] for line in message[: 20 * _LONGEST].splitlines())
    lines = [line for line in shortened if not _REPORT.match(line)]
    return _PATH.sub("...", _NODES.sub("", lines[0] if lines else ""))


def did_you_mean(name: str, known: Collection[str], otherwise: str = "") -> str:
    """Returns the question if a similar name is known, and otherwise the other advice."""
    import difflib  # here, because it takes time

    similar = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {similar[0]}?" if similar else otherwise


def require_known(setting: str, name: str, known: Collection[str], otherwise: str = "") -> None:
    """Raises a `UserError` unless the name is known.

    Args:
        setting: What expects the name.
        name: The name.
        known: All names; the message suggests the most similar one.
        otherwise: Advice if none is similar.
    """
    if isinstance(name, str) and name in known:
        return
    hint = did_you_mean(str(name), known, otherwise)
    message = f"{setting} expects one of {', '.join(known)}, got {name!r}"
    raise UserError(f"{message}; {hint}" if hint else message)
