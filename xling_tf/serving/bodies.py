"""The bodies of requests: read, unpacked and counted, so that all of them at once fit into memory."""

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive, Scope

from xling_tf.serving.errors import ServingError

# How many bodies of the largest size are held at the same time, or more smaller ones.
_LARGEST_AT_A_TIME = 8


class ClientGoneError(Exception):
    """The client has closed the connection."""


class Bodies:
    """All bodies that a server holds."""

    def __init__(self, limit: int) -> None:
        """Holds none yet.

        Args:
            limit: Bytes of one.
        """
        self._limit = limit
        self._held = 0

    @asynccontextmanager
    async def read(self, scope: Scope, receive: Receive) -> AsyncIterator[bytes]:
        """Reads a request's body, which is held until the block ends.

        As in TensorFlow Serving (util/net_http/server/internal/evhttp_request.cc), a body whose
        Content-Encoding has the word gzip is unpacked, and is empty where it cannot be.

        Raises:
            ServingError: It is larger than the limit, for which the protocol has no code and HTTP has
                413, or the server holds too many bodies.
            ClientGoneError: The client has.
        """
        held: list[bytes] = []
        try:
            async for chunk in self._chunks(scope, receive):
                self._hold(chunk, held)
            body = b"".join(held)
            if _header(scope, b"content-encoding").find(b"gzip") >= 0:
                # Not in the thread that answers everybody.
                body = await asyncio.to_thread(_unpacked, body, self._limit)
                if len(body) > self._limit:
                    raise self._too_large()
                self._hold(body, held)
            yield body
        finally:
            self._held -= sum(map(len, held))

    async def _chunks(self, scope: Scope, receive: Receive) -> AsyncIterator[bytes]:
        # Answered before a byte is read: who asked whether to send it (Expect) need not. Python refuses
        # to read thousands of digits, and HTTP allows as many zeros.
        if int(_header(scope, b"content-length").lstrip(b"0") or b"0") > self._limit:
            raise self._too_large()
        size = 0
        while (message := await receive())["type"] == "http.request":
            size += len(message.get("body", b""))
            if size > self._limit:
                raise self._too_large()
            yield message.get("body", b"")
            if not message.get("more_body", False):
                return
        raise ClientGoneError

    def _hold(self, chunk: bytes, held: list[bytes]) -> None:
        if self._held + len(chunk) > _LARGEST_AT_A_TIME * self._limit:
            raise ServingError.resource_exhausted("The server holds too many requests")
        held.append(chunk)
        self._held += len(chunk)

    def _too_large(self) -> ServingError:
        return ServingError(
            413, f"A request's body is expected to have at most {self._limit} bytes"
        )


def _header(scope: Scope, wanted: bytes) -> bytes:
    """The first header of a name, or nothing."""
    return next((value for name, value in scope["headers"] if name == wanted), b"")


def _unpacked(body: bytes, limit: int) -> bytes:
    """What gzip packed; of what is longer than the limit, a byte more than that.

    Example:
        >>> import gzip
        >>> _unpacked(gzip.compress(b"0" * 10**6), 3), _unpacked(b"no gzip", 3)
        (b'0000', b'')
    """
    unpacking = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        unpacked = unpacking.decompress(body, limit + 1)
    except zlib.error:
        return b""
    return unpacked if unpacking.eof or len(unpacked) > limit else b""
