"""A thousand wrong requests and more: bodies, paths, fields and framings, each with a right request
after it.

The seed is fixed, so that what fails once fails again.
"""

import json
import math
import random
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pytest
import tensorflow as tf
from serving_models import hashed, lay_out, save
from serving_servers import server_in_thread

pytestmark = pytest.mark.slow

NUM_REQUESTS = 2000
SEED = 20
FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[ \t]*[\t\x20-\x7e\x80-\xff]*")
STATUS = re.compile(rb"HTTP/1\.1 ([1-5][0-9]{2}) [\t\x20-\x7e]*")
# What requests look like when they are right; parts of them are replaced.
RIGHT: list[tuple[str, Any]] = [
    ("/v1/models/half_plus:predict", {"instances": [1.0, 2.0]}),
    ("/v1/models/half_plus:predict", {"signature_name": "matrix", "instances": [[1, 2], [3, 4]]}),
    ("/v1/models/half_plus/versions/2:predict", {"inputs": {"x": [1.0]}}),
    ("/v1/models/texts:predict", {"instances": ["a", {"b64": "YQ=="}]}),
    (
        "/v1/models/texts:predict",
        {"signature_name": "joined", "inputs": {"left": ["a"], "right": ["b"]}},
    ),
    ("/v1/models/several:predict", {"instances": [{"factor": 2, "pair": [1, 0.5]}]}),
    ("/v1/models/several:predict", {"signature_name": "int64", "instances": [41]}),
    ("/v1/models/several:predict", {"signature_name": "uint8", "instances": [41]}),
    ("/v1/models/several:predict", {"signature_name": "negated", "instances": [True]}),
    ("/v1/embeddings", {"model": "m", "input": ["Hola", "Hello"], "encoding_format": "base64"}),
    ("/v1/embeddings", {"model": "m", "input": "Hola", "dimensions": 4, "user": "a"}),
    ("/v1/embeddings", {"model": "m", "input": "Hola", "input_type": "query"}),
    ("/embed", {"model": "m", "inputs": ["Hola"], "normalize": False}),
    ("/embed", {"model": "m", "inputs": ["Hola"], "prompt_name": "passage", "truncate": True}),
    ("/embed", {"model": "m", "inputs": ["Hola"], "parameters": {"dimensions": 4}}),
    ("/", {"model": "m", "inputs": {"source_sentence": "Hola", "sentences": ["Hello", "Hi"]}}),
    ("/similarity", {"model": "m", "inputs": {"source_sentence": "Hola", "sentences": ["Hello"]}}),
    ("/rerank", {"model": "m", "query": "Hola", "texts": ["Hello", "Hi"], "return_text": True}),
]
PATHS = [
    "/",
    "/docs",
    "/info?model=m",
    "/info",
    "/openapi.json?model=%00",
    "/openapi.json",
    "/health",
    "/healthz",
    "/metrics",
    "/v1/models",
    "/v1/models/",
    "/v1/models/m",
    "/v1/models/m/metadata",
    "/page/docs.js",
    "/v1/models/m/versions/99999999999999999999999999",
    "/v1/models/m/versions/-1",
    "/embed/",
    "//",
    "///",
    "/v1/models/m/versions/%D9%A1",
    "/v1/models/m/versions/1%0A",
    "/v1/models/%00:predict",
    "/embed//",
    "/page/../app.py",
    "/page/%2e%2e/app.py",
    "/page/..%2fapp.py",
    "/page/%00",
    "/page/a%00.js",
    "/page/",
    "/page//etc/passwd",
    "/page/%2fetc/passwd",
    "/page/" + "a" * 5000,
    "/page/" + "a/" * 3000,
    "/page",
    "/./v1/models",
    "/v1/./models",
    "/v1/models/..",
    "/v1%2fmodels",
    "/%",
    "/%zz",
    "/%ff%fe",
    "/v1/models/%ff",
    "/a\\b",
    "*",
    "http://a/health",
    "http://[/health",
    "/?model=m",
    "/#a",
    "/a b",
    "/\x7f",
    "/\xe9",
    "",
    "/v1/models?" + "a=b&" * 5000,
    "/v1/models/" + "a" * 60_000,
    "/v1/models/m%3Apredict",
    "//a.b/v1/models/",
]
WEIRD: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    -0.0,
    2**31,
    2**63,
    2**64,
    -(2**63) - 1,
    10**400,
    1e308,
    5e-324,
    math.nan,
    math.inf,
    -math.inf,
    "",
    " ",
    "a",
    "\0",
    "\ud800",
    "\udfff\ud800",
    "\ufffe",
    "😀" * 50,
    "a" * 9999,
    [],
    [[]],
    {},
    {"": 0},
    {"b64": "a"},
    {"b64": "8Q=="},
    {"b64": ""},
    {"b64": 1},
    {"b64": "YQ==", "x": 1},
    [1, "a"],
    [[1], [2, 3]],
    [[1, 2], [[3], [4]]],
    [None],
    [True, 1],
    {"x": {"x": {}}},
    ["a"] * 20_000,
    "raw",
    "query",
    "base64",
    "serving_default",
    "question_encoder",
    "m",
    "Left",
    "right",
    [[["a"]]],
]
NAMES = [
    "model",
    "input",
    "inputs",
    "instances",
    "signature_name",
    "dimensions",
    "normalize",
    "truncate",
]
NAMES += [
    "input_type",
    "prompt_name",
    "parameters",
    "query",
    "texts",
    "raw_scores",
    "\ud800",
    "",
    "a" * 999,
]
FIELDS = [
    b"Content-Type: text/plain",
    b"Content-Type: ",
    b"Content-Type: application/json; charset=utf-16",
    b"Content-Encoding: gzip",
    b"Content-Encoding: identity, gzip",
    b"Accept: x/y",
    b"Accept-Encoding: gzip",
    b"Authorization: Bearer \xff",
    b"Authorization: ",
    b"Expect: 100-continue",
    b"Expect: x",
    b"Range: bytes=9-1",
    b"Host: [",
    b"Host: a:b:c",
    b"Host: \xff",
    b"Host: ",
    b"Origin: null",
    b"X-A: " + b"a" * 30_000,
    b"Connection: keep-alive, close",
    b"Connection: x",
    b"Upgrade: h2c\r\nConnection: Upgrade",
    b"TE: trailers",
    b"If-None-Match: *",
    b"If-Modified-Since: x",
    b"Cookie: =;=",
    b"X:",
    b"X:\tb\t",
    b"Forwarded: for=x",
]
METHODS = [
    *(b"GET", b"POST") * 3,
    b"HEAD",
    b"OPTIONS",
    b"PUT",
    b"DELETE",
    b"PATCH",
    b"TRACE",
    b"get",
    b"G\xff",
    b"PRI",
]
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"


