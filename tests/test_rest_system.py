"""Models behind TensorFlow Serving's REST protocol as systems: ours, and one with faults on order."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow_hub as hub
from serving_servers import server_in_thread
from testing import SENTENCES

import xling_tf
from xling_tf.errors import UserError
from xling_tf.evaluators import systems
from xling_tf.evaluators.systems import open_system
from xling_tf.hub.module import HubModule
from xling_tf.serving.models import ModelConfig

SIGNATURES = {
    "serving_default": ["inputs"],
    "question_encoder": ["input"],
    "response_encoder": ["input", "context"],
    "inference": ["premise", "hypothesis"],
}
# Instead of an answer: a status and content, or what happens to the connection.
Fault = tuple[int, Any] | str
UNAVAILABLE = (503, {"error": "still loading"})


def vector(signature: str, instance: Any) -> list[float]:
    """Which signature it was, and the lengths of its inputs."""
    texts = list(instance.values()) if isinstance(instance, dict) else [instance]
    lengths = [len(text) for text in texts]
    return [float(list(SIGNATURES).index(signature)), *lengths, *[0.5] * (3 - len(lengths))]


class Server(ThreadingHTTPServer):
    """Serves one model as TensorFlow Serving does; `faults` come first, one a request to predict."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.faults: list[Fault] = []
        self.requests: list[dict[str, Any]] = []
        self.signatures = SIGNATURES
        self.state = "AVAILABLE"
        self.vector = vector
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/models/en-es"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Broken connections are part of the tests."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server

    def do_GET(self) -> None:
        if self.path == "/v1/models/en-es":
            states = {"1": "END", "3": self.server.state, "12": "LOADING"}
            statuses = [{"version": v, "state": state} for v, state in states.items()]
            self.answer(200, {"model_version_status": statuses})
        elif self.path == "/v1/models/en-es/metadata":
            signatures = {
                name: {"inputs": {key: {"dtype": "DT_STRING"} for key in inputs}}
                for name, inputs in self.server.signatures.items()
            }
            self.answer(200, {"metadata": {"signature_def": {"signature_def": signatures}}})
        else:
            self.answer(404, {"error": f"Could not find any versions of model {self.path}"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(body)
        assert self.path == "/v1/models/en-es:predict"
        name = body["signature_name"]
        predictions = [self.server.vector(name, instance) for instance in body["instances"]]
        fault = self.server.faults.pop(0) if self.server.faults else None
        if fault == "half":
            self.answer(200, b'{"predictions": [[1.0, ', missing=1000)
        elif fault == "hang up":
            self.connection.close()
        else:
            self.answer(*(fault or (200, {"predictions": predictions})))

    def answer(self, status: int, content: Any, missing: int = 0) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data) + missing))
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = missing > 0

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(systems, "_BACKOFF_SECONDS", 0.001)
    server = Server()
    yield server
    server.shutdown()
    server.server_close()


def test_live_is_loaded_is_rest(hub_module: HubModule, hub_folder: Path) -> None:
    live = np.asarray(hub_module(SENTENCES))
    loaded: Any = hub.load(str(hub_folder))
    np.testing.assert_allclose(loaded(SENTENCES), live, atol=1e-6)
    np.testing.assert_allclose(xling_tf.load(hub_folder).encode(SENTENCES), live, atol=1e-6)
    with server_in_thread([ModelConfig("m", hub_folder)]) as server:
        answer = server.predict(SENTENCES).json["predictions"]
        np.testing.assert_allclose(answer, live, atol=1e-6)
        system = open_system(f"rest:{server.url}/v1/models/m")
        np.testing.assert_allclose(system(SENTENCES), live, atol=1e-6)


def test_every_role_is_asked_of_its_signature(server: Server) -> None:
    system = open_system(f"rest:{server.url}/")
    server.requests.clear()
    np.testing.assert_array_equal(system(["a", "bcd"]), [[0, 1, 0.5, 0.5], [0, 3, 0.5, 0.5]])
    assert system(["a"]).dtype == np.float32
    assert system.encode_questions(["ab"]).tolist() == [[1, 2, 0.5, 0.5]]
    responses = system.encode_responses(["ab", "c"], ["x", "yyyy"])
    assert responses.tolist() == [[2, 2, 1, 0.5], [2, 1, 4, 0.5]]
    assert system.inference(["a"], ["bb"]).tolist() == [[3, 1, 2, 0.5]]
    # Longest first; plain values of one input, objects of several.
    assert server.requests[0] == {"signature_name": "serving_default", "instances": ["bcd", "a"]}
    assert server.requests[3]["instances"][0] == {"input": "c", "context": "yyyy"}
    assert system.name == "en-es-rest"
    assert system.description == {"kind": "REST", "url": server.url, "version": "3"}


