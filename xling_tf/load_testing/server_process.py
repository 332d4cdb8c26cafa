"""A model server in a process of its own, seen from outside: its port, its log, its memory."""

import http.client
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

import psutil

from xling_tf.errors import UserError

# On a machine that is busy with other things.
_START_SECONDS = 300
_END_SECONDS = 60


class Reply(NamedTuple):
    """What the server answers.

    Attributes:
        status: Of HTTP.
        body: Whole.
    """

    status: int
    body: bytes


class ServerProcess:
    """A server that has been started; as a context, it is ended with it.

    Attributes:
        log: File of what it prints.
    """

    def __init__(self, command: Sequence[str], output: Path | None = None) -> None:
        """Starts a server.

        Args:
            command: Serves over HTTP at a port of 127.0.0.1, and prints JSON lines.
            output: Where it prints to, such as /dev/full; a file of its own by default.
        """
        self._command = list(command)
        if output is None:
            handle, name = tempfile.mkstemp(suffix=".log")
            os.close(handle)
            output = Path(name)
        self.log = output
        with self.log.open("ab") as file:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        self._seen = psutil.Process(self._process.pid)
        self._port = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        if self.log.is_file():
            self.log.unlink()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def port(self) -> int:
        """Where it listens, once it is ready."""
        return self._port

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def wait_until_ready(self) -> float:
        """Waits until every model answers; returns the seconds since the process began.

        Raises:
            UserError: The process has ended instead.
        """
        if not wait_until(lambda: self._is_ready() or not self.is_running(), _START_SECONDS):
            raise UserError(f"the server is expected to be ready within {_START_SECONDS} seconds")
        if not self.is_running():
            raise UserError(f"the server is expected to serve, but has ended: {self._last_line()}")
        return time.time() - self._seen.create_time()

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def ask(self, path: str, body: bytes | None = None) -> Reply:
        """Asks for a path, by POST if there is a body.

        Raises:
            OSError: There is no answer.
            http.client.HTTPException: It is cut short.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET" if body is None else "POST", path, body)
            response = connection.getresponse()
            return Reply(response.status, response.read())
        finally:
            connection.close()

    def metrics(self) -> dict[str, float]:
        """Its metrics, by name with labels."""
        page = self.ask("/monitoring/prometheus/metrics").body.decode()
        lines = (line for line in page.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def events(self, name: str) -> list[dict[str, Any]]:
        """The lines of its log with an event."""
        found = []
        for line in self._lines():
            with suppress(ValueError):
                told = json.loads(line)
                if isinstance(told, dict) and told.get("event") == name:
                    found.append(told)
        return found

    def resident_mib(self) -> float:
        """Memory that it holds."""
        return self._seen.memory_info().rss / 2**20

    def open_files(self) -> int:
        """Its file descriptors, connections among them."""
        return self._seen.num_fds()

    def kill(self) -> None:
        """SIGKILL, and waits for the end."""
        self._process.kill()
        self._process.wait()

    def terminate(self) -> int | None:
        """SIGTERM; returns the exit status, None where it does not end."""
        if self.is_running():
            self._process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(_END_SECONDS)
        return None

    def stop(self) -> None:
        """Ends it in one way or the other."""
        if self.terminate() is None:
            self.kill()

    def _is_ready(self) -> bool:
        try:
            listening = [
                connection.laddr.port
                for connection in self._seen.net_connections("tcp")
                if connection.status == psutil.CONN_LISTEN
            ]
            self._port = listening[0] if listening else 0
            return bool(listening) and self.ask("/readyz").status == 200
        except (psutil.Error, OSError, http.client.HTTPException):
            return False

    def _last_line(self) -> str:
        return next(reversed(self._lines()), "it said nothing")

    def _lines(self) -> list[str]:
        if not self.log.is_file():  # A device such as /dev/full has no end.
            return []
        return self.log.read_text(encoding="utf-8", errors="replace").splitlines()


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Waits until a condition holds; returns whether it did in time.

    Example:
        >>> wait_until(lambda: True, seconds=0)
        True
    """
    end = time.monotonic() + seconds
    while not (held := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return held
