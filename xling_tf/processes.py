"""TensorFlow in this process: not after a fork, without its notes, and with the GPUs set up."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from tempfile import TemporaryFile
from typing import Any

from xling_tf.errors import UserError, library

QUIET_LEVEL = "3"  # of TF_CPP_MIN_LOG_LEVEL, which hides all but fatal errors
_NOTE = re.compile(
    rb"WARNING: All log messages before|[IWE]\d{4} |To enable the following instructions"
)

_is_forked = False


def _notice_fork() -> None:
    """Remembers, in a forked process, if its parent had started TensorFlow.

    Private: TensorFlow's eager context. Asking public functions if TensorFlow was started would
    start it.
    """
    global _is_forked
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    _is_forked = _is_forked or getattr(context, "_initialized", False)


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_notice_fork)


def require_not_forked() -> None:
    """Raises a `UserError` in a forked process: TensorFlow would wait for the parent's threads."""
    if _is_forked:
        raise UserError(
            "TensorFlow does not work in a process that was forked from one that had used it; "
            "load models after the fork (gunicorn without preload_app), or use "
            'multiprocessing.get_context("spawn")'
        )


def start_tensorflow() -> Any:
    """Imports TensorFlow, unless `require_not_forked` raises an error, and prepares its GPUs.

    They keep the precision of float32 products, and allocate memory as they need it.
    """
    require_not_forked()
    is_quiet = os.environ.get("TF_CPP_MIN_LOG_LEVEL", QUIET_LEVEL) == QUIET_LEVEL
    is_ours = is_quiet and "tensorflow" not in sys.modules
    with quiet_tensorflow():
        with _quiet_level() if is_ours else nullcontext():
            tf = library("tensorflow", "tensorflow", "tensorflow")
        _prepare_gpus(tf)
    if is_ours:
        tf.get_logger().setLevel("WARNING")  # in a notebook, it would print notes as well
    return tf


@contextmanager
def _quiet_level() -> Iterator[None]:
    """Sets TensorFlow's log level, which its import reads once for all that it does later."""
    name = "TF_CPP_MIN_LOG_LEVEL"
    was_set = name in os.environ
    os.environ[name] = QUIET_LEVEL
    try:
        yield
    finally:
        if not was_set:
            del os.environ[name]


@contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Hides what TensorFlow prints to standard error while the block imports it and looks for GPUs.

    Its C++ libraries print notes about missing GPUs before any log level takes effect, so this
    redirects the standard error of the whole process; afterwards, it prints what is not from them.
    It does nothing if TF_CPP_MIN_LOG_LEVEL is below 3, or is not set and TensorFlow has been
    imported.
    """
    level = os.environ.get(
        "TF_CPP_MIN_LOG_LEVEL", "" if "tensorflow" in sys.modules else QUIET_LEVEL
    )
    # Standard error is None if the program was started without it.
    if level != QUIET_LEVEL or sys.stderr is None:
        yield
        return
    sys.stderr.flush()
    saved = os.dup(2)
    with TemporaryFile() as hidden:
        os.dup2(hidden.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            hidden.seek(0)
            os.write(2, b"".join(line for line in hidden if not _NOTE.match(line)))


@cache
def _prepare_gpus(tf: Any) -> None:
    if gpus := tf.config.list_physical_devices("GPU"):
        # TF32 would round the factors to 10 bits.
        tf.config.experimental.enable_tensor_float_32_execution(False)
        for gpu in gpus:
            # Fails if the process has used or divided the GPU before.
            with suppress(RuntimeError, ValueError):
                tf.config.experimental.set_memory_growth(gpu, True)
