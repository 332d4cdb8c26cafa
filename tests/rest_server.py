"""A server of TensorFlow Serving's REST protocol, with faults on order."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SIGNATURES = {
    "serving_default": ["inputs"],
    "question_encoder": ["input"],
    "response_encoder": ["input", "context"],
    "inference": ["premise", "hypothesis"],
}
# What a server does instead of answering; None: it answers after all.
Fault = Callable[[BaseHTTPRequestHandler], None] | None


def vector(signature: str, instance: Any) -> list[float]:
    """Which signature it was, and the lengths of its inputs."""
    texts = list(instance.values()) if isinstance(instance, dict) else [instance]
    lengths = [len(text) for text in texts]
    return [float(list(SIGNATURES).index(signature)), *lengths, *[0.5] * (3 - len(lengths))]


class Server(ThreadingHTTPServer):
    """Serves one model as TensorFlow Serving does; `faults` come first, one a request to predict."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.faults: list[Fault] = []
        self.requests: list[dict[str, Any]] = []
        self.signatures = SIGNATURES
        self.state = "AVAILABLE"
        self.vector = vector
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/models/en-es"

    def stop(self) -> None:
        self.shutdown()
        self.server_close()

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
        fault = self.server.faults.pop(0) if self.server.faults else None
        if fault:
            fault(self)
            return
        assert self.path == "/v1/models/en-es:predict"
        name = body["signature_name"]
        predictions = [self.server.vector(name, instance) for instance in body["instances"]]
        self.answer(200, {"predictions": predictions})

    def answer(self, status: int, content: Any) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


def error(status: int, text: str) -> Fault:
    return lambda handler: handler.answer(status, {"error": text})


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.close()


def half_an_answer(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"predictions": [[1.0, ')
    handler.close_connection = True
