"""Mixed load on the model server: requests of all protocols and sizes, wrong ones, and some that
their clients leave before the answer; and the server's memory meanwhile.
"""

import http.client
import json
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from statistics import median
from threading import Event
from typing import Any, NamedTuple

from xling_tf.errors import UserError

WARM_UP = 0.2  # share of the time: two of ten minutes
MOST_GROWTH = 0.1  # of memory after that
_CLIENTS = 6
_SAMPLE_SECONDS = 3
_BUSY = {429, 503, 504}


class Request(NamedTuple):
    """A request, and the status of its answer; 0 if the client leaves before."""

    method: str
    path: str
    body: bytes | None
    status: int = 200


def memory_under_load(
    port: int, model: str, texts: Sequence[str], mib: Callable[[], float], seconds: float
) -> dict[str, Any]:
    """Samples a server's memory, `mib()`, under load with these texts."""
    samples: list[tuple[float, float]] = []
    stopped, begin = Event(), time.monotonic()
    with ThreadPoolExecutor(_CLIENTS) as pool:
        clients = [
            pool.submit(_send, port, model, texts, random.Random(seed), stopped)
            for seed in range(_CLIENTS)
        ]
        try:
            while (now := time.monotonic() - begin) < seconds and not stopped.is_set():
                samples.append((now, mib()))
                stopped.wait(min(_SAMPLE_SECONDS, seconds / 20))
        finally:
            stopped.set()
    outcomes = sum((client.result() for client in clients), Counter[str]())
    growth = memory_growth(samples, WARM_UP * seconds)
    return {
        "passed": growth <= MOST_GROWTH and not any("instead" in kind for kind in outcomes),
        "seconds": round(seconds),
        "clients": _CLIENTS,
        "outcomes": dict(outcomes.most_common()),
        "mib_when_ready": round(samples[0][1]),
        "mib_at_most": round(max(mib for _, mib in samples)),
        "growth": round(growth, 4),
        "growth_bound": MOST_GROWTH,
        "mib": [[round(at), round(mib)] for at, mib in samples],
    }


def memory_growth(samples: Sequence[tuple[float, float]], warm_up: float) -> float:
    """Returns the growth of memory from the first tenth of the time after the warm-up to the last,
    by their medians.
    """
    mib = [mib for second, mib in samples if second >= warm_up]
    if len(mib) < 2:
        raise UserError("memory was measured once after the warm-up; give more --memory_minutes")
    part = max(1, len(mib) // 10)
    return median(mib[-part:]) / median(mib[:part]) - 1


def some_request(rng: random.Random, model: str, examples: Sequence[str]) -> Request:
    """Returns a request of any kind."""
    size = rng.choice([1, 1, 1, 8, 8, 32, 200])
    texts = [rng.choice(examples) + f" {rng.randrange(1000)}" for _ in range(size)]
    if rng.random() < 0.03:
        texts = [texts[0] * 5000]  # hundreds of kilobytes
    predict = f"/v1/models/{model}:predict"
    right: list[tuple[str, dict[str, Any]]] = [
        ("/v1/embeddings", {"model": model, "input": texts}),
        ("/v1/embeddings", {"model": model, "input": texts, "encoding_format": "base64"}),
        ("/embed", {"model": model, "inputs": texts}),
        ("/similarity", {"inputs": {"source_sentence": texts[0], "sentences": texts}}),
        (predict, {"instances": texts}),
        (predict, {"inputs": texts}),
    ]
    path, document = rng.choice(right)
    body = json.dumps(document).encode()
    match rng.randrange(20):
        case 0:
            return Request("POST", path, body[: len(body) // 2], 400)
        case 1:
            return Request("POST", path, json.dumps({**document, "unknown": 1}).encode(), 400)
        case 2:
            return Request("POST", predict, json.dumps({"instances": [""] * 10_001}).encode(), 413)
        case 3:
            body = json.dumps({"instances": texts}).encode()
            return Request("POST", "/v1/models/stranger:predict", body, 404)
        case 4:
            return Request("GET", predict, None, 405)
        case 5 | 6:
            return Request("POST", path, body, 0)
        case 7:
            pages = ("/info", "/metrics", "/healthz", "/v1/models", "/openapi.json", "/")
            return Request("GET", rng.choice(pages), None)
    return Request("POST", path, body)


def _send(
    port: int, model: str, texts: Sequence[str], rng: random.Random, stopped: Event
) -> Counter[str]:
    """Sends requests until it is stopped; returns how often each outcome came."""
    outcomes: Counter[str] = Counter()
    try:
        while not stopped.is_set():
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
                for _ in range(rng.randrange(1, 20)):
                    request = some_request(rng, model, texts)
                    if not request.status:
                        _leave(port, request, rng)
                        outcomes["left"] += 1
                        continue
                    connection.request(request.method, request.path, request.body)
                    answer = connection.getresponse()
                    answer.read()
                    outcome = f"{answer.status}"
                    if answer.status not in {request.status, *_BUSY}:
                        outcome += f" instead of {request.status}"
                    outcomes[outcome] += 1
    except BaseException:
        stopped.set()
        raise
    return outcomes


def _leave(port: int, request: Request, rng: random.Random) -> None:
    """Sends a request, or a part of it, and closes the connection."""
    body = request.body or b""
    head = f"POST {request.path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
    whole = head.encode() + body
    with closing(socket.create_connection(("127.0.0.1", port), timeout=120)) as client:
        client.sendall(
            rng.choice([whole, whole[: len(whole) // 2], whole[:10], b"GARBAGE\r\n\r\n"])
        )
        time.sleep(rng.choice([0, 0.05]))
