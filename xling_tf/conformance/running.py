"""The suite on a model, in processes of its own: a crash is a check that failed, not the end."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import xling_tf
from xling_tf.conformance.outcome import FAILED, Outcome
from xling_tf.conformance.suite import GROUPS
from xling_tf.errors import UserError
from xling_tf.files import SAVED_MODEL

_ROOT = Path(xling_tf.__file__).parents[1]
_WORKER = [sys.executable, "-m", "xling_tf.conformance.worker"]


def run_suite(folder: Path, *, sentences: int, calls: int) -> Iterator[Outcome]:
    """Checks a model, and yields each outcome as it comes.

    Args:
        folder: With `saved_model.pb`.
        sentences: Of the one large call.
        calls: With lists, of which none may trace anew or keep memory.

    Raises:
        UserError: The folder holds no model.
    """
    require_model(folder)
    for group in GROUPS:
        remaining = list(group)
        while remaining:
            for outcome in _run_in_process(folder, sentences, calls, remaining):
                yield outcome
                remaining.remove(outcome.check)


def require_model(folder: Path) -> None:
    """Makes sure that there is something to check.

    Raises:
        UserError: The folder holds no model.
    """
    if not (folder / SAVED_MODEL).is_file():
        raise UserError(
            f"the folder of a SavedModel is expected, but {folder} has no {SAVED_MODEL}; give the "
            "--output of a training or the folder of an unpacked module"
        )


def _run_in_process(
    folder: Path, sentences: int, calls: int, names: Sequence[str]
) -> Iterator[Outcome]:
    """Yields outcomes until the process ends; where it crashes, the check that it was at has failed."""
    command = [*_WORKER, str(folder), str(sentences), str(calls), *names]
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    waiting = list(names)
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
        subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdout
        try:
            for line in process.stdout:
                waiting.pop(0)
                yield Outcome(*json.loads(line))
            status = process.wait()
        finally:
            process.kill()  # where the caller was interrupted
        if waiting:
            yield _crashed(waiting[0], status, _last_line(errors))


def _crashed(name: str, status: int, last: str) -> Outcome:
    text = f"expected the process to live, but it ended with status {status}: {last}"
    return Outcome(name, FAILED, text, {}, 0.0)


def _last_line(file: IO[str]) -> str:
    file.seek(0)
    lines = file.read().strip().splitlines()
    return lines[-1][:300] if lines else "no message"
