"""What a program shows: this package's log lines, and not TensorFlow's start-up notes."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from logging import ERROR, Formatter, LogRecord
from pathlib import Path

from absl import logging

_PACKAGE = str(Path(__file__).parent)


def set_up_logging() -> None:
    """Shows this package's lines, and of the others only errors."""
    logging.set_verbosity(logging.INFO)
    handler = logging.get_absl_handler()
    handler.setFormatter(Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    handler.addFilter(_is_wanted)


@contextmanager
def quiet_start() -> Iterator[None]:
    """Drops what is written to standard error inside the block; import TensorFlow there.

    Its C++ libraries print notes about missing GPUs before any log level takes effect.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    saved = os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


def _is_wanted(record: LogRecord) -> bool:
    return record.levelno >= ERROR or record.pathname.startswith(_PACKAGE)
