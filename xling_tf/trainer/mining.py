"""Mines wrong answers when a stage of the training begins; the run folder keeps them."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from xling_tf.config import BM25, SELF
from xling_tf.evaluators.cache import cached
from xling_tf.evaluators.encoding import BatchLimits, Embedder, encode_units
from xling_tf.evaluators.reqa import Unit, bm25
from xling_tf.files import replacing
from xling_tf.model import Model
from xling_tf.program import progress
from xling_tf.search.wrong_answers import Encoders, find_wrong_answers
from xling_tf.trainer.distribution import Workers
from xling_tf.trainer.input_pipeline import Examples, TrainingInput
from xling_tf.trainer.teacher import Teacher

FOLDER = "mined"  # of the run folder
_BATCHES = BatchLimits(max_rows=256, max_length=2**15)  # the activations of a batch are in memory


class Miner:
    """Finds wrong answers for the questions that a stage trains on.

    Args:
        model: The model in training.
        teachers: Models that search, by their names in `miner`; `close` takes them out.
        caches: Where a teacher's vectors are kept.
        folder: The run folder; it has a file for each stage and task.
        seed: Of the draws.
        workers: The first one mines for all.
    """

    def __init__(
        self,
        model: Model,
        teachers: dict[str, Teacher],
        caches: Callable[[Teacher], Path | None],
        folder: Path,
        seed: int,
        workers: Workers,
    ) -> None:
        self._model, self._teachers, self._caches = model, teachers, caches
        self._folder, self._seed, self._workers = folder / FOLDER, seed, workers

    def is_ready(self, stage: str, task: str) -> bool:
        """Returns True if the stage has mined for the task already."""
        return self._path(stage, task).exists()

    def mine(self, stage: str, part: TrainingInput, num_batches: float) -> None:
        """Gives a stage's input of a task wrong answers for its first batches' questions."""
        rows = part.drawn(num_batches)
        find = partial(self._wrong_answers, stage, part, rows)
        part.use_wrong_answers(self._workers.from_chief(find))

    def close(self) -> None:
        """Frees the memory of the models."""
        self._teachers.clear()

    def _wrong_answers(
        self, stage: str, part: TrainingInput, rows: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Returns the `[examples, wrong answers]` examples whose answers are wrong, as mined before
        or now; the example itself stands for one that is missing.
        """
        path, size = self._path(stage, part.task.name), len(part.examples)
        count = part.task.config.wrong_answers
        chosen = np.tile(np.arange(size, dtype=np.int32)[:, None], count)
        is_mined = np.zeros(size, bool)
        if path.exists():
            with np.load(path) as saved:
                chosen, is_mined = saved["chosen"], saved["is_mined"]
        if not len(rows := rows[~is_mined[rows]]):
            return chosen
        chosen[rows] = self._find(stage, part, rows)
        is_mined[rows] = True
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, chosen=chosen, is_mined=is_mined)
        shutil.rmtree(self._cache(stage, part.task.name), ignore_errors=True)
        return chosen

    def _find(self, stage: str, part: TrainingInput, rows: NDArray[np.int64]) -> NDArray[np.int32]:
        task, cache = part.task, self._cache(stage, part.task.name)
        columns = part.examples.columns(np.arange(len(part.examples)))[:2]
        pairs = list(zip(*([text.decode() for text in column] for column in columns), strict=True))
        models = [
            self._itself(part.examples, cache)
            if name == SELF
            else _of_teacher(self._teachers[name], self._caches(self._teachers[name]))
            for name in task.miners
            if name != BM25
        ]
        has_words = BM25 in task.miners
        names = " and ".join(task.miners)
        with progress(f"{names} mine wrong answers of {len(rows)} questions for {task.name}"):
            return find_wrong_answers(
                pairs,
                rows,
                task.config.wrong_answers,
                lexical=_lexical if has_words else None,
                models=models,
                seed=self._seed,
            )

    def _itself(self, examples: Examples, cache: Path) -> Encoders:
        """Returns the model's encoders, with the prompts of questions and answers; a killed run
        finds the vectors of a stage that has not begun again.
        """
        graph = tf.function(
            lambda texts: tf.cast(self._model.raw(texts), tf.float32),
            input_signature=[tf.TensorSpec([None], tf.string)],
            autograph=False,
        )
        embedder = Embedder(
            name="the model",
            sentences=lambda texts: graph(tf.constant(texts, tf.string)).numpy(),
            batch_limits=_BATCHES,
            checksum="of this stage",
        )
        encode = cached(embedder, cache, show_progress=True)
        prompts = examples.prompts or ("", "")

        def units(prompt: str, texts: list[str]) -> NDArray[np.float64]:
            return encode_units(encode, [prompt + text for text in texts])

        return Encoders(*(partial(units, prompt) for prompt in prompts[:2]))

    def _path(self, stage: str, task: str) -> Path:
        return self._folder / f"{stage}.{task}.npz"

    def _cache(self, stage: str, task: str) -> Path:
        return self._folder / f"{stage}.{task}"


def _of_teacher(teacher: Teacher, folder: Path | None) -> Encoders:
    encode = cached(teacher.system, folder, show_progress=True)
    units = partial(encode_units, encode)
    return Encoders(units, units)


def _lexical(queries: Sequence[str], texts: Sequence[str]) -> Iterator[NDArray[Any]]:
    """Yields the scores of BM25."""
    places = np.arange(len(texts))
    return bm25(queries, Unit(list(texts), places, places))
