"""Vectors of users, checked and brought to unit length, and their nearest neighbours by FAISS."""

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Set, ValuesView
from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from xling_tf.errors import UserError, library

IndexKind = Literal["flat", "ivf"]

# Exact search of as many queries as candidates takes their number squared: minutes on a laptop up to
# here, hours at ten times as many. Beyond, clusters of half-precision vectors take half the memory too.
_FLAT_LIMIT = 200_000
_IVF_CLUSTERS = 4  # times the root of the candidates: FAISS' guidelines say 4 to 16
_IVF_TRAINING = 64  # vectors a cluster for k-means: FAISS' guidelines say 30 to 256
_IVF_PROBES = 32  # clusters looked into for each query

_CHUNK = 16_384  # rows in memory at once
_QUERIES = 256  # that a score function compares at once with a chunk of candidates
# Lengths of float32 unit vectors are this near to 1; others are normalised.
_UNIT_TOLERANCE = 1e-6
# The rounding error of cosines of float32 vectors.
ROUNDING = 5e-6

# From vectors `[n, dim]` and `[m, dim]` to scores `[n, m]`, higher for nearer ones.
ScoreFunction = Callable[[Any, Any], Any]


def _search_alone() -> None:
    """Keeps FAISS to one thread after a fork, where it would wait forever for its parent's threads."""
    if faiss := sys.modules.get("faiss"):
        faiss.omp_set_num_threads(1)


os.register_at_fork(after_in_child=_search_alone)


class Neighbours(NamedTuple):
    """The nearest candidates of each query, best first: `[queries, k]`, -inf and -1 where there are fewer."""

    scores: NDArray[np.float32]
    indices: NDArray[np.int64]


def index_kind(num_candidates: int) -> IndexKind:
    """Chooses the index: exact while that takes minutes, then clusters."""
    return "flat" if num_candidates <= _FLAT_LIMIT else "ivf"


def nearest(
    queries: NDArray[np.floating],
    candidates: NDArray[np.floating],
    k: int,
    *,
    kind: IndexKind | None = None,
    score_function: ScoreFunction | None = None,
) -> Neighbours:
    """Finds the k candidates `[candidates, dim]` with the highest inner products: cosines, of unit vectors.

    Of those with the same score, the first comes first. Arrays may be memory-mapped. A score function
    replaces the inner product.
    """
    rows = np.arange(len(queries))
    found = nearest_in_chunks(queries, rows, candidates, k, kind=kind, score_function=score_function)
    return Neighbours(*map(np.concatenate, zip(*found, strict=True)))


def nearest_in_chunks(
    queries: NDArray[np.floating],
    rows: NDArray[np.integer],
    candidates: NDArray[np.floating],
    k: int,
    *,
    kind: IndexKind | None = None,
    show_progress: bool = False,
    score_function: ScoreFunction | None = None,
) -> Iterator[Neighbours]:
    """Yields what `nearest` finds for some rows of the queries, thousands at a time, in order."""
    index: Any
    if score_function is None:
        index = _build(candidates, kind or index_kind(len(candidates)))
    else:
        index = _Scored(candidates, score_function)
    with tqdm(
        total=len(rows), disable=not (show_progress and sys.stderr), unit="query", desc="searching"
    ) as bar:
        for chunk in chunks(rows, None if score_function is None else _QUERIES):
            scores, indices = index.search(_float32(queries[chunk]), int(k))  # FAISS takes no NumPy integer
            yield best_first(scores, indices, k)
            bar.update(len(chunk))


def best_first(scores: NDArray[Any], indices: NDArray[np.int64], k: int) -> Neighbours:
    """Sorts `[queries, any]` by score, then by index, and keeps k; index -1 stands for none."""
    scores = np.where(indices < 0, -np.inf, scores)
    order = np.lexsort((indices, -scores), axis=1)[:, :k]
    return Neighbours(*(np.take_along_axis(array, order, axis=1) for array in (scores, indices)))


