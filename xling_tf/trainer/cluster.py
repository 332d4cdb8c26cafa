"""The machines that train together, as the variable TF_CONFIG names them."""

import json
import socket
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any, NamedTuple

from absl import logging

from xling_tf.errors import UserError

# TensorFlow numbers the workers in this order.
_JOBS = ("chief", "worker")
_EXAMPLE = (
    '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'
)
_NAMES: Mapping[type, str] = {dict: "an object", list: "a list", str: "a string"}
_SECONDS_TO_START = 600.0


class Cluster(NamedTuple):
    """Who trains together.

    Attributes:
        names: "worker 0", "worker 1", ...; the first is the chief, whose disk is used.
        addresses: Host and port of each.
        rank: Which of them this process is.
    """

    names: tuple[str, ...] = ("worker 0",)
    addresses: tuple[str, ...] = ("",)
    rank: int = 0

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the run folder, evaluates and exports."""
        return self.rank == 0

    def wait_for_others(self, *, seconds: float = _SECONDS_TO_START) -> None:
        """Waits until every other process has been started and listens at its address.

        TensorFlow itself waits for an hour, without saying for whom.

        Args:
            seconds: How long to wait for those who are missing.

        Raises:
            UserError: Somebody is missing, or this process' own port is taken.
        """
        others = {
            name: address
            for rank, (name, address) in enumerate(zip(self.names, self.addresses, strict=True))
            if rank != self.rank
        }
        if not others:
            return
        logging.info("%s of %d: waiting for the others", self.names[self.rank], len(self.names))
        deadline = time.monotonic() + seconds
        with closing(_listen(self.addresses[self.rank])):
            while others:
                others = {name: at for name, at in others.items() if not _answers(at)}
                if others and time.monotonic() > deadline:
                    missing = " and ".join(f"{name} at {at}" for name, at in others.items())
                    raise UserError(
                        f"every worker in TF_CONFIG is expected to be started within {seconds:.0f} "
                        f"seconds, but {missing} cannot be reached; start them all, or correct "
                        "the addresses"
                    )
                time.sleep(0.1 if others else 0)


ALONE = Cluster()


def read_cluster(environment: Mapping[str, str]) -> Cluster:
    """Reads TF_CONFIG; without it, this process trains alone.

    Args:
        environment: `os.environ`.

    Raises:
        UserError: It is not of the form TensorFlow reads; told here because TensorFlow would wait
            for workers that do not exist.

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
    except ValueError as error:
        raise _mistake(f"JSON, but {error}") from error
    jobs = _jobs(_entry(config, "cluster", dict))
    task = _entry(config, "task", dict)
    kind = _entry(task, "type", str, "task.")
    if kind not in jobs:
        raise _mistake(f"task.type to be {' or '.join(jobs)}, got {kind!r}")
    index = task.get("index")
    if not str(index).isdigit() or int(str(index)) >= len(jobs[kind]):
        raise _mistake(f"task.index from 0 to {len(jobs[kind]) - 1}, got {index!r}")
    members = [(f"{job} {place}", at) for job in jobs for place, at in enumerate(jobs[job])]
    names, addresses = zip(*members, strict=True)
    return Cluster(names, addresses, names.index(f"{kind} {int(str(index))}"))


def _jobs(cluster: Mapping[str, Any]) -> dict[str, list[str]]:
    unknown = sorted(set(cluster) - set(_JOBS))
    if unknown or "worker" not in cluster:
        raise _mistake(f"cluster.worker (and perhaps cluster.chief), got {sorted(cluster)}")
    jobs = {job: _entry(cluster, job, list, "cluster.") for job in _JOBS if job in cluster}
    if len(jobs.get("chief", [""])) != 1:
        raise _mistake(f"one chief, got {jobs['chief']}")
    addresses = [address for job in jobs.values() for address in job]
    for address in addresses:
        host, colon, port = str(address).rpartition(":")
        if not (host and colon and port.isdigit() and 0 < int(port) < 65536):
            raise _mistake(f"addresses like host:2222, got {address!r}")
    if not jobs["worker"] or len(set(addresses)) < len(addresses):
        raise _mistake(f"an address of its own for every worker, got {addresses}")
    return jobs


def _entry(config: Any, key: str, kind: type, prefix: str = "") -> Any:
    value = config.get(key) if isinstance(config, dict) else None
    if not isinstance(value, kind):
        raise _mistake(f"{prefix}{key} to be {_NAMES[kind]}, got {value!r}")
    return value


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
