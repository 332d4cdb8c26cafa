"""The server's HTTP: the protocol's paths, metrics, health and the demo page."""

import asyncio
import logging
import time

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from xling_tf.serving.bodies import Bodies, ClientGoneError
from xling_tf.serving.config import Limits
from xling_tf.serving.demo.routes import demo_routes
from xling_tf.serving.errors import ServingError
from xling_tf.serving.json_log import log
from xling_tf.serving.model_server import ModelServer
from xling_tf.serving.paths import Target, parse_path
from xling_tf.serving.status import format_error

_JSON = "application/json"
_CODES = {
    200: "OK",
    400: "INVALID_ARGUMENT",
    404: "NOT_FOUND",
    413: "RESOURCE_EXHAUSTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def make_app(server: ModelServer, limits: Limits | None = None) -> Starlette:
    """Makes the ASGI application of a server.

    Args:
        server: Answers; it has been started.
        limits: What a client may take of it.

    Returns:
        `/v1/models/...`, `/monitoring/prometheus/metrics`, `/healthz` (the process answers),
        `/readyz` (every model does) and the demo page. Every other path is the protocol's
        malformed request.
    """

    async def metrics(request: Request) -> Response:
        return Response(server.metrics.page(), media_type="text/plain; version=0.0.4")

    async def health(request: Request) -> Response:
        return Response(b'{"status": "alive"}\n', media_type=_JSON)

    async def readiness(request: Request) -> Response:
        if server.is_available():
            return Response(b'{"status": "ready"}\n', media_type=_JSON)
        return _error(ServingError.unavailable("Not every model is available"))

    async def failed(request: Request, error: Exception) -> Response:
        log(logging.ERROR, "failed", error=f"{type(error).__name__}: {error}")
        return _error(ServingError.internal("The server failed"))

    protocol = _Protocol(server, limits or Limits())
    app = Starlette(
        routes=[
            Route("/monitoring/prometheus/metrics", metrics),
            Route("/healthz", health),
            Route("/readyz", readiness),
            *demo_routes(server),
            # An endpoint that is no function gets every method.
            Route("/{path:path}", protocol),
        ],
        exception_handlers={Exception: failed},
    )
    # What is no path, or has a line's end in it, which patterns of routes do not match.
    app.router.default = protocol
    app.router.redirect_slashes = False
    return app


class _Protocol:
    """The protocol's paths, as an ASGI application."""

    def __init__(self, server: ModelServer, limits: Limits) -> None:
        self._server = server
        self._limits = limits
        self._bodies = Bodies(limits.body_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, unless its client has gone."""
        target = None
        started = time.perf_counter()
        try:
            target = parse_path(scope["method"], _path(scope))
            if target.action == "status":
                answer = self._server.status(target)
            elif target.action == "metadata":
                answer = self._server.metadata(target)
            else:
                async with self._bodies.read(scope, receive) as body:
                    started = time.perf_counter()
                    answer = await self._predict(target, body, receive)
            response = Response(answer, media_type=_JSON)
        except ServingError as error:
            response = _error(error)
        except ClientGoneError:
            response = Response(status_code=499)
        except asyncio.CancelledError:  # The time to drain is over.
            response = _error(ServingError.unavailable("The server is shutting down"))
        except Exception as error:
            log(logging.ERROR, "failed", error=f"{type(error).__name__}: {error}")
            response = _error(ServingError.internal("The server failed"))
        self._count(target, response, time.perf_counter() - started)
        await response(scope, receive, send)

    async def _predict(self, target: Target, body: bytes, receive: Receive) -> bytes:
        """Predicts within the time limit, while the client is there."""
        work = asyncio.ensure_future(self._server.predict(target, body))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            done, _ = await asyncio.wait(
                {work, gone},
                timeout=self._limits.request_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if work in done:
                return work.result()
            if gone in done:
                raise ClientGoneError
            limit = self._limits.request_seconds
            raise ServingError.deadline_exceeded(f"No answer within {limit:g} seconds")
        finally:
            work.cancel()
            gone.cancel()

    def _count(self, target: Target | None, response: Response, seconds: float) -> None:
        """Counts a request and logs it; names that no model has are the client's, and are not."""
        model = target.model if target is not None else None
        status = response.status_code
        if target is not None and target.action == "predict" and model in self._server.models():
            code = _CODES.get(status, "INTERNAL")
            self._server.metrics.requests.labels(model, code).inc()
            latency = self._server.metrics.request_latency.labels(model, "predict", "REST")
            latency.observe(seconds * 1e6)
        known = model if model in self._server.models() else None
        log(
            logging.DEBUG,
            "request",
            action=target.action if target is not None else None,
            model=known,
            version=target.version if target is not None else None,
            status=status,
            ms=round(seconds * 1e3, 3),
        )


async def _disconnected(receive: Receive) -> None:
    """Waits until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _path(scope: Scope) -> str:
    """A request's path as it came, with its query."""
    path = (scope.get("raw_path") or scope["path"].encode()).decode("ascii", "surrogateescape")
    query = scope.get("query_string", b"").decode("ascii", "surrogateescape")
    return f"{path}?{query}" if query else path


def _error(error: ServingError) -> Response:
    return Response(format_error(error.message), status_code=error.status, media_type=_JSON)
