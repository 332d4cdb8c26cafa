"""The server: the paths of its protocols, metrics, health, and the pages `/` and `/docs`."""

import asyncio
import hmac
import logging
import os
import re
import signal
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import prometheus_client
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from xling_tf import __version__
from xling_tf.serving import protocol
from xling_tf.serving.batching import BatchingParameters, BatchScheduler
from xling_tf.serving.connections import SPARE, Connection, Door, room_for
from xling_tf.serving.models import Servable, ServedModel, follow, load_models
from xling_tf.serving.monitoring import REQUEST_LATENCY, REQUESTS, log
from xling_tf.serving.protocol import ServingError, Tensors, Vectors

# If the rest of a body is not read (408, 413, 415), the connection is closed.
_HEADERS = {code: {"connection": "close"} for code in (408, 413, 415)}
_HEADERS |= {401: {"www-authenticate": "Bearer"}, 429: {"retry-after": "1"}}
_REQUEST_ID = "x-request-id"
_HEALTH = ("health", "healthz", "readyz")
_ALWAYS = {"/health", "/healthz", "/readyz"}  # answered even if there are too many connections
_MANY_LETTERS = 10_000  # whose tokens are counted in a thread
_LARGE = 256 * 2**10  # bytes of JSON, or of arrays, that are converted in a thread
_PAGE = Path(__file__).parent / "page"
_CHECK_SECONDS = 0.1  # between checks that a waiting client is still connected


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """What clients may do, and how the server runs: all limits of requests but those of batches.

    docs/serving.md has them as a table.
    """

    api_key: str = ""  # that requests for models must have; empty if they need none
    origins: Sequence[str] = ()  # of web pages that may send requests; "*" is all
    body_bytes: int = 32 * 2**20
    request_seconds: float = 30.0  # for an answer
    # For a client to send its body, to read a MiB of its answer, and between its requests.
    client_seconds: float = 30.0
    head_seconds: float = 10.0  # for a client to send the head of a request
    head_bytes: int = 64 * 2**10  # of a request's path and fields
    connections: int = 1000  # at the same time
    poll_seconds: float = 1.0  # between checks for new versions; 0 turns them off
    drain_seconds: float = 30.0  # for requests in flight when the server is stopped
    slow_seconds: float = 1.0  # of a request that is logged


def make_app(
    models: Mapping[str, ServedModel], scheduler: BatchScheduler, config: ServerConfig
) -> Starlette:
    """Makes the ASGI application of models by name."""

    def metrics(request: Request) -> Response:
        latest = prometheus_client.generate_latest()
        return Response(latest, media_type=prometheus_client.CONTENT_TYPE_LATEST)

    app = Starlette(
        routes=[
            *_Api(models, scheduler, config).routes(),
            *(Route(path, metrics) for path in ("/metrics", "/monitoring/prometheus/metrics")),
            # The server listens once all models are loaded.
            *(Route(f"/{path}", lambda _: JSONResponse({"status": "ready"})) for path in _HEALTH),
            Route("/", lambda request: FileResponse(_PAGE / "index.html")),
            Route("/docs", lambda request: FileResponse(_PAGE / "docs.html")),
            Mount("/page", StaticFiles(directory=_PAGE)),
        ],
        exception_handlers={HTTPException: _refuse},
        middleware=[
            Middleware(
                CORSMiddleware,
                config.origins,
                allow_methods=["*"],
                allow_headers=["*"],
                expose_headers=[_REQUEST_ID],
            )
        ],
    )
    # A redirect without the last slash would lead to whatever host a client, or a proxy, names.
    app.router.redirect_slashes = False
    return app


def serve(
    models: Mapping[str, Path],
    listener: socket.socket,
    batching: BatchingParameters,
    config: ServerConfig,
) -> None:
    """Serves models until SIGTERM or SIGINT, then answers the requests in flight and ends.

    The listener is a bound socket, which listens once the models are loaded; a `UserError` names a
    model that cannot be loaded.
    """
    loaded = load_models(models)
    stopped = follow(loaded, config.poll_seconds)
    scheduler = BatchScheduler(batching)
    room, spare = room_for(config.connections)
    if room < config.connections:
        log(logging.WARNING, "few_open_files", connections=room, wanted=config.connections)
        config = replace(config, connections=room)
    server = make_server(make_app(loaded, scheduler, config), config, spare)
    listener.listen(server.config.backlog)
    host, port = listener.getsockname()[:2]
    log(logging.INFO, "serving", host=host, port=port, models=list(loaded), pid=os.getpid())
    # uvicorn raises the signal again after it has answered the requests in flight.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: None)
    server.run(sockets=[listener])
    stopped.set()
    log(logging.INFO, "stopped")
    # A call cannot be stopped, and would crash if Python ended before it does.
    if not scheduler.close():
        logging.shutdown()
        os._exit(0)


