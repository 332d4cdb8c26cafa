"""Dynamic batching: rows of requests that wait at the same time share one call of the model.

Parameters and behaviour follow TensorFlow Serving's `batching_session.cc` and TensorFlow's
`shared_batch_scheduler.h`. Everything but the calls happens in the event loop; no locks.
"""

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from xling_tf.serving.monitoring import Metrics
from xling_tf.serving.protocol import ServingError, Tensors


@dataclass(frozen=True, kw_only=True)
class BatchingParameters:
    """Parameters by TensorFlow Serving's names (`session_bundle_config.proto`).

    A batch of fewer than `max_batch_size` rows waits for more as long as `batch_timeout_micros` although a
    thread is free; at 0, a lone request never waits, and batches form while all threads are busy. Each
    signature has a queue of `max_enqueued_batches`; a request that does not fit is refused with 429, or with
    413 if it would not fit into an empty queue either.
    """

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int = 2


@dataclass(frozen=True, eq=False)
class Lane:
    """What is batched together: one signature of one loaded version; not `batched`, calls are not shared."""

    model_name: str
    run: Callable[[Tensors], Tensors]
    batched: bool


@dataclass(frozen=True, eq=False)
class _Request:
    inputs: Tensors
    rows: int
    answer: asyncio.Future[Tensors]


@dataclass(eq=False)
class _Batch:
    """Requests for one call; their rows have these names and shapes (None: alone in its call)."""

    shapes: object
    requests: list[_Request]
    closed: bool
    opened: float = field(default_factory=time.perf_counter)

    @property
    def rows(self) -> int:
        return sum(request.rows for request in self.requests)