def test_what_the_server_lacks_the_system_lacks(server: Server) -> None:
    server.signatures = {"serving_default": ["inputs"], "response_encoder": ["input"]}
    system = open_system(f"rest:{server.url}")
    assert system.questions is system.inference is None
    assert system.encode_responses(["ab"], ["x"]).tolist() == [[2, 2, 0.5, 0.5]]
    server.vector = lambda name, instance: {"logits": [9.0], "outputs": [1.0, len(instance)]}
    assert system(["abc"]).tolist() == [[1, 3]]
    server.signatures = {"predict_images": ["pixels", "size"]}
    with pytest.raises(UserError, match="'serving_default' with one input, but has predict_images"):
        open_system(f"rest:{server.url}")


def test_requests_are_of_moderate_size_and_answers_in_order(server: Server) -> None:
    system = open_system(f"rest:{server.url}")
    server.requests.clear()
    texts = ["x" * length for length in [*range(1, 301), 100_000, 40_000, 40_000]]
    assert system(texts)[:, 1].tolist() == [*range(1, 301), 100_000, 40_000, 40_000]
    sizes = [len(request["instances"]) for request in server.requests]
    # The long ones alone; at most 128 of the others.
    assert sizes == [1, 1, 1, 128, 128, 44]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (UNAVAILABLE, r"answered 503 .*still loading"),
        ("hang up", r"failed 7 times: .*start the server"),
        ("half", r"failed 7 times: .*IncompleteRead"),
    ],
)
def test_a_fault_that_passes_is_not_noticed_and_one_that_stays_is_reported(
    fault: Fault, message: str, server: Server
) -> None:
    system = open_system(f"rest:{server.url}")
    server.faults = [fault, fault]
    assert system(["ab"]).tolist() == [[0, 2, 0.5, 0.5]]
    assert server.faults == []
    server.faults = [(400, {"error": "JSON Parse error: x"}), fault]
    with pytest.raises(UserError, match=r"answered 400 Bad Request .*JSON Parse error: x"):
        system(["ab"])
    server.requests.clear()
    server.faults = [fault] * 100
    with pytest.raises(UserError, match=f"^{server.url}:predict must .*{message}"):
        system(["ab"])
    assert len(server.requests) == 7


def test_answers_that_are_no_vectors_are_refused(server: Server) -> None:
    system = open_system(f"rest:{server.url}")
    for answer in (
        b"[]",
        b'{"predictions": [["a"], ["b"]]}',
        b'{"predictions": [[1.0]]}',
        b"[" * 100_000,
        b'{"predictions": [[1' + b"0" * 400 + b"]]}",  # beyond all floats
    ):
        server.faults = [(200, answer)]
        with pytest.raises(UserError, match="must answer as TensorFlow Serving does, but gave"):
            system(["a", "b"])


def test_the_checksum_follows_the_vectors_and_not_their_last_digits(server: Server) -> None:
    checksum = open_system(f"rest:{server.url}").checksum
    server.vector = lambda *args: [number + 1e-6 for number in vector(*args)]
    assert open_system(f"rest:{server.url}").checksum == checksum
    server.vector = lambda *args: [number + 0.01 for number in vector(*args)]
    assert open_system(f"rest:{server.url}").checksum != checksum


def test_a_model_that_is_not_there_or_not_ready_is_refused(server: Server) -> None:
    with pytest.raises(UserError, match=r"404 Not Found.*Could not find any versions"):
        open_system(f"rest:{server.url}x")
    server.state = "UNLOADING"
    with pytest.raises(UserError, match=r"available version, but has .*'UNLOADING'.*server's log"):
        open_system(f"rest:{server.url}")
    for url in (
        "",
        "ftp://host/v1/models/x",
        "http://host:port/v1/models/x",
        "http://host/v1/models/x:predict",
    ):
        with pytest.raises(UserError, match=r"http://host:port/v1/models/name"):
            open_system(f"rest:{url}")
