"""Nearest neighbours among vectors, by FAISS (the extra `mining`)."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from xling_tf.errors import UserError

IndexKind = Literal["flat", "hnsw", "ivf"]

# Exact search of as many queries as candidates takes their number squared: minutes on a laptop up
# to here, hours at ten times as many.
_FLAT_LIMIT = 200_000
# A graph needs no training and finds nearly all neighbours, but holds every vector whole and takes
# long to build; beyond, clusters of half-precision vectors take half the memory.
_HNSW_LIMIT = 1_000_000
_HNSW_LINKS = 32  # FAISS' guidelines: 4 to 64, more are more accurate
_HNSW_CONSTRUCTION = 80  # twice FAISS' default, for vectors of hundreds of dimensions
_HNSW_SEARCH = 128  # or as many as are asked for, where that is more
_IVF_CLUSTERS = 4  # times the root of the candidates: FAISS' guidelines say 4 to 16
_IVF_TRAINING = 64  # vectors a cluster for k-means: FAISS' guidelines say 30 to 256
_IVF_PROBES = 32  # clusters looked into for each query

_CHUNK = 16_384  # rows in memory at once


class Neighbours(NamedTuple):
    """The nearest candidates of some queries, best first.

    Attributes:
        scores: `[queries, k]` float32 inner products; -inf where there are fewer candidates.
        indices: `[queries, k]` int64; -1 where there are fewer candidates.
    """

    scores: NDArray[np.float32]
    indices: NDArray[np.int64]


def index_kind(num_candidates: int) -> IndexKind:
    """Chooses the index: exact while that takes minutes, then a graph, then clusters."""
    if num_candidates <= _FLAT_LIMIT:
        return "flat"
    return "hnsw" if num_candidates <= _HNSW_LIMIT else "ivf"


def nearest(
    queries: NDArray[np.floating],
    candidates: NDArray[np.floating],
    k: int,
    *,
    kind: IndexKind | None = None,
    show_progress: bool = False,
) -> Neighbours:
    """Finds the candidates with the highest inner products: of unit vectors, the cosines.

    Args:
        queries: `[queries, dim]` of any float type; may be memory-mapped.
        candidates: `[candidates, dim]`, alike.
        k: How many are wanted of each.
        kind: Of the index; None: `index_kind` of the number of candidates.
        show_progress: Whether to show a bar.

    Returns:
        The neighbours; of those with the same score, the first candidate comes first.

    Raises:
        UserError: FAISS is not installed.

    Example:
        >>> eye = np.eye(3)
        >>> nearest(eye[:1], eye, 2).indices
        array([[0, 1]])
    """
    rows = np.arange(len(queries))
    chunks = list(
        nearest_in_chunks(queries, rows, candidates, k, kind=kind, show_progress=show_progress)
    )
    nothing = Neighbours(np.zeros((0, k), np.float32), np.zeros((0, k), np.int64))
    return Neighbours(*map(np.concatenate, zip(nothing, *chunks, strict=True)))


def nearest_in_chunks(
    queries: NDArray[np.floating],
    rows: NDArray[np.integer],
    candidates: NDArray[np.floating],
    k: int,
    *,
    kind: IndexKind | None = None,
    show_progress: bool = False,
) -> Iterator[Neighbours]:
    """Yields what `nearest` finds for some rows of the queries, thousands at a time, in order."""
    if not len(candidates):
        raise ValueError("at least one candidate is expected, got none")
    index = _build(candidates, kind or index_kind(len(candidates)), k)
    with tqdm(total=len(rows), disable=not show_progress, unit="query", desc="searching") as bar:
        for start in range(0, len(rows), _CHUNK):
            chunk = rows[start : start + _CHUNK]
            scores, indices = index.search(_float32(queries[chunk]), k)
            scores = np.where(indices < 0, -np.inf, scores)
            order = np.lexsort((indices, -scores), axis=1)
            yield Neighbours(
                np.take_along_axis(scores, order, axis=1),
                np.take_along_axis(indices, order, axis=1),
            )
            bar.update(len(chunk))


def _build(candidates: NDArray[np.floating], kind: IndexKind, k: int) -> Any:
    faiss = require_faiss()
    count, dim = candidates.shape
    metric = faiss.METRIC_INNER_PRODUCT
    if kind == "flat":
        index = faiss.IndexFlatIP(dim)
    elif kind == "hnsw":
        index = faiss.IndexHNSWFlat(dim, _HNSW_LINKS, metric)
        index.hnsw.efConstruction = _HNSW_CONSTRUCTION
        index.hnsw.efSearch = max(_HNSW_SEARCH, k)
    else:
        clusters = max(1, int(_IVF_CLUSTERS * count**0.5))
        index = faiss.index_factory(dim, f"IVF{clusters},SQfp16", metric)
        index.nprobe = _IVF_PROBES
        sample = np.linspace(0, count - 1, min(count, _IVF_TRAINING * clusters)).astype(int)
        index.train(_float32(candidates[sample]))
    for start in range(0, count, _CHUNK):
        index.add(_float32(candidates[start : start + _CHUNK]))
    return index


def _float32(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    return np.ascontiguousarray(vectors, np.float32)


def require_faiss() -> ModuleType:
    """Imports FAISS.

    Raises:
        UserError: It is not installed.
    """
    try:
        import faiss
    except ImportError as error:
        raise UserError(
            "nearest neighbours are found by FAISS, but it is not installed; "
            "install the extra with: pip install 'xling_tf[mining]' "
            "(in a checkout: pip install -e '.[mining]')"
        ) from error
    return faiss
