"""Batches of texts of similar length, so that little is computed on padding; the number of processors."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from xling_tf.errors import UserError


def available_cpus() -> int:
    """The number of processors that this process may use; the machine can have more."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def length_sorted_batches(
    lengths: Sequence[int], *, max_rows: int, max_length: int
) -> Iterator[NDArray[np.intp]]:
    """Divides rows of some lengths, in tokens or characters, into batches of similar length.

    The longest rows come first, so that a lack of memory shows at once. With each row padded to the longest,
    a batch has at most `max_length`; a single row that is longer is a batch of its own.

    Yields:
        The indices of the rows of each batch.

    Example:
        >>> batches = length_sorted_batches([1, 9, 2, 3], max_rows=2, max_length=6)
        >>> [batch.tolist() for batch in batches]
        [[1], [3, 2], [0]]
    """
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable")
    start = 0
    while start < len(order):
        longest = max(1, lengths[order[start]])
        size = min(max_rows, max(1, max_length // longest))
        yield order[start : start + size]
        start += size


def compute_in_batches(
    compute: Callable[[NDArray[np.intp]], Mapping[str, NDArray[Any]]],
    lengths: Sequence[int],
    *,
    max_rows: int,
    max_length: int = sys.maxsize,
    threads: int = 1,
    show_progress: bool | None = False,
) -> dict[str, NDArray[Any]]:
    """Computes arrays for rows of some lengths, in the batches of `length_sorted_batches`.

    Args:
        compute: Returns arrays `[batch, ...]` by name for the indices of a batch.
        lengths: Length of each row.
        max_rows: See `length_sorted_batches`.
        max_length: See `length_sorted_batches`.
        threads: Number of batches that are computed at once.
        show_progress: True shows a progress bar on standard error, if there is one.

    Returns:
        Arrays `[rows, ...]` by name, in the order of the rows; {} without rows.
    """
    batches = [*length_sorted_batches(lengths, max_rows=max_rows, max_length=max_length)]
    results: dict[str, NDArray[Any]] = {}
    pool = ThreadPoolExecutor(threads)
    try:
        try:
            all_arrays = (pool.map if min(threads, len(batches)) > 1 else map)(compute, batches)
        except RuntimeError:  # The interpreter is shutting down and starts no more threads.
            all_arrays = map(compute, batches)
        with tqdm(total=len(lengths), disable=not (show_progress and sys.stderr), unit="sentence") as bar:
            for rows, arrays in zip(batches, all_arrays, strict=True):
                for name, array in arrays.items():
                    if name not in results:
                        results[name] = np.empty((len(lengths), *array.shape[1:]), array.dtype)
                    results[name][rows] = array
                bar.update(len(rows))
    finally:
        pool.shutdown(cancel_futures=True)
    return results


def encode_in_batches(
    encode: Callable[..., ArrayLike],
    *columns: list[str],
    max_rows: int,
    max_length: int,
    show_progress: bool = False,
) -> NDArray[np.generic]:
    """Encodes rows of texts, given in columns, in the batches of `length_sorted_batches`.

    Returns:
        The vectors `[rows, ...]` in the order of the rows; `[0, 0]` without rows.

    Raises:
        UserError: The result for a batch does not have as many rows.

    Example:
        >>> count_letters = lambda texts: np.array([[len(text)] for text in texts])
        >>> encode_in_batches(count_letters, ["a", "bcd", "ef"], max_rows=2, max_length=100).tolist()
        [[1], [3], [2]]
    """

    def compute(rows: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
        vectors = np.asarray(encode(*([column[row] for row in rows] for column in columns)))
        if vectors.shape[:1] != rows.shape:
            raise UserError(f"expected a vector for each of {len(rows)} texts, got shape {[*vectors.shape]}")
        return {"vectors": vectors}

    lengths = [sum(map(len, row)) for row in zip(*columns, strict=True)]
    limits = {"max_rows": max_rows, "max_length": max_length}
    arrays = compute_in_batches(compute, lengths, **limits, show_progress=show_progress)
    return arrays.get("vectors", np.zeros((0, 0), np.float32))
