"""Dynamic batching: requests that wait at the same time share one call of the model.

Parameters and behaviour follow TensorFlow Serving's `batching_session.cc` and TensorFlow's
`shared_batch_scheduler.h`. Everything but the calls runs in the event loop, so there are no locks.
"""

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from xling_tf.batching import available_cpus
from xling_tf.serving.monitoring import Metrics
from xling_tf.serving.protocol import ServingError, Tensors


@dataclass(frozen=True, kw_only=True)
class BatchingParameters:
    """Parameters by TensorFlow Serving's names (`session_bundle_config.proto`).

    A request that does not fit into its signature's queue is rejected with 429, or with 413 if it would not
    fit into an empty queue either. With a timeout of 0, batches form only while all threads are busy.
    """

    max_batch_size: int = 1000  # rows in one call of a model
    batch_timeout_micros: int = 0  # for which a batch that is not full waits although a thread is free
    max_enqueued_batches: int = 10  # in each signature's queue
    num_batch_threads: int = field(default_factory=available_cpus)  # calls at the same time


@dataclass(frozen=True, eq=False)
class _Request:
    inputs: Tensors
    rows: int
    answer: asyncio.Future[Tensors]


@dataclass(eq=False)
class _Batch:
    """Requests for one call, whose inputs have these names and shapes; None: no other request may join."""

    shapes: object
    requests: list[_Request]
    closed: bool  # True if it may run now, without waiting for more requests
    opened: float = field(default_factory=time.perf_counter)

    @property
    def rows(self) -> int:
        return sum(request.rows for request in self.requests)


@dataclass(eq=False)
class SignatureQueue:
    """The batches that wait for one signature of a loaded version."""

    model_name: str  # for metrics
    run: Callable[[Tensors], Tensors]  # calls the signature
    batched: bool  # True if requests may share a call
    batches: list[_Batch] = field(default_factory=list)  # the first is run next


