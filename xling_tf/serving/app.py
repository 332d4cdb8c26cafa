"""The server: the paths of TensorFlow Serving and OpenAI, metrics, health, and the page at `/`."""

import asyncio
import hmac
import logging
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from xling_tf.serving import embeddings, protocol
from xling_tf.serving.batching import BatchingParameters, BatchScheduler
from xling_tf.serving.models import ModelConfig, Servable, ServedModel, follow, load_models
from xling_tf.serving.monitoring import Metrics, log, start_logging
from xling_tf.serving.protocol import ServingError, Target, Tensors

_CODES = {200: "OK", 400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}
_CODES |= {408: "DEADLINE_EXCEEDED", 409: "ALREADY_EXISTS"}
_CODES |= {413: "RESOURCE_EXHAUSTED", 415: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 499: "CANCELLED"}
_CODES |= {501: "UNIMPLEMENTED", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}
# If the rest of a body is not read (408, 413, 415), the connection is closed.
_HEADERS = {code: {"connection": "close"} for code in (408, 413, 415)}
_HEADERS |= {401: {"www-authenticate": "Bearer"}, 429: {"retry-after": "1"}}
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([^\"';,\s]{1,40})", re.IGNORECASE)
# Seconds between checks that a waiting client is still connected.
_CHECK_SECONDS = 0.1
# Bytes of JSON that are read or written in the event loop; more are handled in another thread.
_SMALL = 2**16


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """What clients may do, and how the server runs."""

    api_key: str = ""  # that requests for models must have; empty if they need none
    origins: Sequence[str] = ()  # of web pages that may send requests; "*" is all
    body_bytes: int = 32 * 2**20
    request_seconds: float = 30.0  # for an answer
    client_seconds: float = 30.0  # for a client to send its body, and between its requests
    connections: int = 1000  # at the same time
    enable_batching: bool = True
    poll_seconds: float = 1.0  # between checks for new versions; 0 turns them off
    drain_seconds: float = 30.0  # for requests in flight when the server is stopped
    log_level: str = "INFO"


def make_app(
    models: Mapping[str, ServedModel], scheduler: BatchScheduler, metrics: Metrics, config: ServerConfig
) -> Starlette:
    """Makes the ASGI application of models by name."""

    def readiness(request: Request) -> Response:
        if all(model.is_available() for model in models.values()):
            return JSONResponse({"status": "ready"})
        return _error(ServingError("Not every model is available", 503))

    media_type, page = "text/plain; version=0.0.4", resources.files(__package__) / "page"
    app = Starlette(
        routes=[
            Route(
                "/monitoring/prometheus/metrics",
                lambda request: Response(metrics.page(), media_type=media_type),
            ),
            Route("/healthz", lambda request: JSONResponse({"status": "alive"})),
            Route("/readyz", readiness),
            Route("/", lambda request: FileResponse(str(page / "index.html"))),
            Mount("/page", StaticFiles(directory=str(page))),
        ],
        exception_handlers={
            HTTPException: lambda request, error: _error(ServingError(error.detail, error.status_code))
        },
        middleware=[Middleware(CORSMiddleware, config.origins, allow_methods=["*"], allow_headers=["*"])],
    )
    app.router.default = _Protocol(models, scheduler, metrics, config)
    app.router.redirect_slashes = False
    return app


def serve(
    models: Sequence[ModelConfig], listener: socket.socket, batching: BatchingParameters, config: ServerConfig
) -> None:
    """Serves models until SIGTERM or SIGINT, then answers the requests in flight and ends with status 0.

    The listener is a bound socket, which listens once the models are loaded; a `UserError` names a model that
    cannot be loaded.
    """
    start_logging(config.log_level)
    metrics = Metrics()
    loaded = load_models(models, metrics, batched=config.enable_batching)
    stopped = follow(loaded, config.poll_seconds) if config.poll_seconds else None
    scheduler = BatchScheduler(batching, metrics)
    server = uvicorn.Server(
        uvicorn.Config(
            make_app(loaded, scheduler, metrics, config),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=config.connections + 1,
            timeout_keep_alive=config.client_seconds,  # type: ignore[arg-type]
            timeout_graceful_shutdown=config.drain_seconds,  # type: ignore[arg-type]
        )
    )
    listener.listen(server.config.backlog)
    host, port = listener.getsockname()[:2]
    log(logging.INFO, "serving", host=host, port=port, models=list(loaded), pid=os.getpid())
    # uvicorn raises the signal again after it has answered the requests in flight.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: None)
    server.run(sockets=[listener])
    if stopped is not None:
        stopped.set()
    is_idle = scheduler.close()
    log(logging.INFO, "stopped")
    if not is_idle:  # A call cannot be stopped, and would crash if Python ended before it.
        sys.stdout.flush()
        os._exit(0)


@dataclass(frozen=True)
class _Protocol:
    """The protocols' paths, as an ASGI application; all of them require the key."""

    models: Mapping[str, ServedModel]
    scheduler: BatchScheduler
    metrics: Metrics
    config: ServerConfig

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, and counts and logs it."""
        target = None
        request = Request(scope, receive)
        request.state.started = time.perf_counter()
        method = "GET" if scope["method"] == "HEAD" else scope["method"]  # uvicorn omits the body
        endpoint = method, scope["path"].lower().removesuffix("/")
        is_list = endpoint == ("GET", embeddings.MODELS_PATH)
        is_openai = is_list or endpoint[1] == embeddings.PATH
        try:
            self._require_key(request)
            path, query = scope.get("raw_path") or scope["path"].encode(), scope["query_string"]
            whole = path + b"?" + query if query else path
            if is_list:
                served = ((name, model.latest()) for name, model in self.models.items())
                answer = embeddings.format_models({name: model.created for name, model in served if model})
            elif endpoint == ("POST", embeddings.PATH):
                embed = embeddings.read_request(await self._document(request))
                target = Target(embed.model, None, None, "predict")
                answer = await self._embed(target, embed, request)
            else:
                target = protocol.parse_path(method, whole.decode("utf-8", "replace"))
                answer = await self._answer(target, request)
            response = Response(answer, media_type="application/json")
        except ServingError as error:
            response = _error(error, is_openai)
        except ClientDisconnect:
            response = Response(status_code=499)
        except asyncio.CancelledError:  # The time for requests in flight is over.
            response = _error(ServingError("The server is shutting down", 503), is_openai)
        except Exception as error:
            log(logging.ERROR, "failed", error=f"{type(error).__name__}: {error}")
            response = _error(ServingError("The server failed", 500), is_openai)
        seconds = time.perf_counter() - request.state.started
        # A client's words, such as names of unknown models, are neither counted nor logged.
        model = target.model if target and target.model in self.models else None
        action = target and target.action
        if model and action == "predict":
            code = _CODES.get(response.status_code, "INTERNAL")
            self.metrics.requests.labels(model, code).inc()
            self.metrics.request_latency.labels(model, action, "REST").observe(seconds * 1e6)
        fields = {"action": action, "model": model, "status": response.status_code}
        log(logging.DEBUG, "request", **fields, ms=round(seconds * 1e3, 3))
        await response(scope, receive, send)

    def _require_key(self, request: Request) -> None:
        scheme, key = (*request.headers.get("authorization", "").split(maxsplit=1), "", "")[:2]
        key = key.strip() if scheme.lower() == "bearer" else ""
        expected = self.config.api_key
        if expected and not hmac.compare_digest(key.encode(), expected.encode()):
            raise ServingError("Expected an API key, as 'Authorization: Bearer KEY'", 401)

    def _model(self, target: Target) -> ServedModel:
        # An unknown model answers like a model without versions.
        unknown = ServedModel(ModelConfig(target.model, Path()), self.metrics)
        return self.models.get(target.model, unknown)

    async def _embed(self, target: Target, embed: embeddings.EmbeddingRequest, request: Request) -> bytes:
        servable, document = self._model(target).servable(target), {"instances": embed.texts}
        name, outputs, _ = await self._predict(request, servable, document, embed.signature)
        vectors = next(iter(outputs.values()))
        if vectors.ndim != 2 or vectors.dtype.kind != "f":
            raise ServingError(f"{name} of {target.model} does not return vectors of texts")
        return await _off_loop(vectors.nbytes, embeddings.format_embeddings, embed, vectors)

    async def _document(self, request: Request) -> dict[str, Any]:
        body = await self._body(request)
        request.state.started, request.state.size = time.perf_counter(), len(body)
        charsets = _CHARSET.findall(",".join(request.headers.getlist("content-type")))
        if not {charset.lower() for charset in charsets} <= {"utf-8", "utf8", "us-ascii", "ascii"}:
            raise ServingError(f"Expected JSON in UTF-8, but Content-Type says {charsets[-1]}")
        return await _off_loop(len(body), protocol.parse_request, body)

    async def _answer(self, target: Target, request: Request) -> bytes:
        model = self._model(target)
        if target.action == "status":
            served = None if target.version or target.label else model.latest()
            more = embeddings.describe(target.model, served.created) if served else {}
            return protocol.format_status(model.states(target), more)
        if target.action == "metadata":
            servable = model.servable(target)
            return protocol.format_metadata(target.model, servable.version, servable.signatures)
        document = await self._document(request)
        servable = model.servable(target)
        if target.action != "predict":
            raise ServingError(f"This server does not {target.action}; use predict.", 501)
        signature = document.get("signature_name", "")
        _, outputs, row_form = await self._predict(request, servable, document, signature)
        size = sum(array.nbytes for array in outputs.values())
        return await _off_loop(size, protocol.format_outputs, outputs, row_form)

    async def _body(self, request: Request) -> bytes:
        if request.headers.get("content-encoding", "identity") != "identity":
            raise ServingError("Expected a request's body without Content-Encoding", 415)
        limit, body = self.config.body_bytes, bytearray()
        try:
            async with asyncio.timeout(self.config.client_seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > limit:
                        raise ServingError(f"A request's body must have at most {limit} bytes", 413)
        except TimeoutError:
            raise ServingError("Timed out waiting for a request's body", 408) from None
        return bytes(body)

    async def _predict(
        self, request: Request, servable: Servable, document: dict[str, Any], signature: str
    ) -> tuple[str, Tensors, bool]:
        """Returns the name and outputs of a signature, and True for rows; gives up if the client leaves."""
        name = signature or "serving_default"
        if name not in servable.queues:
            raise ServingError(f'Serving signature name: "{name}" not found in signature def')
        infos = servable.signatures[name].inputs
        inputs, row_form = await _off_loop(request.state.size, protocol.to_inputs, document, infos)
        work = asyncio.ensure_future(self.scheduler.run(servable.queues[name], inputs))
        try:
            async with asyncio.timeout(self.config.request_seconds):
                while not (await asyncio.wait([work], timeout=_CHECK_SECONDS))[0]:
                    if await request.is_disconnected():
                        raise ClientDisconnect
            return name, work.result(), row_form
        except TimeoutError:
            seconds = self.config.request_seconds
            raise ServingError(f"No answer within {seconds:g} seconds", 504) from None
        finally:
            work.cancel()


async def _off_loop(size: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function, in another thread if it handles so many bytes that other requests would wait."""
    if size < _SMALL:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)


def _error(error: ServingError, is_openai: bool = False) -> Response:
    text: Any = error.message.encode("utf-8", "replace").decode()
    if is_openai:
        kind = "invalid_request_error" if error.status < 500 else "server_error"
        text = {"message": text, "type": kind, "param": None, "code": None}
    return JSONResponse({"error": text}, error.status, _HEADERS.get(error.status))
