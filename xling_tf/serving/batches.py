"""A batch: parts of requests that are joined, run in one call and told apart again."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock

import numpy as np

Tensors = dict[str, np.ndarray]
# Names and shapes of one row of each input.
RowShapes = tuple[tuple[str, tuple[int, ...]], ...]


class Request:
    """A request that waits for the outputs of its parts.

    Attributes:
        future: Its outputs, by name.
    """

    def __init__(self, num_parts: int) -> None:
        self.future: Future[Tensors] = Future()
        self._outputs: list[Tensors] = [{}] * num_parts
        self._missing = num_parts
        self._lock = Lock()

    def begin(self) -> bool:
        """Whether somebody still waits for it; from then on it cannot be cancelled."""
        with self._lock:
            if self.future.done():
                return False
            return self.future.running() or self.future.set_running_or_notify_cancel()

    def finish(self, index: int, outputs: Tensors) -> None:
        """Takes the outputs of a part; the last one completes the request."""
        with self._lock:
            self._outputs[index] = outputs
            self._missing -= 1
            if self._missing or self.future.done():
                return
        joined = self._outputs[0] if len(self._outputs) == 1 else _join(self._outputs)
        self.future.set_result(joined)

    def fail(self, error: Exception) -> None:
        """Ends the request with the error of one part."""
        with self._lock:
            if self.future.done():
                return
            self.future.set_exception(error)


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a request.

    Attributes:
        request: Whose.
        index: Which part of it.
        inputs: `[rows, ...]` each.
        rows: How many; 0 where it cannot share a call.
    """

    request: Request
    index: int
    inputs: Tensors
    rows: int


@dataclass
class Batch:
    """Parts of requests for one call of the model.

    Attributes:
        shape: What its rows look like; None if the only part cannot share a call.
        parts: In order.
        opened: When its first part came, by `time.monotonic`.
    """

    shape: RowShapes | None
    parts: list[Part]
    opened: float

    def __post_init__(self) -> None:
        self.rows = sum(part.rows for part in self.parts)

    @property
    def waiting(self) -> int:
        """Its rows, where what has none counts as one."""
        return self.rows or len(self.parts)

    def add(self, part: Part) -> None:
        """Puts a part to its end."""
        self.parts.append(part)
        self.rows += part.rows

    def drop_abandoned(self) -> None:
        """Takes out the parts that nobody waits for any more."""
        self.parts = [part for part in self.parts if not part.request.future.done()]
        self.rows = sum(part.rows for part in self.parts)


def make_request(inputs: Tensors, cuts: Sequence[int]) -> "tuple[Future[Tensors], list[Part]]":
    """Makes a request and its parts.

    Args:
        inputs: By name; `[rows, ...]` each if it is cut.
        cuts: Rows at which a new part begins.

    Example:
        >>> future, parts = make_request({"x": np.arange(5)}, cuts=[2])
        >>> [part.inputs["x"].tolist() for part in parts]
        [[0, 1], [2, 3, 4]]
    """
    request = Request(len(cuts) + 1)
    rows = max((len(values) if np.ndim(values) else 0 for values in inputs.values()), default=0)
    if not cuts:
        return request.future, [Part(request, 0, inputs, rows)]
    borders = [0, *cuts, rows]
    parts = [
        Part(
            request,
            index,
            {name: values[start:end] for name, values in inputs.items()},
            end - start,
        )
        for index, (start, end) in enumerate(pairwise(borders))
    ]
    return request.future, parts


def run_batch(parts: Sequence[Part], run: Callable[[Tensors], Tensors]) -> None:
    """Runs parts in one call and gives each its own rows of the outputs.

    Where the call fails, halves of the batch are tried until the parts at fault are alone, so that
    one request's mistake is answered to nobody else: that costs a few calls, not one a request.

    Args:
        parts: Of different requests, with rows that can be joined.
        run: Calls the model.
    """
    parts = [part for part in parts if part.request.begin()]
    if not parts:
        return
    try:
        outputs = run(parts[0].inputs if len(parts) == 1 else _join([p.inputs for p in parts]))
        shares = [outputs] if len(parts) == 1 else _shares(outputs, [p.rows for p in parts])
    except Exception as error:
        if len(parts) == 1:
            parts[0].request.fail(error)
            return
        middle = len(parts) // 2
        run_batch(parts[:middle], run)
        run_batch(parts[middle:], run)
        return
    for part, share in zip(parts, shares, strict=True):
        part.request.finish(part.index, share)


def _join(tensors: Sequence[Tensors]) -> Tensors:
    return {name: np.concatenate([each[name] for each in tensors]) for name in tensors[0]}


def _shares(outputs: Tensors, rows: Sequence[int]) -> list[Tensors]:
    """Cuts outputs into those of the parts.

    Raises:
        ValueError: An output has not one row for each of the inputs'.
    """
    ends = np.cumsum(rows)
    for name, values in outputs.items():
        if np.ndim(values) == 0 or len(values) != ends[-1]:
            raise ValueError(f"{name} has not {ends[-1]} rows")
    return [
        {name: values[end - count : end] for name, values in outputs.items()}
        for count, end in zip(rows, ends, strict=True)
    ]
