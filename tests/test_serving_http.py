import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from xling_tf.serving.config import Limits
from xling_tf.serving.http_protocol import limited

SOON = 30  # Seconds; a test that waits as long has failed.
BIG = 20_000_000
GOOD = b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads a body and answers its length, or for /big more than any buffer holds."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
        more = message["more_body"]
    body = b"x" * BIG if scope["path"] == "/big" else str(size).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def listening(limits: Limits) -> Iterator[Callable[[], socket.socket]]:
    """Gives clients of a server."""
    config = uvicorn.Config(
        app,
        http=limited(limits),
        ws="none",
        lifespan="off",
        log_config=None,
        timeout_keep_alive=limits.client_seconds,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    clients = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()

        def connect() -> socket.socket:
            clients.append(socket.create_connection(listener.getsockname(), timeout=SOON))
            return clients[-1]

        try:
            yield connect
        finally:
            for client in clients:
                client.close()
            server.should_exit = True
            thread.join(SOON)


def read_all(client: socket.socket) -> bytes:
    """What comes until the server closes."""
    read = b""
    while chunk := client.recv(65536):
        read += chunk
    return read


def read_until(client: socket.socket, *wanted: bytes) -> bytes:
    read = b""
    while not all(each in read for each in wanted):
        chunk = client.recv(65536)
        assert chunk, read
        read += chunk
    return read


IMPATIENT = Limits(client_seconds=0.2)


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"", b"Timed out waiting for a request's headers"),
        (b"GET / HTTP/1.1\r\nhost:", b"Timed out waiting for a request's headers"),
        (GOOD[:-1], b"Timed out waiting for a request's body"),
        (GOOD + GOOD[:-1], b"Timed out waiting for a request's body"),
    ],
    ids=["nothing", "half a header", "half a body", "half a second body"],
)
def test_a_client_that_stalls_is_told_and_closed(sent: bytes, told: bytes) -> None:
    with listening(IMPATIENT) as connect:
        client = connect()
        client.sendall(sent)
        answer = read_all(client)
    assert b"408 Request Timeout" in answer
    assert told in answer
    assert b"application/json" in answer


def send_until_closed(client: socket.socket, piece: bytes, seconds: float) -> None:
    """Sends a piece again and again, as often as the server takes it."""
    started = time.monotonic()
    while time.monotonic() - started < SOON:
        client.sendall(piece)
        time.sleep(seconds)


def test_a_client_that_trickles_is_closed() -> None:
    with listening(IMPATIENT) as connect:
        client = connect()
        client.sendall(b"GET / HTTP/1.1\r\n")
        with pytest.raises(OSError, match=r"reset|pipe"):
            send_until_closed(client, b"x: y\r\n", 0.02)


def test_an_idle_connection_is_closed_after_its_answer() -> None:
    with listening(IMPATIENT) as connect:
        client = connect()
        client.sendall(GOOD)
        answer = read_all(client)
    assert answer.endswith(b"\r\n\r\n3")


def test_a_client_that_does_not_read_is_closed() -> None:
    with listening(IMPATIENT) as connect:
        client = connect()
        client.sendall(GOOD.replace(b"/", b"/big", 1))
        time.sleep(1)
        # What was on its way may come before the connection's end is noticed.
        with suppress(ConnectionResetError):
            assert len(read_all(client)) < BIG


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"no HTTP at all\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000, b"431 Request Header Fields Too Large"),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000, b"431 Request Header Fields Too Large"),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b"431 Request Header Fields Too Large"),
    ],
    ids=["no HTTP", "a long header", "many headers", "a long path"],
)
def test_what_is_no_request_is_answered_and_closed(sent: bytes, status: bytes) -> None:
    with listening(Limits()) as connect:
        client = connect()
        client.sendall(sent)
        answer = read_all(client)
    assert status in answer
    assert b'"error": ' in answer


def test_a_body_without_end_is_cut() -> None:
    with listening(Limits(body_bytes=1000)) as connect:
        client = connect()
        client.sendall(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n")
        with pytest.raises(OSError, match=r"reset|pipe"):
            send_until_closed(client, b"400\r\n" + b"x" * 0x400 + b"\r\n", 0.001)


def test_connections_beyond_the_limit_are_told() -> None:
    with listening(Limits(connections=1)) as connect:
        first = connect()
        first.sendall(GOOD)
        assert read_until(first, b"200 OK", b"\r\n\r\n3")
        answer = read_all(connect())
        # The first one goes on.
        first.sendall(GOOD)
        assert read_until(first, b"200 OK", b"\r\n\r\n3")
    assert b"503 Service Unavailable" in answer
    assert b"too many connections" in answer


def test_requests_in_one_piece_are_answered_in_order() -> None:
    with listening(IMPATIENT) as connect:
        client = connect()
        client.sendall(GOOD + GOOD.replace(b"3", b"2").replace(b"abc", b"ab"))
        bodies = [each.rpartition(b"\r\n\r\n")[2] for each in read_all(client).split(b"HTTP/1.1")]
    assert bodies == [b"", b"3", b"2"]
