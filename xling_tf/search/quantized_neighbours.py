"""Nearest neighbours among quantized vectors: candidates by their codes, then scored again."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xling_tf.errors import UserError
from xling_tf.search.arrays import as_vectors, chunks, unit_vectors
from xling_tf.search.neighbours import Neighbours, nearest, require_faiss
from xling_tf.search.quantization import (
    Int8Ranges,
    Precision,
    as_bits,
    dequantize,
    quantize,
    require_codes,
)

# Gives the vectors `[places, dim]` at some places.
_Fetch = Callable[[NDArray[np.int64]], NDArray[np.floating]]

_NUMBERS = 2**22  # float32 numbers of candidates in memory at once


def nearest_quantized(
    queries: NDArray[np.floating],
    codes: ArrayLike,
    precision: Precision,
    k: int,
    *,
    ranges: Int8Ranges | None,
    oversampling: int,
    rescore_with: ArrayLike | None,
) -> Neighbours:
    """Finds the quantized vectors with the highest products with some queries.

    Args:
        queries: `[queries, dim]` unit vectors.
        codes: `[corpus, dim]` int8, or `[corpus, dim / 8]` bits.
        precision: Of the codes.
        k: How many are wanted of each; fewer where there are fewer codes.
        ranges: Of int8 codes, as in `quantize`.
        oversampling: Candidates that are scored again for each one wanted.
        rescore_with: `[corpus, dim]` floats or int8 codes to score them by; None: the codes.

    Returns:
        `[queries, at most k]`, best first; of those with the same score, the first comes first.

    Raises:
        UserError: The arrays do not suit each other, or FAISS is not installed.
    """
    array = require_codes(codes, precision)
    if precision == "float32":
        raise UserError(
            "precision must be int8, binary or ubinary, got 'float32'; use semantic_search"
        )
    k = min(k, len(array))
    if not k or not len(queries):
        return Neighbours(
            np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64)
        )
    dim = queries.shape[1]
    _require_shape(array, (len(array), dim if precision == "int8" else dim / 8), "codes", dim)
    wanted = min(k * oversampling, len(array))
    if precision == "int8":
        if rescore_with is None:
            return _by_products(queries, array, ranges, k)
        candidates = _by_products(queries, array, ranges, wanted).indices
    else:
        candidates = _by_bits(queries, as_bits(array), wanted)
    fetch = (
        _fetcher(rescore_with, (len(array), dim), ranges)
        if rescore_with is not None
        else lambda places: dequantize(array[places], precision)
    )
    return _rescored(queries, candidates, fetch, k)


def _by_products(
    queries: NDArray[np.floating], codes: NDArray[np.int8], ranges: Int8Ranges | None, k: int
) -> Neighbours:
    """The best k by the queries' products with what the codes stand for, thousands at a time."""
    best = Neighbours(
        np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64)
    )
    start = 0
    for part in chunks(codes):
        vectors = dequantize(part, "int8", ranges=ranges)
        found = nearest(queries, vectors, min(k, len(part)), kind="flat")
        best = _best(
            np.concatenate([best.scores, found.scores], axis=1),
            np.concatenate([best.indices, found.indices + start], axis=1),
            k,
        )
        start += len(part)
    return best


def _by_bits(queries: NDArray[np.floating], codes: NDArray[np.uint8], k: int) -> NDArray[np.int64]:
    """The places of the k of which the fewest bits differ from the query's."""
    index = require_faiss().IndexBinaryFlat(queries.shape[1])
    for part in chunks(codes):
        index.add(np.ascontiguousarray(part))
    _, indices = index.search(quantize(queries, "ubinary"), k)
    return indices


def _rescored(
    queries: NDArray[np.floating], candidates: NDArray[np.int64], fetch: _Fetch, k: int
) -> Neighbours:
    scores = np.empty(candidates.shape, np.float32)
    step = max(1, _NUMBERS // (candidates.shape[1] * queries.shape[1]))
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        vectors = fetch(candidates[part].ravel()).reshape(*candidates[part].shape, -1)
        scores[part] = np.einsum("qd,qcd->qc", queries[part], vectors, optimize=True)
    return _best(scores, candidates, k)


def _best(scores: NDArray[np.float32], indices: NDArray[np.int64], k: int) -> Neighbours:
    order = np.lexsort((indices, -scores), axis=1)[:, :k]
    return Neighbours(
        np.take_along_axis(scores, order, axis=1), np.take_along_axis(indices, order, axis=1)
    )


def _fetcher(vectors: ArrayLike, shape: tuple[int, int], ranges: Int8Ranges | None) -> _Fetch:
    array = np.asarray(vectors)
    _require_shape(array, shape, "rescore_with", shape[1])
    if array.dtype == np.int8:
        return lambda places: dequantize(array[places], "int8", ranges=ranges)
    floats = as_vectors(array, "rescore_with")
    return lambda places: unit_vectors(floats[places], "rescore_with")


def _require_shape(
    array: NDArray[np.generic], shape: tuple[int, float], name: str, dim: int
) -> None:
    if array.shape != shape:
        raise UserError(
            f"{name} must have shape [{shape[0]}, {shape[1]:g}] for queries of {dim} dimensions, but "
            f"has {list(array.shape)}; encode both with one model and one truncate_dim"
        )
