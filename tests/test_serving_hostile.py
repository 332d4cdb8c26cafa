"""Requests of clients that mean harm, over a socket.

hypothesis makes them. schemathesis would need an OpenAPI schema, which the protocol does not have: its
paths hold colons, its bodies depend on each model's signatures, and what harms lies below HTTP's grammar
as often as inside it.
"""

import gzip
import json
import logging
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hostile_bytes import FEW
from hostile_client import (
    SECONDS,
    Answer,
    check,
    parse_answers,
    read_answers,
    request,
    send,
    send_all,
)
from hostile_requests import CHUNKS, HEADERS, METHODS, bodies, nested, paths
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import ROOT
from serving_models import lay_out
from small_server import NAMES, small_server

from xling_tf.serving.config import Limits

Address = tuple[str, int]
LIMITS = Limits(body_bytes=2**20, client_seconds=1)
PREDICT = "/v1/models/texts:predict"
GOOD = b'{"instances": ["a"]}'
HEAD = b"POST /v1/models/texts:predict HTTP/1.1\r\nhost: server\r\n"
TEMPLATES = [
    ("half_plus", b'{"instances": [1.0, 2.5]}'),
    ("several", b'{"instances": [{"factor": 2, "pair": [1.0, 2.0]}]}'),
    ("several", b'{"signature_name": "negated", "inputs": {"x": [true, false]}}'),
    ("several", b'{"signature_name": "uint8", "inputs": [1, 2]}'),
    ("several", b'{"signature_name": "scalar", "inputs": 1.5}'),
    ("texts", b'{"instances": ["a", {"b64": "YQ=="}]}'),
    ("texts", b'{"signature_name": "joined", "inputs": {"left": ["a"], "right": ["b"]}}'),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """Where the server listens."""
    with small_server(tmp_path_factory.mktemp("models"), LIMITS) as address:
        yield address


@pytest.fixture(autouse=True)
def _answers_still_and_never_failed(
    address: Address, caplog: pytest.LogCaptureFixture
) -> Iterator[None]:
    yield
    (answer,) = send(address, request(PREDICT, GOOD))
    assert (answer.status, json.loads(answer.body)) == (200, {"predictions": ["<a>"]})
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def checked(answers: list[Answer]) -> list[int]:
    for answer in answers:
        check(answer)
    return [answer.status for answer in answers]


def status(address: Address, raw: bytes) -> list[int]:
    """The statuses of the answers to bytes, all of which are as they should be."""
    return checked(send(address, raw))


@settings(FEW, max_examples=100)
@given(
    request_=st.sampled_from(TEMPLATES).flatmap(lambda t: st.tuples(st.just(t[0]), bodies(t[1])))
)
def test_any_body_is_answered(address: Address, request_: tuple[str, bytes]) -> None:
    name, body = request_
    assert len(status(address, request(f"/v1/models/{name}:predict", body))) == 1


@settings(FEW, max_examples=100)
@given(path=paths("texts"), method=METHODS, headers=HEADERS, body=st.just(GOOD) | CHUNKS)
def test_any_request_is_answered(
    address: Address, path: bytes, method: str, headers: list[bytes], body: bytes
) -> None:
    status(address, request(path, body, method, headers))


@settings(FEW, max_examples=3)
@given(
    raws=st.lists(
        CHUNKS.map(lambda chunks: HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunks)
        | st.binary(min_size=1, max_size=100)
        | st.lists(st.sampled_from([HEAD, b"\r\n", b"\n", GOOD, b"\0", b" "]), min_size=1).map(
            b"".join
        ),
        min_size=25,
        max_size=25,
    )
)
def test_what_is_hardly_http_is_answered_and_closed(address: Address, raws: list[bytes]) -> None:
    with ThreadPoolExecutor(len(raws)) as pool:  # Most of them wait until they are timed out.
        for statuses in pool.map(lambda raw: status(address, raw), raws):
            assert statuses


CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
LENGTH = HEAD + b"content-length: "


@pytest.mark.parametrize(
    ("raw", "statuses"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [400]),
        (b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + b"\0" * 100, [400]),
        (b"GET /healthz\r\n\r\n", [200]),
        (LENGTH + b"-1\r\n\r\n" + GOOD, [400]),
        (LENGTH + b"20\r\ncontent-length: 21\r\n\r\n" + GOOD, [400]),
        (LENGTH + b"99999999999\r\n\r\n", [413]),
        (LENGTH + b"0" * 5000 + b"20\r\n\r\n" + GOOD, [200]),
        (LENGTH + b"20\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", [400]),
        (LENGTH + b"20\r\ntransfer-encoding : chunked\r\n\r\n" + GOOD, [400]),
        # The rest of a body is no request, or a bad one after a good one.
        (LENGTH + b"5\r\n\r\n" + GOOD, [400, 400]),
        (LENGTH + b"20\r\n\r\n" + GOOD + b"rest\r\n\r\n", [200, 400]),
        (LENGTH + b"20\r\n\r\n" + GOOD + LENGTH + b"20\r\n\r\n{", [200, 408]),
        (CHUNKED + b"14\r\n" + GOOD + b"\r\n0\r\n\r\n", [200]),
        (CHUNKED + b"zz\r\n", [400]),
        (CHUNKED + b"14\r\n" + GOOD + b"\r\n0\r\nx: y\r\n\r\n", [200]),
        # An answer that came before the body's end stays the only one.
        (LENGTH + b"99999999\r\n\r\n" + b"GET /healthz HTTP/1.1\r\n\r\n", [413]),
        (CHUNKED + b"200000\r\n" + b" " * 2**21 + b"\r\nzz\r\n", [413]),
        # The parser would take this body for a request of its own.
        (HEAD + b"connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 20\r\n\r\n" + GOOD, [400]),
        (b"GET /healthz HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n", [200]),
        (b"GET /healthz HTTP/1.1\r\n\r\n" * 5000, [200] * 101 + [429]),
        (b"\0" * 70_000, [400]),
        (request("/demo/models%0a/", method="GET"), [400]),
        (request("*", method="OPTIONS"), [400]),
    ],
    ids=range(23),
)
def test_http_at_its_edges(address: Address, raw: bytes, statuses: list[int]) -> None:
    assert status(address, raw) == statuses


