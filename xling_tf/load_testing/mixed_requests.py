"""All kinds of requests that a server meets, sensible and not, each with the status it must get."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from xling_tf.load_testing.crowd import Request, predictions
from xling_tf.load_testing.sentences import SENTENCES
from xling_tf.load_testing.server_process import ServerProcess


def mixed_requests(server: ServerProcess, model: str) -> list[Request]:
    """Requests to all signatures of a model that take strings, in every form, with odd ones between.

    Args:
        server: Is asked for the signatures.
        model: Its name there.
    """
    metadata = json.loads(server.ask(f"/v1/models/{model}/metadata").body)
    signatures = metadata["metadata"]["signature_def"]["signature_def"]
    path = f"/v1/models/{model}:predict"
    sensible = [
        *predictions(model),
        *predictions(model, 32)[:4],
        *(Request("POST", path, body) for body in _signature_bodies(signatures)),
        Request("GET", f"/v1/models/{model}"),
        Request("GET", f"/v1/models/{model}/metadata"),
        Request("GET", "/monitoring/prometheus/metrics"),
        Request("GET", "/healthz"),
    ]
    odd = [Request("POST", path, body, status) for body, status in _odd_bodies()]
    odd.append(Request("POST", "/v1/models/none:predict", b'{"instances": ["a"]}', 404))
    odd.append(Request("GET", "/v1/models/none", None, 404))
    # So that odd ones come between the sensible ones.
    return [
        request
        for index, first in enumerate(sensible)
        for request in (first, odd[index % len(odd)])[: 2 if index % 3 == 0 else 1]
    ] + odd


def _signature_bodies(signatures: Mapping[str, Any]) -> list[bytes]:
    bodies = []
    for name, signature in signatures.items():
        inputs = signature["inputs"]
        if inputs and all(info["dtype"] == "DT_STRING" for info in inputs.values()):
            columns = {alias: list(SENTENCES[:5]) for alias in inputs}
            bodies.append(json.dumps({"signature_name": name, "inputs": columns}).encode())
    return bodies


def _odd_bodies() -> list[tuple[bytes, int]]:
    def instances(*values: object) -> bytes:
        return json.dumps({"instances": values}).encode()

    return [
        (b"", 400),
        (b"{", 400),
        (b"[" * 10_000, 400),
        (b'{"instances": 3}', 400),
        (instances(1.5), 400),
        (json.dumps({"signature_name": "none", "instances": ["a"]}).encode(), 400),
        (instances(""), 200),
        (instances("\0"), 200),
        (instances("ab " * 30_000), 200),
        (instances({"b64": base64.b64encode(b"\xff\xfe\x80").decode()}), 200),
    ]
