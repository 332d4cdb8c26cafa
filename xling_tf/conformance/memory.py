"""The memory of this process: now, and its peak during a call."""

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MIB = 2**20
_STATM = Path("/proc/self/statm")
_SAMPLING_SECONDS = 0.02
# A model that needs more than this many times its bound is stopped: the machine has other work.
_HOPELESS = 3


def is_measurable() -> bool:
    """Whether the system tells how much memory a process has in use; Linux does."""
    return _STATM.is_file()


def resident_bytes() -> int:
    """Memory of this process that is in use, in bytes."""
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def settled_bytes() -> int:
    """The same after what is free was given back, which allocators do late."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim:
        trim(0)
    return resident_bytes()


def peak_bytes(call: Callable[[], object], bound: int) -> int:
    """Calls, and returns the peak of memory in use meanwhile, in bytes above what was before.

    Args:
        call: What is measured.
        bound: Bytes; far beyond it this process ends with a note on standard error, before the
            machine's memory does.
    """
    before = peak = settled_bytes()

    def watch(now: int) -> None:
        nonlocal peak
        peak = max(peak, now)
        if peak - before > _HOPELESS * bound:
            print(
                f"stopped: {(peak - before) / MIB:.0f} MiB in use, {bound / MIB:.0f} are the bound",
                file=sys.stderr,
                flush=True,
            )
            os._exit(1)

    with _sampling(watch):
        call()
    return max(peak, resident_bytes()) - before


@contextmanager
def _sampling(watch: Callable[[int], None]) -> Iterator[None]:
    is_over = threading.Event()

    def sample() -> None:
        while not is_over.wait(_SAMPLING_SECONDS):
            watch(resident_bytes())

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        yield
    finally:
        is_over.set()
        sampler.join()
