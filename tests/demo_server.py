"""The demo page before a stub of the model server, whose vectors can be worked out on paper."""

import contextlib
import math
import threading
import time
from collections.abc import Iterator, Mapping

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from xling_tf.serving.demo.routes import demo_routes
from xling_tf.serving.errors import ServingError
from xling_tf.serving.signatures import Signature, TensorInfo


def signature(*inputs: str, output: str = "DT_FLOAT", dtype: str = "DT_STRING") -> Signature:
    """One that maps strings to vectors."""
    return Signature(
        "tensorflow/serving/predict",
        {name: TensorInfo(f"{name}:0", dtype, (-1,)) for name in inputs},
        {"outputs": TensorInfo("outputs:0", output, (-1, 2))},
    )


PLANE = {"serving_default": signature("inputs"), "default": signature("inputs")}
ANSWERS = PLANE | {
    "question_encoder": signature("input"),
    "response_encoder": signature("input", "context"),
    "inference": signature("premise", "hypothesis"),
}
NUMBERS = {"serving_default": signature("inputs", dtype="DT_FLOAT")}


class Stub:
    """A server of texts that begin with their vector's angle in degrees: "60 a dog".

    Attributes:
        requests: The bodies of the predict requests, oldest first.
        refusals: Status, message and headers of the answers to come, instead of vectors.
        turned: Degrees that are added to every angle, as by another version of the model.
    """

    def __init__(self) -> None:
        self.served: dict[str, Mapping[str, Signature] | ServingError] = {
            "plane": PLANE,
            "a/b": ANSWERS,
            "numbers": NUMBERS,
            "broken": ServingError.not_found("Servable not found for request: Latest(broken)"),
        }
        self.reset()

    def reset(self) -> None:
        self.requests: list[dict] = []
        self.refusals: list[tuple[int, str, dict[str, str]]] = []
        self.turned = 0.0

    def models(self) -> list[str]:
        return list(self.served)

    def signatures(self, name: str) -> Mapping[str, Signature]:
        served = self.served[name]
        if isinstance(served, ServingError):
            raise served
        return served

    async def predict(self, request: Request) -> JSONResponse:
        body = await request.json()
        self.requests.append({"model": request.path_params["name"]} | body)
        if self.refusals:
            status, message, headers = self.refusals.pop(0)
            return JSONResponse({"error": message}, status, headers)
        return JSONResponse({"predictions": [self.vector(text) for text in body["instances"]]})

    def vector(self, instance: str | dict[str, str]) -> list[float]:
        text = instance if isinstance(instance, str) else instance["input"]
        first = text.split(maxsplit=1)[0]
        number = first.removeprefix("-")
        # A text without an angle gets one of its own, far from 0.
        degrees = float(first) if number.isdecimal() else 90 + sum(map(ord, text)) % 180
        angle = math.radians(degrees + self.turned)
        # Twice the unit length: the page has to normalise.
        return [2 * math.cos(angle), 2 * math.sin(angle)]

    def app(self) -> Starlette:
        # As the server that decodes %2F in names does: the path is matched as it was decoded.
        predict = Route("/v1/models/{name:path}:predict", self.predict, methods=["POST"])
        return Starlette(routes=[*demo_routes(self), predict])


@contextlib.contextmanager
def serving(stub: Stub) -> Iterator[str]:
    """Serves it on a port of its own, from a thread; gives the origin."""
    config = uvicorn.Config(stub.app(), host="127.0.0.1", port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
