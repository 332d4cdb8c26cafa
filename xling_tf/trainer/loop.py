"""The training loop: one compiled step a task, checkpoints, exact resume."""

import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import tensorflow as tf
from absl import logging

from xling_tf.errors import UserError
from xling_tf.files import replacing
from xling_tf.model import Model
from xling_tf.tasks.base import Batch, StartingEncoder, Task
from xling_tf.tasks.distillation import Distillation
from xling_tf.tasks.ranking import TranslationRanking
from xling_tf.trainer.checkpoints import CheckpointError, Checkpoints
from xling_tf.trainer.development import Development
from xling_tf.trainer.distribution import Workers
from xling_tf.trainer.input_pipeline import Examples, TrainingInput
from xling_tf.trainer.log import StepResult, TrainingLog
from xling_tf.trainer.optimizers import Optimizers
from xling_tf.trainer.schedule import Schedule, sampling_weights

TrainStep = Callable[[Batch], tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]]


class NonFiniteLossError(UserError):
    """A loss or gradient is not a number; the message names step, task and the saved batch."""


class Trainer:
    """Trains a model on its tasks, one task a step.

    Args:
        model: Built under the strategy's scope.
        examples: Training examples of each task, by its name.
        workers: Whose replicas train, and agree on what the clock and signals decide.
        run_dir: The chief's folder for checkpoints and logs.
        development: Scores the model on the chief every `training.dev_steps` steps.

    Attributes:
        step: Steps trained so far.
        seconds: Seconds of training so far, restarts added up.
    """

    def __init__(
        self,
        *,
        model: Model,
        examples: Mapping[str, Examples],
        workers: Workers,
        run_dir: Path,
        development: Development | None = None,
    ) -> None:
        self.step = 0
        self.seconds = 0.0
        self._begin = 0.0  # on the monotonic clock, restarts deducted
        self._model = model
        self._development = development
        self._config = model.config.training
        self._workers = workers
        self._strategy = workers.strategy
        self._run_dir = run_dir
        self._tasks = {task.name: task for task in model.tasks}
        self._schedule = make_schedule(model, {name: len(part) for name, part in examples.items()})
        self._inputs = {
            name: TrainingInput(task, examples[name], model.preprocessor, model.config, workers)
            for name, task in self._tasks.items()
        }
        encoder, keep_weight = model.encoder, model.config.initial.keep_weight
        tables, dense = encoder.table_variables, encoder.dense_variables
        trained_heads = {head.name: head for task in model.tasks for head in task.heads}
        heads = [head.trainable_variables for head in trained_heads.values()]
        with self._strategy.scope():
            self._optimizers = Optimizers(model.config.optimizer, tables, dense, heads)
            self._encoder_variables = [*self._optimizers.tables, *dense]
            # Before a checkpoint is restored: also after a restart, the start is the start.
            self._start = StartingEncoder(self._encoder_variables, keep_weight) if keep_weight else None
        weights = [v.value for v in (*tables, *dense, *model.head_variables)]
        self._checkpoints = Checkpoints(run_dir / "checkpoints", [*weights, *self._optimizers.variables])

    def train(self) -> bool:
        """Trains until the budget is used up, from the newest checkpoint, if there is one.

        Raises:
            NonFiniteLossError: The training has diverged. Checkpoints stay as they were.
        """
        self._restore()
        first_step, saved = self.step, time.monotonic()
        self._begin = saved - self.seconds
        batches = {
            name: task_input.batches(self._schedule.count(name, self.step))
            for name, task_input in self._inputs.items()
        }
        train_steps = {name: self._compile(task) for name, task in self._tasks.items()}
        with ExitStack() as stack:
            log = None
            if self._workers.is_chief:
                progress = self._progress()
                log = TrainingLog(self._run_dir, first_step=self.step, progress=progress)
                stack.enter_context(log)
            stop = stack.enter_context(_stop_requests())
            stopped = False
            while not stopped and self._progress() < 1:
                name = self._schedule.task(self.step)
                result = self._train_step(name, train_steps[name], next(batches[name]))
                self.step += 1
                stopped = self._agree(stop.is_set())
                if log:
                    log.report(result, self._progress())
                    self._score_if_due(log)
                if time.monotonic() - saved > 60 * self._config.checkpoint_minutes:
                    try:
                        self._save()
                    except CheckpointError as error:  # there may be room the next time
                        logging.warning("%s; training goes on", error)
                    saved = time.monotonic()
        if self.step > first_step:
            self._save()
        return self._progress() >= 1

    def use_best_weights(self) -> int:
        """Gives the model its best weights, or leaves the last; returns after how many steps they were."""
        step = self._development.restore_best() if self._development else None
        return self.step if step is None else step

    def _agree(self, stop: bool) -> bool:
        """Takes the chief's clock for that of all workers; True if any was asked to stop."""
        seconds = time.monotonic() - self._begin if self._workers.is_chief else 0.0
        self.seconds, stops = self._workers.add_up([seconds, float(stop)])
        return stops > 0

    def _progress(self) -> float:
        """Share of the budget that is used: of steps or minutes, whichever ends first."""
        steps, minutes = self._config.steps, self._config.minutes
        of_steps = self.step / steps if steps else 0.0
        of_minutes = self.seconds / 60 / minutes if minutes else 0.0
        return min(1.0, max(of_steps, of_minutes))

    def _score_if_due(self, log: TrainingLog) -> None:
        """Scores every `training.dev_steps`, and at the end, where the weights are often best."""
        if self._development is None:
            return
        if self.step % self._config.dev_steps == 0 or self._progress() >= 1:
            log.report_scores(self.step, self._development.score(self.step))

    def _compile(self, task: Task) -> TrainStep:
        """Makes the graph function that trains one batch of a task on every replica."""
        encoder = self._model.encoder
        variables = [*self._encoder_variables, *task.variables()]

        def replica_step(batch: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
            context = tf.distribute.get_replica_context()
            with tf.GradientTape() as tape:
                losses, hits = task.losses(encoder, batch, self._start)
                count = tf.cast(tf.size(losses), tf.float32)
                # Gradients of the replicas are summed, so each loss is weighed by the whole batch.
                scale = task.loss_weight / context.all_reduce("sum", count)
                loss = scale * tf.reduce_sum(losses)
            gradients = tape.gradient(loss, [variable.value for variable in variables])
            norm = self._optimizers.apply(gradients, variables)
            sums = tf.stack([tf.reduce_sum(losses), tf.reduce_sum(hits), count])
            return *tf.unstack(context.all_reduce("sum", sums), num=3), norm

        @tf.function(input_signature=[self._inputs[task.name].spec()])
        def train_step(batch: Batch) -> tuple[tf.Tensor, ...]:
            results = self._strategy.run(replica_step, args=(batch,))
            # All replicas have the same results.
            return tuple(self._strategy.experimental_local_results(r)[0] for r in results)

        return train_step

    def _train_step(self, name: str, train_step: TrainStep, batch: Batch) -> StepResult:
        learning_rate = self._optimizers.set_progress(self._progress())
        loss, hits, count, norm = (float(result) for result in train_step(batch))
        if not math.isfinite(loss) or not math.isfinite(norm):
            path = self._save_batch(name, loss)
            raise NonFiniteLossError(
                f"training diverged at step {self.step} of task {name} (loss {loss}, gradient norm "
                f"{norm}); its batch is in {path} and the last checkpoint is from before; try lower "
                "learning rates with --set optimizer.learning_rate=... in another --run_dir"
            )
        return StepResult(
            step=self.step,
            task=name,
            loss=loss / count,
            accuracy=hits / count,
            gradient_norm=norm,
            learning_rate=learning_rate,
            sentences=int(count) * len(self._tasks[name].columns),
            seconds=time.monotonic() - self._begin,
        )

    def _save_batch(self, name: str, loss: float) -> Path:
        """Saves the texts of the current batch of all replicas."""
        path = self._run_dir / "non_finite_batch.json"
        texts = self._inputs[name].texts(self._schedule.count(name, self.step))
        record = {"step": self.step, "task": name, "loss": str(loss), "columns": texts}
        if self._workers.is_chief:
            with replacing(path) as temporary:
                text = json.dumps(record, ensure_ascii=False, indent=1)
                temporary.write_text(text, encoding="utf-8")
        return path

    def _save(self) -> None:
        """Lets the chief write a checkpoint."""
        if self._workers.is_chief:
            self._checkpoints.save(self.step, {"step": self.step, "seconds": self.seconds})

    def _restore(self) -> None:
        """Gives all workers the chief's newest checkpoint."""
        state: dict[str, Any] | None = self._workers.from_chief(self._checkpoints.restore)
        if state is not None:
            self._workers.share(self._checkpoints.variables)
            self.step, self.seconds = state["step"], state["seconds"]
            logging.info("continuing at step %d, %.1f minutes in", self.step, self.seconds / 60)
        if self._development and self._workers.is_chief:
            self._development.resume(self.step)


def make_schedule(model: Model, sizes: Mapping[str, int]) -> Schedule:
    """Cycles through the model's tasks, of so many examples, after a lead of those that align languages.

    These are translation ranking and distillation: neither has a head that starts at random, both
    draw a sentence and its translation together. A lead of translation ranking alone would align the
    languages in a space that distillation then has to turn into its teacher's.
    """
    temperature = model.config.data.sampling_temperature
    weights: dict[str, int] = {}
    for _, mirrored in groupby(model.tasks, key=type):
        tasks = list(mirrored)
        steps = sampling_weights(tasks[0].weight, [sizes[t.name] for t in tasks], temperature)
        weights.update(zip([task.name for task in tasks], steps, strict=True))
    aligning = {
        task.name: weights[task.name]
        for task in model.tasks
        if isinstance(task, TranslationRanking | Distillation)
    }
    lead_steps = model.config.tasks.alignment_steps if aligning else 0
    lead = [Schedule.from_weights(aligning).task(step) for step in range(lead_steps)]
    return Schedule.from_weights(weights, lead)


@contextmanager
def _stop_requests() -> Iterator[threading.Event]:
    """Inside the block, the first SIGINT or SIGTERM only sets the event; a second one interrupts."""
    requested = threading.Event()

    def request(number: int, frame: FrameType | None) -> None:
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()

    previous = {n: signal.signal(n, request) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requested
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
