"""Batches of texts of similar length, so that little is computed on padding; the number of processors."""

import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

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


def encode_in_batches(
    encode: Callable[..., ArrayLike], *columns: list[str], max_rows: int, max_length: int
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
    lengths = [sum(map(len, row)) for row in zip(*columns, strict=True)]
    vectors: NDArray[np.generic] = np.zeros((0, 0), np.float32)
    for rows in length_sorted_batches(lengths, max_rows=max_rows, max_length=max_length):
        batch = np.asarray(encode(*([column[row] for row in rows] for column in columns)))
        if batch.shape[:1] != rows.shape:
            raise UserError(f"expected a vector for each of {len(rows)} texts, got shape {list(batch.shape)}")
        if not vectors.size:
            vectors = np.empty((len(lengths), *batch.shape[1:]), batch.dtype)
        vectors[rows] = batch
    return vectors
