"""Clients that never stop asking and remember each answer, whatever becomes of the server."""

import http.client
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from xling_tf.load_testing.sentences import bodies

# After an answer that did not come, so that a dead server does not keep all cores busy.
_PAUSE_SECONDS = 0.01


class Request(NamedTuple):
    """What a client asks.

    Attributes:
        method: "GET" or "POST".
        path: Of the URL.
        body: Nothing for GET.
        status: Of the right answer.
    """

    method: str
    path: str
    body: bytes | None = None
    status: int = 200


class Answer(NamedTuple):
    """What a client saw.

    Attributes:
        outcome: The status, or the error's name where no whole answer came.
        expected: Whether it is the status that the request should have.
        sent: By `time.monotonic`.
        seconds: Until the answer.
    """

    outcome: str
    expected: bool
    sent: float
    seconds: float


class Crowd:
    """Clients as threads, each on a connection that it keeps; they ask as long as the context lasts.

    Attributes:
        answers: What they have seen so far.
    """

    def __init__(
        self, port: int, requests: Sequence[Request], clients: int, pause_seconds: float = 0
    ) -> None:
        """Makes clients that have not begun.

        Args:
            port: Of the server, on 127.0.0.1.
            requests: What they ask in turn.
            clients: How many.
            pause_seconds: Between an answer and the client's next request.
        """
        self.answers: list[Answer] = []
        self._port = port
        self._requests = requests
        self._pause_seconds = pause_seconds
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask_on, args=[client], daemon=True)
            for client in range(clients)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the clients, each after its answer."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def outcomes(self, since: float = 0) -> dict[str, int]:
        """How often each outcome came, of requests sent since then."""
        return dict(Counter(answer.outcome for answer in self.answers if answer.sent >= since))

    def unexpected(self) -> dict[str, int]:
        """Outcomes other than the right ones."""
        return dict(Counter(answer.outcome for answer in self.answers if not answer.expected))

    def percentile_ms(self, percent: float, since: float = 0) -> float:
        """A percentile of the latencies of requests sent since then."""
        latencies = [answer.seconds for answer in self.answers if answer.sent >= since]
        return round(float(np.percentile(latencies, percent)) * 1e3, 1) if latencies else 0.0

    def _ask_on(self, client: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        asked = client
        while not self._over.is_set():
            request = self._requests[asked % len(self._requests)]
            asked += 1
            sent = time.monotonic()
            outcome = _ask(connection, request)
            seconds = time.monotonic() - sent
            self.answers.append(Answer(outcome, outcome == str(request.status), sent, seconds))
            pause = self._pause_seconds
            if not outcome.isdigit():
                connection.close()
                connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
                pause = _PAUSE_SECONDS
            self._over.wait(pause)
        connection.close()


def predictions(model: str, sentences: int = 1) -> list[Request]:
    """Predict requests of so many sentences each."""
    return [Request("POST", f"/v1/models/{model}:predict", body) for body in bodies(sentences)]


def _ask(connection: http.client.HTTPConnection, request: Request) -> str:
    try:
        connection.request(request.method, request.path, request.body)
        response = connection.getresponse()
        response.read()
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    return str(response.status)
