"""What vectors are for: semantic search, paraphrases, translations; names and forms as in
sentence-transformers.

Everything is computed in blocks: besides vectors, their copy in FAISS and results, memory needs little.
"""

import sys
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from xling_tf.errors import UserError, library
from xling_tf.search.neighbours import (
    ROUNDING,
    Neighbours,
    ScoreFunction,
    as_array,
    as_vectors,
    best_first,
    chunks,
    nearest,
    nearest_in_chunks,
    require_between,
    require_positive,
    require_same_dim,
    unit_vectors,
)
from xling_tf.search.quantization import (
    Int8Ranges,
    Precision,
    as_bits,
    dequantize,
    quantize,
    ranges_of,
    require_codes,
)

NUM_NEIGHBOURS = 4  # Artetxe and Schwenk 2019, sec. 4: "k = 4"
# Sentences whose neighbours are all at right angles or beyond have no margin worth a quotient.
_LEAST_SIMILARITY = 1e-6
_NUMBERS = 2**22  # float32 numbers of candidates in memory at once


class Hit(TypedDict):
    """A result of a search: the place in the corpus, and the cosine."""

    corpus_id: int
    score: float


class ScoredPair(NamedTuple):
    """Two sentences by their places, and how well they go together."""

    score: float
    first: int
    second: int


def semantic_search(
    query_embeddings: ArrayLike,
    corpus_embeddings: ArrayLike,
    *,
    top_k: int = 10,
    score_function: ScoreFunction | None = None,
    query_chunk_size: int = 100,
    corpus_chunk_size: int = 500_000,
) -> list[list[Hit]]:
    """Finds the vectors of a corpus that are nearest to each query, by exact search.

    Args:
        query_embeddings: `[queries, dim]` or one vector `[dim]`.
        corpus_embeddings: `[corpus, dim]`; unit vectors may be memory-mapped, others are copied.
        top_k: Hits wanted of each query, which come best first, equal ones in the corpus' order.
        score_function: A function from vectors `[n, dim]` and `[m, dim]`, as they were given, to scores
            `[n, m]`, higher for nearer ones; None: cosines, which are faster.
        query_chunk_size: No effect; accepted because scripts for sentence-transformers have it.
        corpus_chunk_size: No effect.

    Example:
        >>> semantic_search([0.0, 2.0], [[1.0, 0.0], [0.0, 1.0]], top_k=1)
        [[{'corpus_id': 1, 'score': 1.0}]]
    """
    require_positive(top_k, "top_k")
    _require_chunks(query_chunk_size, corpus_chunk_size)
    form = unit_vectors if score_function is None else as_vectors
    queries, corpus = form(query_embeddings, "query_embeddings"), form(corpus_embeddings, "corpus_embeddings")
    if not len(queries) or not len(corpus):
        return [[] for _ in queries]
    require_same_dim(queries, corpus, "query_embeddings", "corpus_embeddings")
    k = min(top_k, len(corpus))
    return _hits(nearest(queries, corpus, k, kind="flat", score_function=score_function))


def _require_chunks(query_chunk_size: int, corpus_chunk_size: int) -> None:
    require_positive(query_chunk_size, "query_chunk_size")
    require_positive(corpus_chunk_size, "corpus_chunk_size")


