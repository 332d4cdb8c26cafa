"""Dynamic batching, with a model that doubles numbers, refuses 13, and answers on demand."""

import asyncio
from collections.abc import Awaitable, Callable
from threading import Event

import numpy as np
import pytest

from xling_tf.serving.batching import BatchingParameters, BatchScheduler, SignatureQueue
from xling_tf.serving.monitoring import QUEUED_ROWS
from xling_tf.serving.protocol import ServingError, Tensors

SOON = 30  # Seconds; far more than any answer here takes.


class Doubling:
    def __init__(self, batched: bool = True) -> None:
        self.calls: list[list[float]] = []
        self.let = Event()
        self.queue = SignatureQueue("m", self.run, batched)

    def run(self, inputs: Tensors) -> Tensors:
        self.calls.append(np.asarray(inputs["x"]).tolist())
        assert self.let.wait(SOON)
        if np.any(inputs["x"] == 13):
            raise ServingError("13")
        return {"y": 2 * inputs["x"]}


class Case:
    """A scheduler with one thread; request 0 keeps it busy, so that the next ones wait."""

    def __init__(self, parameters: dict[str, int], batched: bool = True) -> None:
        self.scheduler = BatchScheduler(
            BatchingParameters(**{"num_batch_threads": 1, **parameters})
        )
        self.model = Doubling(batched)

    async def submit(self, *numbers: float, model: Doubling | None = None) -> asyncio.Task[Tensors]:
        inputs = {"x": np.array(numbers)}
        task = asyncio.create_task(self.scheduler.run((model or self.model).queue, inputs))
        for _ in range(2):  # until it waits, perhaps in parts
            await asyncio.sleep(0)
        return task

    async def refusal(self, *numbers: float) -> None:
        with pytest.raises(ServingError, match="queue") as error:
            await asyncio.wait_for(await self.submit(*numbers), 1)  # It would wait for `let`.
        assert error.value.status == 429

    def queued(self) -> float:
        return QUEUED_ROWS.labels("m")._value.get()


async def answers(*tasks: Awaitable[Tensors]) -> list[list[float]]:
    return [each["y"].tolist() for each in await asyncio.wait_for(asyncio.gather(*tasks), SOON)]


def run(
    test: Callable[[Case], Awaitable[None]], batched: bool = True, **parameters: int
) -> list[list[float]]:
    """Runs a test in an event loop; returns the model's calls."""

    async def whole() -> Case:
        case = Case(parameters, batched)
        try:
            await test(case)
        finally:
            case.model.let.set()  # else the calls of a test that fails would run on
        return case

    case = asyncio.run(whole())
    assert case.scheduler.close()
    assert case.queued() == 0
    return case.model.calls


@pytest.mark.parametrize(
    ("parameters", "requests", "calls"),
    [
        ({}, [[0], [1, 2], [3], [4]], [[0], [1, 2, 3, 4]]),
        ({"batched": False, "max_enqueued_batches": 1}, [[0], [1], [2]], [[0], [1], [2]]),
        ({"max_batch_size": 3}, [[0], [1], [2, 3, 4, 5], [6]], [[0], [1], [2, 3, 4], [5, 6]]),
        ({}, [[0], [1], [[1.0, 2.0]]], [[0], [1], [[1, 2]]]),
    ],
    ids=["together", "no batching", "a large one", "other shapes"],
)
def test_requests_that_wait_share_calls_and_get_their_own_rows(parameters, requests, calls):
    async def test(case: Case) -> None:
        tasks = [await case.submit(*rows) for rows in requests]
        case.model.let.set()
        assert await answers(*tasks) == [(2 * np.array(rows)).tolist() for rows in requests]

    assert run(test, **parameters) == calls


def test_a_full_queue_refuses_and_takes_again_when_there_is_room():
    async def test(case: Case) -> None:
        # Two batches of two may wait, so four rows.
        tasks = [await case.submit(0), await case.submit(1, 2, 3)]
        await case.refusal(4, 5)
        case.model.let.set()
        assert await answers(*tasks) == [[0], [2, 4, 6]]
        assert await answers(await case.submit(9)) == [[18]]

    assert run(test, max_batch_size=2, max_enqueued_batches=2)[-1] == [9]


def test_cancelled_requests_and_rests_of_large_ones_free_their_places():
    async def test(case: Case) -> None:
        called, gone, stays = [await case.submit(*each) for each in ([0, 0, 1], [2], [3])]
        gone.cancel()
        while not case.model.calls:
            await asyncio.sleep(0.01)
        called.cancel()  # The call of its first half has begun.
        await asyncio.sleep(0)
        assert case.queued() == 1
        came = await case.submit(5, 6)
        await case.refusal(7, 8)
        case.model.let.set()
        assert await answers(stays, came) == [[6], [10, 12]]

    assert run(test, max_batch_size=2, max_enqueued_batches=2) == [[0, 0], [3], [5, 6]]


def test_one_bad_request_fails_alone():
    async def test(case: Case) -> None:
        first, *others = [await case.submit(number) for number in (0, 1, 2, 13, 4)]
        case.model.let.set()
        with pytest.raises(ServingError, match="13"):
            await others.pop(2)
        assert await answers(first, *others) == [[0], [2], [4], [8]]

    # Both halves are tried; the one with 13 is halved again.
    assert run(test) == [[0], [1, 2, 13, 4], [1, 2], [13, 4], [13], [4]]


def test_inputs_without_common_rows_are_run_alone():
    scalar, no_rows = {"x": np.float64(3)}, {"x": np.zeros(0)}
    different_rows = {"x": np.ones(2), "other": np.ones(3)}

    async def test(case: Case) -> None:
        case.model.let.set()
        for inputs in (scalar, no_rows, different_rows):
            outputs = await case.scheduler.run(case.model.queue, inputs)
            np.testing.assert_array_equal(outputs["y"], 2 * inputs["x"])
        # Requests are also run alone if the outputs are not rows.
        case.model.queue = SignatureQueue(
            "m", lambda inputs: {"y": inputs["x"].sum(keepdims=True)}, True
        )
        tasks = [await case.submit(number, 1) for number in (1, 2, 3)]
        assert await answers(*tasks) == [[2], [3], [4]]

    run(test)


def test_queues_take_turns():
    async def test(case: Case) -> None:
        other = Doubling()
        other.calls, other.let = case.model.calls, case.model.let
        tasks = [await case.submit(number) for number in (0, 1, 2, 3)]
        tasks.append(await case.submit(7, model=other))
        case.model.let.set()
        await answers(*tasks)

    assert run(test, max_batch_size=1) == [[0], [1], [7], [2], [3]]
