"""Any number of texts, a bounded number at a time, those of similar length together."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray


def length_sorted_batches(
    lengths: Sequence[int], *, max_rows: int, max_length: int
) -> Iterator[NDArray[np.intp]]:
    """Divides rows into batches that stay small when padded to their longest row.

    The longest come first: if the memory does not suffice, that shows at once.

    Args:
        lengths: Of the rows, in any unit.
        max_rows: Rows of a batch at most.
        max_length: Rows times the longest row's length at most; a longer row is a batch of its own.

    Yields:
        Indices of the rows of a batch.

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


def in_batches(
    encode: Callable[..., np.ndarray], *columns: list[str], max_rows: int, max_length: int
) -> np.ndarray:
    """Calls a function of lists of texts on length-sorted batches of their rows.

    Args:
        encode: Takes n texts of each column, gives n rows.
        columns: Texts, as many in each.
        max_rows: Rows of a batch at most.
        max_length: Characters of a batch at most, padded.

    Returns:
        The rows in the order of the texts; for no texts, an array of shape [0, 0].

    Example:
        >>> lengths = lambda texts: np.array([[len(text)] for text in texts])
        >>> in_batches(lengths, ["a", "bcd", "ef"], max_rows=2, max_length=100).tolist()
        [[1], [3], [2]]
    """
    lengths = [sum(map(len, row)) for row in zip(*columns, strict=True)]
    result = np.zeros((0, 0), np.float32)
    for rows in length_sorted_batches(lengths, max_rows=max_rows, max_length=max_length):
        encodings = encode(*([column[i] for i in rows] for column in columns))
        if not result.size:
            result = np.empty((len(lengths), *encodings.shape[1:]), encodings.dtype)
        result[rows] = encodings
    return result
