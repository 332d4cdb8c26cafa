"""The training loop: one compiled step a task, checkpoints, exact resume."""

import copy
import dataclasses
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from xling_tf.config import ExperimentConfig
from xling_tf.encoders.base import TokenEncoder
from xling_tf.errors import UserError
from xling_tf.files import replacing
from xling_tf.model import Model
from xling_tf.tasks.base import Batch, StartingEncoder, Task
from xling_tf.trainer.checkpoints import CheckpointError, Checkpoints
from xling_tf.trainer.development import Development
from xling_tf.trainer.distribution import Workers
from xling_tf.trainer.input_pipeline import Examples, TrainingInput
from xling_tf.trainer.log import StepResult, TrainingLog
from xling_tf.trainer.optimizers import Optimizers
from xling_tf.trainer.schedule import Schedule, sampling_weights

# Gives the sums of losses and hits, the numbers of examples and tokens, and the gradients' norm.
TrainStep = Callable[[Batch], tf.Tensor]
# Reading what steps measured waits for the devices, and they for Python then: GPUs have some steps to do.
_STEPS_TO_READ = {"CPU": 1, "GPU": 8}
_SAMPLED = 2**16  # examples that a task may look at before its first step


class DispatchedStep(NamedTuple):
    """A step that the devices may still be busy with."""

    step: int
    task: Task
    learning_rate: float
    texts: Callable[[], list[list[str]]]  # of its batch
    measured: tf.Tensor


class NonFiniteLossError(UserError):
    """A loss or gradient is not a number; the message names step, task and the saved batch."""


class Phase:
    """A share of the budget, in which an encoder learns some tasks.

    Attributes:
        name: For the log.
        tasks: By their names.
        begin: Share of the budget at which it begins.
        end: Share of the budget at which it ends, if it has had `least` steps by then.
        least: Minimum number of steps; shortens the later phases if the budget is small.
        static_rate: Multiple of its rates that the average of words learns at.
        steps: Trained so far.
    """

    def __init__(
        self,
        name: str,
        encoder: TokenEncoder,
        tasks: Sequence[Task],
        *,
        end: float = 1.0,
        least: int = 0,
        static_rate: float = 1.0,
        model: Model,
        examples: Mapping[str, Examples],
        workers: Workers,
    ) -> None:
        self.name = name
        self.encoder = encoder
        self.tasks = {task.name: task for task in tasks}
        self.begin, self.end, self.least = 0.0, end, least
        self.static_rate = static_rate
        self.steps = 0
        self._schedule = make_schedule(tasks, {n: len(p) for n, p in examples.items()}, model.config)
        self.inputs = {
            task.name: TrainingInput(task, examples[task.name], model.preprocessor, model.config, workers)
            for task in tasks
        }
        for task in tasks:
            task.prepare(model.preprocessor, self.inputs[task.name].sample(_SAMPLED))
        self._batches: dict[str, Iterator[Any]] = {}

    @property
    def task(self) -> Task:
        """The task of the next step."""
        return self.tasks[self._schedule.task(self.steps)]

    def progress(self, progress: float, ahead: int = 0) -> float:
        """The share of the phase that is over at a share of the budget, `ahead` steps from now."""
        share = (progress - self.begin) / (self.end - self.begin)
        if self.least:
            share = max(min(share, (self.steps + ahead) / self.least), progress)
        return min(1.0, share)

    def next_batch(self) -> Any:
        """The batch of the next step."""
        name = self.task.name
        if name not in self._batches:
            self._batches[name] = self.inputs[name].batches(self._schedule.count(name, self.steps))
        return next(self._batches[name])

    def close(self) -> None:
        """Drops what has been read ahead."""
        self._batches.clear()

    def texts(self) -> Callable[[], list[list[str]]]:
        """What reads the texts of the next step's batch of all replicas, a list for each column."""
        name = self.task.name
        return partial(self.inputs[name].texts, self._schedule.count(name, self.steps))


