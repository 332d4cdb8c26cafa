"""Distributed training: devices, the workers in TF_CONFIG, and the communication between them."""

import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import numpy as np
import tensorflow as tf
from absl import logging

from xling_tf.errors import UserError, as_user_error
from xling_tf.settings import differences

Value = TypeVar("Value")

_EXAMPLE = (
    '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'
)
_LOST = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.UnavailableError,
    tf.errors.UnknownError,  # of a port that is taken, too
)


class Cluster(NamedTuple):
    """The processes that train together. The first one is the chief; only its disk is used."""

    names: tuple[str, ...] = ("worker 0",)
    rank: int = 0  # position of this process

    @property
    def is_chief(self) -> bool:
        """True in the process that writes the run folder, exports and scores."""
        return self.rank == 0


ALONE = Cluster()


def read_cluster(environment: Mapping[str, str]) -> Cluster:
    """Returns the cluster that TF_CONFIG in `environment` describes; without it, this process
    trains alone.

    Raises:
        UserError: TF_CONFIG is malformed; TensorFlow would wait for workers that do not exist.

    Examples:
        >>> cluster, task = {"worker": ["a:1", "b:1"]}, {"type": "worker", "index": 1}
        >>> read_cluster({"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})})
        Cluster(names=('worker 0', 'worker 1'), rank=1)
    """
    text = environment.get("TF_CONFIG", "").strip()
    if not text:
        return ALONE
    message = (
        "TF_CONFIG must be JSON with workers and at most one chief, each at its own host:port, as "
        f"in {_EXAMPLE}, got {text[:200]}; correct it"
    )
    with as_user_error(message, LookupError, TypeError, ValueError):
        config = json.loads(text)
        jobs, task = dict(config["cluster"]), config["task"]
        # TensorFlow numbers the workers in this order.
        workers = {
            f"{job} {index}": str(address)
            for job in ("chief", "worker")
            for index, address in enumerate(jobs.pop(job, ()))
        }
        names, addresses = tuple(workers), tuple(workers.values())
        rank = names.index(f"{task['type']} {int(task['index'])}")
        hosts = [urlsplit(f"//{address}") for address in addresses]
        is_valid = not jobs and "chief 1" not in names and "worker 0" in names
        is_valid = is_valid and len({*addresses}) == len(addresses)
        if not (is_valid and all(host.hostname and host.port for host in hosts)):
            raise UserError(message)
    return Cluster(names, rank)


def make_strategy(cluster: Cluster = ALONE) -> tf.distribute.Strategy:
    """Returns a strategy for all GPUs of one or more machines, or for the CPU if there are none.

    With several processes, all must call it, and it waits for them. No TensorFlow operation may run
    before.
    """
    _report_gpus()
    if len(cluster.names) > 1:
        logging.info(
            "%s of %d: waiting for the others", cluster.names[cluster.rank], len(cluster.names)
        )
        return tf.distribute.MultiWorkerMirroredStrategy()
    gpus = tf.config.list_logical_devices("GPU")
    return tf.distribute.MirroredStrategy([gpu.name for gpu in gpus] or ["/cpu:0"])


def _report_gpus() -> None:
    """Logs the GPUs by name, and warns if TensorFlow cannot use them."""
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        details = tf.config.experimental.get_device_details(gpu)
        name = details.get("device_name", gpu.name)
        capability = details.get("compute_capability", (0, 0))
        logging.info("training on %s, compute capability %d.%d", name, *capability)
    if not gpus and shutil.which("nvidia-smi") and os.environ.get("CUDA_VISIBLE_DEVICES") != "":
        logging.warning(
            "nvidia-smi is installed, but TensorFlow sees no GPU, so it trains on the CPU; `pip "
            "install 'xling_tf[gpu]'` installs the CUDA libraries that it may lack, and "
            "TF_CPP_MIN_LOG_LEVEL=0 shows more"
        )


@contextmanager
def lost_workers(cluster: Cluster) -> Iterator[None]:
    """Replaces TensorFlow's errors about other processes by a one-line `UserError`."""
    try:
        yield
    except _LOST as error:
        if len(cluster.names) == 1:
            raise
        reason = str(error.message).rpartition("Collective ops is aborted by: ")[2]
        first_line = reason.partition("\n")[0].rstrip(":. ")
        raise UserError(
            f"another worker has ended or cannot be reached, or a port is taken ({first_line}); "
            "look for an error of the other workers, then start the same command on each: it "
            "continues from the last checkpoint"
        ) from error


class Workers:
    """Communication between the processes that train together.

    All processes must call the same methods in the same order, because each call waits for the
    others. In a process that trains alone, the calls return at once.
    """

    def __init__(self, strategy: tf.distribute.Strategy, cluster: Cluster = ALONE) -> None:
        self.strategy = strategy
        self.cluster = cluster
        self.is_chief = cluster.is_chief
        self._together = len(cluster.names) > 1
        count = strategy.num_replicas_in_sync // len(cluster.names)
        # The positions of this process' replicas among all replicas.
        self.replicas = range(cluster.rank * count, (cluster.rank + 1) * count)

    def add_up(self, numbers: Sequence[float]) -> list[float]:
        """Returns the sums of the numbers of all processes, position by position."""
        return [sum(column) for column in zip(*self.gather(list(numbers)), strict=True)]

    def from_chief(self, make: Callable[[], Value]) -> Value:
        """Calls `make` in the chief; all processes return its result, or raise its `UserError`."""
        if not self._together:
            return make()
        result: Any = None
        if self.is_chief:
            try:
                result = (make(), None)
            except UserError as error:
                result = (None, str(error))
        value, message = self.gather(result)[0]
        if message is not None:
            raise UserError(message)
        return value

    def share(self, variables: Sequence[tf.Variable]) -> None:
        """Copies the values of the chief's variables to those of all processes."""
        if self._together:
            for variable in variables:
                variable.assign(self.from_chief(partial(np.asarray, variable)))

    def require_same(self, facts: Mapping[str, Any]) -> None:
        """Raises a `UserError` that names the first difference between processes, if any."""
        chief_facts, *other_facts = self.gather(facts)
        for name, worker_facts in zip(self.cluster.names[1:], other_facts, strict=True):
            for key, expected, value in differences(chief_facts, worker_facts):
                other = f"{self.cluster.names[0]} has {expected}"
                raise UserError(
                    f"all workers must have the same arguments and data, but {name} has "
                    f"{key}={value}, and {other}; start them with the same ones"
                )

    def gather(self, value: Value) -> list[Value]:
        """Returns the values of all processes, in the order of their ranks."""
        if not self._together:
            return [value]
        # Unpickling is as safe as the connection: TensorFlow's peers can run any operation anyway.
        # `all_gather` takes no bytes, so the pickle is padded to whole int32; `loads` ignores the
        # padding.
        pickled = pickle.dumps(value)
        content = np.frombuffer(pickled + bytes(-len(pickled) % 4), np.int32)
        sizes, contents = self._contents(tf.constant(content))
        parts = np.split(contents.numpy(), np.cumsum(sizes.numpy())[:-1])
        return [pickle.loads(part.tobytes()) for part in parts[:: len(self.replicas)]]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def _contents(self, content: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        def gather_on_replica() -> tuple[tf.Tensor, tf.Tensor]:
            context = tf.distribute.get_replica_context()
            values = tf.identity(content)
            sizes = context.all_gather(tf.shape(values), axis=0)
            return sizes, context.all_gather(values, axis=0)

        results = self.strategy.run(gather_on_replica)
        sizes, contents = (
            self.strategy.experimental_local_results(values)[0] for values in results
        )
        return sizes, contents
