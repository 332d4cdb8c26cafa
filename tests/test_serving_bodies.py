import asyncio
from contextlib import AsyncExitStack

import pytest
from starlette.types import Message, Receive, Scope

from xling_tf.serving.bodies import Bodies, ClientGoneError
from xling_tf.serving.errors import ServingError


def scope(**headers: bytes) -> Scope:
    return {"headers": [(f"content-{name}".encode(), value) for name, value in headers.items()]}


def receiving(*chunks: bytes, ends: bool = True) -> Receive:
    """A body in chunks, after which the client goes unless it has come to its end."""
    messages: list[Message] = [
        {"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks
    ]
    messages += [{"type": "http.request"} if ends else {"type": "http.disconnect"}]

    async def receive() -> Message:
        return messages.pop(0)

    return receive


def read(bodies: Bodies, receive: Receive, **headers: bytes) -> bytes:
    async def run() -> bytes:
        async with bodies.read(scope(**headers), receive) as body:
            return body

    return asyncio.run(run())


def test_chunks_are_joined() -> None:
    assert read(Bodies(3), receiving(b"ab", b"", b"c")) == b"abc"


@pytest.mark.parametrize(
    ("chunks", "length"),
    [([b"ab", b"cd"], b""), ([], b"4"), ([], b"99999999999999999999"), ([], b"0" * 5000 + b"4")],
)
def test_a_body_beyond_the_limit_is_refused(chunks: list[bytes], length: bytes) -> None:
    with pytest.raises(ServingError, match="at most 3 bytes") as told:
        read(Bodies(3), receiving(*chunks), length=length)
    assert told.value.status == 413


def test_zeros_before_a_length_count_nothing() -> None:
    assert read(Bodies(3), receiving(b"abc"), length=b"0" * 5000 + b"3") == b"abc"


def test_a_client_that_goes_is_noticed() -> None:
    with pytest.raises(ClientGoneError):
        read(Bodies(3), receiving(b"a", ends=False))


def test_bodies_held_at_the_same_time_are_limited_together() -> None:
    bodies = Bodies(2)

    async def hold(count: int) -> None:
        async with AsyncExitStack() as held:
            for _ in range(count):
                await held.enter_async_context(bodies.read(scope(), receiving(b"ab")))

    # Eight of the largest size fit, again and again, however many were refused or left before.
    for _ in range(3):
        asyncio.run(hold(8))
        with pytest.raises(ServingError, match="holds too many requests") as told:
            asyncio.run(hold(9))
        assert told.value.status == 429
        with pytest.raises(ServingError, match="at most 2 bytes"):
            read(bodies, receiving(b"ab", b"c"))
