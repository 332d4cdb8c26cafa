"""Connections that send nothing, too much, half a head, or ask for another protocol."""

import json
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, closing, suppress

import pytest
import tensorflow as tf
from serving_models import put_export, save
from serving_servers import server_in_thread, wait_until

BODY = b'{"instances": ["abc"]}'
HEAD = b"POST /v1/models/m:predict HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n" % len(BODY)
LAST = b"Connection: close\r\n\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = put_export(tmp_path_factory.mktemp("models") / "m", 1)
    echo = folder.with_name("echo")
    texts = {"inputs": tf.TensorSpec([None], tf.string)}
    save(tf.Module(), {"serving_default": (lambda inputs: {"outputs": inputs}, texts)}, echo)
    with server_in_thread(
        {"m": folder, "echo": echo}, connections=20, head_seconds=1.5, client_seconds=2
    ) as server:
        yield server


def connected(stack: ExitStack, port: int, sent: bytes = b"") -> socket.socket:
    client = stack.enter_context(closing(socket.create_connection(("127.0.0.1", port), timeout=30)))
    client.sendall(sent)
    return client


def trickle(client: socket.socket) -> None:
    """Sends empty lines, which belong to no head yet."""
    for _ in range(300):
        client.sendall(b"\r\n")
        time.sleep(0.1)


def has_closed(client: socket.socket) -> bool:
    try:
        return client.recv(65536) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    "sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: a\r\n"], ids=["nothing", "half"]
)
def test_connections_that_never_finish_a_head_shut_out_nobody(server, sent):
    with ExitStack() as stack:
        clients = [connected(stack, server.port, sent) for _ in range(100)]
        for _ in range(5):
            assert server.ask("/healthz").status == 200
            assert server.predict(["abc"]).json == {"predictions": [4]}
        started = time.monotonic()
        assert all(map(has_closed, clients))
        assert time.monotonic() - started < 15


def test_a_head_that_trickles_is_closed_after_the_same_time(server):
    answer = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
    for first in (b"", answer):  # also on a connection that had an answer
        with ExitStack() as stack:
            client, started = connected(stack, server.port, first), time.monotonic()
            assert not first or client.recv(65536).startswith(b"HTTP/1.1 200")
            with pytest.raises(ConnectionError):
                trickle(client)
            assert time.monotonic() - started < 15


def test_places_that_are_in_use_give_503_to_others_but_not_to_health(server):
    with ExitStack() as stack:
        for _ in range(20):
            connected(stack, server.port, HEAD + b"\r\n{")  # The rest of the body is missing.
        time.sleep(0.3)
        assert server.predict(["abc"]).status == 503
        assert [server.ask(path).status for path in ("/healthz", "/readyz", "/health")] == [200] * 3


def request_of_megabytes(stack: ExitStack, port: int, megabytes: int) -> socket.socket:
    """A client that asks for a large answer and has little room for it."""
    client = stack.enter_context(closing(socket.socket()))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    client.settimeout(30)
    client.connect(("127.0.0.1", port))
    body = b'{"instances": ["' + b"a" * (megabytes << 20) + b'"]}'
    head = b"POST /v1/models/echo:predict HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
    client.sendall(head % len(body) + body)
    return client


def test_a_client_that_does_not_read_its_answer_is_closed(server):
    timeouts = 'xling_tf_serving_refused_total{reason="timeout"}'
    before = server.metric(timeouts)
    with ExitStack() as stack:
        client = request_of_megabytes(stack, server.port, 20)
        wait_until(lambda: server.metric(timeouts) == before + 1, 30)
        received = 0
        with suppress(ConnectionError):
            while data := client.recv(1 << 20):
                received += len(data)
        assert received < 20 << 20


def test_a_client_that_reads_slowly_gets_all_of_its_answer(server):
    with ExitStack() as stack:
        client, started = request_of_megabytes(stack, server.port, 20), time.monotonic()
        received = 0
        while received < 20 << 20:  # about 4 MiB a second
            data = client.recv(1 << 19)
            assert data
            received += len(data)
            time.sleep(len(data) / (4 << 20))
        assert time.monotonic() - started > 2.5  # longer than `client_seconds`


@pytest.mark.parametrize(
    "fields",
    [
        b"Connection: Upgrade, HTTP2-Settings\r\n"
        b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAA\r\n"
        b"Upgrade: h2c\r\nUser-Agent: Java-http-client/21\r\n",
        b"User-Agent: curl/8\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n",
        b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
        b"Connection: keep-alive\r\nConnection: upgrade\r\nUpgrade: TLS/1.0, h2c\r\n",
    ],
    ids=["java", "curl", "websocket", "two fields"],
)
def test_an_upgrade_is_ignored_and_the_body_is_read(server, fields):
    whole, close = HEAD + fields + b"\r\n" + BODY, b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + LAST
    middle = len(HEAD) + len(fields) // 2
    chunked = HEAD.split(b"Content-Length")[0] + b"Transfer-Encoding: chunked\r\n" + fields
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    for parts in (
        [whole],
        [whole[:middle], whole[middle:-5], whole[-5:]],
        [chunked + b"\r\n", chunks],
    ):
        answers = server.send(*parts, close)
        # The same connection answers the next request.
        assert answers.count(b"HTTP/1.1 200 OK") == 2
        assert b'{"predictions":[4.0]}' in answers


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 200_000,
        b"GET /healthz HTTP/1.1\r\n" + b"X: a\r\n" * 40_000 + b"\r\n",
        b"GET /healthz?" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
    ids=["a field", "half a field", "fields", "path"],
)
def test_a_head_that_is_too_large_is_refused(server, head):
    received = server.send(head)
    assert received.startswith(b"HTTP/1.1 431 ")
    assert list(json.loads(received.partition(b"\r\n\r\n")[2])) == ["error"]


@pytest.mark.parametrize("sent", [b"GARBAGE\r\n\r\n", b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"])
def test_a_request_that_cannot_be_read_is_refused_without_a_line_in_the_log(server, sent, caplog):
    assert server.send(sent).startswith(b"HTTP/1.1 400 ")
    assert not caplog.records


def test_the_limit_on_open_files_bounds_the_connections():
    # 1,000 connections do not fit into 200 files; 50 do, once the soft limit of 40 is raised.
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (40, 200))\n"
        "from xling_tf.serving.connections import room_for\n"
        "print(sum(room_for(1000)), room_for(50)[0], *resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    fits, few, soft, hard = map(int, result.stdout.split())
    assert 50 < fits < 200
    assert (few, soft, hard) == (50, 200, 200)
