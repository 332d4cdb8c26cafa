"""Dynamic batching: rows of requests that wait at the same time share one call of the model.

Parameters and behaviour follow TensorFlow Serving's `batching_session.cc` and TensorFlow's
`shared_batch_scheduler.h` with `enable_large_batch_splitting`, which is off there by default. One
set of threads serves all models in turn.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from threading import Condition, Thread

import numpy as np

from xling_tf.serving.batches import Batch, RowShapes, Tensors, make_request, run_batch
from xling_tf.serving.errors import ServingError
from xling_tf.serving.metrics import Metrics

_CLOSING_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class BatchingParameters:
    """Parameters by TensorFlow Serving's names (`session_bundle_config.proto`).

    The defaults are those of `shared_batch_scheduler.h`, where the threads are one a core.

    Attributes:
        max_batch_size: Rows of a call of the model.
        batch_timeout_micros: Microseconds that a batch waits for more rows, although a thread is
            free. At 0, a lone request never waits, and batches form while all threads are busy.
        max_enqueued_batches: Batches of one signature that wait for a thread; what does not fit is
            refused.
        num_batch_threads: Calls of models at the same time.
    """

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int = 2


@dataclass(frozen=True, eq=False)
class Lane:
    """What is batched together: one signature of one loaded version.

    Attributes:
        model_name: For the metrics.
        run: Calls the signature.
        batched: Whether requests share calls; where not, each is a call of its own.
    """

    model_name: str
    run: Callable[[Tensors], Tensors]
    batched: bool


class BatchScheduler:
    """Queues of batches, one a lane, and the threads that run them."""

    def __init__(self, parameters: BatchingParameters, metrics: Metrics) -> None:
        self._parameters = parameters
        self._metrics = metrics
        # Only lanes that something waits for; the one served last is the last.
        self._queues: OrderedDict[Lane, deque[Batch]] = OrderedDict()
        self._changed = Condition()
        self._closed = False
        # A call of a model cannot be stopped, so these must not keep the process from its end.
        self._threads = [
            Thread(target=self._work, name=f"batch-{number}", daemon=True)
            for number in range(parameters.num_batch_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, lane: Lane, inputs: Tensors) -> "Future[Tensors]":
        """Queues a request.

        Args:
            lane: Where it belongs.
            inputs: By name; `[rows, ...]` each where the lane is batched.

        Returns:
            The outputs to come. Cancelling it takes out what has not begun.

        Raises:
            ServingError: The lane's queue is full.
        """
        rows = _common_rows(inputs) if lane.batched else None
        with self._changed:
            queue = self._queues.get(lane, deque())
            future = self._enqueue(lane, queue, inputs, rows)
            self._queues[lane] = queue
            self._changed.notify_all()
        self._metrics.queued_rows.labels(lane.model_name).inc(rows or 1)
        return future

    def close(self) -> bool:
        """Ends the threads; returns whether none is left in a call of a model."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        deadline = time.monotonic() + _CLOSING_SECONDS
        for thread in self._threads:
            thread.join(max(0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _enqueue(
        self, lane: Lane, queue: deque[Batch], inputs: Tensors, rows: int | None
    ) -> "Future[Tensors]":
        """Puts a request into the open batch and as many new ones as it needs."""
        if not rows:  # Nothing to share a call by.
            future, parts = make_request(inputs, [])
            queue.append(Batch(None, parts, time.monotonic()))
            return future
        shape = _row_shapes(inputs)
        limit = self._parameters.max_batch_size
        room, free = self._space(queue, shape)
        if rows > free:
            self._drop_abandoned(lane, queue)
            room, free = self._space(queue, shape)
        if rows > free:
            raise _full(rows, free, self._parameters, len(queue))
        cuts = list(range(room or limit, rows, limit))
        future, parts = make_request(inputs, cuts)
        if room:
            queue[-1].add(parts.pop(0))
        queue.extend(Batch(shape, [part], time.monotonic()) for part in parts)
        return future

    def _space(self, queue: deque[Batch], shape: RowShapes) -> tuple[int, int]:
        """Rows that the open batch still takes, and the whole queue."""
        limit = self._parameters.max_batch_size
        room = limit - queue[-1].rows if queue and queue[-1].shape == shape else 0
        return room, (self._parameters.max_enqueued_batches - len(queue)) * limit + room

    def _drop_abandoned(self, lane: Lane, queue: deque[Batch]) -> None:
        """Frees the places of those who have gone, which others need."""
        before = sum(batch.waiting for batch in queue)
        for batch in queue:
            batch.drop_abandoned()
        left = [batch for batch in queue if batch.parts]
        queue.clear()
        queue.extend(left)
        if not left:
            self._queues.pop(lane, None)
        dropped = before - sum(batch.waiting for batch in left)
        self._metrics.queued_rows.labels(lane.model_name).dec(dropped)

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            lane, batch = taken
            name = lane.model_name
            waited = time.monotonic() - batch.opened
            self._metrics.queued_rows.labels(name).dec(batch.waiting)
            self._metrics.queuing_latency.labels(name).observe(waited * 1e6)
            run_batch(batch.parts, partial(self._run, lane))

    def _take(self) -> tuple[Lane, Batch] | None:
        """Waits for a batch that is full or due, of the lanes in turn; None when closed."""
        with self._changed:
            while not self._closed:
                soonest = None
                for lane, queue in self._queues.items():
                    wait = self._seconds_left(queue)
                    if wait <= 0:
                        batch = queue.popleft()
                        self._queues.move_to_end(lane)
                        if not queue:
                            del self._queues[lane]
                        return lane, batch
                    soonest = min(wait, soonest or wait)
                self._changed.wait(soonest)
        return None

    def _seconds_left(self, queue: deque[Batch]) -> float:
        """How long the first batch of a queue still waits for rows."""
        batch = queue[0]
        closed = len(queue) > 1 or batch.shape is None
        if closed or batch.rows >= self._parameters.max_batch_size:
            return 0
        return batch.opened + self._parameters.batch_timeout_micros / 1e6 - time.monotonic()

    def _run(self, lane: Lane, inputs: Tensors) -> Tensors:
        rows = _common_rows(inputs)
        if rows is not None:
            self._metrics.batch_rows.labels(lane.model_name).observe(rows)
        started = time.perf_counter()
        outputs = lane.run(inputs)
        latency = self._metrics.runtime_latency.labels(lane.model_name, "predict", "TF2")
        latency.observe((time.perf_counter() - started) * 1e6)
        return outputs


def _common_rows(inputs: Tensors) -> int | None:
    """How many rows all inputs have; None where they differ or are scalars."""
    rows = {len(values) if np.ndim(values) else None for values in inputs.values()}
    return rows.pop() if len(rows) == 1 else None


def _row_shapes(inputs: Tensors) -> RowShapes:
    """What must be equal for rows of two requests to be joined."""
    return tuple(sorted((name, values.shape[1:]) for name, values in inputs.items()))


def _full(rows: int, free: int, parameters: BatchingParameters, enqueued: int) -> ServingError:
    """The words of `shared_batch_scheduler.h`; its code there is UNAVAILABLE."""
    return ServingError.resource_exhausted(
        "The batch scheduling queue to which this task was submitted is full; task size is "
        f"{rows} but scheduling capacity is only {free} (num_enqueued_batches={enqueued}, "
        f"max_enqueued_batches={parameters.max_enqueued_batches}, "
        f"max_execution_batch_size={parameters.max_batch_size})"
    )
