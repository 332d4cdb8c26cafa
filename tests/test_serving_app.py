import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import numpy as np
import pytest
from served_models import put_export
from starlette.types import Message

from xling_tf.serving.app import make_app
from xling_tf.serving.batching import BatchingParameters
from xling_tf.serving.config import Limits, ModelConfig
from xling_tf.serving.errors import ServingError
from xling_tf.serving.model_errors import told_by_tensorflow
from xling_tf.serving.model_server import ModelServer

PREDICT = "/v1/models/m:predict"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    folder = put_export(tmp_path_factory.mktemp("models") / "m", 1)
    server = ModelServer([ModelConfig("m", folder)], BatchingParameters())
    server.start(poll_seconds=0)
    yield server
    assert server.stop()


def ask(
    server: ModelServer, *requests: tuple[str, str, Any], limits: Limits | None = None
) -> list[httpx.Response]:
    """The answers to requests that are made at the same time."""
    transport = httpx.ASGITransport(make_app(server, limits), raise_app_exceptions=False)

    async def run() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            asked = [client.request(method, path, content=body) for method, path, body in requests]
            return await asyncio.gather(*asked)

    return asyncio.run(run())


def predict(texts: list[str]) -> tuple[str, str, str]:
    return ("POST", PREDICT, json.dumps({"instances": texts}))


def metric(server: ModelServer, line: str) -> float:
    page = server.metrics.page().decode()
    values = [float(each.split()[-1]) for each in page.splitlines() if each.startswith(line)]
    return values[0] if values else 0.0


def test_inputs_of_another_shape_take_no_place_from_others(server: ModelServer) -> None:
    # Each change of shape would begin another batch, of which ten may wait.
    wrong = ("POST", PREDICT, json.dumps({"instances": [["x"]]}))
    answers = ask(server, *[wrong, predict(["x"])] * 30)
    assert [answer.status_code for answer in answers] == [400, 200] * 30
    assert "is expected to have shape [-1], but has [1, 1]" in answers[0].json()["error"]


def test_requests_at_the_same_time_get_their_own_answers(server: ModelServer) -> None:
    # The length of each text, and 1 for the version.
    requests = [predict(["x" * number, ""]) for number in range(8)]
    answers = [response.json()["predictions"] for response in ask(server, *requests)]
    assert answers == [[number + 1, 1] for number in range(8)]


def test_an_error_of_one_request_is_its_own(server: ModelServer) -> None:
    good, bad, other = ask(server, predict(["a"]), predict(["bad"]), predict(["b"]))
    assert [good.json(), other.json()] == [{"predictions": [2]}] * 2
    assert bad.status_code == 400
    assert "the text is bad" in bad.json()["error"]
    assert "node" not in bad.json()["error"]
    assert bad.headers["content-type"] == "application/json"


def test_scalars_are_not_batched(server: ModelServer) -> None:
    body = json.dumps({"signature_name": "count", "inputs": 7})
    (response,) = ask(server, ("POST", PREDICT, body))
    assert response.json() == {"outputs": 7}


@pytest.mark.parametrize(
    ("method", "path", "status", "told"),
    [
        ("GET", "/v1/models/m/versions/1", 200, "AVAILABLE"),
        ("GET", "/v1/models/m/metadata", 200, "serving_default_inputs:0"),
        ("GET", "/v1/models/m/versions/2", 404, "Could not find version 2 of model m"),
        ("GET", "/v1/models/n", 404, "Could not find any versions of model n"),
        ("POST", "/v1/models/n:predict", 404, "Servable not found for request: Latest(n)"),
        ("POST", "/v1/models/m/labels/l:predict", 400, "Unrecognized servable version label: l"),
        ("GET", "/v1/models/m:predict", 400, "Malformed request: GET /v1/models/m:predict"),
        ("GET", "/nowhere?x=1", 400, "Malformed request: GET /nowhere?x=1"),
        ("DELETE", "/healthz", 400, "Malformed request: DELETE /healthz"),
        ("GET", "/healthz", 200, "alive"),
        ("GET", "/readyz", 200, "ready"),
    ],
)
def test_every_path_is_answered(
    server: ModelServer, method: str, path: str, status: int, told: str
) -> None:
    (response,) = ask(server, (method, path, '{"instances": ["a"]}' if method == "POST" else None))
    assert response.status_code == status
    assert told in response.text
    assert status == 200 or list(response.json()) == ["error"]


