"""Checks and normalises the vectors that users pass, and finds nearest neighbours with FAISS."""

import os
import sys
from collections.abc import Iterator, Mapping, Set, ValuesView
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UserError, library
from .batches import progress_bar

IndexKind = Literal["flat", "ivf"]

# With as many queries as candidates, exact search takes minutes on a laptop up to here, and hours
# for ten times as many. Beyond, an index of clusters holds vectors in half precision, half the
# memory.
_FLAT_LIMIT = 200_000
_IVF_CLUSTERS = 4  # times the root of the number of candidates; FAISS' guidelines say 4 to 16
_IVF_TRAINING = 64  # vectors per cluster for k-means; FAISS' guidelines say 30 to 256
_IVF_PROBES = 32  # clusters that are searched for each query

_CHUNK = 16_384  # rows processed at once
_QUERIES = 1024  # queries whose scores of a chunk NumPy holds at once; 64 MB
_RESULTS_AT_ONCE = 1 << 22  # neighbours of queries that are searched at once; 50 MB
# Vectors whose lengths differ from 1 by no more than this (the rounding of float32) are not scaled
# again.
_UNIT_TOLERANCE = 1e-6


def _use_one_thread() -> None:
    """Limits FAISS to one thread: after a fork, it would wait forever for the parent's threads."""
    if faiss := sys.modules.get("faiss"):
        faiss.omp_set_num_threads(1)


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_use_one_thread)


class Neighbours(NamedTuple):
    """The nearest candidates of each query, `[queries, k]`, best first."""

    scores: NDArray[np.float32]  # -inf where there are fewer than k candidates
    indices: NDArray[np.int64]  # rows of the candidates, -1 where there are fewer


def index_kind(num_candidates: int) -> IndexKind:
    """Chooses exact search ("flat") as long as it takes minutes, then clusters ("ivf")."""
    return "flat" if num_candidates <= _FLAT_LIMIT else "ivf"


def nearest(
    queries: NDArray[np.floating],
    candidates: NDArray[np.floating],
    k: int,
    *,
    kind: IndexKind | None = None,
) -> Neighbours:
    """Finds the candidates with the highest inner products, which are cosines if all are unit
    vectors.

    Queries and candidates, `[rows, dim]`, may be memory-mapped. Candidates with equal scores keep
    their order; of those that tie for the last place, any may be among the k. A zero vector, which
    stands for a blank text, has no neighbours and is nobody's neighbour. See `index_kind` for the
    default `kind`.
    """
    parts = nearest_in_chunks(queries, np.arange(len(queries)), candidates, k, kind=kind)
    return Neighbours(*map(np.concatenate, zip(*parts, strict=True)))


