"""The training loop: one compiled step a task, checkpoints, exact resume."""

import json
import math
import time
from collections.abc import Callable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import logging

from xling_tf.checkpoints import Checkpoints
from xling_tf.errors import UserError
from xling_tf.files import replacing
from xling_tf.input_pipeline import Examples, make_dataset, make_sampler
from xling_tf.model import Model
from xling_tf.optimizers import Optimizers
from xling_tf.schedule import Schedule, sampling_weights
from xling_tf.signals import StopRequest
from xling_tf.tasks.base import Batch, Task
from xling_tf.tasks.ranking import TranslationRanking
from xling_tf.training_log import StepResult, TrainingLog

TrainStep = Callable[[Batch], tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]]


class NonFiniteLossError(UserError):
    """A loss or gradient is not a number; the message names step, task and the saved batch."""


def make_schedule(model: Model, sizes: Mapping[str, int]) -> Schedule:
    """Cycles through the model's tasks, after a lead of translation ranking where it has that.

    Args:
        model: Its tasks and their weights.
        sizes: Training examples of each task, by its name.
    """
    temperature = model.config.data.sampling_temperature
    weights: dict[str, int] = {}
    for _, mirrored in groupby(model.tasks, key=type):
        tasks = list(mirrored)
        steps = sampling_weights(tasks[0].weight, [sizes[t.name] for t in tasks], temperature)
        weights.update(zip([task.name for task in tasks], steps, strict=True))
    aligning = {t.name: weights[t.name] for t in model.tasks if isinstance(t, TranslationRanking)}
    lead_steps = model.config.tasks.alignment_steps if aligning else 0
    lead = [Schedule.from_weights(aligning).task(step) for step in range(lead_steps)]
    return Schedule.from_weights(weights, lead)