def test_requests_are_counted_by_their_code(server: ModelServer) -> None:
    lines = [
        f':tensorflow:serving:request_count{{model_name="m",status="{code}"}}'
        for code in ("OK", "INVALID_ARGUMENT")
    ]
    before = [metric(server, line) for line in lines]
    ask(server, predict(["a"]), predict(["bad"]), ("POST", "/v1/models/other:predict", "{}"))
    assert [metric(server, line) for line in lines] == [count + 1 for count in before]
    page = ask(server, ("GET", "/monitoring/prometheus/metrics", None))[0].text
    assert "other" not in page  # A client's words are no labels.
    assert 'xling_tf_serving_available_version{model_name="m"} 1.0' in page
    assert 'xling_tf_serving_queued_rows{model_name="m"} 0.0' in page
    assert ":tensorflow:serving:request_latency_bucket{" in page


async def chunks(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b" " * 100


@pytest.mark.parametrize("body", [b" " * 1000, chunks(10)], ids=["told", "in chunks"])
def test_a_body_beyond_the_limit_is_refused(server: ModelServer, body: Any) -> None:
    (response,) = ask(server, ("POST", PREDICT, body), limits=Limits(body_bytes=999))
    assert response.status_code == 413
    assert response.json() == {"error": "A request's body is expected to have at most 999 bytes"}


class Stuck(ModelServer):
    """A server whose models answer when they are let."""

    def __init__(self) -> None:
        super().__init__([ModelConfig("m", Path())], BatchingParameters())
        self.waiting: Future[bytes] = Future()
        self.asked = Event()

    async def predict(self, target: Any, body: bytes) -> bytes:
        self.asked.set()
        return await asyncio.wrap_future(self.waiting)


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    server = Stuck()
    yield server
    assert server.stop()


def test_an_answer_that_takes_too_long_is_given_up(stuck: Stuck) -> None:
    (response,) = ask(stuck, predict(["a"]), limits=Limits(request_seconds=0.01))
    assert (response.status_code, list(response.json())) == (504, ["error"])
    assert stuck.waiting.cancelled()


def test_a_client_that_goes_away_takes_its_request_with_it(
    stuck: Stuck, caplog: pytest.LogCaptureFixture
) -> None:
    messages: list[Message] = [
        {"type": "http.request", "body": b"{}", "more_body": False},
        {"type": "http.disconnect"},
    ]
    sent = []

    async def receive() -> Message:
        while not stuck.asked.is_set() and len(messages) == 1:
            await asyncio.sleep(0)
        return messages.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": PREDICT, "headers": []}
    asyncio.run(make_app(stuck)(scope, receive, send))
    assert stuck.waiting.cancelled()
    assert sent[0]["status"] == 499  # For the log; nobody is there to read it.
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_server_that_has_no_model_yet_is_alive_and_not_ready(stuck: Stuck) -> None:
    alive, ready = ask(stuck, ("GET", "/healthz", None), ("GET", "/readyz", None))
    assert [alive.status_code, ready.status_code] == [200, 503]
    assert list(ready.json()) == ["error"]


def test_a_failure_of_the_server_tells_nothing_of_it(stuck: Stuck) -> None:
    stuck.waiting.set_exception(RuntimeError("secret"))
    (response,) = ask(stuck, predict(["a"]))
    assert (response.status_code, response.json()) == (500, {"error": "The server failed"})


def test_errors_of_python_are_the_requests_fault() -> None:
    with pytest.raises(ServingError, match=r"no path in \.\.\.$") as told, told_by_tensorflow():
        raise ValueError("no path in /usr/lib/x.py\nsecond line")
    assert (told.value.status, "second" in told.value.message) == (400, False)


def test_predictions_are_those_of_the_model_called_alone(server: ModelServer) -> None:
    texts = ["", "ñ", "a b"]
    together = ask(server, predict(texts))[0].json()["predictions"]
    alone = [
        response.json()["predictions"][0]
        for response in ask(server, *(predict([t]) for t in texts))
    ]
    np.testing.assert_array_equal(together, alone)