class BatchScheduler:
    """Runs the batches of all queues in turn, in a pool of threads."""

    def __init__(self, parameters: BatchingParameters, metrics: Metrics) -> None:
        self._parameters = parameters
        self._metrics = metrics
        # The queues with batches in them; the one that was served last comes last.
        self._waiting: dict[SignatureQueue, None] = {}
        self._running = 0
        self._threads = ThreadPoolExecutor(parameters.num_batch_threads, "batch")

    async def run(self, queue: SignatureQueue, inputs: Tensors) -> Tensors:
        """Calls a signature with the inputs of one request.

        Cancelling this removes the request from the queue, unless its call has begun.
        """
        answer = asyncio.get_running_loop().create_future()
        shapes = sorted((name, values.shape[1:]) for name, values in inputs.items())
        rows = max((len(values) for values in inputs.values() if np.ndim(values)), default=1) or 1
        request = _Request(inputs, rows if queue.batched else 1, answer)
        self._enqueue(queue, shapes if queue.batched and _common_rows(inputs) else None, request)
        self._start_closed_batches()
        try:
            return await answer
        except asyncio.CancelledError:
            self._drop(queue, request)
            raise

    def close(self) -> bool:
        """Ends the idle threads; returns False if a call is still running, because it cannot be stopped."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        return not self._running

    def _enqueue(self, queue: SignatureQueue, shapes: object, request: _Request) -> None:
        limit = self._parameters.max_batch_size
        batch = queue.batches[-1] if queue.batches else None
        if batch and shapes and batch.shapes == shapes and batch.rows + request.rows <= limit:
            batch.requests.append(request)
        else:
            if queue.batched:
                self._require_room(queue, request.rows)
            if batch:
                batch.closed = True
            seconds = self._parameters.batch_timeout_micros / 1e6
            batch = _Batch(shapes, [request], closed=shapes is None or not seconds)
            if seconds:
                asyncio.get_running_loop().call_later(seconds, self._close, batch)
            queue.batches.append(batch)
            self._waiting[queue] = None
        batch.closed = batch.closed or batch.rows >= limit
        self._metrics.queued_rows.labels(queue.model_name).inc(request.rows)

    def _require_room(self, queue: SignatureQueue, rows: int) -> None:
        limit, max_batches = self._parameters.max_batch_size, self._parameters.max_enqueued_batches
        used = sum(math.ceil(batch.rows / limit) for batch in queue.batches)
        needed = math.ceil(rows / limit)
        if needed > max_batches:
            raise ServingError(f"A request may have at most {max_batches * limit} rows, but has {rows}", 413)
        if used + needed > max_batches:
            sizes = f"task size is {rows}, num_enqueued_batches={used}"
            raise ServingError(f"The batch scheduling queue of this signature is full; {sizes}", 429)

    def _close(self, batch: _Batch) -> None:
        batch.closed = True
        self._start_closed_batches()

    def _drop(self, queue: SignatureQueue, request: _Request) -> None:
        """Removes a request that still waits, so that its place is free for others."""
        for batch in queue.batches:
            if request in batch.requests:
                batch.requests.remove(request)
                self._metrics.queued_rows.labels(queue.model_name).dec(request.rows)
        queue.batches[:] = [batch for batch in queue.batches if batch.requests]
        if not queue.batches:
            self._waiting.pop(queue, None)

    def _start_closed_batches(self) -> None:
        """Runs the first batches of the queues in turn, while threads are free."""
        while self._running < self._parameters.num_batch_threads:
            queue = next((queue for queue in self._waiting if queue.batches[0].closed), None)
            if queue is None:
                return
            del self._waiting[queue]
            batch = queue.batches.pop(0)
            if queue.batches:
                self._waiting[queue] = None
            waited = time.perf_counter() - batch.opened
            self._metrics.queued_rows.labels(queue.model_name).dec(batch.rows)
            self._metrics.queuing_latency.labels(queue.model_name).observe(waited * 1e6)
            self._running += 1
            loop = asyncio.get_running_loop()
            call = loop.run_in_executor(self._threads, self._answers, queue, batch.requests)
            call.add_done_callback(partial(self._finish, batch.requests))

    def _finish(self, requests: list[_Request], call: "asyncio.Future[list[Tensors | Exception]]") -> None:
        self._running -= 1
        for request, answer in zip(requests, call.result(), strict=True):
            if request.answer.done():
                continue  # The client has gone.
            if isinstance(answer, Exception):
                request.answer.set_exception(answer)
            else:
                request.answer.set_result(answer)
        self._start_closed_batches()

    def _answers(self, queue: SignatureQueue, requests: list[_Request]) -> list[Tensors | Exception]:
        """Returns the outputs of requests, by one call.

        If the call fails, each half of the requests is tried again, until the faulty requests are alone: no
        other request fails, at the cost of a few calls rather than one for each request.
        """
        ends = np.cumsum([request.rows for request in requests])
        try:
            outputs = self._call(queue, _join([request.inputs for request in requests]), requests)
            if len(requests) == 1:
                return [outputs]
            if _common_rows(outputs) != ends[-1]:
                raise ValueError(f"expected outputs of {ends[-1]} rows")
        except Exception as error:
            if len(requests) == 1:
                return [error]
            middle = len(requests) // 2
            return [*self._answers(queue, requests[:middle]), *self._answers(queue, requests[middle:])]
        return [
            {name: values[end - request.rows : end] for name, values in outputs.items()}
            for request, end in zip(requests, ends, strict=True)
        ]

    def _call(self, queue: SignatureQueue, inputs: Tensors, requests: list[_Request]) -> Tensors:
        """Calls a signature with at most `max_batch_size` rows at a time, while a client is waiting."""
        if all(request.answer.done() for request in requests):
            raise ServingError("The client has gone", 499)
        rows, limit = _common_rows(inputs) or 1, self._parameters.max_batch_size
        if queue.batched and rows > limit:
            parts = [
                {name: values[start : start + limit] for name, values in inputs.items()}
                for start in range(0, rows, limit)
            ]
            return _join([self._call(queue, part, requests) for part in parts])
        started = time.perf_counter()
        outputs = queue.run(inputs)
        self._metrics.batch_rows.labels(queue.model_name).observe(rows)
        latency = self._metrics.runtime_latency.labels(queue.model_name, "predict", "TF2")
        latency.observe((time.perf_counter() - started) * 1e6)
        return outputs


def _common_rows(tensors: Tensors) -> int | None:
    """The number of rows of all tensors; None if it differs or one is a scalar."""
    rows = {len(values) if np.ndim(values) else None for values in tensors.values()}
    return rows.pop() if len(rows) == 1 else None


def _join(tensors: list[Tensors]) -> Tensors:
    if len(tensors) == 1:
        return tensors[0]
    return {name: np.concatenate([part[name] for part in tensors]) for name in tensors[0]}