def quantized_search(
    query_embeddings: ArrayLike,
    corpus_embeddings: ArrayLike,
    corpus_precision: Precision = "float32",
    top_k: int = 10,
    *,
    ranges: Int8Ranges | ArrayLike | None = None,
    calibration_embeddings: ArrayLike | None = None,
    rescore: bool = True,
    rescore_multiplier: int = 10,
    rescore_with: ArrayLike | None = None,
    exact: bool = True,
    corpus_index: None = None,
    output_index: bool = False,
) -> list[list[Hit]]:
    """Finds what `semantic_search` does, nearly, in a corpus of int8 numbers or bits.

    `top_k * rescore_multiplier` candidates are found by the codes: int8 by their products with the query,
    bits by how many differ from the query's. These are scored again by the query in float32, and the best
    kept (Yamada et al. 2021, sec. 3). Takes the arguments of sentence-transformers' `semantic_search_faiss`,
    and returns what `semantic_search` returns.

    Args:
        query_embeddings: `[queries, dim]` or one vector `[dim]`, in floats.
        corpus_embeddings: The corpus as `quantize` or `encode` gave it for the precision and `ranges`.
        corpus_precision: "int8", "binary" or "ubinary".
        top_k: As in `semantic_search`.
        ranges: Of int8.
        calibration_embeddings: Instead of `ranges`, the vectors for `Int8Ranges.calibrated`.
        rescore: False: the codes alone find the hits.
        rescore_multiplier: Candidates for each hit.
        rescore_with: The same corpus in floats or in int8 codes of the ranges, `[corpus, dim]`, which
            may be memory-mapped; None: the codes themselves.
        exact: No effect: the search always looks at all codes.
        corpus_index: Not supported: only None.
        output_index: Not supported: only False.

    Example:
        >>> corpus = np.array([[255, 0], [0, 255]], np.uint8)
        >>> quantized_search([-1.0] * 8 + [1.0] * 8, corpus, "ubinary", top_k=1)
        [[{'corpus_id': 1, 'score': 1.0}]]
    """
    del exact
    if corpus_index is not None or output_index:
        raise UserError(
            "corpus_index and output_index are not supported: give the codes as corpus_embeddings"
        )
    require_positive(top_k, "top_k")
    require_positive(rescore_multiplier, "rescore_multiplier")
    if corpus_precision == "float32":
        raise UserError(
            "corpus_precision must be int8, binary or ubinary, got 'float32'; use semantic_search"
        )
    if ranges is None and calibration_embeddings is not None:
        ranges = Int8Ranges.calibrated(calibration_embeddings)
    precision: Precision = corpus_precision
    oversampling = rescore_multiplier if rescore else 1
    units = unit_vectors(query_embeddings, "query_embeddings")
    array = require_codes(corpus_embeddings, precision)
    if not len(units) or not len(array):
        return [[] for _ in units]
    count, dim = len(array), units.shape[1]
    top_k = min(top_k, count)
    _require_shape(array, (count, dim if precision == "int8" else dim / 8), "corpus_embeddings", dim)
    int8_ranges = ranges_of(ranges, dim)
    candidates = _nearest_codes(units, array, precision, int8_ranges, int(min(top_k * oversampling, count)))
    rescored = array if rescore_with is None else as_array(rescore_with, "rescore_with")
    if rescore_with is not None:
        _require_shape(rescored, (count, dim), "rescore_with", dim)
        precision = "int8" if rescored.dtype == np.int8 else "float32"
    scores = np.empty(candidates.shape, np.float32)
    step = max(1, _NUMBERS // (candidates.shape[1] * dim))
    for start in range(0, len(units), step):
        rows = slice(start, start + step)
        vectors = dequantize(rescored[candidates[rows].ravel()], precision, ranges=int8_ranges)
        if precision == "float32":
            vectors = unit_vectors(vectors, "rescore_with").astype(np.float32)
        vectors = vectors.reshape(*candidates[rows].shape, dim)
        scores[rows] = np.einsum("qd,qcd->qc", units[rows], vectors, optimize=True)
    return _hits(best_first(scores, candidates, top_k))


def _nearest_codes(
    queries: NDArray[np.floating], codes: NDArray[Any], precision: Precision, ranges: Int8Ranges, k: int
) -> NDArray[np.int64]:
    """Finds the k nearest codes of each unit vector `[queries, dim]`: `[queries, k]` rows of the codes."""
    faiss, dim = library("faiss", "FAISS", "mining"), queries.shape[1]
    if precision == "int8":
        # FAISS takes a code c, of 0 to 255, for minimum + width * (c + 0.5) / 255.
        trained = np.concatenate([ranges.minimum - ranges.steps / 2, ranges.steps * 255])
        metric, kind = faiss.METRIC_INNER_PRODUCT, faiss.ScalarQuantizer.QT_8bit
        index = faiss.IndexScalarQuantizer(dim, kind, metric)
        faiss.copy_array_to_vector(trained.astype(np.float32), index.sq.trained)
        index.is_trained = True
        for part in chunks(codes):
            index.add_sa_codes(part.view(np.uint8) ^ np.uint8(128))
        _, rows = index.search(np.ascontiguousarray(queries, np.float32), k)
    else:
        index = faiss.IndexBinaryFlat(dim)
        for part in chunks(as_bits(codes)):
            index.add(np.ascontiguousarray(part))
        _, rows = index.search(quantize(queries, "ubinary"), k)
    return rows


def _require_shape(array: NDArray[np.generic], shape: tuple[int, float], name: str, dim: int) -> None:
    if array.shape != shape:
        raise UserError(
            f"{name} must have shape [{shape[0]}, {shape[1]:g}] for queries of {dim} dimensions, but "
            f"has {list(array.shape)}; encode both with one model and one truncate_dim"
        )


def paraphrase_mining(
    model: Any,
    sentences: Any,
    show_progress_bar: bool = False,
    batch_size: int | None = None,
    *,
    truncate_dim: int | None = None,
    prompt_name: str | None = None,
    prompt: str | None = None,
    **options: Any,
) -> list[ScoredPair]:
    """Gives the vectors of `model.encode(sentences)` to `paraphrase_mining_embeddings`, with its options.

    `batch_size`, `truncate_dim`, `prompt_name` and `prompt` are given to `encode`.
    """
    if isinstance(model, str) or not callable(getattr(model, "encode", None)):
        raise UserError(
            f"a model with encode is expected first, as xling_tf.load gives it, then sentences, got "
            f"{type(model).__name__} as the model"
        )
    encoding: dict[str, Any] = {"batch_size": batch_size, "truncate_dim": truncate_dim}
    encoding |= {"prompt_name": prompt_name, "prompt": prompt}
    encoding = {name: value for name, value in encoding.items() if value is not None}
    vectors = model.encode(sentences, show_progress_bar=show_progress_bar, **encoding)
    return paraphrase_mining_embeddings(vectors, show_progress_bar=show_progress_bar, **options)


def community_detection(
    embeddings: ArrayLike,
    threshold: float = 0.75,
    min_community_size: int = 10,
    batch_size: int = 1024,
    show_progress_bar: bool = False,
) -> list[list[int]]:
    """Finds groups of vectors that are near their first one, the largest first; each is in one at most.

    Args:
        embeddings: `[sentences, dim]`.
        threshold: Least cosine to the first of a group, less rounding errors: 1 finds equal vectors.
        min_community_size: Least number of a group.
        batch_size: How many vectors are compared with all others at once, at most.
        show_progress_bar: Whether to show a bar.

    Example:
        >>> community_detection([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0], [0.1, 1.0]], 0.7, min_community_size=2)
        [[1, 3, 2]]
    """
    require_positive(min_community_size, "min_community_size")
    require_positive(batch_size, "batch_size")
    require_between(threshold, "threshold", -1, 1)
    units = unit_vectors(embeddings, "embeddings").astype(np.float32, copy=False)
    groups: list[list[int]] = []
    step = min(batch_size, max(1, _NUMBERS // max(1, len(units))))
    for begin in tqdm(
        range(0, len(units), step), "comparing", disable=not (show_progress_bar and sys.stderr)
    ):
        for row, cosines in enumerate(units[begin : begin + step] @ units.T, begin):
            near = np.flatnonzero(cosines >= threshold - ROUNDING)
            if len(near) >= min_community_size:
                others = near[np.argsort(-cosines[near], kind="stable")].tolist()
                groups.append([row, *(other for other in others if other != row)])
    found: list[list[int]] = []
    taken: set[int] = set()
    for group in sorted(groups, key=len, reverse=True):
        left = [each for each in group if each not in taken]
        if len(left) >= min_community_size and left[0] == group[0]:
            found.append(left)
            taken.update(left)
    return sorted(found, key=len, reverse=True)


def paraphrase_mining_embeddings(
    embeddings: ArrayLike,
    *,
    top_k: int = 100,
    max_pairs: int = 500_000,
    score_function: ScoreFunction | None = None,
    query_chunk_size: int = 5000,
    corpus_chunk_size: int = 100_000,
    show_progress_bar: bool = False,
) -> list[ScoredPair]:
    """Finds the pairs of vectors `[sentences, dim]` with the highest cosines, `first` less than `second`.

    Args:
        embeddings: `[sentences, dim]`.
        top_k: How many neighbours of each are looked at.
        max_pairs: How many pairs are wanted at most, which come best first.
        score_function: As in `semantic_search`.
        query_chunk_size: No effect.
        corpus_chunk_size: No effect.
        show_progress_bar: Whether to show a bar.

    Example:
        >>> pairs = paraphrase_mining_embeddings([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
        >>> [(round(score, 3), first, second) for score, first, second in pairs]
        [(0.8, 1, 2), (0.6, 0, 2), (0.0, 0, 1)]
    """
    require_positive(top_k, "top_k")
    require_positive(max_pairs, "max_pairs")
    _require_chunks(query_chunk_size, corpus_chunk_size)
    units = (unit_vectors if score_function is None else as_vectors)(embeddings, "embeddings")
    count = len(units)
    if count < 2:
        return []
    scores, keys = np.zeros(0, np.float32), np.zeros(0, np.int64)
    rows, k = np.arange(count), min(top_k + 1, count)  # each is its own neighbour
    options: dict[str, Any] = {"show_progress": show_progress_bar, "score_function": score_function}
    begin = 0
    for found in nearest_in_chunks(units, rows, units, k, **options):
        chunk = rows[begin : begin + len(found.indices)]
        begin += len(chunk)
        some = np.broadcast_to(chunk[:, np.newaxis], found.indices.shape)
        is_other = (found.indices != some) & (found.indices >= 0)
        is_other &= np.cumsum(is_other, axis=1) <= top_k
        some, others = some[is_other], found.indices[is_other]
        keys = np.append(keys, np.minimum(some, others) * count + np.maximum(some, others))
        # A pair was found from both of its sides, with the same score to the last bit but one.
        scores = np.append(scores, found.scores[is_other])
        order = np.lexsort((-scores, keys))
        keys, first = np.unique(keys[order], return_index=True)
        scores = scores[order][first]
        best = np.lexsort((keys, -scores))[:max_pairs]
        scores, keys = scores[best], keys[best]
    return _pairs(scores, np.stack([keys // count, keys % count], axis=1))


def bitext_mining(
    source: ArrayLike, target: ArrayLike, *, num_neighbours: int = NUM_NEIGHBOURS
) -> list[ScoredPair]:
    """Finds the translations among two lists of sentences, most of which need have none.

    The score is the margin of `mine_by_margin` (Artetxe and Schwenk 2019, eq. 2, ratio). The
    last ones are no translations: where to cut is chosen on sentences whose translations are known.

    Args:
        source: `[sources, dim]`; each is `first` of at most one pair, and the best pair comes first.
        target: `[targets, dim]`; each is `second` of at most one pair.
        num_neighbours: Of each sentence, that its margin is computed over.

    Example:
        >>> pairs = bitext_mining([[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]])
        >>> [(pair.first, pair.second) for pair in pairs]
        [(0, 1), (1, 0)]
    """
    require_positive(num_neighbours, "num_neighbours")
    sources, targets = unit_vectors(source, "source"), unit_vectors(target, "target")
    if not len(sources) or not len(targets):
        return []
    require_same_dim(sources, targets, "source", "target")
    return _pairs(*mine_by_margin(sources, targets, num_neighbours=num_neighbours)[::-1])


class Mined(NamedTuple):
    """The places of sources and targets `[pairs, 2]`, none of them twice, and margins `[pairs]`, falling."""

    rows: NDArray[np.int64]
    margins: NDArray[np.float64]


def mine_by_margin(
    sources: NDArray[np.floating],
    targets: NDArray[np.floating],
    *,
    num_neighbours: int = NUM_NEIGHBOURS,
) -> Mined:
    """Finds the sentences that are much more similar to each other than to their other neighbours.

    The margin of a pair is its cosine divided by the mean cosine of its sentences to their nearest
    neighbours (Artetxe and Schwenk 2019, "Margin-based parallel corpus mining", eq. 2, ratio). The
    candidates are every sentence's best in both directions, and no sentence is taken twice (its
    retrieval strategy "max"). Takes unit vectors, at least one of each side.
    """
    forward = nearest(sources, targets, min(num_neighbours, len(targets)))
    backward = nearest(targets, sources, min(num_neighbours, len(sources)))
    means = [found.scores.astype(np.float64).mean(axis=1) for found in (forward, backward)]
    best_target, target_margins = _best_margin(forward, means[0], means[1])
    best_source, source_margins = _best_margin(backward, means[1], means[0])
    firsts = np.append(np.arange(len(sources)), best_source)
    rows = np.stack([firsts, np.append(best_target, np.arange(len(targets)))], axis=1)
    margins = np.concatenate([target_margins, source_margins])
    order = np.argsort(-margins, kind="stable")
    seen: tuple[set[int], set[int]] = (set(), set())
    kept = []
    for place, (source, target) in zip(order.tolist(), rows[order].tolist(), strict=True):
        if source not in seen[0] and target not in seen[1]:
            seen[0].add(source)
            seen[1].add(target)
            kept.append(place)
    return Mined(rows[kept], margins[kept])


def _best_margin(
    found: Neighbours, own_means: NDArray[np.float64], other_means: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Picks each sentence's neighbour with the best margin, and tells that margin."""
    means = (own_means[:, np.newaxis] + other_means[found.indices]) / 2
    margins = found.scores / np.maximum(means, _LEAST_SIMILARITY)
    best = np.arange(len(margins)), np.argmax(margins, axis=1)
    return found.indices[best], margins[best]


def _hits(found: Neighbours) -> list[list[Hit]]:
    rows = zip(found.indices.tolist(), found.scores.tolist(), strict=True)
    return [[Hit(corpus_id=i, score=score) for i, score in zip(*row, strict=True)] for row in rows]


def _pairs(scores: NDArray[np.floating], rows: NDArray[np.int64]) -> list[ScoredPair]:
    both = zip(scores.tolist(), rows.tolist(), strict=True)
    return [ScoredPair(score, *row) for score, row in both]