class Answer(NamedTuple):
    """An answer, whose framing has been checked."""

    status: int
    fields: dict[bytes, bytes]
    body: bytes

    @property
    def is_last(self) -> bool:
        return self.fields.get(b"connection") == b"close"


class Client:
    """A connection that reads answers to the letter."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.file = self.socket.makefile("rb")

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def send(self, *parts: bytes) -> None:
        """Sends bytes; the server may have closed before it has read all."""
        try:
            for part in parts:
                self.socket.sendall(part)
        except ConnectionError:
            pass

    def read(self, method: bytes = b"POST") -> Answer | None:
        """Reads one answer; None if the server has closed."""
        try:
            line = self.file.readline()
        except ConnectionError:
            return None
        if not line:
            return None
        assert line.endswith(b"\r\n")
        match = STATUS.fullmatch(line[:-2])
        assert match, line
        fields: dict[bytes, bytes] = {}
        while (line := self.file.readline()) != b"\r\n":
            assert line.endswith(b"\r\n")
            assert FIELD.fullmatch(line[:-2]), line
            name, _, value = line[:-2].partition(b":")
            assert name.lower() not in {*fields} & {b"content-length", b"transfer-encoding"}
            fields[name.lower()] = value.strip()
        status = int(match[1])
        if status == 100:
            return self.read(method)
        assert (b"content-length" in fields) != (b"transfer-encoding" in fields), fields
        if method == b"HEAD":
            return Answer(status, fields, b"")
        if b"content-length" in fields:
            body = self.file.read(size := int(fields[b"content-length"]))
            assert len(body) == size
        else:
            assert fields[b"transfer-encoding"] == b"chunked"
            body = b"".join(iter(self._chunk, b""))
        return Answer(status, fields, body)

    def _chunk(self) -> bytes:
        size = int(self.file.readline().removesuffix(b"\r\n"), 16)
        chunk, end = self.file.read(size), self.file.read(2)
        assert (len(chunk), end) == (size, b"\r\n")
        return chunk


class Case(NamedTuple):
    """Bytes to send as one request."""

    method: bytes
    parts: list[bytes]
    is_cut: bool = False  # the client leaves before the end


def replaced(rng: random.Random, value: Any) -> Any:
    """Returns a copy of a document with a part of it replaced, added or removed."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        name, copy = rng.choice([*value]), dict(value)
        match rng.randrange(5):
            case 0:
                copy[rng.choice(NAMES)] = rng.choice(WEIRD)
            case 1:
                del copy[name]
            case _:
                copy[name] = replaced(rng, value[name])
        return copy
    if isinstance(value, list) and value and rng.random() < 0.6:
        row = rng.randrange(len(value))
        return [*value[:row], replaced(rng, value[row]), *value[row + 1 :]]
    return rng.choice(WEIRD)


