"""Dynamic batching: requests that wait at the same time share one call of the model.

Everything but the calls runs in the event loop, so there are no locks.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from xling_tf.client.batches import available_cpus
from xling_tf.serving import monitoring
from xling_tf.serving.protocol import ServingError, Tensors


@dataclass(frozen=True, kw_only=True)
class BatchingParameters:
    """Parameters by TensorFlow Serving's names (`session_bundle_config.proto`).

    A request that does not fit into its signature's queue is rejected with 429, or with 413 if it
    would not fit into an empty queue either. Batches form while all threads are busy; a single
    request never waits.
    """

    max_batch_size: int = 1000  # rows in one call of a model
    max_enqueued_batches: int = 10  # full ones, in each signature's queue
    num_batch_threads: int = field(default_factory=available_cpus)  # calls at the same time


@dataclass(eq=False)
class _Request:
    inputs: Tensors
    rows: int
    # Names and shapes of inputs, equal for requests of one call; None for one that runs alone.
    shapes: object
    answer: asyncio.Future[Tensors] = field(default_factory=asyncio.Future)


@dataclass(eq=False)
class SignatureQueue:
    """The requests that wait for one signature of a loaded version."""

    model_name: str  # for metrics
    run: Callable[[Tensors], Tensors]  # calls the signature
    batched: bool  # True if requests may share a call
    requests: list[_Request] = field(default_factory=list)  # the first is run next


class BatchScheduler:
    """Runs the requests of all queues in turn, in a pool of threads."""

    def __init__(self, parameters: BatchingParameters) -> None:
        self._parameters = parameters
        self.max_rows = parameters.max_batch_size * parameters.max_enqueued_batches  # in a request
        # The queues with requests in them; the one that was served last comes last.
        self._waiting: dict[SignatureQueue, None] = {}
        self._running = 0
        self._threads = ThreadPoolExecutor(parameters.num_batch_threads, "batch")

    async def run(self, queue: SignatureQueue, inputs: Tensors) -> Tensors:
        """Calls a signature with one request's inputs, at most `max_batch_size` rows at a time.

        Cancelling this removes the request from the queue, except for calls that have begun.
        """
        rows, shapes, limit = 1, None, self._parameters.max_batch_size
        if queue.batched:
            rows = max((len(v) for v in inputs.values() if np.ndim(v)), default=1) or 1
            if rows > self.max_rows:
                raise ServingError(
                    f"expected at most {self.max_rows} rows, got {rows}; send parts", 413
                )
            if sum(request.rows for request in queue.requests) + rows > self.max_rows:
                raise ServingError("the queue of this signature is full; try again later", 429)
            if _common_rows(inputs):
                shapes = sorted((name, values.shape[1:]) for name, values in inputs.items())
        if shapes is None or rows <= limit:
            return await self._run(queue, _Request(inputs, rows, shapes))
        starts = range(0, rows, limit)
        parts = ({name: values[i : i + limit] for name, values in inputs.items()} for i in starts)
        requests = (_Request(part, _common_rows(part) or 1, shapes) for part in parts)
        return _join(await asyncio.gather(*(self._run(queue, request) for request in requests)))

    def close(self) -> bool:
        """Ends the idle threads; False if a call still runs, because it cannot be stopped."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        return not self._running

    async def _run(self, queue: SignatureQueue, request: _Request) -> Tensors:
        queue.requests.append(request)
        self._waiting.setdefault(queue)
        monitoring.QUEUED_ROWS.labels(queue.model_name).inc(request.rows)
        self._start()
        try:
            return await request.answer
        except asyncio.CancelledError:
            if request in queue.requests:  # Its place is free for others.
                self._take(queue, [request])
            raise

    def _take(self, queue: SignatureQueue, requests: list[_Request]) -> None:
        """Removes requests from a queue, which is then served last."""
        for request in requests:
            queue.requests.remove(request)
            monitoring.QUEUED_ROWS.labels(queue.model_name).dec(request.rows)
        del self._waiting[queue]
        if queue.requests:
            self._waiting[queue] = None

    def _start(self) -> None:
        """Runs the queues' first requests in turn, while threads are free."""
        while self._waiting and self._running < self._parameters.num_batch_threads:
            queue = next(iter(self._waiting))
            batch = self._first_batch(queue.requests)
            self._take(queue, batch)
            self._running += 1
            call = asyncio.get_running_loop().run_in_executor(
                self._threads, self._answers, queue, batch
            )
            call.add_done_callback(partial(self._finish, batch))

    def _first_batch(self, requests: list[_Request]) -> list[_Request]:
        """Returns the first requests that fit into one call."""
        first, rows, count = requests[0], requests[0].rows, 1
        for request in requests[1:]:
            rows += request.rows
            if (
                not first.shapes
                or request.shapes != first.shapes
                or rows > self._parameters.max_batch_size
            ):
                break
            count += 1
        return requests[:count]

    def _finish(
        self, batch: list[_Request], call: "asyncio.Future[list[Tensors | Exception]]"
    ) -> None:
        self._running -= 1
        for request, answer in zip(batch, call.result(), strict=True):
            if request.answer.done():
                continue  # The client has gone.
            if isinstance(answer, Exception):
                request.answer.set_exception(answer)
            else:
                request.answer.set_result(answer)
        self._start()

    def _answers(self, queue: SignatureQueue, batch: list[_Request]) -> list[Tensors | Exception]:
        """Returns the outputs of requests, by one call.

        If the call fails, each half of the requests is tried again, until the faulty requests are
        alone: no other request fails, at the cost of a few calls rather than one for each request.
        """
        ends = np.cumsum([request.rows for request in batch])
        started = time.perf_counter()
        try:
            outputs = queue.run(_join([request.inputs for request in batch]))
            if len(batch) > 1 and _common_rows(outputs) != ends[-1]:
                raise ValueError(f"expected outputs of {ends[-1]} rows")
        except Exception as error:
            if len(batch) == 1:
                return [error]
            middle = len(batch) // 2
            return [*self._answers(queue, batch[:middle]), *self._answers(queue, batch[middle:])]
        seconds = time.perf_counter() - started
        monitoring.BATCH_ROWS.labels(queue.model_name).observe(ends[-1])
        monitoring.RUNTIME_LATENCY.labels(queue.model_name).observe(seconds * 1e6)
        if len(batch) == 1:
            return [outputs]
        return [
            {name: values[end - request.rows : end] for name, values in outputs.items()}
            for request, end in zip(batch, ends, strict=True)
        ]


def _common_rows(tensors: Tensors) -> int | None:
    """The number of rows of all tensors; None if it differs or one is a scalar."""
    rows = {len(values) if np.ndim(values) else None for values in tensors.values()}
    return rows.pop() if len(rows) == 1 else None


def _join(tensors: list[Tensors]) -> Tensors:
    if len(tensors) == 1:
        return tensors[0]
    return {name: np.concatenate([part[name] for part in tensors]) for name in tensors[0]}
