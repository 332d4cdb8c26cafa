"""The batches that this process trains on: those of its own replicas, at every step."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from xling_tf.config import ExperimentConfig
from xling_tf.tasks.base import Task
from xling_tf.text.preprocessor import TextPreprocessor
from xling_tf.trainer.input_pipeline import Examples, make_dataset, make_sampler
from xling_tf.trainer.workers import Workers


class TrainingInput:
    """The training batches of one task.

    The n-th step of a task takes one batch a replica: those at the positions from n times the number
    of replicas on, in the order of the replicas, whichever process they belong to.

    Args:
        task: Says how large its batches are.
        examples: Its training examples.
        preprocessor: Turns texts into features.
        config: Says how examples are drawn.
        workers: Whose replicas train.
    """

    def __init__(
        self,
        task: Task,
        examples: Examples,
        preprocessor: TextPreprocessor,
        config: ExperimentConfig,
        workers: Workers,
    ) -> None:
        self._examples = examples
        self._preprocessor = preprocessor
        self._sampler = make_sampler(examples, config, task.examples_per_batch)
        self._workers = workers
        self._strategy = workers.strategy

    def spec(self) -> Any:
        """The type of what `batches` yields."""
        dataset = self._dataset(0)
        if self._strategy.num_replicas_in_sync == 1:
            return dataset.element_spec
        return self._strategy.distribute_datasets_from_function(lambda _: dataset).element_spec

    def batches(self, count: int) -> Iterator[Any]:
        """Yields the batches of this process' replicas from the task's step `count` on."""
        local = iter(self._dataset(count))
        if self._strategy.num_replicas_in_sync == 1:
            yield from local
        while True:
            # The strategy's own iterator asks all workers at each step whether they have a batch
            # left, and its destructor waits for seconds.
            yield self._strategy.experimental_distribute_values_from_function(lambda _: next(local))

    def texts(self, count: int) -> list[list[str]]:
        """The texts that all replicas get at the task's step `count`, a list for each column."""
        replicas = self._strategy.num_replicas_in_sync
        positions = range(count * replicas, (count + 1) * replicas)
        indices = np.concatenate([self._sampler.batch(position) for position in positions])
        texts = [text.decode("utf-8") for text in self._examples.texts(indices)]
        return [texts[first : first + len(indices)] for first in range(0, len(texts), len(indices))]

    def _dataset(self, count: int) -> tf.data.Dataset:
        replicas, own = self._strategy.num_replicas_in_sync, self._workers.replicas
        return make_dataset(
            self._examples,
            self._sampler,
            self._preprocessor,
            start=count * replicas + own.start,
            block=len(own),
            stride=replicas,
        )