class Trainer:
    """Trains a model on its tasks, one task a step.

    With `training.static_share` the first share of the budget trains the average of words, and the heads
    on it, in batches of `training.static_batch`: `training.static_steps` at least, while the budget lasts.

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
        self._at_once = _STEPS_TO_READ["GPU" if tf.config.list_logical_devices("GPU") else "CPU"]
        self._phases = _make_phases(model, examples, workers)
        # Mirrored tasks share their heads and settings, and so the graph: it takes seconds to make.
        self._steps: dict[tuple[str, str], TrainStep] = {}
        encoder, keep_weight = model.encoder, model.config.initial.keep_weight
        tables, dense = encoder.table_variables, encoder.dense_variables
        # The layers that begin later have their own count of steps, as heads have.
        static = encoder.static_part.dense_variables if encoder.static_part else []
        of_static = {id(variable) for variable in static}
        later = [variable for variable in dense if id(variable) not in of_static]
        heads = {
            h.name: (task.config.head_rate, h.trainable_variables) for task in model.tasks for h in task.heads
        }
        groups = [(1.0, later), *heads.values()]
        with self._strategy.scope():
            self._optimizers = Optimizers(model.config.optimizer, tables, groups, static)
            # Before a checkpoint is restored: also after a restart, the start is the start.
            trained = [*self._optimizers.tables, *dense]
            self._start = StartingEncoder(trained, keep_weight) if keep_weight else None
        variables = [*model.weights, *self._optimizers.variables]
        self._checkpoints = Checkpoints(run_dir / "checkpoints", variables)

    def train(self) -> bool:
        """Trains until the budget is used up, from the newest checkpoint, if there is one.

        Raises:
            NonFiniteLossError: The training has diverged. Checkpoints stay as they were.
        """
        self._restore()
        first_step, saved = self.step, time.monotonic()
        self._begin = saved - self.seconds
        with ExitStack() as stack:
            log = None
            if self._workers.is_chief:
                log = TrainingLog(self._run_dir, first_step=self.step, progress=self._progress())
                stack.enter_context(log)
            stop = stack.enter_context(_stop_requests())
            stopped = False
            while not stopped and self._progress() < 1:
                dispatched = []
                for _ in range(self._steps_to_read()):
                    dispatched.append(self._train_step(self._phase()))
                    self.step += 1
                results = self._read(dispatched)
                stopped = self._agree(stop.is_set())
                if log:
                    for result in results:
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
        finished = self._progress() >= 1
        for phase in self._phases if finished and self._model.tasks else ():
            if not phase.steps:
                logging.warning("the budget was too short for phase %r: it had no step", phase.name)
        return finished

    def use_best_weights(self) -> int:
        """Gives the model its best weights, or leaves the last; returns after how many steps they were."""
        step = self._development.restore_best() if self._development else None
        return self.step if step is None else step

    def _steps_to_read(self) -> int:
        """How many steps are dispatched before any is read: not beyond the last, or one that is scored."""
        steps, dev_steps = self._config.steps, self._config.dev_steps
        return min(
            self._at_once,
            steps - self.step if steps else self._at_once,
            dev_steps - self.step % dev_steps if dev_steps else self._at_once,
        )

    def _agree(self, stop: bool) -> bool:
        """Takes the chief's clock for that of all workers; True if any was asked to stop."""
        seconds = time.monotonic() - self._begin if self._workers.is_chief else 0.0
        self.seconds, stops = self._workers.add_up([seconds, float(stop)])
        return stops > 0

    def _progress(self, ahead: int = 0) -> float:
        """Share of the budget that is used, of steps or minutes, whichever ends first; 1 without a task.

        `ahead` adds so many steps, each as long as those before it were, or a second if there were none.
        """
        if not self._model.tasks:
            return 1.0
        steps, minutes = self._config.steps, self._config.minutes
        seconds = self.seconds + ahead * (self.seconds / self.step if self.step else 1.0)
        of_steps = (self.step + ahead) / steps if steps else 0.0
        of_minutes = seconds / 60 / minutes if minutes else 0.0
        return min(1.0, max(of_steps, of_minutes))

    def _phase(self) -> Phase:
        """The phase of the next step: each goes on until it is over, and none comes back."""
        progress = self._progress()
        place = max((i for i, phase in enumerate(self._phases) if phase.steps), default=0)
        if self._phases[place].progress(progress) >= 1 and place + 1 < len(self._phases):
            self._phases[place].close()
            place += 1
        phase = self._phases[place]
        if not phase.steps:
            phase.begin = progress
            if len(self._phases) > 1:
                done = 100 * progress
                logging.info(
                    "phase %r, from step %d and %.0f%% of the budget on", phase.name, self.step, done
                )
        return phase

    def _score_if_due(self, log: TrainingLog) -> None:
        """Scores every `training.dev_steps`, and at the end, where the weights are often best."""
        if self._development is None:
            return
        if self.step % self._config.dev_steps == 0 or self._progress() >= 1:
            log.report_scores(self.step, self._development.score(self.step))

    def _compile(self, phase: Phase, task: Task) -> TrainStep:
        """Makes the graph function that trains one batch of a task on every replica."""
        encoder = phase.encoder
        variables = [*self._optimizers.tables, *encoder.dense_variables, *task.variables()]

        def replica_step(batch: Batch) -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            with tf.GradientTape() as tape:
                tape.watch([variable.value for variable in variables])  # tables are read by their handles
                losses, hits = task.losses(encoder, batch, self._start)
                count = tf.cast(tf.size(losses), tf.float32)
                # Gradients of the replicas are summed, so each loss is weighed by the whole batch.
                scale = task.config.loss_weight / context.all_reduce("sum", count)
                loss = scale * tf.reduce_sum(losses)
            gradients = tape.gradient(loss, [variable.value for variable in variables])
            norm = self._optimizers.apply(gradients, variables)
            tokens = tf.cast(tf.reduce_sum(batch.features.lengths), tf.float32)
            sums = tf.stack([tf.reduce_sum(losses), tf.reduce_sum(hits), count, tokens])
            return tf.concat([context.all_reduce("sum", sums), norm[None]], axis=0)

        @tf.function(input_signature=[phase.inputs[task.name].spec()], autograph=False)
        def train_step(batch: Batch) -> tf.Tensor:
            results = self._strategy.run(replica_step, args=(batch,))
            # All replicas have the same results.
            return self._strategy.experimental_local_results(results)[0]

        # The graph itself: to TensorFlow these are one function that is traced again and again, and it warns.
        return train_step.get_concrete_function()

    def _train_step(self, phase: Phase) -> DispatchedStep:
        task, texts, batch = phase.task, phase.texts(), phase.next_batch()
        begin, end = phase.progress(self._progress()), phase.progress(self._progress(ahead=1), ahead=1)
        learning_rate = self._optimizers.set_progress(begin, end, phase.static_rate)
        key = phase.name, task.graph
        if key not in self._steps:
            self._steps[key] = self._compile(phase, task)
        phase.steps += 1
        return DispatchedStep(self.step, task, learning_rate, texts, self._steps[key](batch))

    def _read(self, dispatched: Sequence[DispatchedStep]) -> list[StepResult]:
        """Waits for steps and reads what they measured, all at once."""
        rows = tf.stack([each.measured for each in dispatched]).numpy().tolist()
        results = []
        for each, (loss, hits, count, tokens, norm) in zip(dispatched, rows, strict=True):
            if not math.isfinite(loss) or not math.isfinite(norm):
                path = self._save_batch(each, loss)
                raise NonFiniteLossError(
                    f"training diverged at step {each.step} of task {each.task.name} (loss {loss}, gradient "
                    f"norm {norm}); its batch is in {path} and the last checkpoint is from before; try lower "
                    "learning rates with --set optimizer.learning_rate=... in another --run_dir"
                )
            results.append(
                StepResult(
                    step=each.step,
                    task=each.task.name,
                    loss=loss / count,
                    accuracy=hits / count,
                    gradient_norm=norm,
                    learning_rate=each.learning_rate,
                    sentences=int(count) * len(each.task.columns),
                    tokens=int(tokens),
                    seconds=time.monotonic() - self._begin,
                )
            )
        return results

    def _save_batch(self, dispatched: DispatchedStep, loss: float) -> Path:
        """Saves the texts of a step's batch of all replicas."""
        path = self._run_dir / "non_finite_batch.json"
        record = {
            "step": dispatched.step,
            "task": dispatched.task.name,
            "loss": str(loss),
            "columns": dispatched.texts(),
        }
        if self._workers.is_chief:
            with replacing(path) as temporary:
                temporary.write_text(json.dumps(record, ensure_ascii=False, indent=1), encoding="utf-8")
        return path

    def _save(self) -> None:
        """Lets the chief write a checkpoint."""
        if self._workers.is_chief:
            phases = {phase.name: [phase.steps, phase.begin] for phase in self._phases}
            state = {"step": self.step, "seconds": self.seconds, "phases": phases}
            self._checkpoints.save(self.step, state)

    def _restore(self) -> None:
        """Gives all workers the chief's newest checkpoint."""
        state: dict[str, Any] | None = self._workers.from_chief(self._checkpoints.restore)
        if state is not None:
            self._workers.share(self._checkpoints.variables)
            self.step, self.seconds = state["step"], state["seconds"]
            for phase in self._phases:
                phase.steps, phase.begin = state["phases"][phase.name]
            logging.info("continuing at step %d, %.1f minutes in", self.step, self.seconds / 60)
        if self._development and self._workers.is_chief:
            self._development.resume(self.step)


