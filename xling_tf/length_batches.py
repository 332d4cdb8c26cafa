"""Batches of texts of similar length, so that padding costs little; number of processors."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from xling_tf.errors import UserError


def available_cpus() -> int:
    """The number of processors that this process may use; the machine can have more."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compute_in_batches(
    compute: Callable[..., Mapping[str, NDArray[Any]]],
    columns: Sequence[Sequence[Any]],
    *,
    max_rows: int,
    max_length: int = sys.maxsize,
    threads: int = 1,
    show_progress: bool | None = False,
) -> dict[str, NDArray[Any]]:
    """Computes arrays for rows of texts or of tokens, given in columns, in batches of similar
    length.

    The longest rows come first, so that a lack of memory shows at once.

    Args:
        compute: Takes a list for each column, and returns arrays `[batch, ...]` by name.
        columns: The rows' texts, or their lists of tokens.
        max_rows: Maximum number of rows of a batch.
        max_length: Maximum number of characters or tokens of a batch whose rows are padded to the
            longest; a single row that is longer is a batch of its own.
        threads: Number of batches that are computed at once.
        show_progress: True shows a progress bar on standard error, if there is one.

    Returns:
        Arrays `[rows, ...]` by name, in the order of the rows; {} without rows.

    Example:
        >>> batch_size = lambda texts: {"size": np.full(len(texts), len(texts))}
        >>> texts = ["a", "abcdefghi", "ab", "abc"]
        >>> compute_in_batches(batch_size, [texts], max_rows=2, max_length=6)["size"].tolist()
        [1, 1, 2, 2]
    """
    lengths = [sum(map(len, row)) for row in zip(*columns, strict=True)]
    order = np.argsort(-np.array(lengths, np.int64), kind="stable")
    batches, start = list[NDArray[np.intp]](), 0
    while start < len(order):
        longest = max(1, lengths[order[start]])
        batches.append(order[start : start + min(max_rows, max(1, max_length // longest))])
        start += len(batches[-1])

    def compute_batch(rows: NDArray[np.intp]) -> Mapping[str, NDArray[Any]]:
        return compute(*([column[row] for row in rows] for column in columns))

    results: dict[str, NDArray[Any]] = {}
    pool = ThreadPoolExecutor(threads)
    try:
        try:
            if min(threads, len(batches)) > 1:
                all_arrays = pool.map(compute_batch, batches)
            else:
                all_arrays = map(compute_batch, batches)
        except RuntimeError:  # The interpreter is shutting down and starts no more threads.
            all_arrays = map(compute_batch, batches)
        with tqdm(
            total=len(lengths), disable=not (show_progress and sys.stderr), unit="sentence"
        ) as bar:
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
    encode: Callable[..., ArrayLike], *columns: list[str], **options: Any
) -> NDArray[Any]:
    """Encodes rows of texts, given in columns, in batches; takes the options of
    `compute_in_batches`.

    Returns:
        The vectors `[rows, ...]` in the order of the rows; `[0, 0]` without rows.

    Raises:
        UserError: The result for a batch does not have as many rows.

    Example:
        >>> count_letters = lambda texts: np.array([[len(text)] for text in texts])
        >>> texts = ["a", "bcd", "ef"]
        >>> encode_in_batches(count_letters, texts, max_rows=2, max_length=100).tolist()
        [[1], [3], [2]]
    """

    def compute(*texts: list[str]) -> dict[str, NDArray[Any]]:
        vectors, count = np.asarray(encode(*texts)), len(texts[0])
        if vectors.shape[:1] != (count,):
            raise UserError(
                f"expected a vector for each of {count} texts, got shape {[*vectors.shape]}"
            )
        return {"vectors": vectors}

    arrays = compute_in_batches(compute, columns, **options)
    return arrays.get("vectors", np.zeros((0, 0), np.float32))
