"""The server: TensorFlow Serving's and OpenAI's paths, metrics, health and the page at `/`, by starlette."""

import asyncio
import gc
import hmac
import logging
import os
import re
import signal
import socket
import sys
import time
import zlib
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
from xling_tf.serving.batching import BatchingParameters, BatchScheduler, Lane
from xling_tf.serving.models import ModelConfig, ServedModel, follow, load_models
from xling_tf.serving.monitoring import Metrics, log, start_logging
from xling_tf.serving.protocol import ServingError, Target, Tensors

_CODES = {200: "OK", 400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 408: "DEADLINE_EXCEEDED"}
_CODES |= {413: "RESOURCE_EXHAUSTED", 415: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 499: "CANCELLED"}
_CODES |= {501: "UNIMPLEMENTED", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}
# The connection is closed if the rest of a body is not read (408, 413).
_HEADERS = {408: {"connection": "close"}, 413: {"connection": "close"}, 429: {"retry-after": "1"}}
_HEADERS |= {401: {"www-authenticate": "Bearer"}, 415: {"accept-encoding": "gzip"}}
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([^\"';,\s]{1,40})", re.IGNORECASE)
# Seconds between two looks whether a client that waits is still there.
_LOOK_SECONDS = 0.1
# Bytes of JSON that are read or written in the thread that answers everybody.
_SMALL = 2**16


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a client may take of a server; seconds are for an answer, and for its body to come."""

    body_bytes: int = 32 * 2**20
    request_seconds: float = 30.0
    client_seconds: float = 30.0
    connections: int = 1000


def make_app(
    models: Mapping[str, ServedModel],
    scheduler: BatchScheduler,
    metrics: Metrics,
    limits: Limits | None = None,
    api_key: str = "",
    origins: Sequence[str] = (),
) -> Starlette:
    """Makes the ASGI application; paths that are not its own are the protocol's malformed requests.

    Those with the key may ask, if there is one, and web pages of the origins ("*": of all).
    """

    def metrics_page(request: Request) -> Response:
        return Response(metrics.page(), media_type="text/plain; version=0.0.4")

    def readiness(request: Request) -> Response:
        if all(model.is_available() for model in models.values()):
            return JSONResponse({"status": "ready"})
        return _error(ServingError("Not every model is available", 503))

    def refused(request: Request, error: Any) -> Response:
        return _error(ServingError(error.detail, error.status_code))

    page = resources.files(__package__) / "page"
    app = Starlette(
        routes=[
            Route("/monitoring/prometheus/metrics", metrics_page),
            Route("/healthz", lambda request: JSONResponse({"status": "alive"})),
            Route("/readyz", readiness),
            Route("/", lambda request: FileResponse(str(page / "index.html"))),
            Route("/page/models", lambda request: JSONResponse({"models": list(models)})),
            Mount("/page", StaticFiles(directory=str(page))),
        ],
        exception_handlers={HTTPException: refused},
        middleware=[Middleware(CORSMiddleware, origins, allow_methods=["*"], allow_headers=["*"])],
    )
    app.router.default = _Protocol(models, scheduler, metrics, limits or Limits(), api_key)
    app.router.redirect_slashes = False
    return app


def run(
    models: Sequence[ModelConfig],
    listener: socket.socket,
    batching: BatchingParameters,
    limits: Limits,
    *,
    api_key: str = "",
    origins: Sequence[str] = (),
    enable_batching: bool = True,
    poll_seconds: float = 1,
    drain_seconds: float = 30,
    log_level: str = "INFO",
) -> None:
    """Serves until SIGTERM or SIGINT, answers what has come by then, and ends with status 0.

    The listener is bound to an address; it is listened to once the models are loaded, of which a `UserError`
    tells one that cannot be. Who may ask is as for `make_app`.
    """
    lines = start_logging(log_level)
    try:
        # Unloading a version collects garbage; without what is there now that takes a third of the time.
        gc.freeze()
        metrics = Metrics()
        loaded = load_models(models, metrics, batched=enable_batching)
        stopped = follow(loaded, poll_seconds) if poll_seconds else None
        scheduler = BatchScheduler(batching, metrics)
        server = uvicorn.Server(
            uvicorn.Config(
                make_app(loaded, scheduler, metrics, limits, api_key, origins),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                limit_concurrency=limits.connections + 1,
                timeout_keep_alive=limits.client_seconds,  # type: ignore[arg-type]
                timeout_graceful_shutdown=drain_seconds,  # type: ignore[arg-type]
            )
        )
        listener.listen(server.config.backlog)
        host, port = listener.getsockname()[:2]
        log(logging.INFO, "serving", host=host, port=port, models=list(loaded), pid=os.getpid())
        # After its drain, uvicorn raises the signal again.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: None)
        server.run(sockets=[listener])
        if stopped is not None:
            stopped.set()
        is_idle = scheduler.close()
        log(logging.INFO, "stopped")
    finally:
        lines.stop()
    if not is_idle:  # Python must not end under TensorFlow's threads, and a call cannot be stopped.
        sys.stdout.flush()
        os._exit(0)


@dataclass(frozen=True)
class _Protocol:
    """The protocols' paths, as an ASGI application; all of them ask for the key."""

    models: Mapping[str, ServedModel]
    scheduler: BatchScheduler
    metrics: Metrics
    limits: Limits
    api_key: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, and counts and logs it."""
        target = None
        request = Request(scope, receive)
        request.state.started = time.perf_counter()
        method = "GET" if scope["method"] == "HEAD" else scope["method"]  # uvicorn leaves its body out.
        endpoint = method, scope["path"].lower().removesuffix("/")
        is_list = endpoint == ("GET", embeddings.MODELS_PATH)
        is_openai = is_list or endpoint[1] == embeddings.PATH
        try:
            self._require_key(request)
            path, query = scope.get("raw_path") or scope["path"].encode(), scope["query_string"]
            whole = path + b"?" + query if query else path
            if is_list:
                served = ((name, model.latest()) for name, model in self.models.items())
                answer = embeddings.format_models({name: each.created for name, each in served if each})
            elif endpoint == ("POST", embeddings.PATH):
                asked = embeddings.read_request(await self._document(request))
                target = Target(asked.model, None, None, "predict")
                answer = await self._embed(target, asked, request)
            else:
                target = protocol.parse_path(method, whole.decode("utf-8", "replace"))
                answer = await self._answer(target, request)
            response = Response(answer, media_type="application/json")
        except ServingError as error:
            response = _error(error, is_openai)
        except ClientDisconnect:
            response = Response(status_code=499)
        except asyncio.CancelledError:  # The time to drain is over.
            response = _error(ServingError("The server is shutting down", 503), is_openai)
        except Exception as error:
            log(logging.ERROR, "failed", error=f"{type(error).__name__}: {error}")
            response = _error(ServingError("The server failed", 500), is_openai)
        seconds = time.perf_counter() - request.state.started
        # Names that no model has are the client's words, which are neither counted nor logged.
        model = target.model if target and target.model in self.models else None
        action = target and target.action
        if model and action == "predict":
            code = _CODES.get(response.status_code, "INTERNAL")
            self.metrics.requests.labels(model, code).inc()
            self.metrics.request_latency.labels(model, action, "REST").observe(seconds * 1e6)
        told = {"action": action, "model": model, "status": response.status_code}
        log(logging.DEBUG, "request", **told, ms=round(seconds * 1e3, 3))
        await response(scope, receive, send)

    def _require_key(self, request: Request) -> None:
        scheme, key = (*request.headers.get("authorization", "").split(maxsplit=1), "", "")[:2]
        given = key.strip().encode() if scheme.lower() == "bearer" else b""
        if self.api_key and not hmac.compare_digest(given, self.api_key.encode()):
            raise ServingError("An API key is expected, as 'Authorization: Bearer KEY'", 401)

    def _model(self, target: Target) -> ServedModel:
        # A model that nobody has configured is one without versions.
        nothing = ServedModel(ModelConfig(target.model, Path()), self.metrics)
        return self.models.get(target.model, nothing)

    async def _embed(self, target: Target, asked: embeddings.EmbeddingRequest, request: Request) -> bytes:
        servable = self._model(target).servable(target)
        name = protocol.signature_of({"signature_name": asked.signature}, servable.lanes)
        inputs, _ = protocol.to_inputs({"instances": asked.texts}, servable.signatures[name].inputs)
        outputs = await self._outputs(request, servable.lanes[name], inputs)
        vectors = next(iter(outputs.values()))
        if vectors.ndim != 2 or vectors.dtype.kind != "f":
            raise ServingError(f"{name} of {target.model} gives no vectors of texts")
        return await _off_loop(vectors.nbytes, embeddings.format_embeddings, asked, vectors)

    async def _document(self, request: Request) -> dict[str, Any]:
        body = await self._body(request)
        request.state.started, request.state.size = time.perf_counter(), len(body)
        charsets = _CHARSET.findall(",".join(request.headers.getlist("content-type")))
        if not {each.lower() for each in charsets} <= {"utf-8", "utf8", "us-ascii", "ascii"}:
            raise ServingError(f"JSON is expected in UTF-8, but Content-Type says {charsets[-1]}")
        return await _off_loop(len(body), protocol.parse_request, body)

    async def _answer(self, target: Target, request: Request) -> bytes:
        model = self._model(target)
        if target.action == "status":
            return protocol.format_status(model.states(target))
        if target.action == "metadata":
            servable = model.servable(target)
            return protocol.format_metadata(target.model, servable.version, servable.signatures)
        document = await self._document(request)
        servable = model.servable(target)
        if target.action != "predict":
            raise ServingError(f"This server does not {target.action}; use predict.", 501)
        name = protocol.signature_of(document, servable.lanes)
        infos = servable.signatures[name].inputs
        inputs, row_form = await _off_loop(request.state.size, protocol.to_inputs, document, infos)
        outputs = await self._outputs(request, servable.lanes[name], inputs)
        size = sum(array.nbytes for array in outputs.values())
        return await _off_loop(size, protocol.format_outputs, outputs, row_form)

    async def _body(self, request: Request) -> bytes:
        """The body, unpacked where it is gzip."""
        limit, chunks, size = self.limits.body_bytes, [], 0
        too_large = ServingError(f"A request's body is expected to have at most {limit} bytes", 413)
        try:
            async with asyncio.timeout(self.limits.client_seconds):
                async for chunk in request.stream():
                    chunks.append(chunk)
                    if (size := size + len(chunk)) > limit:
                        raise too_large
        except TimeoutError:
            raise ServingError("Timed out waiting for a request's body", 408) from None
        body = b"".join(chunks)
        if encodings := request.headers.getlist("content-encoding"):
            body = await asyncio.to_thread(_unpacked, body, ",".join(encodings), limit)
        if len(body) > limit:
            raise too_large
        return body

    async def _outputs(self, request: Request, lane: Lane, inputs: Tensors) -> Tensors:
        """Calls the model within the time limit, while the client is there."""
        work = asyncio.ensure_future(self.scheduler.run(lane, inputs))
        try:
            async with asyncio.timeout(self.limits.request_seconds):
                while not (await asyncio.wait([work], timeout=_LOOK_SECONDS))[0]:
                    if await request.is_disconnected():
                        raise ClientDisconnect
            return work.result()
        except TimeoutError:
            seconds = self.limits.request_seconds
            raise ServingError(f"No answer within {seconds:g} seconds", 504) from None
        finally:
            work.cancel()


async def _off_loop(size: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function, in a thread of its own where it has so much to do that others would wait."""
    if size < _SMALL:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)


def _unpacked(body: bytes, encodings: str, limit: int) -> bytes:
    """Unpacks a body by its Content-Encoding, up to one byte above the limit."""
    names = [name.strip() for name in encodings.lower().split(",")]
    names = [name for name in names if name not in ("", "identity")]
    if not names:
        return body
    if names not in (["gzip"], ["x-gzip"]):
        raise ServingError(f"A body is expected plain or in gzip once, not {encodings[:99]}", 415)
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        unpacked = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise ServingError(f"The body is not gzip: {error}") from None
    # Several streams in a row are valid gzip too, but a million of them keep a core busy for seconds.
    if len(unpacked) <= limit and (not unpacker.eof or unpacker.unused_data):
        raise ServingError("The body is expected to be one gzip stream, whole and with nothing after it")
    return unpacked


def _error(error: ServingError, is_openai: bool = False) -> Response:
    body = protocol.format_error(error.message)
    if is_openai:
        body = embeddings.format_error(error.message, error.status)
    return Response(body, error.status, _HEADERS.get(error.status), media_type="application/json")
