"""The training loop: a compiled step for each task, checkpoints, and exact resumption."""

import copy
import dataclasses
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from xling_tf.config import ExperimentConfig
from xling_tf.encoders.base import TokenEncoder
from xling_tf.errors import UserError
from xling_tf.model import CHECKPOINTS, Model
from xling_tf.program import progress
from xling_tf.tasks.base import Anchor, Batch, Task
from xling_tf.trainer.checkpoints import CheckpointError, Checkpoints
from xling_tf.trainer.distribution import Workers
from xling_tf.trainer.input_pipeline import Examples, TrainingInput, batch_graphs
from xling_tf.trainer.log import StepResult, TrainingLog
from xling_tf.trainer.optimizers import Optimizers
from xling_tf.trainer.schedule import Schedule, learning_rate_factor, sampling_weights

# From a batch and a factor of the learning rates to the sums of losses and hits, the numbers of
# examples and tokens, and the norm of the gradients.
TrainStep = Callable[[Batch, Any], tf.Tensor]
# Number of steps that are started before their measurements are read. Reading waits until the
# device has finished them, so that a GPU with a single step would often be idle.
_STEPS_TO_READ = {"CPU": 1, "GPU": 8}
_SAMPLED = 2**16  # number of examples that `Task.prepare` sees
_PARTS = {"bow": "average of words", "whole": "whole model"}  # what a phase trains


class DispatchedStep(NamedTuple):
    """A step that was started, and may still run."""

    step: int
    task: Task
    learning_rate: float
    measurements: tf.Tensor


class Phase:
    """A share of the training budget, in which an encoder is trained on some tasks.

    Args:
        name: "bow" or "whole".
        encoder: The encoder, or the part of it, that is trained.
        inputs: The batches of each task, by its name.
        schedule: The task of each step.
        end: Share of the budget at which the phase ends, if it has had `min_steps` steps by then.
        min_steps: Minimum number of steps; shortens the later phases if the budget is small.
        bow_rate: Multiplies the learning rates of the average of words.
    """

    def __init__(
        self,
        name: str,
        encoder: TokenEncoder,
        inputs: Mapping[str, TrainingInput],
        schedule: Schedule,
        *,
        end: float = 1.0,
        min_steps: int = 0,
        bow_rate: float = 1.0,
    ) -> None:
        self.name = name
        self.encoder = encoder
        self.inputs, self._schedule = inputs, schedule
        self.tasks = {name: part.task for name, part in inputs.items()}
        self.begin, self.end, self.min_steps = 0.0, end, min_steps
        self.bow_rate = bow_rate
        self.steps = 0
        self._streams: dict[str, Iterator[Batch]] = {}
        self._is_closed = threading.Event()

    @property
    def task(self) -> Task:
        """The task of the next step."""
        return self.tasks[self._schedule.task(self.steps)]

    def progress(self, progress: float, ahead: int = 0) -> float:
        """The share of the phase that is over at `progress` of the budget, `ahead` steps on."""
        share = (progress - self.begin) / (self.end - self.begin)
        if self.min_steps:
            share = max(min(share, (self.steps + ahead) / self.min_steps), progress)
        return min(1.0, share)

    def next_batch(self, name: str) -> Any:
        """Returns the next batch of the task of this name."""
        if name not in self._streams:
            count = self._schedule.count(name, self.steps)
            self._streams[name] = self.inputs[name].stream(count, self._is_closed)
        return self.inputs[name].next_batch(self._streams[name])

    def close(self) -> None:
        """Drops the batches that were read in advance.

        The destructor of a stream holds Python's global lock while it waits for TensorFlow's
        threads. On a single core these may be busy reading other streams, which needs the lock. So
        all streams are emptied before any is dropped.
        """
        self._is_closed.set()
        for stream in self._streams.values():
            for _ in stream:
                pass
        self._streams.clear()
        self._is_closed = threading.Event()