def damaged(rng: random.Random, body: bytes) -> bytes:
    """Returns JSON that is hardly JSON any more."""
    place = rng.randrange(len(body) + 1)
    end = rng.randrange(place, len(body) + 1)
    depth = rng.choice([2, 60, 64, 65, 1000, 1025, 200_000])
    return rng.choice(
        [
            body[:place],
            body[place:],
            body[:place] + body[end:],
            body + body,
            body[:end] + body[place:],
            body[:place] + bytes([rng.randrange(256)]) + body[place:],
            b"\xef\xbb\xbf" + body,
            body.decode("latin-1").encode("utf-16"),
            b"",
            b"\0",
            b" " * 9999 + body,
            b'{"instances": ' + b"[" * depth + b"]" * depth + b"}",
            b"[" * depth,
            b'{"a":' * depth,
            b'{"input": ' + b'{"a":' * depth + b"1" + b"}" * depth + b"}",
            body[:-1] + b"," + body[1:],
            body.replace(b'"', b"'"),
            b'{"inputs": "\xed\xa0\x80"}',
            b'{"instances": [1e999]}',
            b'{"instances": [-1e-999, 01]}',
            b'{"instances": [1.]}',
            b'{"a": +1}',
            b'{"instances": [' + b"9" * 5000 + b"]}",
        ]
    )


