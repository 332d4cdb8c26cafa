"""TensorFlow in this process: not after a fork, and with the GPUs set up."""

import os
import sys
from contextlib import suppress
from functools import cache
from typing import Any

from xling_tf.errors import UserError, library

_is_forked = False


def _notice_fork() -> None:
    """Remembers, in a forked process, if its parent had started TensorFlow.

    Private: TensorFlow's eager context. Asking public functions if TensorFlow was started would start it.
    """
    global _is_forked
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    _is_forked = _is_forked or getattr(context, "_initialized", False)


os.register_at_fork(after_in_child=_notice_fork)


def require_not_forked() -> None:
    """Raises a `UserError` in a forked process, where TensorFlow waits forever for the parent's threads."""
    if _is_forked:
        raise UserError(
            "TensorFlow does not work in a process that was forked from one that had used it; load models "
            'after the fork (gunicorn without preload_app), or use multiprocessing.get_context("spawn")'
        )


def start_tensorflow() -> Any:
    """Imports TensorFlow, unless `require_not_forked` raises an error, and prepares GPUs for this process.

    They keep the precision of float32 products, and allocate memory as they need it.
    """
    require_not_forked()
    tf = library("tensorflow", "tensorflow", "tensorflow")
    _prepare_gpus(tf)
    return tf


@cache
def _prepare_gpus(tf: Any) -> None:
    if gpus := tf.config.list_physical_devices("GPU"):
        # TF32 would round the factors to 10 bits.
        tf.config.experimental.enable_tensor_float_32_execution(False)
        for gpu in gpus:
            with suppress(RuntimeError, ValueError):  # the process has used it, or divided it, before
                tf.config.experimental.set_memory_growth(gpu, True)
