"""Servers for tests: in a thread of the test's process, and the program in another process."""

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from programs import ROOT

from xling_tf.serving.app import ServerConfig, make_app, make_server
from xling_tf.serving.batching import BatchingParameters, BatchScheduler
from xling_tf.serving.models import load_models


class Reply(NamedTuple):
    """An answer."""

    status: int
    body: bytes
    headers: http.client.HTTPMessage

    @property
    def kind(self) -> str:
        return self.headers.get_content_type()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server(NamedTuple):
    """The port of a server, and its process if it has its own."""

    port: int
    process: subprocess.Popen | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self, path: str, body: bytes | str | None = None, method: str = "", **headers: str
    ) -> Reply:
        """Sends a request; by POST if it has a body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with closing(connection):
            method = method or ("GET" if body is None else "POST")
            raw = body.encode() if isinstance(body, str) else body
            connection.request(method, path, raw, headers)
            response = connection.getresponse()
            return Reply(response.status, response.read(), response.headers)

    def send(self, *parts: bytes, seconds: float = 30) -> bytes:
        """Sends each part in its own packet; returns what comes until the server closes."""
        received = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as client:
            try:
                for part in parts:
                    client.sendall(part)
                    time.sleep(0.02)
                while data := client.recv(65536):
                    received += data
            except ConnectionError:  # The server has closed while more was on its way.
                pass
        return received

    def predict(self, texts: list[str], model: str = "m") -> Reply:
        return self.ask(f"/v1/models/{model}:predict", json.dumps({"instances": texts}))

    def metric(self, name: str) -> float:
        """A metric by its name and labels; 0 if it does not exist yet."""
        page = self.ask("/monitoring/prometheus/metrics").body.decode()
        return next(
            (float(x[len(name) :]) for x in page.splitlines() if x.startswith(f"{name} ")), 0.0
        )

    def event(self, name: str, **fields: object) -> dict[str, Any]:
        """The next line of the log with an event and these fields."""
        assert self.process
        assert self.process.stdout
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] == name and fields.items() <= event.items():
                return event
        raise AssertionError(f"the server ended without {name}")


@contextmanager
def server_in_thread(
    models: Mapping[str, Path], batching: BatchingParameters | None = None, **config: Any
) -> Iterator[Server]:
    """Serves models until the block ends."""
    scheduler = BatchScheduler(batching or BatchingParameters())
    settings = ServerConfig(**config)
    app = make_app(load_models(models), scheduler, settings)
    try:
        with app_in_thread(app, settings) as port:
            yield Server(port)
    finally:
        scheduler.close()


@contextmanager
def app_in_thread(app: Any, config: ServerConfig | None = None) -> Iterator[int]:
    """Serves an ASGI app at a free port until the block ends."""
    web = make_server(app, config or ServerConfig())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=web.run, args=[[listener]])
        thread.start()
        try:
            while not web.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield listener.getsockname()[1]
        finally:
            web.should_exit = True
            thread.join()


@contextmanager
def server_process(*flags: str) -> Iterator[Server]:
    """Runs export/serve.py at a free port, and kills it at the end of the block."""
    command = [sys.executable, str(ROOT / "export" / "serve.py"), "--port=0", *flags]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True) as process:
        server = Server(0, process)
        try:
            yield server._replace(port=server.event("serving")["port"])
        finally:
            process.kill()


def wait_until(condition: Any, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
