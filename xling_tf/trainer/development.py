"""Scores on held-out examples, and what they decide while a model trains."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from xling_tf.errors import UserError
from xling_tf.model import Model
from xling_tf.tasks.base import Task
from xling_tf.tasks.distillation import Distillation
from xling_tf.tasks.ranking import TranslationRanking
from xling_tf.trainer.checkpoints import CheckpointError, Checkpoints
from xling_tf.trainer.input_pipeline import BatchSampler, Examples, make_dataset

TaskScores = Mapping[str, dict[str, float]]


class HeldOutScores:
    """Scores each task of a model on its held-out examples, on the same ones at every call.

    Args:
        model: Its tasks are scored that have examples.
        held_out: Held-out examples, by the task's name.
    """

    def __init__(self, model: Model, held_out: Mapping[str, Examples]) -> None:
        self._scorers = {
            task.name: _scorer(model, task, held_out[task.name])
            for task in model.tasks
            if task.name in held_out and len(held_out[task.name])
        }

    def __call__(self) -> TaskScores:
        """Returns loss, accuracy and number of examples of each task, by its name."""
        return {name: score() for name, score in self._scorers.items()}


def _scorer(model: Model, task: Task, examples: Examples) -> Callable[[], dict[str, float]]:
    """Loss and accuracy over batches of `examples_per_batch`, however many training ranks."""
    sampler = BatchSampler(
        examples,
        # Held-out examples count alike, also of corpora that training leaves out.
        [1.0] * len(examples.corpora),
        examples_per_batch=task.examples_per_batch,
        pool_batches=model.config.data.pool_batches,
        seed=model.config.training.seed,
    )
    dataset = make_dataset(
        examples, sampler, model.preprocessor, count=model.config.training.dev_batches
    )
    score_batch = tf.function(
        lambda batch: task.losses(model.encoder, batch), input_signature=[dataset.element_spec]
    )

    def score() -> dict[str, float]:
        results = [score_batch(batch) for batch in dataset]
        losses, hits = (np.concatenate(parts) for parts in zip(*results, strict=True))
        return {
            "loss": float(losses.mean()),
            "accuracy": float(hits.mean()),
            "num_examples": float(len(losses)),
        }

    return score


class Best(NamedTuple):
    """What the scores have told so far, which a restart continues with.

    Attributes:
        loss: The lowest one.
        step: Steps trained when it was reached.
        misses: Scores since then.
    """

    loss: float = math.inf
    step: int = 0
    misses: int = 0


class Development:
    """Scores a model while it trains, keeps its best weights, and says when they get no better.

    The best weights have the lowest mean loss of the translation ranking tasks: aligning the languages
    is what the model is for, and its accuracy moves in steps and ends at 1. Without such tasks, it is
    that of distillation, which aligns them too; without these, the mean loss of all.

    Args:
        model: In training.
        held_out: Held-out examples, by the task's name.
        folder: Where the best weights are kept, apart from the checkpoints.

    Attributes:
        best: What the scores have told so far.

    Raises:
        UserError: There are no held-out examples.
    """

    def __init__(self, model: Model, held_out: Mapping[str, Examples], folder: Path) -> None:
        self._score = HeldOutScores(model, held_out)
        self._patience = model.config.training.patience
        scored = [task for task in model.tasks if len(held_out.get(task.name, ()))]
        kinds = (TranslationRanking, Distillation, Task)
        by_kind = [[task for task in scored if isinstance(task, kind)] for kind in kinds]
        deciding = next(filter(None, by_kind), [])
        if not deciding:
            raise UserError(
                "training.dev_steps expects held-out examples, but no corpus is large enough to have "
                "any; leave it 0"
            )
        self._deciding = [task.name for task in deciding]
        variables = [*model.encoder.trainable_variables, *model.head_variables]
        self._checkpoints = Checkpoints(folder, [variable.value for variable in variables])
        self.best = Best()

    @property
    def is_over(self) -> bool:
        """Whether the last `training.patience` scores were no better than the best before."""
        return 0 < self._patience <= self.best.misses

    def score(self, step: int) -> TaskScores:
        """Scores the weights as they are after `step` steps, and keeps them if none were better."""
        scores = self._score()
        loss = float(np.mean([scores[name]["loss"] for name in self._deciding]))
        if not loss < self.best.loss:
            self.best = self.best._replace(misses=self.best.misses + 1)
            return scores
        try:
            self._checkpoints.save(step, {"step": step, "loss": loss})
            self.best = Best(loss, step)
        except CheckpointError as error:
            logging.warning("%s; training goes on, and the best weights stay those before", error)
        return scores

    def restore_best(self) -> int | None:
        """Gives the model its best weights; returns their step, None if there are none to read."""
        state = self._checkpoints.restore()
        if state is None:
            return None
        logging.info("best weights: step %d, held-out loss %.4f", state["step"], state["loss"])
        return int(state["step"])