class BatchScheduler:
    """Queues of batches, one a lane, and the threads that run them."""

    def __init__(self, parameters: BatchingParameters, metrics: Metrics) -> None:
        self._parameters = parameters
        self._metrics = metrics
        # Only lanes that something waits for; the one served last is the last.
        self._queues: dict[Lane, list[_Batch]] = {}
        self._running = 0
        self._threads = ThreadPoolExecutor(parameters.num_batch_threads, "batch")

    async def run(self, lane: Lane, inputs: Tensors) -> Tensors:
        """Calls a model; cancelling it takes the request out of the queue, until its call begins."""
        answer = asyncio.get_running_loop().create_future()
        shared = lane.batched and _common_rows(inputs)
        shapes = sorted((name, values.shape[1:]) for name, values in inputs.items())
        rows = max((len(values) for values in inputs.values() if np.ndim(values)), default=1) or 1
        request = _Request(inputs, rows if lane.batched else 1, answer)
        self._enqueue(lane, shapes if shared else None, request)
        self._start_closed_batches()
        try:
            return await answer
        except asyncio.CancelledError:
            self._drop(lane, request)
            raise

    def close(self) -> bool:
        """Ends the threads that are idle; returns whether all are, for no call can be stopped."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        return not self._running

    def _enqueue(self, lane: Lane, shapes: object, request: _Request) -> None:
        queue, limit = self._queues.get(lane, []), self._parameters.max_batch_size
        batch = queue[-1] if queue else None
        if batch and shapes and batch.shapes == shapes and batch.rows + request.rows <= limit:
            batch.requests.append(request)
        else:
            places = sum(math.ceil(each.rows / limit) for each in queue)
            needed, most = math.ceil(request.rows / limit), self._parameters.max_enqueued_batches
            if lane.batched and needed > most:
                raise ServingError(
                    f"A request is expected to have at most {most * limit} rows, but has {request.rows}; "
                    "send several requests, or start the server with a larger --max_enqueued_batches",
                    413,
                )
            if lane.batched and places + needed > most:
                raise ServingError(
                    "The batch scheduling queue to which this task was submitted is full; "
                    f"task size is {request.rows}, num_enqueued_batches={places}",
                    429,
                )
            if batch:
                batch.closed = True
            seconds = self._parameters.batch_timeout_micros / 1e6
            batch = _Batch(shapes, [request], closed=shapes is None or not seconds)
            if seconds:
                asyncio.get_running_loop().call_later(seconds, self._close, batch)
            self._queues[lane] = [*queue, batch]
        batch.closed = batch.closed or batch.rows >= limit
        self._metrics.queued_rows.labels(lane.model_name).inc(request.rows)

    def _close(self, batch: _Batch) -> None:
        batch.closed = True
        self._start_closed_batches()

    def _drop(self, lane: Lane, request: _Request) -> None:
        """Takes a request out of the queue if it is still there, so that it keeps no place from others."""
        queue = self._queues.get(lane, [])
        for batch in queue:
            if request in batch.requests:
                batch.requests.remove(request)
                self._metrics.queued_rows.labels(lane.model_name).dec(request.rows)
        self._queues[lane] = [batch for batch in queue if batch.requests]
        if not self._queues[lane]:
            del self._queues[lane]

    def _start_closed_batches(self) -> None:
        """Runs the first batches of the lanes in turn, as long as threads are free."""
        while self._running < self._parameters.num_batch_threads:
            lane = next((each for each, queue in self._queues.items() if queue[0].closed), None)
            if lane is None:
                return
            first, *others = self._queues.pop(lane)
            if others:
                self._queues[lane] = others
            waited = time.perf_counter() - first.opened
            self._metrics.queued_rows.labels(lane.model_name).dec(first.rows)
            self._metrics.queuing_latency.labels(lane.model_name).observe(waited * 1e6)
            self._running += 1
            loop = asyncio.get_running_loop()
            call = loop.run_in_executor(self._threads, self._answers, lane, first.requests)
            call.add_done_callback(partial(self._finish, first.requests))

    def _finish(self, requests: list[_Request], call: "asyncio.Future[list[Tensors | Exception]]") -> None:
        self._running -= 1
        for request, answer in zip(requests, call.result(), strict=True):
            if request.answer.done():
                continue  # Its client has gone.
            if isinstance(answer, Exception):
                request.answer.set_exception(answer)
            else:
                request.answer.set_result(answer)
        self._start_closed_batches()

    def _answers(self, lane: Lane, requests: list[_Request]) -> list[Tensors | Exception]:
        """The outputs of requests, by one call.

        Where it fails, halves are tried until the requests at fault are alone: nobody else is answered with
        their mistake, and that costs a few calls, not one a request.
        """
        ends = np.cumsum([request.rows for request in requests])
        try:
            outputs = self._call(lane, _join([request.inputs for request in requests]), requests)
            if len(requests) == 1:
                return [outputs]
            if _common_rows(outputs) != ends[-1]:
                raise ValueError(f"the outputs are expected to have {ends[-1]} rows")
        except Exception as error:
            if len(requests) == 1:
                return [error]
            middle = len(requests) // 2
            return [
                *self._answers(lane, requests[:middle]),
                *self._answers(lane, requests[middle:]),
            ]
        return [
            {name: values[end - request.rows : end] for name, values in outputs.items()}
            for request, end in zip(requests, ends, strict=True)
        ]

    def _call(self, lane: Lane, inputs: Tensors, requests: list[_Request]) -> Tensors:
        """Calls the model, with at most `max_batch_size` rows at a time, while a client waits."""
        if all(request.answer.done() for request in requests):
            raise ServingError("The client has gone", 499)
        rows, limit = _common_rows(inputs) or 1, self._parameters.max_batch_size
        if lane.batched and rows > limit:
            parts = [
                {name: values[start : start + limit] for name, values in inputs.items()}
                for start in range(0, rows, limit)
            ]
            return _join([self._call(lane, part, requests) for part in parts])
        started = time.perf_counter()
        outputs = lane.run(inputs)
        self._metrics.batch_rows.labels(lane.model_name).observe(rows)
        latency = self._metrics.runtime_latency.labels(lane.model_name, "predict", "TF2")
        latency.observe((time.perf_counter() - started) * 1e6)
        return outputs


def _common_rows(tensors: Tensors) -> int | None:
    """How many rows all tensors have; None where they differ or are scalars."""
    rows = {len(values) if np.ndim(values) else None for values in tensors.values()}
    return rows.pop() if len(rows) == 1 else None


def _join(tensors: list[Tensors]) -> Tensors:
    if len(tensors) == 1:
        return tensors[0]
    return {name: np.concatenate([each[name] for each in tensors]) for name in tensors[0]}
