"""The training loop: a compiled step for each task, checkpoints, and exact resumption."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from xling_tf.config import ExperimentConfig
from xling_tf.errors import UserError
from xling_tf.files import CHECKPOINTS
from xling_tf.model import Model
from xling_tf.program import progress
from xling_tf.tasks.base import Anchor, Batch, Task
from xling_tf.trainer.checkpoints import CheckpointError, Checkpoints
from xling_tf.trainer.distribution import Workers
from xling_tf.trainer.held_out import Validation
from xling_tf.trainer.input_pipeline import Examples
from xling_tf.trainer.log import StepResult, TrainingLog
from xling_tf.trainer.mining import Miner
from xling_tf.trainer.optimizers import Optimizers
from xling_tf.trainer.schedule import Budget, learning_rate_factor
from xling_tf.trainer.stages import Stage, encoder_groups, make_stages
from xling_tf.weights import arrays, assign_weights, read_weights, write_weights

# From a batch and a factor of the learning rates to the sums of losses and hits, the numbers of
# examples and tokens, and the norm of the gradients.
TrainStep = Callable[[Batch, Any], tf.Tensor]
# Number of steps that are started before their measurements are read. Reading waits until the
# device has finished them, so that a GPU with a single step would often be idle.
_STEPS_TO_READ = {"CPU": 1, "GPU": 8}
_BEST = "best-{:09d}.safetensors"  # the weights of the step with the best score, in the run folder


class DispatchedStep(NamedTuple):
    """A step that was started, and may still run."""

    step: int
    task: Task
    learning_rate: float
    measurements: tf.Tensor


class Trainer:
    """Trains a model in stages, one task per step.

    The chief's clock measures the budget. The model must be built under the strategy's scope.

    Args:
        model: The model.
        tasks: Those that have examples.
        config: The settings.
        examples: Those of each task, by its name.
        workers: All processes that train together.
        run_dir: Folder of checkpoints and logs.
        miner: Finds wrong answers for the tasks that have `miners`.
        validation: Scores the model while it trains, in the chief, and chooses the weights to take
            at the end; None takes the last ones.
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
        miner: Miner | None = None,
        validation: Validation | None = None,
    ) -> None:
        self.step, self.seconds = 0, 0.0
        # On the monotonic clock, less the time that earlier processes have trained.
        self._begin = 0.0
        self._tasks = tasks
        self._config, self._optimizer_config = config.training, config.optimizer
        training = config.training
        self._budget = Budget(training.steps or math.inf, 60 * training.minutes or math.inf)
        self._workers = workers
        self._run_dir, self._miner = run_dir, miner
        self._model, self._validation = model, validation
        self._saved_best = 0  # the best step of the newest checkpoint
        self._is_over = False  # the validation has ended the training in all workers
        self._steps_ahead = _STEPS_TO_READ[
            "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        ]
        self._stages = make_stages(model, tasks, config, examples, workers)
        self._last_stage: Stage | None = None
        self._steps: dict[tuple[str, str], TrainStep] = {}
        with workers.strategy.scope():
            self._optimizers = _make_optimizers(model, tasks, config)
            # Made before a checkpoint is restored, so that it copies the weights that training
            # started from.
            variables = [*self._optimizers.tables, *model.encoder.dense_variables]
            weight = config.initial.anchor_weight
            self._anchor = Anchor(variables, weight) if weight else None
        self._weights = {name: variable.value for name, variable in model.weights.items()}
        self._checkpoints = Checkpoints(
            run_dir / CHECKPOINTS, self._weights, self._optimizers.named_variables
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
            for stage in self._stages:
                stack.callback(stage.close)
            if not self._is_finished():
                with progress("making the graphs of training steps"):
                    self._run_graphs_once()
            log = None
            if self._workers.is_chief:
                log = stack.enter_context(TrainingLog(self._run_dir, self.step))
            self._train_steps(stop, log)
        if self.step > first_step:
            self._save()
        finished = self._is_finished()
        if finished:
            self._take_best()
        for stage in self._stages if finished and self._tasks else ():
            if not stage.steps:
                logging.warning("stage %s had no step, because the budget was small", stage.name)
        return finished

    def _train_steps(self, stop: threading.Event, log: TrainingLog | None) -> None:
        """Trains until the budget is used up, or until a worker is asked to stop."""
        saved = time.monotonic()
        self._begin = saved - self.seconds
        stopped = False
        while not stopped and not self._is_finished():
            results = self._take_steps()
            stopped = self._agree(stop.is_set())
            if log:
                for result in results:
                    log.report(result, self._progress())
                self._validate(log)
            if time.monotonic() - saved > 60 * self._config.checkpoint_minutes:
                try:
                    self._save()
                except CheckpointError as error:  # the next one may succeed
                    logging.warning("%s; training continues", error)
                saved = time.monotonic()

    def _remove_worse(self, *steps: int) -> None:
        """Removes the weights of steps that were the best once; a checkpoint may need some."""
        kept = {_BEST.format(step) for step in steps}
        for path in self._run_dir.glob("best-*.safetensors"):
            if path.name not in kept:
                path.unlink()

    def _take_steps(self) -> list[StepResult]:
        """Starts as many steps as are read together, fewer at the end, and waits for them."""
        left = self._config.steps - self.step if self._config.steps else self._steps_ahead
        dispatched = []
        for _ in range(min(self._steps_ahead, left)):
            dispatched.append(self._train_step(self._stage()))
            self.step += 1
        return self._read(dispatched)

    def _agree(self, stop: bool) -> bool:
        """Sets `seconds` by the chief's clock in all workers; returns True if any must stop."""
        seconds = time.monotonic() - self._begin if self._workers.is_chief else 0.0
        numbers = [seconds, float(stop), float(self._has_ended_early())]
        self.seconds, stops, overs = self._workers.add_up(numbers)
        self._is_over = overs > 0
        return stops > 0

    def _is_finished(self) -> bool:
        return self._is_over or self._progress() >= 1

    def _validate(self, log: TrainingLog) -> None:
        """Scores the model if it is due, and keeps its weights if they are the best so far."""
        validation = self._validation
        if validation is None or not validation.is_due(self._progress()):
            return
        begin = time.monotonic()
        if validation.add(self.step, lambda texts: self._model(texts).numpy()):
            write_weights(self._run_dir / _BEST.format(self.step), arrays(self._weights))
            self._remove_worse(validation.best_step, self._saved_best)
        log.report_score(*validation.curve[-1])
        self._begin += time.monotonic() - begin  # the budget is for training alone

    def _take_best(self) -> None:
        """Assigns the weights of the step with the best score."""
        validation = self._validation
        if validation is None or validation.best_step in (0, self.step):
            return
        path = self._run_dir / _BEST.format(validation.best_step)
        assign_weights(self._weights, read_weights(path), str(path))
        logging.info(
            "taking the weights of step %d, which has the best score", validation.best_step
        )

    def _used(self, ahead: int = 0) -> Budget:
        """What is used of the budget, `ahead` steps from now: average ones, or of a second each."""
        seconds_per_step = self.seconds / self.step if self.step else 1.0
        return Budget(self.step + ahead, self.seconds + ahead * seconds_per_step)

    def _progress(self) -> float:
        """Returns the used share of the steps or of the minutes; 1 without tasks."""
        return self._used().share_of(self._budget) if self._tasks else 1.0

    def _stage_index(self) -> int:
        """Returns the position of the stage of the last step, or 0 before the first step."""
        return max((i for i, stage in enumerate(self._stages) if stage.steps), default=0)

    def _stage(self) -> Stage:
        """Returns the stage of the next step: the current one, or if that is over, a later one."""
        used, stages = self._used(), self._stages[self._stage_index() :]
        for stage in stages:
            if not stage.steps:
                stage.begin = used
            if stage is stages[-1] or stage.progress(self._budget, used) < 1:
                break
            stage.close()
        if stage is not self._last_stage:
            self._last_stage = stage
            if len(self._stages) > 1:
                logging.info("stage %s, from step %d on", stage.name, self.step)
            self._mine(stage)
        return stage

    def _mine(self, stage: Stage) -> None:
        """Finds wrong answers by the model as it is; the time is not part of the budget."""
        learners = {name: part for name, part in stage.inputs.items() if part.task.miners}
        if not learners or self._miner is None:
            return
        begin, miner = time.monotonic(), self._miner
        if self.step and not all(miner.is_ready(stage.name, name) for name in learners):
            self._save()  # a run that is killed meanwhile continues with the same weights
        for name, part in learners.items():
            miner.mine(stage.name, part, stage.most_batches(name, self._budget))
        if stage is self._stages[-1]:
            miner.close()
        self._begin += time.monotonic() - begin

    def _run_graphs_once(self) -> None:
        """Makes the graphs of this stage and later ones, and runs each once without learning.

        Making a graph takes seconds, as does its first run, in which TensorFlow optimizes it and
        loads its kernels. Later, this time would be part of the budget, and so change the learning
        rates. A loss that is not finite is an error here: even at a rate of 0, its gradient makes
        weights NaN for all tasks.
        """
        state = self._optimizers.named_variables.values()
        values = [variable.numpy() for variable in state]
        for stage in self._stages[self._stage_index() :]:
            for task in stage.tasks.values():
                if (stage.name, task.trace_key) not in self._steps:
                    self._read([self._dispatch(stage, task, 0.0)])
            stage.close()
        for variable, value in zip(state, values, strict=True):
            variable.assign(value)

    def _compile(self, stage: Stage, task: Task) -> TrainStep:
        """Makes the graph function that trains one batch of a task on every replica."""
        encoder = stage.encoder
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
            gradients, rates = tape.gradient(loss, values), stage.rates
            norm = self._optimizers.apply(
                gradients, variables, factor, loss_weight=loss_weight, rates=rates
            )
            tokens = tf.cast(tf.reduce_sum(batch.features.lengths), tf.float32)
            sums = tf.stack([tf.reduce_sum(losses), tf.reduce_sum(hits), count, tokens])
            return tf.concat([context.all_reduce("sum", sums), norm[None]], axis=0)

        signature = [stage.inputs[task.name].spec(), tf.TensorSpec([], tf.float32)]

        @tf.function(input_signature=signature, autograph=False)
        def train_step(batch: Batch, factor: tf.Tensor) -> tf.Tensor:
            results = self._workers.strategy.run(replica_step, args=(batch, factor))
            # All replicas have the same results.
            return self._workers.strategy.experimental_local_results(results)[0]

        # The concrete function, because TensorFlow would warn about repeated retracing.
        return train_step.get_concrete_function()

    def _train_step(self, stage: Stage) -> DispatchedStep:
        begin = stage.progress(self._budget, self._used())
        end = stage.progress(self._budget, self._used(ahead=1))
        config = self._optimizer_config
        factor = learning_rate_factor(begin, end, warmup=config.warmup, decay=config.decay)
        dispatched = self._dispatch(stage, stage.task, factor)
        stage.steps += 1
        return dispatched

    def _dispatch(self, stage: Stage, task: Task, factor: float) -> DispatchedStep:
        """Starts a step, whose graph multiplies the learning rates by its argument `factor`."""
        key = stage.name, task.trace_key  # tasks of several languages share a graph
        if key not in self._steps:
            self._steps[key] = self._compile(stage, task)
        measurements = self._steps[key](stage.next_batch(task.name), tf.constant(factor))
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
                    f"{loss}, gradient norm {norm}); start again with another `run_dir` and a "
                    "lower optimizer.learning_rate or another starting model"
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
            stages = {stage.name: [stage.steps, *stage.begin] for stage in self._stages}
            state = {"step": self.step, "seconds": self.seconds, "stages": stages}
            if self._validation:
                state["validation"] = self._validation.state()
            self._checkpoints.save(self.step, state)
            if self._validation:
                self._saved_best = self._validation.best_step
                self._remove_worse(self._saved_best)

    def _restore(self) -> None:
        """Restores the chief's newest checkpoint in all workers."""
        state: dict[str, Any] | None = self._workers.from_chief(self._checkpoints.restore)
        if state is not None:
            self._workers.share(self._checkpoints.variables)
            self.step, self.seconds = state["step"], state["seconds"]
            for stage in self._stages:
                stage.steps, *begin = state["stages"][stage.name]
                stage.begin = Budget(*begin)
            logging.info("continuing at step %d, after %.1f minutes", self.step, self.seconds / 60)
        if self._validation:
            before = state.get("validation", {}) if state else {}
            self._validation.begin(before, self._progress(), self._config.budget)
            self._saved_best = self._validation.best_step
        self._is_over = bool(self._workers.from_chief(self._has_ended_early))

    def _has_ended_early(self) -> bool:
        return self._validation is not None and self._validation.is_over


def _make_optimizers(model: Model, tasks: Sequence[Task], config: ExperimentConfig) -> Optimizers:
    """Makes the optimizers of the tables and of all that counts its own steps."""
    groups = encoder_groups(model.encoder, config)
    shared = {name: group.variables for name, group in groups.items()}
    heads = {
        f"{task.group}/{name}": (task.config.head_rate, head.trainable_variables)
        for task in tasks
        for name, head in task.heads.items()
    }
    return Optimizers(config.optimizer, model.encoder.table_variables, shared, heads)


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
