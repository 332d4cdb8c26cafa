"""Connections: limits on their number, on the head of a request, and on the time that it may take.

uvicorn has a limit on a connection between two requests only. Here, a connection that sends
nothing, or half a head, is closed after some seconds, and earlier if others need its place: so
health is always answered. A client that does not read its answer is also closed.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httptools
from starlette.responses import JSONResponse, Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from xling_tf.serving.monitoring import REFUSED

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

SPARE = 64  # connections beyond the limit, so that clients get 503, and health is answered
_FILES = 64  # that the server itself may open: versions, standard streams, the event loop's
_LEAST_READ = 2**20  # bytes of an answer that a client has to read in `read_seconds`
_WORDS = {400: "malformed HTTP", 431: "expected a shorter head of the request"}
_REASONS = {400: b"Bad Request", 431: b"Request Header Fields Too Large"}


@dataclass(eq=False)
class Door:
    """Limits of the connections to a server, and those that wait for the head of a request."""

    connections: int
    head_bytes: int
    head_seconds: float
    read_seconds: float
    spare: int = SPARE
    # Paths that are answered even if there is no room.
    always: Callable[[str], bool] = lambda path: False
    # Waiting connections, the one that waits longest first.
    waiting: "dict[Connection, None]" = field(default_factory=dict)


class Connection(HttpToolsProtocol):
    """A client's connection."""

    def __init__(self, *args: Any, door: Door, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._door, self._head_bytes, self._status = door, 0, 400
        self._is_in_body = self._is_refused = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None
        self._real_app = self.app

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Makes room for itself, if all places are taken, by closing the one that waits longest."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # Writing is paused while anything is unsent.
        if len(self.connections) > self._door.connections and self._door.waiting:
            next(iter(self._door.waiting)).leave("connections")
        elif len(self.connections) > self._door.connections + self._door.spare:
            self.leave("connections")
            return
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Frees the place."""
        self._stop_waiting()
        self._stop_read_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Starts to watch whether the client reads its answer."""
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        """Ends the watch: the client has read all, or the system's buffers hold it."""
        self._stop_read_timer()
        super().resume_writing()

    def leave(self, reason: str) -> None:
        """Closes the connection without an answer."""
        REFUSED.labels(reason).inc()
        self._stop_waiting()
        self.connections.discard(self)
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parses what a client sent; an upgrade to another protocol is ignored (RFC 9110, 7.8)."""
        if self._is_refused:
            return
        self._unset_keepalive_if_required()
        if self in self._door.waiting:
            if self._head_timer is None:  # the next request on the same connection
                self._wait_for_head()
            if not self._is_in_body:  # the rest of a body may come after the answer
                self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            self.send_400_response("")
            return
        if self in self._door.waiting and self._head_bytes > self._door.head_bytes:
            self._status = 431
            self.send_400_response("")

    def on_message_begin(self) -> None:
        """Starts to count the bytes of a head."""
        super().on_message_begin()
        self._fields_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Adds a part of the path."""
        self._count(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Adds a field of the head, or of the trailer of a body in chunks."""
        self._count(name + value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begins to answer; too many connections get 503, except for health."""
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise ValueError("this is no proxy")
            return
        self._stop_waiting()
        self._head_bytes = 0
        is_full = len(self.connections) > self._door.connections
        path = self.url.partition(b"?")[0].decode("ascii", "replace")
        self.app = _busy if is_full and not self._door.always(path) else self._real_app
        super().on_headers_complete()
        self._is_in_body = True

    def on_body(self, body: bytes) -> None:
        """Adds a part of the body."""
        if not self.parser.should_upgrade():
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Ends the body."""
        if not self.parser.should_upgrade():
            self._is_in_body = False
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Waits for the next request, or refuses it."""
        is_last = not self.pipeline
        super().on_response_complete()
        if not is_last or self.transport.is_closing():
            return
        if self._is_refused:
            self._refuse()
        else:
            self._door.waiting[self] = None

    def send_400_response(self, msg: str) -> None:
        """Refuses a request that cannot be read, after the answers to those before it."""
        REFUSED.labels("malformed").inc()
        self._is_refused = True
        self.flow.resume_reading()  # What is unread when a socket closes takes the answer with it.
        # The request has not been begun, and is not complete.
        if self._is_in_body and self.pipeline:
            self.pipeline.popleft()
            self._is_in_body = False
        elif self.cycle is None or self.cycle.response_complete or not self._has_to_wait():
            self._refuse()

    def _has_to_wait(self) -> bool:
        """Returns True if an answer has begun, or will be given because its request is complete."""
        return self.cycle.response_started or not self._is_in_body

    def _refuse(self) -> None:
        """Answers an unreadable request, unless it has an answer, and closes the connection."""
        if not (self._is_in_body and self.cycle.response_complete):
            body = json.dumps({"error": _WORDS[self._status]}).encode()
            head = b"HTTP/1.1 %d %s\r\n" % (self._status, _REASONS[self._status])
            head += b"content-type: application/json\r\nconnection: close\r\n"
            head += b"content-length: %d\r\n\r\n" % len(body)
            self.transport.write(head if self.parser.get_method() == b"HEAD" else head + body)
        self.transport.close()

    def _count(self, part: bytes) -> None:
        self._fields_bytes += len(part)
        if self._fields_bytes > self._door.head_bytes:
            self._status = 431
            raise ValueError("the head is too large")

    def _wait_for_head(self) -> None:
        self._door.waiting[self] = None
        self._head_timer = self.loop.call_later(self._door.head_seconds, self.leave, "timeout")

    def _stop_waiting(self) -> None:
        self._door.waiting.pop(self, None)
        if self._head_timer is not None:
            self._head_timer.cancel()
        self._head_timer = None

    def _watch_reader(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        self._read_timer = self.loop.call_later(
            self._door.read_seconds, self._require_reader, unsent - _LEAST_READ
        )

    def _require_reader(self, most: int) -> None:
        """Closes the connection if more bytes than these are unsent."""
        if self.transport.get_write_buffer_size() > max(0, most):
            self.leave("timeout")
        else:
            self._watch_reader()

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
        self._read_timer = None

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Reads the request again without its upgrade, or the parser expects another protocol."""
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                value = b", ".join(
                    t for t in tokens if t.lower() not in (b"upgrade", b"http2-settings")
                )
            if name not in (b"upgrade", b"http2-settings"):
                lines.append(name + b": " + value)
        self.parser = httptools.HttpRequestParser(self)
        self._head_bytes = 0
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)


def room_for(connections: int) -> tuple[int, int]:
    """Raises the limit on open files as far as the system allows; returns how many connections fit.

    The second number is that of further connections, which are refused with an answer. A server
    that accepts more would fail to accept any, and could not open a new version of a model.
    """
    if resource is None:
        return connections, SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_open = _open_files()
    wanted = connections + 2 * SPARE + _FILES + is_open
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if soft == resource.RLIM_INFINITY:
        return connections, SPARE
    room = max(4, soft - is_open - min(_FILES, soft // 4))
    spare = min(SPARE, room // 4)  # and as many that are accepted, but not counted yet
    return min(connections, room - 2 * spare), spare


def _open_files() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 32


async def _busy(scope: Any, receive: Any, send: Any) -> None:
    REFUSED.labels("connections").inc()
    response: Response = JSONResponse(
        {"error": "too many connections; try again later"},
        503,
        {"connection": "close", "retry-after": "1"},
    )
    await response(scope, receive, send)
