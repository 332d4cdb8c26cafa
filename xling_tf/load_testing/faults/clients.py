"""Clients that behave badly, beside some that do not."""

import socket
import struct
import time
from collections import Counter
from contextlib import suppress

from xling_tf.load_testing.crowd import Crowd, predictions
from xling_tf.load_testing.faults.scenario import (
    CLIENT_SECONDS,
    MAX_BATCH_SIZE,
    MAX_ENQUEUED_BATCHES,
    Finding,
    Stage,
)
from xling_tf.load_testing.sentences import bodies
from xling_tf.load_testing.server_process import ServerProcess, wait_until

_CLIENTS = 4
_DISCONNECTS = 600
_DRIBBLERS = 200
# Beyond the time that the server gives them, on a busy machine.
_SLACK_SECONDS = 5
_GREEDY = 64
# More than half of the queue: no two of them fit into it.
_GREEDY_SENTENCES = MAX_BATCH_SIZE * MAX_ENQUEUED_BATCHES * 3 // 4
_HEADERS_END = b"\r\n\r\n"
_QUEUED = "xling_tf_serving_queued_rows"


def disconnects(stage: Stage, server: ServerProcess, seconds: float) -> Finding:
    """Clients go away within their headers, within their body, and before their answer."""
    files = server.open_files()
    # So few sentences that all of them fit into the queue, however late it is seen that they have gone.
    message = _message(stage.model, bodies(1)[0])
    headers = message.index(_HEADERS_END)
    ends = (headers // 2, (headers + len(message)) // 2, len(message))
    with Crowd(server.port, predictions(stage.model), _CLIENTS) as crowd:
        for number in range(_DISCONNECTS):
            _leave(server.port, message[: ends[number % 3]], reset=number % 2 == 0)
        time.sleep(seconds)
    closed = wait_until(lambda: server.open_files() <= files, CLIENT_SECONDS + _SLACK_SECONDS)
    return Finding(
        "disconnects",
        f"{_DISCONNECTS} clients leave within their headers, within their body or before their answer, "
        "half of them by a reset",
        f"{_CLIENTS} other clients get every answer; no connection and no queued row is left",
        {
            "outcomes": crowd.outcomes(),
            "open_files": {"before": files, "after": server.open_files()},
            "p99_ms": crowd.percentile_ms(99),
        },
        {
            "only 200": not crowd.unexpected(),
            "connections closed": closed,
            "queue empty": stage.metric(server, _QUEUED) == 0,
        },
    )


def slow_loris(stage: Stage, server: ServerProcess, seconds: float) -> Finding:
    """Connections that send a byte now and then, of headers or a body, or nothing at all."""
    message = _message(stage.model, bodies(32)[0])
    headers = message.index(_HEADERS_END) + len(_HEADERS_END)
    with Crowd(server.port, predictions(stage.model), _CLIENTS) as crowd:
        time.sleep(seconds)
        calm = crowd.percentile_ms(99)
        begin = time.monotonic()
        slow = [
            _Dribbler(server.port, message, (5, headers, 0)[number % 3], silent=number % 3 == 2)
            for number in range(_DRIBBLERS)
        ]
        while any(not each.over for each in slow) and time.monotonic() < begin + 60:
            for each in slow:
                each.dribble()
            time.sleep(0.1)
    lives = [each.seconds for each in slow if each.over]
    return Finding(
        "slow-loris",
        f"{_DRIBBLERS} connections send ten bytes a second of their headers or body, or nothing",
        f"each is cut {CLIENT_SECONDS} seconds after its beginning; {_CLIENTS} other clients get every "
        "answer",
        {
            "outcomes": crowd.outcomes(begin),
            "p99_ms": {"before": calm, "beside them": crowd.percentile_ms(99, begin)},
            "answered": dict(Counter(each.status for each in slow)),
            "longest_life_seconds": round(max(lives, default=0), 1),
        },
        {
            "only 200": not crowd.unexpected(),
            "all cut": len(lives) == len(slow),
            "in time": max(lives, default=0) <= CLIENT_SECONDS + _SLACK_SECONDS,
        },
    )


def overflow(stage: Stage, server: ServerProcess, seconds: float) -> Finding:
    """More rows are asked for than may wait."""
    greedy = predictions(stage.model, _GREEDY_SENTENCES)
    with Crowd(server.port, greedy, _GREEDY) as crowd:
        time.sleep(seconds)
        wait_until(lambda: {"200", "429"} <= crowd.outcomes().keys(), 60)
    with Crowd(server.port, predictions(stage.model), _CLIENTS) as after:
        time.sleep(seconds)
    return Finding(
        "queue overflow",
        f"{_GREEDY} clients ask for {_GREEDY_SENTENCES} sentences each, of which "
        f"{MAX_BATCH_SIZE * MAX_ENQUEUED_BATCHES} may wait",
        "200 or 429 and nothing else; afterwards every answer is 200",
        {"outcomes": crowd.outcomes(), "afterwards": after.outcomes()},
        {
            "200 or 429": crowd.outcomes().keys() == {"200", "429"},
            "only 200 afterwards": after.outcomes().keys() == {"200"},
            "queue empty": stage.metric(server, _QUEUED) == 0,
        },
    )


class _Dribbler:
    """A connection that sends a message byte by byte.

    Attributes:
        status: What it was answered, if anything.
        over: Whether the server has closed it.
        seconds: That it lived.
    """

    def __init__(self, port: int, message: bytes, start: int, *, silent: bool) -> None:
        self.status = "closed"
        self.over = False
        self.seconds = 0.0
        self._message = b"" if silent else message
        self._sent = start
        self._begin = time.monotonic()
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._socket.sendall(self._message[:start])
        self._socket.setblocking(False)

    def dribble(self) -> None:
        """Sends a byte, and looks whether the server has had enough."""
        if self.over:
            return
        try:
            self._socket.send(self._message[self._sent : self._sent + 1])
            self._sent += 1
            with suppress(BlockingIOError):
                self._read()
        except OSError:
            self._end()

    def _read(self) -> None:
        answer = self._socket.recv(4096)
        if answer.startswith(b"HTTP/1.1 "):
            self.status = answer[9:12].decode()
        if not answer:
            self._end()

    def _end(self) -> None:
        self.over = True
        self.seconds = time.monotonic() - self._begin
        self._socket.close()


def _message(model: str, body: bytes) -> bytes:
    return (
        f"POST /v1/models/{model}:predict HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def _leave(port: int, message: bytes, *, reset: bool) -> None:
    """Sends what there is of a message and closes, with a reset or the usual goodbye."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(message)
        if reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
