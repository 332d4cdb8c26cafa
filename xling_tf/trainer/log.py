"""The log of a training: on the screen, in JSON lines and for TensorBoard."""

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from xling_tf.errors import one_line
from xling_tf.files import replacing
from xling_tf.program import progress as log_progress

_SMOOTHING = 0.9


class StepResult(NamedTuple):
    """The measurements of one training step."""

    step: int  # from 0
    task: str
    loss: float  # mean of the batch
    accuracy: float  # share of examples whose right answer has the highest score
    gradient_norm: float  # of all gradients together
    learning_rate: float  # of the dense layers
    sentences: int
    tokens: int  # without padding
    seconds: float  # of training so far, summed over restarts


class TrainingLog(AbstractContextManager["TrainingLog"]):
    """Reports steps on the screen, in `metrics.jsonl` and to TensorBoard.

    Removes lines of steps from `first_step` on, left by a killed process. On a full disk, training continues
    without the files, because a later checkpoint may still find room.
    """

    def __init__(self, run_dir: Path, first_step: int) -> None:
        path = run_dir / "metrics.jsonl"
        _drop_lines(path, first_step)
        self._stack = ExitStack()
        self._report = self._stack.enter_context(log_progress("training"))
        self._lines = self._stack.enter_context(path.open("a", encoding="utf-8"))
        self._writer = tf.summary.create_file_writer(str(run_dir / "tensorboard"))
        self._losses: dict[str, float] = {}
        self._stack.callback(self._writer.close)
        self._begin = time.monotonic()
        self._sentences = 0
        self._is_failing = False

    def __exit__(self, *error: Any) -> None:
        with self._despite_full_disk():
            self._stack.__exit__(*error)

    def report(self, result: StepResult, progress: float) -> None:
        """Reports one step; `progress` is the share of the budget that is used after it."""
        self._sentences += result.sentences
        rate = self._sentences / (time.monotonic() - self._begin)
        scalars = {
            f"loss/{result.task}": result.loss,
            f"accuracy/{result.task}": result.accuracy,
            "gradient_norm": result.gradient_norm,
            "learning_rate": result.learning_rate,
            "sentences_per_second": rate,
        }
        with self._despite_full_disk():
            self._lines.write(json.dumps(result._asdict()) + "\n")
            self._lines.flush()
        with self._despite_full_disk(), self._writer.as_default(step=result.step):
            for name, value in scalars.items():
                tf.summary.scalar(name, value)
        before = self._losses.get(result.task, result.loss)
        self._losses[result.task] = _SMOOTHING * before + (1 - _SMOOTHING) * result.loss
        losses = " ".join(f"{_short(name)} {loss:.2f}" for name, loss in self._losses.items())
        status = f"step {result.step + 1}, {rate:.0f} sentences/s, loss: {losses}"
        self._report(f"{100 * progress:.0f}%, {status}")

    @contextmanager
    def _despite_full_disk(self) -> Iterator[None]:
        """Warns, the first time, of a file that cannot be written."""
        try:
            yield
        except (OSError, tf.errors.OpError) as error:
            if not self._is_failing:
                logging.warning("the log of the training cannot be written (%s)", one_line(error))
            self._is_failing = True


def _short(name: str) -> str:
    """Abbreviates a task's name: "quick_thought_en" is "qt-en", "distillation_en-es" is "d-en-es"."""
    # Language codes have two or three letters, and pairs have a hyphen.
    parts = name.split("_")
    return "".join(part[0] if part.isalpha() and len(part) > 3 else f"-{part}" for part in parts)


def _drop_lines(path: Path, first_step: int) -> None:
    """Keeps only the lines of steps before `first_step`; creates the file if there is none."""
    lines = path.read_text("utf-8", "replace").splitlines(keepends=True) if path.exists() else []
    earlier = []
    for line in lines:
        with suppress(LookupError, RecursionError, TypeError, ValueError):
            # A killed process may leave an incomplete last line.
            if json.loads(line)["step"] < first_step and line.endswith("\n"):
                earlier.append(line)
    with replacing(path) as temporary:
        temporary.write_text("".join(earlier), encoding="utf-8")
