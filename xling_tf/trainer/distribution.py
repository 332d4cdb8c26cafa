"""Who trains together: devices, the machines that TF_CONFIG names, and what they tell each other."""

import json
import pickle
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf
from absl import logging

from xling_tf.errors import UserError
from xling_tf.trainer.run_folder import differences

Value = TypeVar("Value")

_EXAMPLE = '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'
_SECONDS_TO_START = 600.0
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


class Cluster(NamedTuple):
    """The processes that train together; the first is the chief, whose disk is used."""

    names: tuple[str, ...] = ("worker 0",)
    addresses: tuple[str, ...] = ("",)
    rank: int = 0  # which of them this process is

    @property
    def is_chief(self) -> bool:
        """True in the process that writes the run folder, evaluates and exports."""
        return self.rank == 0

    def wait_for_others(self, *, seconds: float = _SECONDS_TO_START) -> None:
        """Waits until every other process listens at its address; TensorFlow would wait for an hour."""
        if len(self.names) == 1:
            return
        logging.info("%s of %d: waiting for the others", self.names[self.rank], len(self.names))
        others = dict(zip(self.names, self.addresses, strict=True))
        own = others.pop(self.names[self.rank])
        deadline = time.monotonic() + seconds
        with closing(_listen(own)):
            while others := {name: at for name, at in others.items() if not _answers(at)}:
                if time.monotonic() > deadline:
                    missing = " and ".join(f"{name} at {at}" for name, at in others.items())
                    raise UserError(
                        f"every worker in TF_CONFIG is expected to be started within {seconds:.0f} "
                        f"seconds, but {missing} cannot be reached; start them all, or correct "
                        "the addresses"
                    )
                time.sleep(0.1)


ALONE = Cluster()


def read_cluster(environment: Mapping[str, str]) -> Cluster:
    """Reads TF_CONFIG from `os.environ`; without it, this process trains alone.

    Raises:
        UserError: It is not of the form that TensorFlow reads, which would wait for workers that do not
            exist.

    Example:
        >>> tf_config = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}'
        >>> read_cluster({"TF_CONFIG": tf_config})
        Cluster(names=('worker 0', 'worker 1'), addresses=('a:1', 'b:1'), rank=1)
    """
    text = environment.get("TF_CONFIG", "").strip()
    if not text:
        return ALONE
    try:
        config = json.loads(text)
        jobs, task = dict(config["cluster"]), config["task"]
        kind, index = task["type"], int(task["index"])
        # TensorFlow numbers the workers in this order.
        members = [
            (f"{job} {place}", str(address))
            for job in ("chief", "worker")
            for place, address in enumerate(jobs.pop(job, ()))
        ]
        names, addresses = zip(*members, strict=True)
        rank = names.index(f"{kind} {index}")
    except (LookupError, TypeError, ValueError) as error:
        raise _mistake(f"JSON of this form, got {text[:200]}") from error
    if jobs or names.count("chief 1") or "worker 0" not in names:
        raise _mistake(f"cluster.worker and perhaps one cluster.chief, got {config['cluster']}")
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not (host and port.isdigit() and 0 < int(port) < 65536) or addresses.count(address) > 1:
            raise _mistake(f"an address like host:2222 of its own for every worker, got {address!r}")
    return Cluster(names, addresses, rank)


def _mistake(expected: str) -> UserError:
    return UserError(f"TF_CONFIG expects {expected}; e.g. {_EXAMPLE}")


def _listen(address: str) -> socket.socket:
    port = int(address.rpartition(":")[2])
    try:
        return socket.create_server(("", port), backlog=128)
    except OSError as error:
        raise UserError(
            f"TF_CONFIG gives this process port {port}, which it cannot listen at "
            f"({error.strerror}); is another training running here, or task.index given twice?"
        ) from error


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2):
            return True
    except OSError:
        return False


def make_strategy(cluster: Cluster = ALONE) -> tf.distribute.Strategy:
    """Mirrors the variables over the GPUs found, else on the CPU, of this machine or of several.

    With several processes, no TensorFlow operation may have run before, and all must come here: it waits.
    """
    cluster.wait_for_others()
    if len(cluster.names) > 1:
        return tf.distribute.MultiWorkerMirroredStrategy()
    gpus = tf.config.list_logical_devices("GPU")
    return tf.distribute.MirroredStrategy([gpu.name for gpu in gpus] or ["/cpu:0"])


