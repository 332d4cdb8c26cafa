"""What programs tell their users: a line for each mistake, this package's log, and their progress."""

import errno
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from logging import ERROR, Formatter
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NoReturn

from absl import flags, logging

_PACKAGE = Path(__file__).resolve().parent
# In a checkout, the programs lie beside the package.
_LOGGED = (str(_PACKAGE), *(str(_PACKAGE.with_name(n)) for n in ("data", "evaluation", "export", "training")))
_SECONDS_BETWEEN_LINES = 30.0


class UserError(ValueError):
    """A mistake in flags, files or data; its one-line message says what to do about it.

    Programs print the message without a traceback and exit with status 2.
    """


def library(module: str, package: str, extra: str) -> Any:
    """Imports a module of a package that only some need.

    Raises:
        UserError: It is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UserError(
            f"this needs {package}, which is not installed; install the extra with: "
            f"pip install 'xling_tf[{extra}]' (in a checkout: pip install -e '.[{extra}]')"
        ) from error


@contextmanager
def one_line_errors(again: str) -> Iterator[None]:
    """Ends the program with one line, which says what the same command does then, and its exit status."""
    try:
        yield
    except UserError as error:
        _exit(f"error: {error}")
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _exit(f"error: the disk is full; make room, and {again}")
    except KeyboardInterrupt:
        _exit(f"interrupted; {again}", status=130)


def parse_flags(argv: list[str]) -> list[str]:
    """Parses a command line of flags alone; a mistake in it is told in one line, like every other."""
    arguments = parse_flags_and_files(argv)
    if len(arguments) > 1:
        _exit(f"error: flags are expected, got {arguments[1]!r}")
    return arguments


def parse_flags_and_files(argv: list[str]) -> list[str]:
    """Parses a command line of flags and file names; returns the program's name and the files."""
    try:
        arguments: list[str] = flags.FLAGS(argv)
    except flags.Error as error:
        _exit(f"error: {error}")
    return arguments


def set_up_logging() -> None:
    """Shows the log lines of this package and its programs, and of the others only errors."""
    logging.set_verbosity(logging.INFO)
    handler = logging.get_absl_handler()
    handler.setFormatter(Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    handler.addFilter(
        lambda line: line.levelno >= ERROR or os.path.realpath(line.pathname).startswith(_LOGGED)
    )


@contextmanager
def progress(part: str) -> Iterator[Callable[[str], None]]:
    """Logs a line when a part of a program begins and when it ends, and one every half minute in between.

    A terminal shows bars in place of the lines in between; a container has only the lines. Yields a function
    that sets what the next of these lines says.
    """
    begin, ended, state = time.monotonic(), threading.Event(), ""

    def report(new_state: str) -> None:
        nonlocal state
        state = new_state

    def remind() -> None:
        while not ended.wait(_SECONDS_BETWEEN_LINES):
            logging.info(
                "%s: %s, after %.0f seconds", part, state or "still running", time.monotonic() - begin
            )

    logging.info("%s", part)
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    thread = threading.Thread(target=remind, daemon=True)
    if not is_terminal:
        thread.start()
    try:
        yield report
        logging.info("%s: done in %.0f seconds", part, time.monotonic() - begin)
    finally:
        ended.set()
        if not is_terminal:
            thread.join()


@contextmanager
def quiet_start() -> Iterator[None]:
    """Hides what TensorFlow prints to standard error while a program imports it.

    TensorFlow's C++ libraries print notes about missing GPUs before any log level takes effect, so this
    redirects the standard error of the whole process: it is for programs, before they start threads. If the
    import fails, everything is printed after all. With TF_CPP_MIN_LOG_LEVEL below 3 nothing is hidden.
    """
    level = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if level != "3" or sys.stderr is None:  # None: the program was started without one
        yield
        return
    sys.stderr.flush()
    saved = os.dup(2)
    with TemporaryFile() as hidden:
        os.dup2(hidden.fileno(), 2)
        try:
            yield
        except Exception as error:
            if not isinstance(error, UserError):
                hidden.seek(0)
                os.write(saved, hidden.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)


def _exit(line: str, status: int = 2) -> NoReturn:
    print(line, file=sys.stderr)
    sys.exit(status)
