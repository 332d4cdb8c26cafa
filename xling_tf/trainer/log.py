"""The log of a training: on the screen, in JSON lines and for TensorBoard."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from xling_tf.errors import one_line
from xling_tf.files import replacing
from xling_tf.program import progress as log_progress

_v1 = tf.compat.v1
_SMOOTHING = 0.9  # of losses
_SPEED_SMOOTHING = 0.98  # of the speed: over about fifty steps


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

    Removes lines of steps from `first_step` on, left by a killed process. On a full disk, training
    continues without the files, because a later checkpoint may still find room.
    """

    def __init__(self, run_dir: Path, first_step: int) -> None:
        path = run_dir / "metrics.jsonl"
        _drop_lines(path, first_step)
        self._stack = ExitStack()
        self._report = self._stack.enter_context(log_progress("training"))
        self._lines = self._stack.enter_context(path.open("a", encoding="utf-8"))
        events = run_dir / "tensorboard" / f"events.out.tfevents.{time.time_ns()}"
        events.parent.mkdir(exist_ok=True)
        # TensorBoard's file as it is: each of `tf.summary`'s values is an operation that takes a
        # millisecond.
        self._events = self._stack.enter_context(tf.io.TFRecordWriter(str(events)))
        self._losses: dict[str, float] = {}
        self._before = time.monotonic()
        self._sentences = self._seconds = 0.0  # of the last steps
        self._is_failing = False

    def __exit__(self, *error: Any) -> None:
        with self._despite_full_disk():
            self._stack.__exit__(*error)

    def report(self, result: StepResult, progress: float) -> None:
        """Reports one step; `progress` is the share of the budget that is used after it."""
        now = time.monotonic()
        self._sentences = _SPEED_SMOOTHING * self._sentences + result.sentences
        self._seconds = _SPEED_SMOOTHING * self._seconds + now - self._before
        self._before = now
        rate = self._sentences / self._seconds
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
        self._write_scalars(result.step, scalars)
        before = self._losses.get(result.task, result.loss)
        self._losses[result.task] = _SMOOTHING * before + (1 - _SMOOTHING) * result.loss
        # One loss says whether the training goes well; TensorBoard has all.
        name, loss = next(iter(self._losses.items()))
        left = round(result.seconds * (1 / progress - 1) / 60) if progress else 0
        self._report(
            f"{100 * progress:.0f}%, {left} minute{'s' if left != 1 else ''} left, "
            f"step {result.step + 1}, "
            f"{rate:,.0f} sentences/s, loss of {name.replace('_', ' ')} {loss:.3g}"
        )

    def report_score(self, step: int, score: float) -> None:
        """Reports a score on held-out pairs to TensorBoard."""
        self._write_scalars(step, {"held_out": score})

    def _write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        values = [_v1.Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        event = _v1.Event(wall_time=time.time(), step=step, summary=_v1.Summary(value=values))
        with self._despite_full_disk():
            self._events.write(event.SerializeToString())

    @contextmanager
    def _despite_full_disk(self) -> Iterator[None]:
        """Warns, the first time, of a file that cannot be written."""
        try:
            yield
        except (OSError, tf.errors.OpError) as error:
            if not self._is_failing:
                logging.warning("the log of the training cannot be written (%s)", one_line(error))
            self._is_failing = True


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
