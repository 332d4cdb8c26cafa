"""The stages of a training: each trains a part of the encoder on some tasks, for a while."""

import copy
import dataclasses
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import keras

from xling_tf.config import ExperimentConfig
from xling_tf.encoders.base import TokenEncoder
from xling_tf.errors import UserError
from xling_tf.model import Model
from xling_tf.tasks.base import Batch, Task
from xling_tf.trainer.distribution import Workers
from xling_tf.trainer.input_pipeline import Examples, TrainingInput, batch_graphs
from xling_tf.trainer.optimizers import TABLES
from xling_tf.trainer.schedule import Budget, Schedule, sampling_weights

_SAMPLED = 2**16  # number of examples that `Task.prepare` sees


class EncoderGroup(NamedTuple):
    """Variables of an encoder that are trained together."""

    stages: tuple[str, ...]
    variables: list[keras.Variable]


class Stage:
    """A stage of the training: part of an encoder, tasks, a share of the budget, and rates.

    Args:
        name: Name in the settings.
        encoder: The encoder, or the part of it, that is trained.
        inputs: The batches of each task, by its name.
        schedule: The task of each step.
        end: Share of the whole budget at which the stage ends, if it has had `min_steps` by then.
        min_steps: Minimum number of steps, if the whole budget has as many.
        rates: Multiples of the learning rates, by the names of groups of `Optimizers`.
    """

    def __init__(
        self,
        name: str,
        encoder: TokenEncoder,
        inputs: Mapping[str, TrainingInput],
        schedule: Schedule,
        *,
        end: float,
        min_steps: int,
        rates: Mapping[str, float],
    ) -> None:
        self.name, self.encoder, self.inputs, self.rates = name, encoder, inputs, rates
        self.tasks = {name: part.task for name, part in inputs.items()}
        self.steps, self.begin = 0, Budget(0, 0)  # so far, and what earlier stages have used
        self._schedule, self._end, self._min_steps = schedule, end, min_steps
        self._streams: dict[str, Iterator[Batch]] = {}
        self._is_closed = threading.Event()

    @property
    def task(self) -> Task:
        """The task of the next step."""
        return self.tasks[self._schedule.task(self.steps)]

    def progress(self, whole: Budget, used: Budget) -> float:
        """Returns the share of the stage that is over once some of the whole budget is used."""
        # Rounded, because 0.07 * 100 is more than 7.
        end = Budget(*(round(self._end * limit, 6) for limit in whole))
        own = used.less(self.begin)
        of_own_budget = own.share_of(end.less(self.begin))
        if not self._min_steps:
            return of_own_budget
        # Until it has its minimum of steps, the stage goes on, but not beyond the whole budget.
        of_min_steps = own.steps / self._min_steps
        of_whole_budget = own.share_of(whole.less(self.begin))
        return max(min(of_own_budget, of_min_steps), of_whole_budget)

    def most_batches(self, name: str, whole: Budget) -> float:
        """Returns how many batches of a task the stage has at most, infinity if minutes decide."""
        if math.isinf(whole.steps):
            return math.inf
        limit = round(self._end * whole.steps - self.begin.steps, 6)
        steps = min(int(whole.steps), max(math.ceil(limit), self._min_steps))
        return self._schedule.count(name, steps)

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


def make_stages(
    model: Model,
    tasks: Sequence[Task],
    config: ExperimentConfig,
    examples: Mapping[str, Examples],
    workers: Workers,
) -> list[Stage]:
    """Makes the stages of a training, in their order."""
    groups, graphs = encoder_groups(model.encoder, config), batch_graphs(model.tokenizer)
    ends, earlier = [*accumulate(config.stage_shares.values())], set[str]()
    stages = []
    for (name, settings), end in zip(config.active_stages.items(), [*ends[:-1], 1.0], strict=True):
        inputs = {}
        for task in tasks:
            if settings.tasks and task.group not in settings.tasks:
                continue
            if size := settings.examples_per_batch:
                task = copy.copy(task)
                task.config = dataclasses.replace(task.config, examples_per_batch=size)
            part = TrainingInput(task, examples[task.name], graphs, config, workers)
            task.prepare(model.tokenizer, part.sample(_SAMPLED))
            inputs[task.name] = part
        if tasks and not inputs:
            raise UserError(
                f"stages.{name}.tasks must have examples, but none has; name other tasks, or set "
                f"stages.{name}.share=0"
            )
        sizes = {task: len(examples[task]) for task in inputs}
        schedule = make_schedule([part.task for part in inputs.values()], sizes, config)
        rates = dict.fromkeys(earlier, settings.earlier_rate)
        encoder = _part(model.encoder, settings.part)
        stage = Stage(
            name, encoder, inputs, schedule, end=end, min_steps=settings.min_steps, rates=rates
        )
        stages.append(stage)
        trained = [key for key, group in groups.items() if name in group.stages]
        earlier.update([TABLES, *trained])
    return stages


def encoder_groups(encoder: TokenEncoder, config: ExperimentConfig) -> dict[str, EncoderGroup]:
    """Groups the dense variables of an encoder by the stages that train them."""
    trained_by: dict[int, tuple[str, ...]] = {}
    for name, stage in config.active_stages.items():
        for variable in _part(encoder, stage.part).dense_variables:
            trained_by[id(variable)] = (*trained_by.get(id(variable), ()), name)
    groups: dict[str, EncoderGroup] = {}
    for variable in encoder.dense_variables:
        if stages := trained_by.get(id(variable)):
            group = groups.setdefault("encoder/" + "+".join(stages), EncoderGroup(stages, []))
            group.variables.append(variable)
    return groups


def _part(encoder: TokenEncoder, name: str) -> Any:
    return encoder.average_part if name == "average" else encoder


def make_schedule(
    tasks: Sequence[Task], sizes: Mapping[str, float], config: ExperimentConfig
) -> Schedule:
    """Makes the schedule of tasks, given the number of training examples of each by its name."""
    weights: dict[str, int] = {}
    for _, group in groupby(tasks, key=lambda task: (task.group, type(task))):
        mirrored = list(group)
        counts = [sizes[task.name] for task in mirrored]
        steps = sampling_weights(
            mirrored[0].config.weight, counts, config.data.sampling_temperature
        )
        weights.update(zip([task.name for task in mirrored], steps, strict=True))
    return Schedule.from_weights(weights)
