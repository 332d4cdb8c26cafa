"""Embedders behind TensorFlow Serving's REST protocol: our server, and one that fails on demand."""

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
from xling_tf.evaluators import embedders
from xling_tf.evaluators.embedders import open_embedder
from xling_tf.savedmodel.module import ExportedModule
from xling_tf.serving.models import ModelConfig

SIGNATURES = {
    "serving_default": ["inputs"],
    "question_encoder": ["input"],
    "response_encoder": ["input", "context"],
    "inference": ["premise", "hypothesis"],
}
# Replaces an answer: a status and content, or what happens to the connection.
Fault = tuple[int, Any] | str
UNAVAILABLE = (503, {"error": "still loading"})


def vector(signature: str, instance: Any) -> list[float]:
    """The number of the signature, and the lengths of its inputs."""
    texts = list(instance.values()) if isinstance(instance, dict) else [instance]
    lengths = [len(text) for text in texts]
    return [float(list(SIGNATURES).index(signature)), *lengths, *[0.5] * (3 - len(lengths))]


class Server(ThreadingHTTPServer):
    """Serves one model as TensorFlow Serving does; `faults` come first, one a request to predict."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.faults: list[Fault] = []
        self.requests: list[dict[str, Any]] = []
        self.signatures, self.state, self.vector = SIGNATURES, "AVAILABLE", vector
        self.url = f"http://127.0.0.1:{self.server_port}/v1/models/en-es"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

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
                name: {"inputs": dict.fromkeys(keys)} for name, keys in self.server.signatures.items()
            }
            self.answer(200, {"metadata": {"signature_def": {"signature_def": signatures}}})
        else:
            self.answer(404, {"error": f"Could not find any versions of model {self.path}"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(body)
        name = body["signature_name"]
        predictions = [self.server.vector(name, instance) for instance in body["instances"]]
        fault = self.server.faults.pop(0) if self.server.faults else (200, {"predictions": predictions})
        if fault == "hang up":
            self.connection.close()
        else:
            self.answer(*fault)

    def answer(self, status: int, content: Any) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data) + 9 * data.endswith(b" ")))  # of a cut answer
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(embedders, "_RETRIES", embedders._RETRIES.new(backoff_factor=0.001))
    server = Server()
    yield server
    server.shutdown()
    server.server_close()


def test_live_is_loaded_is_rest(hub_module: ExportedModule, hub_folder: Path) -> None:
    live = np.asarray(hub_module(SENTENCES))
    loaded: Any = hub.load(str(hub_folder))
    np.testing.assert_allclose(loaded(SENTENCES), live, atol=1e-6)
    np.testing.assert_allclose(xling_tf.load(hub_folder).encode(SENTENCES), live, atol=1e-6)
    with server_in_thread([ModelConfig("m", hub_folder)]) as server:
        answer = server.predict(SENTENCES).json["predictions"]
        np.testing.assert_allclose(answer, live, atol=1e-6)
        embedder = open_embedder(f"rest:{server.url}/v1/models/m")
        np.testing.assert_allclose(embedder(SENTENCES), live, atol=1e-6)


def test_each_role_uses_its_signature(server: Server) -> None:
    embedder = open_embedder(f"rest:{server.url}/")
    server.requests.clear()
    np.testing.assert_array_equal(embedder(["a", "bcd"]), [[0, 1, 0.5, 0.5], [0, 3, 0.5, 0.5]])
    assert embedder.encode_questions(["ab"]).tolist() == [[1, 2, 0.5, 0.5]]
    responses = embedder.encode_responses(["ab", "c"], ["x", "yyyy"])
    assert responses.tolist() == [[2, 2, 1, 0.5], [2, 1, 4, 0.5]]
    assert embedder.infer(["a"], ["bb"]).tolist() == [[3, 1, 2, 0.5]]
    # Longest first; plain values of one input, objects of several.
    assert server.requests[0] == {"signature_name": "serving_default", "instances": ["bcd", "a"]}
    assert server.requests[2]["instances"][0] == {"input": "c", "context": "yyyy"}
    assert embedder.name == "en-es-rest"
    assert embedder.description == {"kind": "REST", "url": server.url, "version": "3"}


def test_what_the_server_lacks_the_embedder_lacks(server: Server) -> None:
    server.signatures = {"serving_default": ["inputs"], "response_encoder": ["input"]}
    embedder = open_embedder(f"rest:{server.url}")
    assert embedder.questions is embedder.inference is None
    assert embedder.encode_responses(["ab"], ["x"]).tolist() == [[2, 2, 0.5, 0.5]]
    server.vector = lambda name, instance: {"logits": [9.0], "outputs": [1.0, len(instance)]}
    assert embedder(["abc"]).tolist() == [[1, 3]]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (UNAVAILABLE, r"answered 503: .*still loading"),
        ("hang up", "failed again and again: .*start the server"),
        ((200, b'{"predictions": [[1.0, '), "failed again and again: .*IncompleteRead"),
    ],
)
def test_temporary_faults_are_retried_and_lasting_ones_reported(
    fault: Fault, message: str, server: Server
) -> None:
    embedder = open_embedder(f"rest:{server.url}")
    server.faults = [fault, fault]
    assert embedder(["ab"]).tolist() == [[0, 2, 0.5, 0.5]]
    assert server.faults == []
    server.faults = [(400, {"error": "JSON Parse error: x"}), fault]
    with pytest.raises(UserError, match=r"answered 400: .*JSON Parse error: x"):
        embedder(["ab"])
    server.requests.clear()
    server.faults = [fault] * 100
    with pytest.raises(UserError, match=f"^{server.url}:predict .*{message}"):
        embedder(["ab"])
    assert len(server.requests) == 7


def test_answers_without_vectors_are_rejected(server: Server) -> None:
    embedder = open_embedder(f"rest:{server.url}")
    for answer in (b"[]", b'{"predictions": [["a"], ["b"]]}', b'{"predictions": [[1.0]]}'):
        server.faults = [(200, answer)]
        with pytest.raises(UserError, match="must answer as TensorFlow Serving does, but gave"):
            embedder(["a", "b"])


def test_the_checksum_depends_on_the_vectors_but_not_their_last_digits(server: Server) -> None:
    checksum = open_embedder(f"rest:{server.url}").checksum
    server.vector = lambda *args: [number + 1e-6 for number in vector(*args)]
    assert open_embedder(f"rest:{server.url}").checksum == checksum
    server.vector = lambda *args: [number + 0.01 for number in vector(*args)]
    assert open_embedder(f"rest:{server.url}").checksum != checksum


def test_a_missing_or_unavailable_model_is_rejected(server: Server) -> None:
    with pytest.raises(UserError, match=r"404: .*Could not find any versions"):
        open_embedder(f"rest:{server.url}x")
    server.state = "UNLOADING"
    with pytest.raises(UserError, match=r"available version, but has .*'UNLOADING'.*server's log"):
        open_embedder(f"rest:{server.url}")
    for url in ("", "http://host/v1/models/x:predict"):
        with pytest.raises(UserError, match=r"http://host:port/v1/models/name"):
            open_embedder(f"rest:{url}")