class _Scored(NamedTuple):
    """Searches candidates by a score function, with the interface of a FAISS index."""

    candidates: NDArray[np.floating]
    score_function: ScoreFunction

    def search(self, queries: NDArray[np.float32], k: int) -> Neighbours:
        """Finds the k candidates of each query with the highest scores."""
        best = Neighbours(np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64))
        begin = 0
        for chunk in chunks(self.candidates):
            scores = as_array(self.score_function(queries, _float32(chunk)), "scores")
            shape = len(queries), len(chunk)
            if scores.shape != shape or scores.dtype.kind != "f" or np.isnan(scores).any():
                raise UserError(
                    f"score_function must give an array {[*shape]} of floats for {shape[0]} queries and "
                    f"{shape[1]} candidates, none of them NaN, but gave {scores.dtype} {[*scores.shape]}"
                )
            indices = np.broadcast_to(np.arange(begin, begin + len(chunk)), shape)
            all_scores = np.concatenate([best.scores, scores], axis=1)
            best = best_first(all_scores, np.concatenate([best.indices, indices], axis=1), k)
            begin += len(chunk)
        return best


def _build(candidates: NDArray[np.floating], kind: IndexKind) -> Any:
    faiss = library("faiss", "FAISS", "mining")
    count, dim = candidates.shape
    index = faiss.IndexFlatIP(dim)
    if kind == "ivf":
        clusters = max(1, int(_IVF_CLUSTERS * count**0.5))
        index = faiss.index_factory(dim, f"IVF{clusters},SQfp16", faiss.METRIC_INNER_PRODUCT)
        index.nprobe = _IVF_PROBES
        sample = np.linspace(0, count - 1, min(count, _IVF_TRAINING * clusters)).astype(int)
        index.train(_float32(candidates[sample]))
    for chunk in chunks(candidates):
        index.add(_float32(chunk))
    return index


def chunks(array: NDArray[Any], size: int | None = None) -> Iterator[NDArray[Any]]:
    """Yields the rows of an array, some thousands or `size` at a time."""
    step = size or _CHUNK
    return (array[start : start + step] for start in range(0, len(array), step))