def test_an_answer_without_a_body_tells_its_length(address: Address) -> None:
    with socket.create_connection(address, timeout=SECONDS) as client:
        client.sendall(request(PREDICT, method="HEAD"))
        read = client.recv(2**16)
    assert read.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert parse_answers(read, "HEAD")[0].kind == "application/json"


def test_who_asks_whether_to_send_too_much_is_told_not_to(address: Address) -> None:
    raw = LENGTH + b"99999999\r\nexpect: 100-continue\r\n\r\n"
    with socket.create_connection(address, timeout=SECONDS) as client:
        client.sendall(raw)
        assert client.recv(2**16).startswith(b"HTTP/1.1 413 ")


BIG = LIMITS.body_bytes


@pytest.mark.parametrize(
    ("body", "wanted", "told"),
    [
        (b'{"instances": ["' + b"a" * (BIG + 1) + b'"]}', 413, "at most 1048576 bytes"),
        (b'{"instances": ["' + b"a" * (BIG - 20) + b'"]}', 200, ""),
        (b'{"instances": [{"b64": "' + b"YQ== " * (BIG // 6) + b'"}]}', 400, "base64"),
        (b'{"instances": [{"b64": "' + b"Y Q " * (BIG // 5) + b'"}]}', 200, ""),
        (json.dumps({"instances": [""] * 100_000}).encode(), 429, "task size is 100000"),
        (b"[" * (BIG - 1), 413, "at most 1000000 values"),
        (b"[" * 500_000, 400, "JSON Parse error"),
        (nested(b"[", 100), 400, "tensor parsing error"),
        (b'{"instances": [' + b"9" * (BIG - 20) + b"]}", 400, "JSON Parse error"),
        (b'{"instances": ["\\ud800"]}', 400, "surrogate"),
        (b'{"instances": [{"b64": "/w=="}]}', 200, ""),
        (b'{"instances": ["\xff"]}', 200, ""),
        (b'{"signature_name": "\\u0000"}', 400, "not found in signature def"),
        (b"", 400, "The document is empty"),
    ],
    ids=range(14),
)
def test_bodies_at_their_edges(address: Address, body: bytes, wanted: int, told: str) -> None:
    (answer,) = send(address, request(PREDICT, body))
    assert answer.status == wanted, answer.body[:200]
    if wanted != 200:
        check(answer)
        assert told in json.loads(answer.body)["error"]


@pytest.mark.parametrize(
    ("packed", "wanted"),
    [
        (gzip.compress(GOOD), 200),
        (gzip.compress(b" " * (BIG + 1)), 413),
        (gzip.compress(b"0" * 10**8), 413),
        (gzip.compress(GOOD)[:-9], 400),
        (GOOD, 400),
        (b"", 400),
    ],
    ids=["good", "too big", "bomb", "cut", "not packed", "empty"],
)
def test_packed_bodies(address: Address, packed: bytes, wanted: int) -> None:
    assert status(address, request(PREDICT, packed, headers=[b"content-encoding: gzip"])) == [
        wanted
    ]


def test_good_clients_go_on_among_bad_ones(address: Address) -> None:
    bad = [
        request(PREDICT, b"[" * 50_000),
        request(PREDICT, json.dumps({"instances": [[[]]] * 5000}).encode()),
        request("/v1/models/%00:predict", b"\0" * 1000),
        b"\0" * 100_000,
    ]

    def ask(number: int) -> list[object]:
        text = f"text {number}"
        body = json.dumps({"instances": [text]}).encode()
        (answer,) = send(address, request(PREDICT, body))
        return [answer.status, json.loads(answer.body), {"predictions": [f"<{text}>"]}]

    def harm(number: int) -> None:
        with socket.create_connection(address, timeout=SECONDS) as client:
            send_all(client, bad[number % len(bad)])
            if number % 3:  # The others leave without waiting.
                checked(read_answers(client))

    with ThreadPoolExecutor(64) as good, ThreadPoolExecutor(8) as hostile:
        harmed = hostile.map(harm, range(24))
        for code, told, wanted in good.map(ask, range(64)):
            assert (code, told) == (200, wanted)
        list(harmed)


def resident_mib(process: subprocess.Popen[str]) -> float:
    """The memory of a process."""
    lines = Path(f"/proc/{process.pid}/status").read_text()
    (kib,) = re.findall(r"VmRSS:\s+(\d+) kB", lines)
    return int(kib) / 1024


@pytest.mark.slow
def test_memory_does_not_grow(tmp_path: Path) -> None:
    """A server of its own, as the strategies' memory is not the server's."""
    lay_out(tmp_path)
    program = [sys.executable, str(ROOT / "export" / "serve.py"), "--port=0", "--client_seconds=1"]
    command = [*program, *(f"--model={name}={tmp_path / name}" for name in NAMES)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            events = (json.loads(line) for line in process.stdout)
            port = next(event["port"] for event in events if event["event"] == "serving")
            requests = hostile_requests(200)
            send_often(("127.0.0.1", port), requests, 5)
            before = resident_mib(process)
            send_often(("127.0.0.1", port), requests, 25)
            # Some MiB are the allocator's; a few KiB that each request left behind would be more.
            assert resident_mib(process) - before < 16
        finally:
            process.kill()


def hostile_requests(count: int) -> list[bytes]:
    """That many requests with bad bodies, and as many with bad heads."""
    requests = []

    @settings(FEW, max_examples=count)
    @given(body=bodies(TEMPLATES[-2][1]), path=paths("texts"), method=METHODS, headers=HEADERS)
    def collect(body: bytes, path: bytes, method: str, headers: list[bytes]) -> None:
        requests.extend([request(PREDICT, body), request(path, body, method, headers)])

    collect()
    return requests


def send_often(address: Address, requests: list[bytes], times: int) -> None:
    for raw in requests * times:
        status(address, raw)
