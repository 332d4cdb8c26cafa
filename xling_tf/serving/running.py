"""The server's process: its socket, its signals and its end."""

import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from xling_tf.serving.app import make_app
from xling_tf.serving.config import Limits
from xling_tf.serving.http_protocol import limited
from xling_tf.serving.json_log import log, start_logging
from xling_tf.serving.listening import BACKLOG, listen
from xling_tf.serving.model_server import ModelServer


def run(
    server: ModelServer,
    listener: socket.socket,
    limits: Limits,
    *,
    poll_seconds: float,
    drain_seconds: float,
    log_level: str,
) -> None:
    """Serves until SIGTERM or SIGINT, answers what has come by then, and ends the process' work.

    Args:
        server: Not started yet.
        listener: Bound to an address (`listening.bind`).
        limits: What a client may take.
        poll_seconds: Between two looks at the models' files.
        drain_seconds: For the requests in flight at the end.
        log_level: "DEBUG" logs each request.

    Raises:
        UserError: A model cannot be loaded, or another program listens by now.
    """
    lines = start_logging(log_level)
    try:
        log(logging.INFO, "starting", pid=os.getpid(), models=server.models())
        # What is there now stays, so unloading a version need not look through all of TensorFlow for
        # what it leaves behind, during which no request is answered: a third of the time.
        gc.freeze()
        server.start(poll_seconds)
        app = make_app(server, limits)
        http = _Server(
            uvicorn.Config(
                app,
                http=limited(limits),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=limits.client_seconds,  # type: ignore[arg-type]
                timeout_graceful_shutdown=drain_seconds,  # type: ignore[arg-type]
            )
        )
        host, port = listen(listener)
        log(logging.INFO, "serving", host=host, port=port, models=server.models())
        http.run(sockets=[listener])
        is_idle = server.stop()
        log(logging.INFO, "stopped")
    finally:
        lines.stop()
    if not is_idle:
        # A call of a model cannot be stopped, and Python must not end under TensorFlow's threads.
        sys.stdout.flush()
        os._exit(0)


class _Server(uvicorn.Server):
    """Ends with status 0 after a signal: uvicorn's own would raise it once more after the drain."""

    _signal: int = signal.SIGTERM

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Takes SIGTERM and SIGINT while it serves."""
        signals = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self._drain) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _drain(self, number: int, frame: object) -> None:
        # Nothing that takes a lock: a second signal may come in the midst of this.
        self._signal = number
        self.handle_exit(number, None)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Says that it drains, and does."""
        log(logging.INFO, "draining", signal=signal.Signals(self._signal).name)
        await super().shutdown(sockets)