def _float32(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    return np.ascontiguousarray(vectors, np.float32)


def as_array(vectors: Any, name: str) -> NDArray[Any]:
    """Converts vectors to one array; they may be an array, a tensor, or rows that are arrays themselves.

    Rows may come in a list, an iterator, a pandas Series or an Arrow column. Messages call them `name`.

    Example:
        >>> as_array(iter([np.zeros(2), np.ones(2)]), "queries").tolist()
        [[0.0, 0.0], [1.0, 1.0]]
    """
    if isinstance(vectors, str | bytes | Mapping | Set):
        raise UserError(
            f"{name} must be vectors of shape [rows, dim], but are {type(vectors).__name__}; encode texts "
            "first, and give a list of the values() of a dict"
        )
    rows = list(vectors) if isinstance(vectors, list | tuple | Iterator | ValuesView) else None
    if rows is None:
        array = _array(vectors, name)
        if array.dtype != object or array.ndim == 0:
            return array
        # A table's only column, or rows that are arrays.
        rows = list(array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array)
    arrays = [_array(row, name) for row in rows]
    for number, row in enumerate(arrays):
        if row.shape != arrays[0].shape:
            raise UserError(
                f"{name} must be vectors of one length, but row 0 has shape {list(arrays[0].shape)} and row "
                f"{number} {list(row.shape)}; encode all with one model, and leave out what is missing"
            )
    array = np.stack(arrays) if arrays else np.zeros(0)
    is_object = array.dtype == object and all(isinstance(number, Real) for number in array.flat)
    return array.astype(np.float64) if is_object else array


def _array(value: Any, name: str) -> NDArray[Any]:
    try:
        if hasattr(value, "detach"):  # torch
            value = value.detach().cpu()
            value = value.float() if str(value.dtype) == "torch.bfloat16" else value
        if isinstance(value, np.ma.MaskedArray) and value.dtype.kind == "f":
            value = value.filled(np.nan)
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UserError(
            f"{name} must be vectors of one length, of shape [rows, dim], but this {type(value).__name__} is "
            f"no array ({' '.join(str(error).split())[:80]}); encode all with one model"
        ) from None
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def as_vectors(vectors: ArrayLike, name: str) -> NDArray[np.floating]:
    """Checks that something, called `name`, is finite float vectors: `[rows, dim]`, or one `[dim]`."""
    array = as_array(vectors, name)
    if array.size == 0 and array.ndim == 1:
        return np.zeros((0, 0), np.float32)
    if array.dtype.kind != "f" or array.ndim not in (1, 2) or (array.shape[-1] == 0 and len(array)):
        hints = dict.fromkeys("OSUT", "encode texts first") | dict.fromkeys("iub", "dequantize codes first")
        hint = hints.get(array.dtype.kind, "give one vector a row")
        raise UserError(
            f"{name} must be float vectors of shape [rows, dim], but are {array.dtype} of shape "
            f"{list(array.shape)}; {hint}"
        )
    array = np.atleast_2d(array)
    finite = [np.isfinite(chunk).all(axis=1) for chunk in chunks(array)]
    if finite and not (is_finite := np.concatenate(finite)).all():
        raise UserError(
            f"{name} must be finite vectors, but row {np.argmin(is_finite)} has infinity or NaN in it; "
            "encode it anew"
        )
    return array


def unit_vectors(vectors: ArrayLike, name: str) -> NDArray[np.floating]:
    """Gives vectors unit length, the same array where they have it, else a copy; zero stays zero."""
    array = as_vectors(vectors, name)
    lengths = [np.linalg.norm(chunk.astype(np.float64), axis=1) for chunk in chunks(array)]
    if all(np.all(np.abs(some - 1) <= _UNIT_TOLERANCE) for some in lengths):
        return array
    divisors = np.concatenate(lengths)[:, np.newaxis]
    result = np.empty(array.shape, np.float32)
    return np.divide(array, np.where(divisors > 0, divisors, 1), out=result, casting="unsafe")


def truncated(vectors: ArrayLike, dim: int, name: str = "vectors") -> NDArray[np.floating]:
    """Keeps the first `dim` dimensions of vectors, brought to unit length again (Kusupati et al. 2022)."""
    array = as_vectors(vectors, name)
    require_positive(dim, "truncate_dim")
    if dim > array.shape[1]:
        raise UserError(
            f"truncate_dim must be at most the {array.shape[1]} dimensions that {name} have, got {dim}"
        )
    return unit_vectors(array[:, :dim], name)


def cosine_similarity(a: ArrayLike, b: ArrayLike) -> NDArray[np.float32]:
    """The cosine of each vector of `[n, dim]` with each of `[m, dim]`; 0 where a vector is zero."""
    rows, columns = unit_vectors(a, "a"), unit_vectors(b, "b")
    if not len(rows) or not len(columns):
        return np.zeros((len(rows), len(columns)), np.float32)
    require_same_dim(rows, columns, "a", "b")
    return rows.astype(np.float32) @ columns.astype(np.float32).T


def require_same_dim(a: NDArray[Any], b: NDArray[Any], name_a: str, name_b: str) -> None:
    """Makes sure that two arrays `[rows, dim]` have vectors of one space."""
    if a.shape[1] != b.shape[1]:
        raise UserError(
            f"{name_a} and {name_b} must have as many dimensions, but {name_a} have {a.shape[1]} and "
            f"{name_b} {b.shape[1]}; encode both with one model and one truncate_dim"
        )


def require_integer(value: int, name: str, least: int) -> None:
    """Makes sure that a number is an integer of at least `least`."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or value < least:
        raise UserError(f"{name} must be an integer of at least {least}, got {value!r}")


def require_positive(value: int, name: str) -> None:
    """Makes sure that a number is an integer above 0."""
    require_integer(value, name, 1)


def require_between(value: float, name: str, least: float, most: float) -> None:
    """Makes sure that a limit is a number in the range where it makes sense."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not least <= value <= most or math.isnan(value):
        raise UserError(f"{name} must be a number from {least:g} to {most:g}, got {value!r}")