class Trainer:
    """Trains a model on its tasks, one task per step.

    With `training.bow_share`, a first phase trains the average of words, and the heads on it, in
    batches of `training.bow_batch`, for at least `training.bow_steps` steps if the budget allows.
    The chief's clock measures the budget. The model must be built under the strategy's scope.
    """

    def __init__(
        self,
        *,
        model: Model,
        tasks: Sequence[Task],
        config: ExperimentConfig,
        examples: Mapping[str, Examples],
        workers: Workers,
        run_dir: Path,
    ) -> None:
        self.step, self.seconds = 0, 0.0
        # On the monotonic clock, less the time that earlier processes have trained.
        self._begin = 0.0
        self._tasks = tasks
        self._config, self._optimizer_config = config.training, config.optimizer
        self._workers = workers
        self._run_dir = run_dir
        self._steps_ahead = _STEPS_TO_READ[
            "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        ]
        self._phases = _make_phases(model, tasks, config, examples, workers)
        self._steps: dict[tuple[str, str], TrainStep] = {}
        with workers.strategy.scope():
            self._optimizers = _make_optimizers(model, tasks, config)
            # Made before a checkpoint is restored, so that it copies the weights that training
            # started from.
            variables = [*self._optimizers.tables, *model.encoder.dense_variables]
            weight = config.initial.anchor_weight
            self._anchor = Anchor(variables, weight) if weight else None
        weights = {name: variable.value for name, variable in model.weights.items()}
        self._checkpoints = Checkpoints(
            run_dir / CHECKPOINTS, weights, self._optimizers.named_variables
        )

    def train(self) -> bool:
        """Trains from the newest checkpoint, if there is one, until the budget is used up.

        Returns:
            True if the budget was used up, False if a signal stopped training early.
        """
        self._restore()
        first_step = self.step
        with ExitStack() as stack:
            stop = stack.enter_context(_stop_requests())
            for phase in self._phases:
                stack.callback(phase.close)
            if self._progress() < 1:
                with progress("making the graphs of training steps"):
                    self._run_graphs_once()
            log = None
            if self._workers.is_chief:
                log = stack.enter_context(TrainingLog(self._run_dir, self.step))
            saved = time.monotonic()
            self._begin = saved - self.seconds
            stopped = False
            while not stopped and self._progress() < 1:
                results = self._take_steps()
                stopped = self._agree(stop.is_set())
                if log:
                    for result in results:
                        log.report(result, self._progress())
                if time.monotonic() - saved > 60 * self._config.checkpoint_minutes:
                    try:
                        self._save()
                    except CheckpointError as error:  # the next one may succeed
                        logging.warning("%s; training continues", error)
                    saved = time.monotonic()
        if self.step > first_step:
            self._save()
        finished = self._progress() >= 1
        if finished and self._tasks:
            self._warn_of_idle_phases()
        return finished

    def _take_steps(self) -> list[StepResult]:
        """Starts as many steps as are read together, fewer at the end, and waits for them."""
        left = self._config.steps - self.step if self._config.steps else self._steps_ahead
        dispatched = []
        for _ in range(min(self._steps_ahead, left)):
            dispatched.append(self._train_step(self._phase()))
            self.step += 1
        return self._read(dispatched)

    def _warn_of_idle_phases(self) -> None:
        for phase in self._phases:
            if not phase.steps:
                logging.warning(
                    "the budget was too small for the %s: it had no step", _PARTS[phase.name]
                )

    def _agree(self, stop: bool) -> bool:
        """Sets `seconds` by the chief's clock in all workers; True if any must stop."""
        seconds = time.monotonic() - self._begin if self._workers.is_chief else 0.0
        self.seconds, stops = self._workers.add_up([seconds, float(stop)])
        return stops > 0

    def _progress(self, ahead: int = 0) -> float:
        """Returns the used share of the steps or of the minutes, whichever is larger; 1 without
        tasks.

        `ahead` adds that many steps of average duration; before the first step, a second each.
        """
        if not self._tasks:
            return 1.0
        steps, minutes = self._config.steps, self._config.minutes
        seconds = self.seconds + ahead * (self.seconds / self.step if self.step else 1.0)
        step_share = (self.step + ahead) / steps if steps else 0.0
        time_share = seconds / 60 / minutes if minutes else 0.0
        return min(1.0, max(step_share, time_share))

    def _phase_index(self) -> int:
        """Returns the position of the phase of the last step, or 0 before the first step."""
        return max((i for i, phase in enumerate(self._phases) if phase.steps), default=0)

    def _phase(self) -> Phase:
        """Returns the next step's phase: the current one, or, if that is over, the next."""
        progress, index = self._progress(), self._phase_index()
        if self._phases[index].progress(progress) >= 1 and index + 1 < len(self._phases):
            self._phases[index].close()
            index += 1
        phase = self._phases[index]
        if not phase.steps:
            phase.begin = progress
            if len(self._phases) > 1:
                logging.info("the %s is trained from step %d on", _PARTS[phase.name], self.step)
        return phase

    def _run_graphs_once(self) -> None:
        """Makes the graphs of this phase and the later ones, and runs each once, without learning
        anything.

        Making a graph takes seconds, as does its first run, in which TensorFlow optimizes it and
        loads its kernels. Later, this time would be part of the budget, and so change the learning
        rates. A loss that is not finite is an error here: even at a rate of 0, its gradient makes
        weights NaN for all tasks.
        """
        state = self._optimizers.named_variables.values()
        values = [variable.numpy() for variable in state]
        for phase in self._phases[self._phase_index() :]:
            for task in phase.tasks.values():
                if (phase.name, task.trace_key) not in self._steps:
                    self._read([self._dispatch(phase, task, 0.0)])
            phase.close()
        for variable, value in zip(state, values, strict=True):
            variable.assign(value)

    def _compile(self, phase: Phase, task: Task) -> TrainStep:
        """Makes the graph function that trains one batch of a task on every replica."""
        encoder = phase.encoder
        variables = [*self._optimizers.tables, *encoder.dense_variables, *task.variables()]
        values = [variable.value for variable in variables]

        def replica_step(batch: Batch, factor: tf.Tensor) -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            with tf.GradientTape() as tape:
                tape.watch(values)  # not automatic: tables are read by handle
                losses, hits = task.losses(encoder, batch, self._anchor, training=True)
                count = tf.cast(tf.size(losses), tf.float32)
                # Gradients of the replicas are summed, so losses are divided by the size of the
                # whole batch.
                loss_weight = task.config.loss_weight
                loss = loss_weight / context.all_reduce("sum", count) * tf.reduce_sum(losses)
            rates = {"loss_weight": loss_weight, "bow_rate": phase.bow_rate}
            norm = self._optimizers.apply(tape.gradient(loss, values), variables, factor, **rates)
            tokens = tf.cast(tf.reduce_sum(batch.features.lengths), tf.float32)
            sums = tf.stack([tf.reduce_sum(losses), tf.reduce_sum(hits), count, tokens])
            return tf.concat([context.all_reduce("sum", sums), norm[None]], axis=0)

        signature = [phase.inputs[task.name].spec(), tf.TensorSpec([], tf.float32)]

        @tf.function(input_signature=signature, autograph=False)
        def train_step(batch: Batch, factor: tf.Tensor) -> tf.Tensor:
            results = self._workers.strategy.run(replica_step, args=(batch, factor))
            # All replicas have the same results.
            return self._workers.strategy.experimental_local_results(results)[0]

        # The concrete function, because TensorFlow would warn about repeated retracing.
        return train_step.get_concrete_function()

    def _train_step(self, phase: Phase) -> DispatchedStep:
        begin = phase.progress(self._progress())
        end = phase.progress(self._progress(ahead=1), ahead=1)
        config = self._optimizer_config
        factor = learning_rate_factor(begin, end, warmup=config.warmup, decay=config.decay)
        dispatched = self._dispatch(phase, phase.task, factor)
        phase.steps += 1
        return dispatched

    def _dispatch(self, phase: Phase, task: Task, factor: float) -> DispatchedStep:
        """Starts a step with learning rates multiplied by `factor`, an argument of its graph."""
        key = phase.name, task.trace_key  # tasks of several languages share a graph
        if key not in self._steps:
            self._steps[key] = self._compile(phase, task)
        measurements = self._steps[key](phase.next_batch(task.name), tf.constant(factor))
        return DispatchedStep(
            self.step, task, factor * self._optimizer_config.learning_rate, measurements
        )

    def _read(self, steps: Sequence[DispatchedStep]) -> list[StepResult]:
        """Waits for the steps to finish, and returns their measurements."""
        rows = tf.stack([step.measurements for step in steps]).numpy().tolist()
        results = []
        for step, (loss, hits, count, tokens, norm) in zip(steps, rows, strict=True):
            if not math.isfinite(loss) or not math.isfinite(norm):
                raise UserError(
                    f"training diverged at step {step.step}, in task {step.task.name} (loss "
                    f"{loss}, gradient norm {norm}); start again in another run_dir, with a lower "
                    "optimizer.learning_rate or another starting model"
                )
            results.append(
                StepResult(
                    step=step.step,
                    task=step.task.name,
                    loss=loss / count,
                    accuracy=hits / count,
                    gradient_norm=norm,
                    learning_rate=step.learning_rate,
                    sentences=int(count) * len(step.task.columns),
                    tokens=int(tokens),
                    seconds=time.monotonic() - self._begin,
                )
            )
        return results

    def _save(self) -> None:
        """Writes a checkpoint in the chief."""
        if self._workers.is_chief:
            phases = {phase.name: [phase.steps, phase.begin] for phase in self._phases}
            state = {"step": self.step, "seconds": self.seconds, "phases": phases}
            self._checkpoints.save(self.step, state)

    def _restore(self) -> None:
        """Restores the chief's newest checkpoint in all workers."""
        state: dict[str, Any] | None = self._workers.from_chief(self._checkpoints.restore)
        if state is not None:
            self._workers.share(self._checkpoints.variables)
            self.step, self.seconds = state["step"], state["seconds"]
            for phase in self._phases:
                phase.steps, phase.begin = state["phases"][phase.name]
            logging.info("continuing at step %d, after %.1f minutes", self.step, self.seconds / 60)


def _make_optimizers(model: Model, tasks: Sequence[Task], config: ExperimentConfig) -> Optimizers:
    """Makes the optimizers of the tables and of each part that counts its own steps."""
    encoder = model.encoder
    # Layers that other parts share are a group of their own only where a first phase trains them.
    has_average = config.training.bow_share or getattr(encoder.bow_encoder, "is_separate", False)
    bow = encoder.bow_encoder.dense_variables if has_average else []
    # Layers that the bow phase does not train count their own steps, as each head does.
    later = [variable for variable in encoder.dense_variables if id(variable) not in map(id, bow)]
    heads = {
        f"{task.group}/{name}": (task.config.head_rate, head.trainable_variables)
        for task in tasks
        for name, head in task.heads.items()
    }
    return Optimizers(config.optimizer, encoder.table_variables, later, heads, bow)


def _make_phases(
    model: Model,
    tasks: Sequence[Task],
    config: ExperimentConfig,
    examples: Mapping[str, Examples],
    workers: Workers,
) -> list[Phase]:
    training, encoder, graphs = config.training, model.encoder, batch_graphs(model.tokenizer)

    def make(name: str, encoder: TokenEncoder, tasks: Sequence[Task], **options: Any) -> Phase:
        inputs = {
            t.name: TrainingInput(t, examples[t.name], graphs, config, workers) for t in tasks
        }
        for task in tasks:
            task.prepare(model.tokenizer, inputs[task.name].sample(_SAMPLED))
        schedule = make_schedule(
            tasks, {task.name: len(examples[task.name]) for task in tasks}, config
        )
        return Phase(name, encoder, inputs, schedule, **options)

    if not training.bow_share:
        return [make("whole", encoder, tasks)]
    bow_tasks = [copy.copy(task) for task in tasks]
    for task in bow_tasks:
        task.config = dataclasses.replace(task.config, examples_per_batch=training.bow_batch)
    return [
        make(
            "bow",
            encoder.bow_encoder,
            bow_tasks,
            end=training.bow_share,
            min_steps=training.bow_steps,
        ),
        make("whole", encoder, tasks, bow_rate=training.bow_rate),
    ]


def make_schedule(
    tasks: Sequence[Task], sizes: Mapping[str, float], config: ExperimentConfig
) -> Schedule:
    """Makes the schedule of the tasks, given each one's number of training examples."""
    weights: dict[str, int] = {}
    for _, group in groupby(tasks, key=lambda task: (task.group, type(task))):
        mirrored = list(group)
        counts = [sizes[task.name] for task in mirrored]
        steps = sampling_weights(
            mirrored[0].config.weight, counts, config.data.sampling_temperature
        )
        weights.update(zip([task.name for task in mirrored], steps, strict=True))
    return Schedule.from_weights(weights)


@contextmanager
def _stop_requests() -> Iterator[threading.Event]:
    """Makes the first SIGINT or SIGTERM set an event; a second one raises `KeyboardInterrupt`."""
    requested = threading.Event()

    def request(number: int, frame: FrameType | None) -> None:
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()

    numbers: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread():
        numbers = ()  # Python handles signals only in the main thread
    previous = {number: signal.signal(number, request) for number in numbers}
    try:
        yield requested
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