class _Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        log(logging.INFO, "stopping")
        await super().shutdown(sockets)


def make_server(app: Any, config: ServerConfig, spare: int = SPARE) -> uvicorn.Server:
    """Makes the web server of an application, with the limits of its connections."""
    door = Door(
        connections=config.connections,
        head_bytes=config.head_bytes,
        head_seconds=config.head_seconds,
        read_seconds=config.client_seconds,
        spare=spare,
        always=_ALWAYS.__contains__,
    )
    options: dict[str, Any] = {
        "ws": "none",
        "lifespan": "off",
        "log_config": None,
        "access_log": False,
    }
    options |= {"server_header": False, "http": partial(Connection, door=door)}
    options |= {"timeout_keep_alive": config.client_seconds}
    options |= {"timeout_graceful_shutdown": config.drain_seconds}
    # asyncio accepts `backlog` connections in one go, before any of them is counted.
    return _Server(uvicorn.Config(app, backlog=max(1, spare), **options))


@dataclass(frozen=True)
class _Api:
    """The paths of the protocols; all of them require the key."""

    models: Mapping[str, ServedModel]
    scheduler: BatchScheduler
    config: ServerConfig

    def routes(self) -> list[Route]:
        """Returns the routes; those of a model also with a version."""
        routes = [
            self._route("/v1/embeddings", self._embeddings, "POST", is_openai=True),
            self._route("/v1/models", self._list, is_openai=True),
            # TEI's: the inputs say what is asked for, as Hugging Face's clients send all to `/`.
            *(self._route(path, self._embed, "POST") for path in ("/", "/embed", "/similarity")),
            self._route("/rerank", self._rerank, "POST"),
            self._route("/info", self._info),
            self._route("/openapi.json", self._describe),
        ]
        for model in ("/v1/models/{model}", "/v1/models/{model}/versions/{version}"):
            routes += [
                self._route(model + ":predict", self._predict, "POST"),
                Route(model + ":predict", _wrong_method, methods=["GET"]),
                self._route(model + "/metadata", self._metadata),
                self._route(model, self._status, is_openai="{version}" not in model),
            ]
        return routes

    def _route(self, path: str, answer: Any, method: str = "GET", is_openai: bool = False) -> Route:
        """Returns a route; `answer` is a coroutine function from a request to JSON."""

        async def respond(request: Request) -> Response:
            started, state = time.perf_counter(), request.state
            state.model, state.texts, state.body_bytes, state.body_seconds = None, 0, 0, 0.0
            try:
                self._require_key(request)
                response = Response(await answer(request), media_type="application/json")
            except ServingError as error:
                response = _error(request, str(error), error.status, is_openai, error.param)
            except ClientDisconnect:
                response = Response(status_code=499)
            except asyncio.CancelledError:  # The time for requests in flight is over.
                response = _error(request, "the server is shutting down", 503, is_openai)
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                log(logging.ERROR, "failed", error=text, request_id=_request_id(request))
                response = _error(request, "the server failed", 500, is_openai)
            seconds = time.perf_counter() - started
            if state.model and method == "POST":
                REQUESTS.labels(state.model, response.status_code).inc()
                REQUEST_LATENCY.labels(state.model).observe(seconds * 1e6)
            is_slow = seconds > self.config.slow_seconds
            log(
                logging.WARNING if is_slow else logging.DEBUG,
                "slow_request" if is_slow else "request",
                request_id=_request_id(request),
                path=path,
                model=state.model,
                texts=state.texts,
                status=response.status_code,
                seconds=round(seconds, 6),
                body_seconds=round(state.body_seconds, 6),
            )
            response.headers[_REQUEST_ID] = _request_id(request)
            return response

        return Route(path, respond, methods=[method])

    def _require_key(self, request: Request) -> None:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        given, expected = f"{scheme.lower()} {key.strip()}", f"bearer {self.config.api_key}"
        if self.config.api_key and not hmac.compare_digest(given.encode(), expected.encode()):
            raise ServingError("expected an API key, as 'Authorization: Bearer KEY'", 401)

    def _model(self, request: Request, name: object = None) -> ServedModel:
        name = name or request.query_params.get("model")
        if name is None and len(self.models) > 1:
            raise ServingError(f"expected 'model', one of {[*self.models]}", param="model")
        name = name or next(iter(self.models))
        if not isinstance(name, str) or name not in self.models:
            raise ServingError(f"no model {str(name)[:100]} is served", 404, "model")
        # A client's words, such as names of unknown models, are neither counted nor logged.
        request.state.model = name
        return self.models[name]

    def _servable(self, request: Request) -> Servable:
        path = request.path_params
        return self._model(request, path["model"]).servable(path.get("version"))

    async def _list(self, request: Request) -> bytes:
        data = [protocol.describe(n, model.servable().created) for n, model in self.models.items()]
        return protocol.dump({"object": "list", "data": data})

    async def _status(self, request: Request) -> bytes:
        name, version = request.path_params["model"], request.path_params.get("version")
        model = self._model(request, name)
        more = {} if version else protocol.describe(name, model.servable().created)
        return protocol.format_status(model.states_of(version), more)

    async def _metadata(self, request: Request) -> bytes:
        servable = self._servable(request)
        return protocol.format_metadata(request.state.model, servable.version, servable.signatures)

    async def _predict(self, request: Request) -> bytes:
        document = await self._document(request)
        protocol.require_fields(document, "predict")
        outputs, row_form = await self._run(request, self._servable(request), document)
        size = sum(array.nbytes for array in outputs.values())
        return await _converted(request, size, protocol.format_outputs, outputs, row_form)

    async def _embeddings(self, request: Request) -> bytes:
        document, vectors = await self._vectors(request)
        # Counting the tokens of a letter takes as long as converting several bytes.
        size = vectors.nbytes + _LARGE // _MANY_LETTERS * sum(map(len, document["input"]))
        name = request.state.model
        return await _converted(request, size, protocol.format_embeddings, document, name, vectors)

    async def _embed(self, request: Request) -> bytes:
        document, vectors = await self._vectors(request)
        compares = isinstance(document.get("inputs"), dict)
        answer = vectors[1:] @ vectors[0] if compares else vectors
        return await _converted(request, answer.nbytes, protocol.dump_rows, answer)

    async def _rerank(self, request: Request) -> bytes:
        document = await self._document(request)
        protocol.require_fields(document, "/rerank")
        query, texts = document.get("query"), document.get("texts")
        returns_text = document.get("return_text", False)
        if (
            not isinstance(query, str)
            or not isinstance(texts, list)
            or not isinstance(returns_text, bool)
        ):
            raise ServingError(
                "expected 'query', a text, and 'texts', a list; 'return_text' is true or false"
            )
        minimum = protocol.to_probability(document)
        own = ("query", "texts", "return_text", "min_probability")
        shared = {name: value for name, value in document.items() if name not in own}
        shared["normalize"] = True
        _, question = await self._encode(
            request, shared | {"inputs": query, "prompt_name": "query"}, "/embed"
        )
        _, answers = await self._encode(
            request, shared | {"inputs": texts, "prompt_name": "passage"}, "/embed"
        )
        hits = protocol.to_hits(question[0], answers)
        if minimum is not None:
            line = self._model(request, document.get("model")).servable().match.get("answer")
            has_text = np.logical_and(answers.any(axis=1), question.any())
            hits = protocol.likely_hits(hits, line, minimum, has_text)
        more = [{"text": text} if returns_text else {} for text in texts]
        return protocol.dump([hit | more[hit["index"]] for hit in hits])

    async def _vectors(self, request: Request) -> tuple[Mapping[str, Any], Vectors]:
        """Returns a request for vectors, and its vectors."""
        received, path = await self._document(request), request.scope["path"]
        is_openai = path == "/v1/embeddings"
        document = received if is_openai else protocol.merge_parameters(received)
        protocol.require_fields(document, path)
        compares = isinstance(document.get("inputs"), dict)
        defaults = {} if is_openai or compares else {"normalize": True}
        return await self._encode(request, defaults | document, path)

    async def _encode(
        self, request: Request, document: Mapping[str, Any], path: str
    ) -> tuple[Mapping[str, Any], Vectors]:
        """Returns a request with its texts as `input`, and their vectors."""
        embed = await _converted(request, 0, protocol.to_embed, document, path)
        servable = self._model(request, embed.get("model")).servable()
        await _converted(request, 0, protocol.require_whole, embed, servable.max_tokens)
        predict = {"instances": embed["input"], "signature_name": protocol.signature_of(embed)}
        outputs, _ = await self._run(request, servable, predict)
        vectors = await _converted(request, 0, protocol.to_vectors, embed, outputs)
        return embed, vectors

    async def _info(self, request: Request) -> bytes:
        servable = self._model(request).servable()
        info = {"model_id": request.state.model, "model_type": {"embedding": {"pooling": None}}}
        info |= {"model_dtype": "float32", "max_concurrent_requests": self.config.connections}
        info |= {"max_client_batch_size": self.scheduler.max_rows, "auto_truncate": True}
        if servable.max_tokens:
            info["max_input_length"] = servable.max_tokens
        if servable.match:
            info["match"] = servable.match
        return protocol.dump(info | {"version": __version__, "languages": servable.languages})

    async def _describe(self, request: Request) -> bytes:
        servable = self._model(
            request, request.query_params.get("model", next(iter(self.models)))
        ).servable()
        name = min(servable.queues, key=lambda name: name != "serving_default")
        values = {":models": [*self.models], ":model": request.state.model}  # Names have no colons.
        values[":request"] = protocol.sample_request(name, servable.signatures[name])
        document = (_PAGE / "openapi.json").read_bytes()
        for mark, value in values.items():
            document = document.replace(protocol.dump(mark), protocol.dump(value))
        return protocol.without_paths(document, servable.signatures)

    async def _document(self, request: Request) -> dict[str, Any]:
        if request.headers.get("content-encoding", "identity") != "identity":
            raise ServingError("expected a body without Content-Encoding", 415)
        limit, body, started = self.config.body_bytes, bytearray(), time.perf_counter()
        try:
            async with asyncio.timeout(self.config.client_seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > limit:
                        raise ServingError(f"expected a body of at most {limit} bytes", 413)
        except TimeoutError:
            raise ServingError("timed out waiting for the body", 408) from None
        finally:
            request.state.body_seconds = time.perf_counter() - started
            request.state.body_bytes = len(body)
        return await _converted(request, 0, protocol.parse_request, body)

    async def _run(
        self, request: Request, servable: Servable, document: Any
    ) -> tuple[Tensors, bool]:
        """Returns the outputs of a signature, and True for rows; gives up if the client leaves."""
        name = document.get("signature_name") or "serving_default"
        if not isinstance(name, str) or name not in servable.queues:
            raise ServingError(f"signature {name} not found; there are {sorted(servable.queues)}")
        rows, most = protocol.count_rows(document), self.scheduler.max_rows
        request.state.texts += rows
        if servable.queues[name].batched and rows > most:
            raise ServingError(f"expected at most {most} rows, got {rows}; send parts", 413)
        inputs, row_form = await _converted(
            request, 0, protocol.to_inputs, document, servable.signatures[name].inputs
        )
        work = asyncio.ensure_future(self.scheduler.run(servable.queues[name], inputs))
        try:
            async with asyncio.timeout(self.config.request_seconds):
                while not (await asyncio.wait([work], timeout=_CHECK_SECONDS))[0]:
                    if await request.is_disconnected():
                        raise ClientDisconnect
            return work.result(), row_form
        except TimeoutError:
            raise ServingError(
                f"no answer within {self.config.request_seconds:g} seconds", 504
            ) from None
        finally:
            work.cancel()


async def _converted(
    request: Request, size: int, convert: Callable[..., Any], *arguments: Any
) -> Any:
    """Calls a function; in a thread if the request's body, or what is converted, is large.

    Other requests are answered meanwhile.
    """
    if max(size, request.state.body_bytes) < _LARGE:
        return convert(*arguments)
    return await asyncio.to_thread(convert, *arguments)


def _request_id(request: Request) -> str:
    """Returns the id that a client or a proxy gave to a request, if it can stand in a log, or a new
    one.
    """
    if not hasattr(request.state, "request_id"):
        given = request.headers.get(_REQUEST_ID, "")
        is_id = re.fullmatch(r"[\w.:/+=@-]{1,128}", given, re.ASCII)
        request.state.request_id = given if is_id else uuid.uuid4().hex
    return request.state.request_id


def _error(
    request: Request,
    message: str,
    status: int,
    is_openai: bool = False,
    param: str | None = None,
) -> Response:
    if status >= 500:  # The log has more.
        message += f" (request {_request_id(request)})"
    error: Any = message
    if is_openai:
        kind = "invalid_request_error" if status < 500 else "server_error"
        code = "model_not_found" if (status, param) == (404, "model") else None
        error = {"message": message, "type": kind, "param": param, "code": code}
    headers = _HEADERS.get(status, {}) | {_REQUEST_ID: _request_id(request)}
    return JSONResponse({"error": error}, status, headers)


def _wrong_method(request: Request) -> Response:
    """Answers GET for a prediction, which is no model's name."""
    response = _error(request, "Method Not Allowed", 405)
    response.headers["allow"] = "POST"
    return response


def _refuse(request: Request, error: Any) -> Response:
    """Answers a path or a method that does not exist."""
    response = _error(request, error.detail, error.status_code)
    response.headers.update(error.headers or {})
    return response
