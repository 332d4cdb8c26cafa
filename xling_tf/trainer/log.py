"""What a training prints and writes while it runs: progress bar, JSON lines, TensorBoard."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import NDArray
from tqdm import tqdm

from xling_tf.errors import progress as log_progress
from xling_tf.files import replacing

_SMOOTHING = 0.9


class StepResult(NamedTuple):
    """What one training step measured."""

    step: int  # from 0
    task: str
    loss: float  # mean of the batch
    accuracy: float  # share of the batch whose right answer scored highest
    gradient_norm: float  # of all gradients together
    learning_rate: float  # of the dense layers
    sentences: int
    tokens: int  # without padding
    seconds: float  # of training since it began, restarts added up


class TrainingLog(AbstractContextManager["TrainingLog"]):
    """Reports steps on the screen, in `metrics.jsonl` and to TensorBoard.

    Where the output is no terminal, a line every half minute stands for the bar. Lines of `metrics.jsonl`
    and `dev.jsonl` from `first_step` on, left by a killed run, are dropped: the steps come again.
    """

    def __init__(self, run_dir: Path, *, first_step: int, progress: float) -> None:
        path, self._scores_path = run_dir / "metrics.jsonl", run_dir / "dev.jsonl"
        _drop_lines(path, first_step)
        _drop_lines(self._scores_path, first_step + 1)  # a score comes after its step
        self._stack = ExitStack()
        self._report = self._stack.enter_context(log_progress("training"))
        self._lines = self._stack.enter_context(path.open("a", encoding="utf-8"))
        self._writer = tf.summary.create_file_writer(str(run_dir / "tensorboard"))
        layout = "{l_bar}{bar}| {elapsed}<{remaining}{postfix}"
        self._bar = tqdm(
            total=100.0,
            initial=100 * progress,
            unit="%",
            disable=sys.stderr is None or None,
            bar_format=layout,
        )
        self._losses: dict[str, float] = {}
        self._stack.callback(self._writer.close)
        self._stack.callback(self._bar.close)
        self._begin = time.monotonic()
        self._sentences = 0

    def __exit__(self, *error: Any) -> None:
        """Closes files and bar."""
        self._stack.__exit__(*error)

    def report(self, result: StepResult, progress: float) -> None:
        """Reports one step; `progress` is the share of the budget used after it."""
        self._lines.write(json.dumps(result._asdict()) + "\n")
        self._lines.flush()
        self._sentences += result.sentences
        rate = self._sentences / (time.monotonic() - self._begin)
        scalars = {
            f"loss/{result.task}": result.loss,
            f"accuracy/{result.task}": result.accuracy,
            "gradient_norm": result.gradient_norm,
            "learning_rate": result.learning_rate,
            "sentences_per_second": rate,
        }
        self._write_scalars(result.step, scalars)
        before = self._losses.get(result.task, result.loss)
        self._losses[result.task] = _SMOOTHING * before + (1 - _SMOOTHING) * result.loss
        losses = " ".join(f"{_short(name)} {loss:.2f}" for name, loss in self._losses.items())
        status = f"step {result.step + 1}, {rate:.0f} sentences/s, loss: {losses}"
        self._report(f"{100 * progress:.0f}%, {status}")
        if not self._bar.disable:
            self._bar.set_postfix_str(status, refresh=False)
            self._bar.update(100 * progress - self._bar.n)

    def report_scores(self, steps: int, scores: Mapping[str, Mapping[str, float]]) -> None:
        """Reports the scores of each task on held-out examples after `steps` steps."""
        with self._scores_path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"step": steps, "scores": scores}) + "\n")
        for name in ("loss", "accuracy"):
            self._write_scalars(steps, {f"dev_{name}/{task}": s[name] for task, s in scores.items()})
        losses = " ".join(f"{_short(task)} {s['loss']:.3f}" for task, s in scores.items())
        logging.info("step %d, held-out loss: %s", steps, losses)

    def _write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        with self._writer.as_default(step=step):
            for name, value in scalars.items():
                tf.summary.scalar(name, value)


def write_projection(run_dir: Path, labels: Sequence[tuple[str, str]], vectors: NDArray[np.float32]) -> None:
    """Writes sentences for TensorBoard's projector, which draws their vectors in two or three dimensions.

    Args:
        run_dir: The run folder.
        labels: Language and text of each sentence.
        vectors: `[sentences, dim]`.
    """
    folder = run_dir / "tensorboard"
    folder.mkdir(exist_ok=True)  # whoever cleared it while the training went on loses no more than curves
    rows = [("language", "sentence"), *((language, " ".join(text.split())) for language, text in labels)]
    table = "".join("\t".join(row) + "\n" for row in rows)
    (folder / "sentences.tsv").write_text(table, encoding="utf-8")
    np.savetxt(folder / "vectors.tsv", vectors, fmt="%.4f", delimiter="\t")
    config = 'embeddings { tensor_path: "vectors.tsv" metadata_path: "sentences.tsv" }\n'
    (folder / "projector_config.pbtxt").write_text(config, encoding="utf-8")


def _short(name: str) -> str:
    """Abbreviates a task's name: "quick_thought_en" is "qt-en", "distillation_en-es" is "d-en-es"."""
    # Codes of languages have two or three letters, and those of pairs a hyphen.
    parts = name.split("_")
    return "".join(part[0] if part.isalpha() and len(part) > 3 else f"-{part}" for part in parts)


def _drop_lines(path: Path, first_step: int) -> None:
    """Drops the lines of a file, if it is there, from a step on."""
    if not path.exists():
        return
    kept = []
    text = path.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        # A kill may have cut the last line; it is of a step that is repeated.
        if not line.endswith("\n"):
            break
        try:
            record: Any = json.loads(line)
            if record["step"] >= first_step:
                break
        except (LookupError, RecursionError, TypeError, ValueError):
            logging.warning("%s: line %d is no step of a training and is left out", path, number)
            continue
        kept.append(line)
    with replacing(path) as temporary:
        temporary.write_text("".join(kept), encoding="utf-8")
