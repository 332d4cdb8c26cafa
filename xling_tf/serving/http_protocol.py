"""HTTP over uvicorn, with limits on what a client may take: time, bytes of headers, connections."""

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from xling_tf.serving.config import Limits
from xling_tf.serving.status import format_error

_HEADER_BYTES = 64 * 2**10
# A body in chunks is longer on the wire than it is; nobody sends chunks of single bytes.
_OVERHEAD = 2
# Requests that wait behind one that is being answered; one piece of 256 KiB has room for thousands.
_PIPELINED = 100
_WITH_BODY = (b"content-length", b"transfer-encoding")


class LimitedProtocol(HttpToolsProtocol):
    """A connection that is closed when its client is slow, too big, or one too many.

    uvicorn waits forever for headers, for bodies and for clients to read their answers, and keeps
    headers of any size; `limits` is set on a subclass (`limited`), as uvicorn makes the connections.
    """

    limits = Limits()

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._deadline: asyncio.TimerHandle | None = None
        self._reading_headers = True
        # Of the message that is being read.
        self._bytes = 0
        self._header_bytes = 0
        # Status and message: why this class stopped the parser, and what waits for earlier answers.
        self._reason: tuple[int, str] | None = None
        self._refusal: tuple[int, str] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the time for the first headers."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(503, "The server has too many connections")
        else:
            self._expect("Timed out waiting for a request's headers")

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the time."""
        self._cancel_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads on, if it is not too much."""
        if self.transport.is_closing() or self._refusal is not None:
            return
        self._bytes += len(data)
        if self._bytes > _OVERHEAD * self.limits.body_bytes + _HEADER_BYTES:
            self.transport.abort()
            return
        super().data_received(data)
        if self._reading_headers and self._bytes > _HEADER_BYTES:
            self._refuse(431, "A request's headers are too large")

    def send_400_response(self, msg: str) -> None:
        """Answers what is no HTTP, in the protocol's JSON."""
        self._refuse(*(self._reason or (400, msg)))

    def on_message_begin(self) -> None:
        """A request's first byte."""
        super().on_message_begin()
        self._header_bytes = 0
        if len(self.pipeline) >= _PIPELINED:
            self._stop(429, "Too many requests of this connection wait for their answers")
        self._expect("Timed out waiting for a request's headers")

    def on_url(self, url: bytes) -> None:
        """A piece of the request line."""
        self._count_header(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer after the body."""
        self._count_header(name + value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Starts the time for the body."""
        # The parser takes a body after these headers for the next request.
        if self.parser.should_upgrade() and any(name in _WITH_BODY for name, _ in self.headers):
            self._stop(400, "A request that upgrades its connection is expected to have no body")
        super().on_headers_complete()
        self._reading_headers = False
        self._expect("Timed out waiting for a request's body")

    def on_message_complete(self) -> None:
        """The client is done; the time that the server takes is limited elsewhere."""
        self._cancel_deadline()
        self._reading_headers = True
        self._bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Goes on with the next request, or with what was put off until this was answered."""
        was_last = not self.pipeline
        super().on_response_complete()
        if was_last and self._refusal is not None:
            self._close_with(*self._refusal)

    def pause_writing(self) -> None:
        """The client reads slower than the server writes: it has that much time and no more."""
        self._cancel_deadline()
        self._deadline = self.loop.call_later(self.limits.client_seconds, self.transport.abort)
        super().pause_writing()

    def resume_writing(self) -> None:
        """The client has read most of its answer."""
        self._cancel_deadline()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Closes an idle connection, be its answer read or not."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def _count_header(self, read: bytes) -> None:
        self._header_bytes += len(read)
        if self._header_bytes > _HEADER_BYTES:
            self._stop(431, "A request's headers are too large")

    def _stop(self, status: int, message: str) -> None:
        """Stops the parser, which then calls `send_400_response`."""
        self._reason = (status, message)
        raise ValueError(message)

    def _expect(self, otherwise: str) -> None:
        self._cancel_deadline()
        self._deadline = self.loop.call_later(
            self.limits.client_seconds, self._refuse, 408, otherwise
        )

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, status: int, message: str) -> None:
        """Answers without the application and closes, once earlier requests are answered."""
        self._cancel_deadline()
        if self._refusal is not None:
            return
        if self._reading_headers:
            is_first = self.cycle is None or self.cycle.response_complete
        elif self.pipeline:  # Whose last request is the one that is being read.
            self.pipeline.popleft()
            is_first = False
        else:
            is_first = True
        if not is_first:
            self._refusal = (status, message)
        elif not self._reading_headers and self.cycle.response_started:
            self.transport.close()  # One request has one answer.
        else:
            self._close_with(status, message)

    def _close_with(self, status: int, message: str) -> None:
        if self.transport.is_closing():
            return
        body = format_error(message)
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b"
            % (status, HTTPStatus(status).phrase.encode(), len(body), body)
        )
        self.transport.close()


def limited(limits: Limits) -> type[LimitedProtocol]:
    """The protocol with these limits."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})