def some_body(rng: random.Random) -> tuple[bytes, bytes]:
    """Returns a path and a body."""
    path, document = rng.choice(RIGHT)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        document = replaced(rng, document)
    is_ascii = rng.random() < 0.5
    body = json.dumps(document, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    return path.encode(), damaged(rng, body) if rng.random() < 0.3 else body


def framed(rng: random.Random, body: bytes) -> bytes:
    """Returns the end of a head, and a body with its length or in chunks."""
    if rng.random() < 0.7:
        return b"Content-Length: %d\r\n\r\n" % len(body) + body
    chunks = b""
    while body:
        size = rng.choice([1, 7, 100, 100_000])
        extension = rng.choice([b"", b"", b";a=b", b';a="b"'])
        part, body = body[:size], body[size:]
        chunks += b"%x%s\r\n%s\r\n" % (len(part), extension, part)
        if len(chunks) > 20_000:
            size = 100_000
            part, body = body, b""
            chunks += b"%x\r\n%s\r\n" % (len(part), part) if part else b""
    trailer = rng.choice([b"", b"", b"X-A: b\r\n", b"Content-Length: 5\r\n"])
    return b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n" + trailer + b"\r\n"


def split(rng: random.Random, raw: bytes) -> list[bytes]:
    """Returns bytes in one, two or three packets."""
    places = sorted(rng.randrange(len(raw) + 1) for _ in range(rng.choice([0, 0, 1, 2])))
    return [raw[begin:end] for begin, end in zip([0, *places], [*places, len(raw)], strict=True)]


def wrong_body(rng: random.Random) -> Case:
    path, body = some_body(rng)
    return Case(b"POST", split(rng, b"POST %s HTTP/1.1\r\nHost: a\r\n" % path + framed(rng, body)))


def wrong_head(rng: random.Random) -> Case:
    """Returns another method, path or version, and fields that nobody expects."""
    (path, body), method = some_body(rng), rng.choice(METHODS)
    if rng.random() < 0.7:
        path = rng.choice(PATHS).encode("latin-1")
    fields = rng.sample(FIELDS, rng.choice([0, 0, 1, 2]))
    version = rng.choice([b"1.1"] * 8 + [b"1.0", b"2.0", b"0.9", b"x"])
    hosts = [] if any(field.startswith(b"Host") for field in fields) else [b"Host: a"]
    head = b"\r\n".join([b"%s %s HTTP/%s" % (method, path, version), *hosts, *fields, b""])
    has_body = method in (b"POST", b"PUT", b"PATCH")
    return Case(method, split(rng, head + (framed(rng, body) if has_body else b"\r\n")))


def smuggled(rng: random.Random) -> Case:
    """Returns a request with another in its body, whose end two readers might see in two places."""
    path, body = b"/v1/models/texts:predict", b'{"instances": ["a"]}' + HIDDEN
    size = b"Content-Length: %d\r\n" % len(body)
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    chunked, short = b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n" + HIDDEN
    fields, content = rng.choice(
        [
            (size + chunked, chunks),
            (chunked + size, short),
            (b"Content-Length: 5\r\n" + chunked, short),
            (size + b"Content-Length: 0\r\n", body),
            (b"Content-Length: 0\r\n" + size, body),
            (size + size, body),
            (b"Content-Length: %d, 0\r\n" % len(body), body),
            (b"Content-Length: +%d\r\n" % len(body), body),
            (b"Content-Length: -1\r\n", body),
            (b"Content-Length: 0x10\r\n", body),
            (b"Content-Length: \r\n", body),
            (b"Content-Length: 1_0\r\n", body),
            (b"Content-Length: %d\r\n" % 10**30, body),
            (b"Content-Length: 5 5\r\n", body),
            (b"Content-Length : 5\r\n", body),
            (b"Content-Length:\r\n %d\r\n" % len(body), body),
            (b"X: a\r\n Content-Length: 0\r\n" + size, body),
            (b"Transfer-Encoding: chunked, identity\r\n", chunks),
            (b"Transfer-Encoding: x\r\n", chunks),
            (b"Transfer-Encoding: xchunked\r\n" + size, body),
            (b"Transfer-Encoding : chunked\r\n", chunks),
            (b"Transfer-Encoding:\r\n chunked\r\n", chunks),
            (b"Transfer-Encoding: \x0bchunked\r\n", chunks),
            (chunked + chunked, chunks),
            (b"Transfer-Encoding: identity\r\n" + size, body),
            (b"Transfer-Encoding: gzip, chunked\r\n", chunks),
            (b"transfer-encoding: CHUNKED\r\n", chunks),
            (b"X: a\nContent-Length: 0\r\n" + size, body),
            (b"X: a\rContent-Length: 0\r\n" + size, body),
            (b"X: a\0b\r\n" + size, body),
            (size.replace(b"\r\n", b"\n"), body),
            (chunked, b"%x\n%s\n0\n\n" % (len(body), body)),
            (chunked, b"-1\r\n" + chunks),
            (chunked, b"%x \r\n%s\r\n0\r\n\r\n" % (len(body), body)),
            (chunked, b"0x5\r\n" + chunks),
            (chunked, b"fffffffffffffffff\r\n" + chunks),
            (chunked, b"2\r\n" + body),
            (chunked, b"\r\n" + chunks),
            (chunked, b"5;" + b"a" * 5000 + b"\r\n{    \r\n0\r\n\r\n"),
            (chunked, b"2;a\nb\r\n{}\r\n" + short),
            (chunked, b"0\r\nX: " + b"a" * 70_000 + b"\r\n\r\n"),
            (chunked, b"0\r\nX y\r\n\r\n" + HIDDEN),
        ]
    )
    return Case(
        b"POST", split(rng, b"POST %s HTTP/1.1\r\nHost: a\r\n" % path + fields + b"\r\n" + content)
    )


def cut(rng: random.Random) -> Case:
    """Returns the beginning of a request, after which the client sends nothing more."""
    case = rng.choice([wrong_body, wrong_head])(rng)
    raw = b"".join(case.parts)
    return case._replace(parts=[raw[: rng.randrange(len(raw))]], is_cut=True)


KINDS: list[Callable[[random.Random], Case]] = (
    [wrong_body] * 10 + [wrong_head] * 5 + [smuggled] * 4 + [cut]
)


def cases() -> Iterator[Case]:
    rng = random.Random(SEED)
    for _ in range(NUM_REQUESTS):
        yield rng.choice(KINDS)(rng)


def request(text: str, *fields: bytes) -> bytes:
    """A right request, whose answer has its text."""
    body = json.dumps({"instances": [text]}).encode()
    size = b"Content-Length: %d" % len(body)
    head = (b"POST /v1/models/texts:predict HTTP/1.1", b"Host: a", size, *fields)
    return b"\r\n".join([*head, b"", body])


def require_well_formed(answer: Answer) -> None:
    assert 200 <= answer.status < 300 or 400 <= answer.status < 500, answer
    if answer.fields.get(b"content-type") == b"application/json" and answer.body:
        document = json.loads(answer.body)
        assert answer.status < 300 or "error" in document


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    lay_out(folder)
    spec = {"inputs": tf.TensorSpec([None], tf.string)}
    names = ("serving_default", "raw", "question_encoder", "response_encoder")
    signatures = {name: (lambda inputs: {"outputs": hashed(inputs)}, spec) for name in names}
    save(tf.Module(), signatures, folder / "m" / "1")
    models = {name: folder / name for name in ("m", "half_plus", "several", "texts")}
    with server_in_thread(models, client_seconds=5) as server:
        yield server


def tried(port: int, case: Case, number: int) -> int | None:
    """Sends a case, then a right request; returns the answer's status, if there is one."""
    with closing(Client(port)) as client:
        # The right request follows at once in every other case: nothing may be answered twice or
        # skipped.
        right, follows = request(f"text {number}"), number % 2 and not case.is_cut
        client.send(*case.parts, *[right] * follows)
        if case.is_cut:
            client.socket.shutdown(socket.SHUT_WR)
        answer = client.read(case.method)
        if answer is None:
            assert case.is_cut, "no answer"
            return None
        require_well_formed(answer)
        if answer.is_last or case.is_cut:
            assert client.read() is None, "an answer after the last one"
        else:
            client.send(*[right] * (not follows))
            own = client.read()
            assert own, f"no further answer after {answer}"
            assert own.body == b'{"predictions":["<text %d>"]}' % number, f"{own} after {answer}"
    return answer.status


def test_wrong_requests_are_refused_and_disturb_nobody(server):
    right = ("/embed", json.dumps({"model": "m", "inputs": ["Hola"]}))
    before, statuses, faults = server.ask(*right).json, Counter[int | None](), list[str]()
    kept = Client(server.port)  # a client that does everything right, in between
    for number, case in enumerate(cases()):
        try:
            statuses[tried(server.port, case, number)] += 1
        except (AssertionError, OSError, ValueError) as error:
            faults.append(f"{number}: {error!r:.600} {b''.join(case.parts)[:600]!r}")
        if number % 50 == 0:
            kept.send(request(f"kept {number}"))
            own = kept.read()
            assert own
            assert own.body == b'{"predictions":["<kept %d>"]}' % number
    kept.close()
    assert not faults, "\n".join([f"{len(faults)} of {NUM_REQUESTS}", *faults[:10]])
    # Neither were all refused, nor all for one reason.
    assert min(statuses[status] for status in (200, 400, 404, 405)) > 100, statuses
    assert {413, 415, 431} <= statuses.keys()
    assert server.ask("/health").status == 200
    assert server.ask(*right).json == before


def answers(client: Client, count: int) -> list[tuple[int, bool]]:
    """The status of each of the next answers, and True for the last one of the connection."""
    found = [client.read() for _ in range(count)]
    assert client.read() is None
    return [(answer.status, answer.is_last) for answer in found if answer]


@pytest.mark.parametrize(
    "wrong", [b"GARBAGE\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"a" * 66_000 + b"\r\n\r\n"]
)
def test_a_request_that_cannot_be_read_waits_for_the_answers_before_it(server, wrong):
    status = 431 if b"X" in wrong else 400
    for before in (0, 1, 3):
        with closing(Client(server.port)) as client:
            client.send(b"".join(request(f"text {number}") for number in range(before)) + wrong)
            for number in range(before):
                own = client.read()
                assert own
                assert own.body == b'{"predictions":["<text %d>"]}' % number
            assert answers(client, 1) == [(status, True)], before


def test_a_body_that_cannot_be_read_has_one_answer(server):
    chunked = b"POST %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"
    begun, unknown = chunked % b"/v1/models/texts:predict", chunked % b"/unknown"
    for before in (0, 2):
        with closing(Client(server.port)) as client:
            client.send(request("a") * before + begun + b"x\r\n")
            expected = [*[(200, False)] * before, (400, True)]
            assert answers(client, before + 1) == expected
    with closing(Client(server.port)) as client:
        client.send(unknown)
        answer = client.read()
        assert answer
        assert (answer.status, answer.is_last) == (404, False)
        client.send(b"x\r\n")
        assert client.read() is None


def test_the_rest_of_a_body_that_comes_after_the_answer_is_no_head(server):
    size, part = 1_000_000, b"a" * 100_000
    with closing(Client(server.port)) as client:
        client.send(b"POST /unknown HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size)
        answer = client.read()
        assert answer
        assert (answer.status, answer.is_last) == (404, False)
        client.send(*[part] * 10, request("a"))
        own = client.read()
        assert own
        assert own.body == b'{"predictions":["<a>"]}'


def test_a_head_that_is_too_large_has_an_answer_without_a_body_for_head(server):
    with closing(Client(server.port)) as client:
        client.send(b"HEAD / HTTP/1.1\r\nX: " + b"a" * 100_000)
        answer = client.read(b"HEAD")
        assert answer
        assert answer.status == 431
        assert client.read() is None


def test_a_slash_too_many_leads_nowhere(server):
    for path in ("/v1/models/", "/embed/"):
        reply = server.ask(path, "{}" if "embed" in path else None, Host="elsewhere.example")
        assert (reply.status, reply.headers["Location"]) == (404, None)
        assert reply.json == {"error": "Not Found"}