class Trainer:
    """Trains a model on its tasks, one task a step.

    Args:
        model: Built under the strategy's scope.
        examples: Training examples of each task, by its name.
        strategy: Replicas to train on.
        run_dir: Folder for checkpoints and logs.
    """

    def __init__(
        self,
        *,
        model: Model,
        examples: Mapping[str, Examples],
        strategy: tf.distribute.Strategy,
        run_dir: Path,
    ) -> None:
        self._model = model
        self._config = model.config.training
        self._examples = examples
        self._strategy = strategy
        self._run_dir = run_dir
        self._tasks = {task.name: task for task in model.tasks}
        self._schedule = make_schedule(model, {name: len(part) for name, part in examples.items()})
        self._samplers = {
            task.name: make_sampler(examples[task.name], model.config, task.examples_per_batch)
            for task in model.tasks
        }
        # Mirrored tasks share their heads: each variable counts once.
        heads = {id(v): v for task in model.tasks for v in task.variables()}
        tables, dense = model.encoder.table_variables, model.encoder.dense_variables
        with strategy.scope():
            self._optimizers = Optimizers(model.config.optimizer, tables, [*dense, *heads.values()])
        self._checkpoints = Checkpoints(
            run_dir / "checkpoints",
            [v.value for v in (*tables, *dense, *heads.values())] + self._optimizers.variables,
        )
        self._step = 0
        self._seconds = 0.0
        self._begin = 0.0  # on the monotonic clock, restarts deducted

    @property
    def step(self) -> int:
        """Steps trained so far."""
        return self._step

    @property
    def seconds(self) -> float:
        """Seconds of training so far, restarts added up."""
        return self._seconds

    def train(self) -> bool:
        """Trains until the budget is used, from the newest checkpoint if there is one.

        Returns:
            Whether the budget is used up; false after SIGINT or SIGTERM, which end the training with a
            checkpoint.

        Raises:
            NonFiniteLossError: The training has diverged. Checkpoints stay as they were.
        """
        self._restore()
        first_step, saved = self._step, time.monotonic()
        self._begin = saved - self._seconds
        batches = {name: self._batches(name) for name in self._tasks}
        steps = {
            name: self._compile(task, batches[name].element_spec)
            for name, task in self._tasks.items()
        }
        with (
            TrainingLog(self._run_dir, first_step=first_step, progress=self._progress()) as log,
            StopRequest() as stop,
        ):
            while self._progress() < 1 and not stop.requested:
                name = self._schedule.task(self._step)
                log.report(
                    self._train_step(name, steps[name], next(batches[name])), self._progress()
                )
                self._step += 1
                self._seconds = time.monotonic() - self._begin
                if time.monotonic() - saved > 60 * self._config.checkpoint_minutes:
                    self._save()
                    saved = time.monotonic()
        if self._step > first_step:
            self._save()
        return self._progress() >= 1

    def _progress(self) -> float:
        """Share of the budget that is used: of the steps or the minutes, whichever ends first."""
        steps, minutes = self._config.steps, self._config.minutes
        of_steps = self._step / steps if steps else 0.0
        of_minutes = self._seconds / 60 / minutes if minutes else 0.0
        return min(1.0, max(of_steps, of_minutes))

    def _batches(self, name: str) -> Any:
        """The task's batches from where the schedule stands; every replica takes its own."""
        replicas = self._strategy.num_replicas_in_sync
        dataset = make_dataset(
            self._examples[name],
            self._samplers[name],
            self._model.preprocessor,
            start=self._schedule.count(name, self._step) * replicas,
        )
        if replicas == 1:
            return iter(dataset)
        return iter(self._strategy.distribute_datasets_from_function(lambda _: dataset))

    def _compile(self, task: Task, element_spec: Any) -> TrainStep:
        """Makes the graph function that trains one batch of a task on every replica."""
        encoder = self._model.encoder
        variables = [*encoder.table_variables, *encoder.dense_variables, *task.variables()]

        def replica_step(batch: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
            context = tf.distribute.get_replica_context()
            with tf.GradientTape() as tape:
                losses, hits = task.losses(encoder, batch)
                count = tf.cast(tf.size(losses), tf.float32)
                # Gradients of the replicas are summed, so each loss is weighed by the whole batch.
                scale = task.loss_weight / context.all_reduce("sum", count)
                loss = scale * tf.reduce_sum(losses)
            gradients = tape.gradient(loss, [variable.value for variable in variables])
            self._optimizers.apply(gradients, variables)
            return (
                tf.reduce_sum(losses),
                tf.reduce_sum(hits),
                count,
                tf.linalg.global_norm(gradients),
            )

        @tf.function(input_signature=[element_spec])
        def train_step(batch: Batch) -> tuple[tf.Tensor, ...]:
            results = self._strategy.run(replica_step, args=(batch,))
            return tuple(self._strategy.reduce("sum", result, axis=None) for result in results)

        return train_step

    def _train_step(self, name: str, train_step: TrainStep, batch: Batch) -> StepResult:
        learning_rate = self._optimizers.set_progress(self._progress())
        loss, hits, count, norm = (float(result) for result in train_step(batch))
        if not math.isfinite(loss) or not math.isfinite(norm):
            raise NonFiniteLossError(self._save_batch(name, loss, norm))
        return StepResult(
            step=self._step,
            task=name,
            loss=loss / count,
            accuracy=hits / count,
            gradient_norm=norm,
            learning_rate=learning_rate,
            sentences=int(count) * len(self._tasks[name].columns),
            seconds=time.monotonic() - self._begin,
        )

    def _save_batch(self, name: str, loss: float, norm: float) -> str:
        """Saves the texts of the current batch; returns what happened."""
        replicas = self._strategy.num_replicas_in_sync
        first = self._schedule.count(name, self._step) * replicas
        examples, sampler = self._examples[name], self._samplers[name]
        texts = [
            [text.decode("utf-8") for text in column[sampler.batch(position)]]
            for position in range(first, first + replicas)
            for column in examples.columns
        ]
        path = self._run_dir / "non_finite_batch.json"
        record = {"step": self._step, "task": name, "loss": str(loss), "columns": texts}
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(record, ensure_ascii=False, indent=1), encoding="utf-8")
        return (
            f"training diverged at step {self._step} of task {name} (loss {loss}, gradient norm "
            f"{norm}); its batch is in {path} and the last checkpoint is from before; try lower "
            "learning rates with --set optimizer.learning_rate=... in another --run_dir"
        )

    def _save(self) -> None:
        self._checkpoints.save(self._step, {"step": self._step, "seconds": self._seconds})

    def _restore(self) -> None:
        state = self._checkpoints.restore()
        if state is not None:
            self._step, self._seconds = state["step"], state["seconds"]
            logging.info("continuing at step %d, %.1f minutes in", self._step, self._seconds / 60)