@contextmanager
def lost_workers(cluster: Cluster) -> Iterator[None]:
    """Turns TensorFlow's errors about another process into a `WorkerLostError` of one line."""
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


class Workers:
    """The processes that train together, each with the replicas on its own devices.

    All of them must call the same methods in the same order: a call waits for the others. One that
    trains alone calls them too, and waits for nobody.
    """

    def __init__(self, strategy: tf.distribute.Strategy, cluster: Cluster = ALONE) -> None:
        self.strategy = strategy
        self.cluster = cluster
        self.is_chief = cluster.is_chief
        self._together = len(cluster.names) > 1

    @property
    def replicas(self) -> range:
        """The numbers of this process' replicas among those of all."""
        count = self.strategy.num_replicas_in_sync // len(self.cluster.names)
        return range(self.cluster.rank * count, (self.cluster.rank + 1) * count)

    def add_up(self, numbers: Sequence[float]) -> list[float]:
        """Adds the numbers of all processes, position by position; all get the same sums."""
        if not self._together:
            return list(numbers)
        return [float(total) for total in self._sums(tf.constant(numbers, tf.float64))]

    def wait(self) -> None:
        """Returns once all processes have come here."""
        self.add_up([0.0])

    def from_chief(self, make: Callable[[], Value]) -> Value:
        """Lets the chief alone make something, and gives it to all, or its `UserError`."""
        if not self._together:
            return make()
        made: Any = None
        if self.is_chief:
            try:
                made = (make(), None)
            except UserError as error:
                made = (None, str(error))
        value, refusal = self._gather(made)[0]
        if refusal is not None:
            raise UserError(refusal)
        return value

    def share(self, variables: Sequence[tf.Variable]) -> None:
        """Gives the variables of all processes the values of the chief's."""
        if not self._together:
            return
        for variable in variables:
            values = tf.reshape(tf.cast(variable, tf.float64), [-1]) * float(self.is_chief)
            values = tf.reshape(self._sums(values), variable.shape)
            variable.assign(tf.cast(values, variable.dtype))

    def require_same(self, facts: Mapping[str, Any]) -> None:
        """Refuses nested mappings that are not the same in all processes, by the first difference."""
        if not self._together:
            return
        of_chief, *of_others = self._gather(facts)
        for name, theirs in zip(self.cluster.names[1:], of_others, strict=True):
            for key, expected, found in differences(of_chief, theirs):
                raise UserError(
                    f"every worker must be started with the same, but {name} has {key}={found}, "
                    f"and {self.cluster.names[0]} has {expected}"
                )

    def _gather(self, value: Any) -> list[Any]:
        """The values of all processes, in the order of their ranks."""
        # Pickles are as safe as the connection, over which peers may run anything anyway.
        content = np.frombuffer(pickle.dumps(value), np.uint8).astype(np.int32)
        sizes, contents = self._contents(tf.constant(content))
        parts = np.split(contents.numpy(), np.cumsum(sizes.numpy())[:-1])
        values = [pickle.loads(part.astype(np.uint8).tobytes()) for part in parts]
        return values[:: len(self.replicas)]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float64)])
    def _sums(self, numbers: tf.Tensor) -> tf.Tensor:
        def of_replica() -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            # The first of its replicas speaks for a process.
            speaks = tf.equal(context.replica_id_in_sync_group, self.replicas.start)
            return context.all_reduce("sum", numbers * tf.cast(speaks, tf.float64))

        return self._first(self.strategy.run(of_replica))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def _contents(self, content: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        def of_replica() -> tuple[tf.Tensor, tf.Tensor]:
            context = tf.distribute.get_replica_context()
            own = tf.identity(content)
            sizes = context.all_gather(tf.shape(own), axis=0)
            return sizes, context.all_gather(own, axis=0)

        sizes, contents = self.strategy.run(of_replica)
        return self._first(sizes), self._first(contents)

    def _first(self, values: Any) -> Any:
        return self.strategy.experimental_local_results(values)[0]
