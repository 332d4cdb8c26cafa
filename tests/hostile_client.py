"""A client that sends bytes as they are, and what an answer to them must be like."""

import io
import json
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from typing import Any, NamedTuple

# Statuses of a request that cannot be answered, and of a server that is asked too much of at once.
REFUSED = {*range(400, 500), 501, 503, 504}
# What only somebody who looks inside the server would see. No strategy here makes up such words.
LEAKS = re.compile(
    rb"Traceback|File \"|\.py\b|site-packages|/(?:work|tmp|home|root|usr|var|etc)/|\b0x[0-9a-f]{6}"
    rb"|<class| object at 0x|NoneType|ndarray|numpy|[a-z]Error\b|Exception|tensorflow/|<string>"
)
SECONDS = 60


class Answer(NamedTuple):
    """One answer of a server."""

    status: int
    kind: str | None
    body: bytes


def send(address: tuple[str, int], raw: bytes) -> list[Answer]:
    """Sends bytes as they are; gives the answers that came until the server closed."""
    with socket.create_connection(address, timeout=SECONDS) as client:
        return read_answers(send_all(client, raw))


def send_all(client: socket.socket, raw: bytes) -> socket.socket:
    """Sends what the server takes: it may have refused the rest."""
    with suppress(BrokenPipeError, ConnectionResetError):
        client.sendall(raw)
    return client


def read_answers(client: socket.socket) -> list[Answer]:
    """What a server says until it closes."""
    read = b""
    # It may close while more is coming, and then its answer may be lost.
    with suppress(ConnectionResetError):
        while chunk := client.recv(2**20):
            read += chunk
    return parse_answers(read)


class _Read:
    """Bytes that `HTTPResponse` takes for a socket."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self.stream = stream

    def makefile(self, mode: str) -> "_Read":
        del mode
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def close(self) -> None:
        """The next answer is read from the same bytes."""


def parse_answers(read: bytes, method: str = "POST") -> list[Answer]:
    """The answers in the bytes of a connection."""
    stream = io.BufferedReader(io.BytesIO(read))  # type: ignore[arg-type]
    answers = []
    while stream.peek(1):
        response = HTTPResponse(_Read(stream), method=method)  # type: ignore[arg-type]
        try:
            response.begin()
            body = response.read()
        except HTTPException as error:
            raise AssertionError(f"no HTTP: {read[:200]!r}") from error
        answers.append(Answer(response.status, response.getheader("Content-Type"), body))
    return answers


def check(answer: Answer) -> None:
    """Asserts that an answer is right, or refuses in the protocol's JSON and tells no more."""
    assert answer.status == 200 or answer.status in REFUSED, answer
    if answer.status != 200:
        assert answer.kind == "application/json", answer
        refusal = json.loads(answer.body)
        assert list(refusal) == ["error"], answer
        assert refusal["error"], answer
        assert not LEAKS.search(answer.body), answer


def request(
    path: str | bytes, body: bytes = b"", method: str = "POST", headers: Iterable[bytes] = ()
) -> bytes:
    """A request that ends its connection."""
    lines = [
        b"%b %b HTTP/1.1" % (method.encode(), path if isinstance(path, bytes) else path.encode()),
        *(b"host: server", b"connection: close", b"content-length: %d" % len(body)),
        *headers,
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
