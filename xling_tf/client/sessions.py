"""Sessions of other runtimes, which a process opens for itself."""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any
from weakref import WeakSet


class PerProcess:
    """Something that a process opens when it first calls this, and a forked process opens anew.

    A forked process has none of its parent's threads: it would wait for them forever if it used, or
    at its end destroyed, a session that its parent has opened. So it leaves that one alone. Import
    ONNX Runtime with `telemetry_off`.
    """

    def __init__(self, open_it: Callable[[], Any]) -> None:
        self._open = open_it
        self._opened: Any = None
        self._lock = Lock()
        _ALL_OPENED.add(self)

    def __call__(self) -> Any:
        """Returns what is open in this process; threads may call it at once."""
        with self._lock:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    def leave_to_parent(self) -> None:
        """Called in a forked process: forgets what the parent has opened, without destroying it."""
        if self._opened is not None:
            # One reference more than there are: neither this line nor Python's end destroys it.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._opened))
        self._opened, self._lock = None, Lock()


_ALL_OPENED: WeakSet[PerProcess] = WeakSet()


def _after_fork() -> None:
    for opened in list(_ALL_OPENED):
        opened.leave_to_parent()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def telemetry_off() -> Iterator[None]:
    """Lets a block import ONNX Runtime without its telemetry; the environment is then as it was.

    The import starts a thread for telemetry, for which a forked process would wait forever at its
    end.
    """
    name = "ORT_DISABLE_TELEMETRY"
    is_set = name in os.environ  # as the user wants it
    os.environ.setdefault(name, "1")
    try:
        yield
    finally:
        if not is_set:
            del os.environ[name]