def _make_phases(model: Model, examples: Mapping[str, Examples], workers: Workers) -> list[Phase]:
    config, encoder = model.config.training, model.encoder
    make = partial(Phase, model=model, examples=examples, workers=workers)
    if not config.static_share:
        return [make("whole", encoder, model.tasks)]
    tasks = [copy.copy(task) for task in model.tasks]
    for task in tasks:
        task.config = dataclasses.replace(task.config, examples_per_batch=config.static_batch)
    return [
        make("static", encoder.static_part, tasks, end=config.static_share, least=config.static_steps),
        make("whole", encoder, model.tasks, static_rate=config.static_rate),
    ]


def make_schedule(tasks: Sequence[Task], sizes: Mapping[str, int], config: ExperimentConfig) -> Schedule:
    """Cycles through tasks, of so many examples."""
    weights: dict[str, int] = {}
    for _, group in groupby(tasks, key=type):
        mirrored = list(group)
        counts = [sizes[task.name] for task in mirrored]
        steps = sampling_weights(mirrored[0].config.weight, counts, config.data.sampling_temperature)
        weights.update(zip([task.name for task in mirrored], steps, strict=True))
    return Schedule.from_weights(weights)


@contextmanager
def _stop_requests() -> Iterator[threading.Event]:
    """Inside the block, the first SIGINT or SIGTERM only sets the event; a second one interrupts."""
    requested = threading.Event()

    def request(number: int, frame: FrameType | None) -> None:
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()

    numbers: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread():
        numbers = ()  # Python handles signals in the main thread only.
    previous = {number: signal.signal(number, request) for number in numbers}
    try:
        yield requested
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
