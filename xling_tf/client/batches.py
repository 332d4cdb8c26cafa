"""Batches of texts of similar length, so that padding costs little; number of processors."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UserError

Encode = Callable[[list[str]], NDArray[Any]]  # n texts to `[n, dim]` vectors


def available_cpus() -> int:
    """The number of processors that this process may use; the machine can have more."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# One core splits a batch into words while another multiplies the matrices of the next.
BATCHES_AT_ONCE = min(4, available_cpus())


@contextmanager
def progress_bar(total: int, is_shown: bool | None, unit: str) -> Iterator[Callable[[int], object]]:
    """Yields a function that a block calls with the number of units that are done.

    The bar is on standard error, if there is one; without tqdm, it is a line of numbers.
    """
    if not is_shown or sys.stderr is None:
        yield lambda count: None
        return
    try:
        from tqdm import tqdm  # here, because wheels do not need it
    except ImportError:
        done = 0

        def update(count: int) -> None:
            nonlocal done
            done += count
            sys.stderr.write(f"\r{done:,} of {total:,}, unit: {unit}")
            sys.stderr.flush()

        yield update
        sys.stderr.write("\n")
    else:
        with tqdm(total=total, unit=unit) as bar:
            yield bar.update


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

    Examples:
        >>> batch_size = lambda texts: {"size": np.full(len(texts), len(texts))}
        >>> texts = ["a", "abcdefghi", "ab", "abc"]
        >>> compute_in_batches(batch_size, [texts], max_rows=2, max_length=6)["size"].tolist()
        [1, 1, 2, 2]
    """
    if len(columns[0]) == 1:
        return dict(compute(*map(list, columns)))
    lengths = np.array([[*map(len, column)] for column in columns], np.int64).sum(axis=0)
    order = np.argsort(-lengths, kind="stable")
    batches: list[NDArray[np.intp]] = []
    start = 0
    while start < len(order):
        longest = max(1, lengths[order[start]])
        batches.append(order[start : start + min(max_rows, max(1, max_length // longest))])
        start += len(batches[-1])

    def compute_batch(rows: NDArray[np.intp]) -> Mapping[str, NDArray[Any]]:
        return compute(*([column[row] for row in rows] for column in columns))

    results: dict[str, NDArray[Any]] = {}
    with (
        in_threads(compute_batch, batches, threads) as all_arrays,
        progress_bar(len(lengths), show_progress, "sentence") as update,
    ):
        for rows, arrays in zip(batches, all_arrays, strict=True):
            for name, array in arrays.items():
                if name not in results:
                    results[name] = np.empty((len(lengths), *array.shape[1:]), array.dtype)
                results[name][rows] = array
            update(len(rows))
    return results


@contextmanager
def in_threads(
    function: Callable[[Any], Any], values: Sequence[Any], threads: int
) -> Iterator[Iterator[Any]]:
    """Yields the function's results in order, computed in threads if several are asked for.

    After an error, no further value is begun, and the block ends when those in progress are done.
    """
    if min(threads, len(values)) <= 1:
        yield map(function, values)
        return
    from concurrent.futures import ThreadPoolExecutor  # here, because it takes time

    pool = ThreadPoolExecutor(threads)
    try:
        try:
            results = pool.map(function, values)
        except RuntimeError:  # The interpreter is shutting down and starts no more threads.
            results = map(function, values)
        yield results
    finally:
        pool.shutdown(cancel_futures=True)


def encode_in_batches(
    encode: Callable[..., ArrayLike], *columns: list[str], **options: Any
) -> NDArray[Any]:
    """Encodes rows of texts, given in columns, in batches; takes the options of
    `compute_in_batches`.

    Returns:
        The vectors `[rows, ...]` in the order of the rows; `[0, 0]` without rows.

    Raises:
        UserError: The result for a batch does not have as many rows.

    Examples:
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
