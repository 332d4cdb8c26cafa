"""What the processes that train together tell each other besides gradients."""

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from xling_tf.errors import UserError
from xling_tf.trainer.cluster import ALONE, Cluster
from xling_tf.trainer.distribution import make_strategy
from xling_tf.trainer.run_folder import differences

Value = TypeVar("Value")

_LOST = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.UnavailableError,
)


class WorkerLostError(UserError):
    """Another process of the training has ended or cannot be reached."""


@contextmanager
def losses_told(cluster: Cluster) -> Iterator[None]:
    """Turns TensorFlow's errors about another process into one line.

    Raises:
        WorkerLostError: Another process is gone.
    """
    try:
        yield
    except _LOST as error:
        if len(cluster.names) == 1:
            raise
        reason = str(error.message).rpartition("Collective ops is aborted by: ")[2]
        first_line = reason.partition("\n")[0].rstrip(":. ")
        raise WorkerLostError(
            f"another worker has ended or cannot be reached ({first_line}); see its own error, "
            "then start the same command on every worker: it continues at the last checkpoint"
        ) from error


def connect(cluster: Cluster) -> "Workers":
    """Waits for the other processes, and makes the strategy that they share.

    Args:
        cluster: Who trains together. Where it is more than this process, no TensorFlow operation may
            have run before.

    Raises:
        UserError: Another process is not started.
    """
    cluster.wait_for_others()
    return Workers(make_strategy(cluster), cluster)


class Workers:
    """The processes that train together, each with the replicas on its own devices.

    All of them must call the same methods in the same order: a call waits for the others. One that
    trains alone calls them too, and waits for nobody.

    Args:
        strategy: The replicas of all.
        cluster: Who they are; by default, this process alone.
    """

    def __init__(self, strategy: tf.distribute.Strategy, cluster: Cluster = ALONE) -> None:
        self.strategy = strategy
        self.cluster = cluster
        self._together = len(cluster.names) > 1

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the run folder, evaluates and exports."""
        return self.cluster.is_chief

    @property
    def replicas(self) -> range:
        """The numbers of this process' replicas among those of all."""
        count = self.strategy.num_replicas_in_sync // len(self.cluster.names)
        return range(self.cluster.rank * count, (self.cluster.rank + 1) * count)

    def add_up(self, numbers: Sequence[float]) -> list[float]:
        """Adds everybody's numbers, position by position.

        Returns:
            The same sums in every process.
        """
        if not self._together:
            return list(numbers)
        return [float(total) for total in self._sums(tf.constant(numbers, tf.float64))]

    def wait(self) -> None:
        """Returns once everybody has come here."""
        self.add_up([0.0])

    def from_chief(self, make: Callable[[], Value]) -> Value:
        """Lets the chief alone make something, and gives it to everybody.

        Raises:
            UserError: The chief's, in every process.
        """
        if not self._together:
            return make()
        made: Any = None
        if self.is_chief:
            try:
                made = (make(), None)
            except UserError as error:
                made = (None, str(error))
        value, refusal = self._everybodys(made)[0]
        if refusal is not None:
            raise UserError(refusal)
        return value

    def share(self, variables: Sequence[tf.Variable]) -> None:
        """Gives everybody's variables the values of the chief's."""
        if not self._together:
            return
        for variable in variables:
            values = tf.reshape(tf.cast(variable, tf.float64), [-1]) * float(self.is_chief)
            values = tf.reshape(self._sums(values), variable.shape)
            variable.assign(tf.cast(values, variable.dtype))

    def require_same(self, facts: Mapping[str, Any]) -> None:
        """Makes sure that all were started with the same.

        Args:
            facts: Nested mappings of what must be equal.

        Raises:
            UserError: Somebody's differ from the chief's; names who and what.
        """
        if not self._together:
            return
        of_chief, *of_others = self._everybodys(facts)
        for name, theirs in zip(self.cluster.names[1:], of_others, strict=True):
            for key, expected, found in differences(of_chief, theirs):
                raise UserError(
                    f"every worker must be started with the same, but {name} has {key}={found}, "
                    f"and {self.cluster.names[0]} has {expected}"
                )

    def _everybodys(self, value: Any) -> list[Any]:
        """Everybody's value, in the order of their ranks."""
        # Pickles are as safe as the connection, over which peers may run anything anyway.
        content = np.frombuffer(pickle.dumps(value), np.uint8).astype(np.int32)
        sizes, contents = self._contents(tf.constant(content))
        parts = np.split(contents.numpy(), np.cumsum(sizes.numpy())[:-1])
        every = [pickle.loads(part.astype(np.uint8).tobytes()) for part in parts]
        return every[:: len(self.replicas)]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float64)])
    def _sums(self, numbers: tf.Tensor) -> tf.Tensor:
        def of_replica() -> tf.Tensor:
            # The first of its replicas speaks for a process.
            speaks = tf.equal(_context().replica_id_in_sync_group, self.replicas.start)
            return _context().all_reduce("sum", numbers * tf.cast(speaks, tf.float64))

        return self._first(self.strategy.run(of_replica))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def _contents(self, content: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        def of_replica() -> tuple[tf.Tensor, tf.Tensor]:
            own = tf.identity(content)
            sizes = _context().all_gather(tf.shape(own), axis=0)
            return sizes, _context().all_gather(own, axis=0)

        sizes, contents = self.strategy.run(of_replica)
        return self._first(sizes), self._first(contents)

    def _first(self, values: Any) -> Any:
        return self.strategy.experimental_local_results(values)[0]


def _context() -> tf.distribute.ReplicaContext:
    return tf.distribute.get_replica_context()