def nearest_in_chunks(
    queries: NDArray[np.floating],
    rows: NDArray[np.integer],
    candidates: NDArray[np.floating],
    k: int,
    *,
    kind: IndexKind | None = None,
    show_progress: bool = False,
) -> Iterator[Neighbours]:
    """Yields what `nearest` finds for rows of the queries, in this order, by the thousand."""
    has_text = np.concatenate(
        [np.zeros(0, bool), *(chunk.any(axis=1) for chunk in chunks(candidates))]
    )
    rows_of_index = np.flatnonzero(has_text)
    index = _build(candidates, rows_of_index, kind or index_kind(len(candidates)))
    # The place -1, of a neighbour that was not found, stands for the row -1.
    rows_of_index = np.append(rows_of_index, -1)
    with progress_bar(len(rows), show_progress, "query") as update:
        for chunk in chunks(rows, min(_CHUNK, max(1, _RESULTS_AT_ONCE // max(1, int(k))))):
            vectors = _float32(queries[chunk])
            scores, places = index.search(vectors, int(k))  # not NumPy's integers
            places[~vectors.any(axis=1)] = -1
            scores = np.where(places < 0, -np.inf, scores)
            yield best_neighbours(k, (scores, rows_of_index[places]))
            update(len(chunk))


def best_neighbours(k: int, *parts: tuple[NDArray[Any], NDArray[Any]]) -> Neighbours:
    """Returns the best k of parts, `[queries, n]` scores and indices, padded with -inf and -1."""
    scores, indices = map(np.hstack, zip(*parts, strict=True))
    order = np.lexsort((indices, -scores), axis=1)[:, :k]
    best = [np.take_along_axis(array, order, axis=1) for array in (scores, indices)]
    padding = (0, 0), (0, k - order.shape[1])
    return Neighbours(
        np.pad(best[0], padding, constant_values=-np.inf),
        np.pad(best[1], padding, constant_values=-1),
    )


def _build(candidates: NDArray[np.floating], rows: NDArray[np.int64], kind: IndexKind) -> Any:
    """Returns an index of some rows of the candidates, in this order."""
    count, dim = len(rows), candidates.shape[1]
    if kind == "flat" and find_spec("faiss") is None:
        return _FlatIndex(candidates, rows)
    faiss = library("faiss", "FAISS", "mining")
    index = faiss.IndexFlatIP(dim)
    if kind == "ivf" and count:
        clusters = min(count, int(_IVF_CLUSTERS * count**0.5))
        index = faiss.index_factory(dim, f"IVF{clusters},SQfp16", faiss.METRIC_INNER_PRODUCT)
        index.nprobe = _IVF_PROBES
        sample = np.linspace(0, count - 1, min(count, _IVF_TRAINING * clusters)).astype(int)
        index.train(_float32(candidates[rows[sample]]))
    for chunk in chunks(rows):
        index.add(_float32(candidates[chunk]))
    return index


class _FlatIndex:
    """Searches some rows of the candidates exactly with NumPy, where FAISS is not installed."""

    def __init__(self, candidates: NDArray[np.floating], rows: NDArray[np.int64]) -> None:
        self._candidates, self._rows = candidates, rows

    def search(
        self, queries: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns the scores and places of the best rows, as the indices of FAISS do."""
        parts = [self._best(some, k) for some in chunks(queries, _QUERIES)]
        return Neighbours(*map(np.concatenate, zip(*parts, strict=True)))

    def _best(self, queries: NDArray[np.float32], k: int) -> Neighbours:
        nothing = np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64)
        best = best_neighbours(k, nothing)
        for places in chunks(np.arange(len(self._rows))):
            scores: NDArray[Any] = queries @ _float32(self._candidates[self._rows[places]]).T
            places = np.broadcast_to(places, scores.shape)
            if scores.shape[1] > k:
                kept = np.argpartition(-scores, k - 1, axis=1)[:, :k]
                scores, places = (np.take_along_axis(a, kept, axis=1) for a in (scores, places))
            best = best_neighbours(k, best, (scores, places))
        return best


def chunks(array: NDArray[Any], rows: int = _CHUNK) -> Iterator[NDArray[Any]]:
    """Yields the rows of an array, some thousands at a time."""
    return (array[start : start + rows] for start in range(0, len(array), rows))


def _float32(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    return np.ascontiguousarray(vectors, np.float32)


def as_array(vectors: ArrayLike, name: str) -> NDArray[Any]:
    """Converts vectors to an array of any type and shape; `name` is what messages call them.

    They are an array, tensor, column of pandas or Arrow, list or iterator of rows; or one vector.
    """
    if isinstance(vectors, str | bytes | Mapping | Set):
        raise UserError(
            f"{name} must be vectors, but are {type(vectors).__name__}; encode texts first"
        )
    try:
        array = np.asarray([*vectors] if isinstance(vectors, Iterator | ValuesView) else vectors)
        if array.dtype == object and array.ndim:
            # The rows are arrays, which may be in the only column of a table.
            rows = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
            array = np.stack([np.asarray(row) for row in rows])
    except (ValueError, TypeError, NotImplementedError) as error:  # tensors in a graph: the last
        raise UserError(
            f"{name} must be vectors of one length, but are not: {str(error)[:80]}"
        ) from None
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def as_vectors(vectors: ArrayLike, name: str) -> NDArray[np.floating]:
    """Converts vectors, in any form of `as_array`, to an array `[rows, dim]` of finite floats."""
    array = as_array(vectors, name)
    if array.size == 0 and array.ndim == 1:
        return np.zeros((0, 0), np.float32)
    if array.dtype.kind != "f" or array.ndim not in (1, 2) or (array.shape[-1] == 0 and len(array)):
        is_text = array.dtype.kind in "OSUT"
        hint = "encode texts first" if is_text else "give one vector of floats a row"
        actual = f"{array.dtype} of shape {list(array.shape)}"
        raise UserError(
            f"{name} must be float vectors of shape [rows, dim], but are {actual}; {hint}"
        )
    array = np.atleast_2d(array)
    for number, chunk in enumerate(chunks(array)):
        if not (is_finite := np.isfinite(chunk).all(axis=1)).all():
            row = number * _CHUNK + np.argmin(is_finite)
            raise UserError(f"{name} must be finite vectors, but row {row} has infinity or NaN")
    return array


def unit_vectors(vectors: ArrayLike, name: str) -> NDArray[np.floating]:
    """Scales vectors, as for `as_vectors`, to unit length, copied if need be; zeros stay zero."""
    array = as_vectors(vectors, name)
    lengths = [np.linalg.norm(chunk.astype(np.float64), axis=1) for chunk in chunks(array)]
    if all(np.all(np.abs(norms - 1) <= _UNIT_TOLERANCE) for norms in lengths):
        return array
    divisors = np.concatenate(lengths)[:, np.newaxis]
    result = np.empty(array.shape, np.float32)
    return np.divide(array, np.where(divisors > 0, divisors, 1), out=result, casting="unsafe")


def truncated(vectors: ArrayLike, dim: int) -> NDArray[np.floating]:
    """Keeps the first dimensions of vectors, scaled to unit length again (Kusupati et al. 2022)."""
    array = as_vectors(vectors, "vectors")
    require_positive(dim, "truncate_dim")
    if dim > array.shape[1]:
        raise UserError(
            f"`truncate_dim` must be at most {array.shape[1]}, the vectors' dimension, got {dim}"
        )
    return unit_vectors(array[:, :dim], "vectors")


def cosine_similarity(embeddings1: ArrayLike, embeddings2: ArrayLike) -> NDArray[np.float32]:
    """Computes the cosines `[n, m]` of vectors `[n, dim]` and `[m, dim]`; 0 for a zero vector.

    Examples:
        >>> cosine_similarity([1.0, 0.0], [[0.0, 1.0], [3.0, 0.0]]).tolist()
        [[0.0, 1.0]]
    """
    names = "embeddings1", "embeddings2"
    rows, columns = map(unit_vectors, (embeddings1, embeddings2), names)
    if not len(rows) or not len(columns):
        return np.zeros((len(rows), len(columns)), np.float32)
    require_same_dim(rows, columns, *names)
    return rows.astype(np.float32) @ columns.astype(np.float32).T


def pairwise_similarity(embeddings1: ArrayLike, embeddings2: ArrayLike) -> NDArray[np.float32]:
    """Computes the cosines `[n]` of the rows of two `[n, dim]`.

    Examples:
        >>> first, second = [[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [2.0, 0.0]]
        >>> pairwise_similarity(first, second).tolist()
        [0.0, 1.0]
    """
    names = "embeddings1", "embeddings2"
    first, second = map(unit_vectors, (embeddings1, embeddings2), names)
    if first.shape != second.shape:
        raise UserError(f"expected equal shapes, but got {[*first.shape]} and {[*second.shape]}")
    # Products of half precision would be rounded before they are added up.
    return np.einsum("nd,nd->n", first.astype(np.float32), second.astype(np.float32))


def require_same_dim(a: NDArray[Any], b: NDArray[Any], name_a: str, name_b: str) -> None:
    """Raises a `UserError` unless both arrays' `[rows, dim]` have the same dimension."""
    if a.shape[1] != b.shape[1]:
        raise UserError(
            f"{name_a} and {name_b} must have equal dimensions, but {name_a} have {a.shape[1]} and "
            f"{name_b} {b.shape[1]}; encode both with one model and one `truncate_dim`"
        )


def require_positive(value: int, name: str) -> None:
    """Raises a `UserError` unless the argument of this name is an integer above 0."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or value < 1:
        raise UserError(f"`{name}` must be an integer of at least 1, got {value!r}")
