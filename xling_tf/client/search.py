"""Semantic search, paraphrase mining and bitext mining, with the names of sentence-transformers."""

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UserError
from .known_translations import (
    MarginChoice,
    Pairs,
    WithoutKnown,
    as_known,
    choose_margin,
)
from .neighbours import (
    Neighbours,
    as_array,
    best_neighbours,
    chunks,
    nearest,
    nearest_in_chunks,
    require_positive,
    require_same_dim,
    unit_vectors,
)
from .quantization import dequantized

MIN_MARGIN = 1.06  # Schwenk et al. 2021, "CCMatrix"; near the best on held-out sentences here
PRECISION = 0.9  # of pairs, where known translations choose the margin
NUM_NEIGHBOURS = 4  # Artetxe and Schwenk 2019, sec. 4: "k = 4"
_QUANTIZED_AT_ONCE = 1 << 16  # vectors; 512 dimensions of them take 128 MiB in float32
# A mean cosine up to here may be 0 or less: the rounding of half precision.
_MIN_MEAN = 1e-3


class Hit(TypedDict):
    """A search result: the row of the corpus, its cosine and, on request, its probability."""

    corpus_id: int
    score: float
    probability: NotRequired[float]


class ScoredPair(NamedTuple):
    """The rows of two sentences, and the score of the pair."""

    score: float
    first: int
    second: int


def semantic_search(
    query_embeddings: ArrayLike,
    corpus_embeddings: ArrayLike,
    query_chunk_size: int = 100,
    corpus_chunk_size: int = 500_000,
    top_k: int = 10,
    score_function: None = None,
) -> list[list[Hit]]:
    """Finds the vectors of a corpus with the highest cosines to each query, by exact search.

    Args:
        query_embeddings: `[queries, dim]`, or one vector `[dim]`, in floats.
        corpus_embeddings: Floats `[corpus, dim]`, or what `encode` returns with
            `precision="int8"` (`[corpus, dim]`), "ubinary" or "binary" (`[corpus, dim / 8]`).
            Unit vectors and quantized ones may be memory-mapped; other vectors are copied. With
            quantized vectors, scores are the cosines of the queries to them, where a bit is 1 or
            -1; they need no rescoring.
        query_chunk_size: Without effect: memory is bounded anyway.
        corpus_chunk_size: Without effect.
        top_k: Number of hits for each query.
        score_function: Only None, for cosines, which FAISS computes.

    Returns:
        The hits of each query, best first; equal scores in the order of the corpus. If several
        texts have the score of the last hit, any of them may be it. A zero vector, which stands
        for a blank text, has no hits and is no hit.

    Examples:
        >>> semantic_search([0.0, 2.0], [[1.0, 0.0], [0.0, 1.0]], top_k=1)
        [[{'corpus_id': 1, 'score': 1.0}]]
    """
    _require_unused(query_chunk_size, corpus_chunk_size, score_function)
    require_positive(top_k, "top_k")
    queries = unit_vectors(query_embeddings, "query_embeddings")
    corpus = as_array(corpus_embeddings, "corpus_embeddings")
    is_quantized = corpus.dtype in (np.int8, np.uint8)
    corpus = np.atleast_2d(corpus) if is_quantized else unit_vectors(corpus, "corpus_embeddings")
    if not len(queries) or not len(corpus):
        return [[] for _ in queries]
    k = min(top_k, len(corpus))
    if is_quantized:
        hits = _nearest_quantized(queries, corpus, k)
    else:
        require_same_dim(queries, corpus, "query_embeddings", "corpus_embeddings")
        hits = nearest(queries, corpus, k, kind="flat")
    rows = zip(hits.scores.tolist(), hits.indices.tolist(), strict=True)
    return [
        [Hit(corpus_id=i, score=score) for score, i in zip(*row, strict=True) if i >= 0]
        for row in rows
    ]


def _require_unused(query_chunk_size: int, corpus_chunk_size: int, score_function: object) -> None:
    """Raises a `UserError` unless arguments that have no effect have possible values."""
    require_positive(query_chunk_size, "query_chunk_size")
    require_positive(corpus_chunk_size, "corpus_chunk_size")
    if score_function is not None:
        raise UserError(
            "score_function is not supported: vectors are compared by cosine; leave it out"
        )


def _nearest_quantized(queries: NDArray[np.floating], corpus: NDArray[Any], k: int) -> Neighbours:
    """Finds the quantized vectors with the highest cosines, some thousands of them at a time."""
    start = 0
    best: list[Neighbours] = []
    for part in chunks(corpus, _QUANTIZED_AT_ONCE):
        vectors = unit_vectors(dequantized(part, queries.shape[1]), "corpus_embeddings")
        hits = nearest(queries, vectors, min(k, len(part)), kind="flat")
        rows = np.where(hits.indices < 0, -1, hits.indices + start)
        best = [best_neighbours(k, *best, (hits.scores, rows))]
        start += len(part)
    return best[0]


def paraphrase_mining(
    model: Any,
    sentences: Any,
    show_progress_bar: bool = False,
    batch_size: int | None = None,
    query_chunk_size: int = 5000,
    corpus_chunk_size: int = 100_000,
    max_pairs: int = 500_000,
    top_k: int = 100,
    score_function: None = None,
    **options: Any,
) -> list[ScoredPair]:
    """Encodes sentences and finds the pairs with the highest cosines.

    Args:
        model: A model with an `encode` method, as `xling_tf.load` returns it.
        sentences: The texts.
        show_progress_bar: Whether to show progress bars.
        batch_size: Passed to `encode`; None: its default.
        query_chunk_size: Without effect, as in `semantic_search`.
        corpus_chunk_size: Without effect.
        max_pairs: Maximum number of pairs.
        top_k: Number of neighbours of each sentence that are considered.
        score_function: Only None, for cosines.
        **options: Passed to `encode`, such as `truncate_dim` or `prompt`.

    Returns:
        Pairs, best first, with `first < second`; none with a zero vector, which stands for a blank
        text.

    Examples:
        >>> from types import SimpleNamespace
        >>> vectors = {"Hola": [1.0, 0.0], "No": [0.0, 1.0], "Hello": [2.0, 0.0]}
        >>> model = SimpleNamespace(encode=lambda texts, **_: [vectors[text] for text in texts])
        >>> paraphrase_mining(model, ["Hola", "No", "Hello"], max_pairs=1)
        [ScoredPair(score=1.0, first=0, second=2)]
    """
    _require_unused(query_chunk_size, corpus_chunk_size, score_function)
    require_positive(top_k, "top_k")
    require_positive(max_pairs, "max_pairs")
    if isinstance(model, str) or not callable(getattr(model, "encode", None)):
        raise UserError(f"expected a model of xling_tf.load first, got {type(model).__name__}")
    if batch_size is not None:
        options["batch_size"] = batch_size
    embeddings = model.encode(sentences, show_progress_bar=show_progress_bar, **options)
    vectors = unit_vectors(embeddings, "embeddings")
    count = len(vectors)
    if count < 2:
        return []
    scores, keys = np.zeros(0, np.float32), np.zeros(0, np.int64)
    k = min(top_k + 1, count)  # each vector is its own neighbour
    start = 0
    parts = nearest_in_chunks(
        vectors, np.arange(count), vectors, k, show_progress=show_progress_bar
    )
    for neighbours in parts:
        rows = np.arange(start, start := start + len(neighbours.indices))
        firsts = np.broadcast_to(rows[:, np.newaxis], neighbours.indices.shape)
        is_other = (neighbours.indices != firsts) & (neighbours.indices >= 0)
        is_other &= np.cumsum(is_other, axis=1) <= top_k
        firsts, seconds = firsts[is_other], neighbours.indices[is_other]
        keys = np.append(keys, np.minimum(firsts, seconds) * count + np.maximum(firsts, seconds))
        # Most pairs are found from both sides, with scores that differ in the last bit at most.
        scores = np.append(scores, neighbours.scores[is_other])
        order = np.lexsort((-scores, keys))
        keys, first_of_key = np.unique(keys[order], return_index=True)
        scores = scores[order][first_of_key]
        best = np.lexsort((keys, -scores))[:max_pairs]
        scores, keys = scores[best], keys[best]
    return _scored_pairs(scores, np.stack([keys // count, keys % count], axis=1))


def bitext_mining(
    source: ArrayLike,
    target: ArrayLike,
    *,
    num_neighbours: int = NUM_NEIGHBOURS,
    known: Sequence[tuple[int, int]] | None = None,
    precision: float = PRECISION,
) -> list[ScoredPair]:
    """Finds translations by the vectors of two lists of sentences, most of which may have none.

    The score of a pair is its margin: its cosine, divided by the mean cosine of both sentences to
    their nearest neighbours (Artetxe and Schwenk 2019, "Margin-based parallel corpus mining", eq.
    2, ratio). It is at most `num_neighbours`. Sentences are not paired if this mean is 0 or less,
    or if one has the zero vector, which stands for a blank text. The candidates are the best
    neighbour of each sentence, in both directions, and pairs are chosen greedily by their margin
    (retrieval strategy "max"). The last pairs are not translations: choose the smallest margin with
    sentences whose translations you know.

    Args:
        source: Vectors `[sources, dim]`.
        target: Vectors `[targets, dim]`.
        num_neighbours: Number of neighbours over which the mean is taken.
        known: Indices of sources and targets that are translations, a few hundred: they choose the
            smallest margin. None returns pairs of any margin.
        precision: Share of the pairs that shall be translations, by what `known` tells.

    Returns:
        Pairs, best first: the indices of a source and a target, each in at most one pair.

    Raises:
        UserError: The vectors do not fit together, or no margin reaches the precision.

    Examples:
        >>> pairs = bitext_mining([[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]])
        >>> [(pair.first, pair.second) for pair in pairs]
        [(0, 1), (1, 0)]
    """
    require_positive(num_neighbours, "num_neighbours")
    sources, targets = unit_vectors(source, "source"), unit_vectors(target, "target")
    if not len(sources) or not len(targets):
        return []
    require_same_dim(sources, targets, "source", "target")
    forward = nearest(sources, targets, min(num_neighbours, len(targets)))
    backward = nearest(targets, sources, min(num_neighbours, len(sources)))
    pairs = best_pairs([forward], [backward])
    if known is not None:
        choice = margin_by_known([forward], [backward], pairs, as_known(known), precision)
        pairs = pairs.from_margin(choice.margin)
    return _scored_pairs(pairs.margins, np.stack(pairs[1:], axis=1))


def margin_by_known(
    forward: Iterable[Neighbours],
    backward: Iterable[Neighbours],
    pairs: Pairs,
    known: NDArray[np.int64],
    precision: float,
) -> MarginChoice:
    """Calls `choose_margin` with the neighbours from which `best_pairs` made `pairs`."""
    sides = WithoutKnown(forward, known), WithoutKnown(backward, known[:, ::-1])
    return choose_margin(pairs, best_pairs(*sides), known, precision)


def best_pairs(
    forward: Iterable[Neighbours], backward: Iterable[Neighbours], threshold: float = -np.inf
) -> Pairs:
    """Pairs sentences greedily by their margins, each at most once (retrieval strategy "max").

    Args:
        forward: The neighbours of the first side's sentences, part by part; they are read twice.
        backward: Those of the second side's sentences.
        threshold: Smallest margin; pairs without a margin, see `margins`, never reach it.

    Returns:
        The margins, first and second sentences of the pairs, best first.
    """
    means, num_neighbours = [], 1
    for side in (forward, backward):
        parts_of_means = [np.zeros(0)]
        for neighbours in side:
            parts_of_means.append(mean_scores(neighbours))
            num_neighbours = max(num_neighbours, neighbours.scores.shape[1])
        means.append(np.concatenate(parts_of_means))
    if not all(map(len, means)):
        return Pairs(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))
    best = []
    for side, other_means in zip((forward, backward), means[::-1], strict=True):
        parts = [_best_margins(neighbours, other_means, num_neighbours) for neighbours in side]
        best.append([np.concatenate(arrays) for arrays in zip(*parts, strict=True)])
    (best_seconds, margins_forward), (best_firsts, margins_backward) = best
    scores = np.concatenate([margins_forward, margins_backward])
    firsts = np.append(np.arange(len(means[0])), best_firsts)
    seconds = np.append(best_seconds, np.arange(len(means[1])))
    is_good = scores >= max(threshold, -1e30)  # -inf is no margin
    scores, firsts, seconds = scores[is_good], firsts[is_good], seconds[is_good]
    is_taken_first, is_taken_second = (bytearray(len(side_means)) for side_means in means)
    chosen = array("q")
    for rows in chunks(np.argsort(-scores, kind="stable")):
        triples = zip(rows.tolist(), firsts[rows].tolist(), seconds[rows].tolist(), strict=True)
        for row, first, second in triples:
            if not is_taken_first[first] and not is_taken_second[second]:
                is_taken_first[first] = is_taken_second[second] = True
                chosen.append(row)
    taken = np.array(chosen, np.int64)
    return Pairs(scores[taken], firsts[taken], seconds[taken])


def margins(
    cosines: NDArray[np.floating],
    means: NDArray[np.floating],
    other_means: NDArray[np.floating],
    num_neighbours: int,
) -> NDArray[np.float64]:
    """Computes the margins of pairs (Artetxe and Schwenk 2019, eq. 2, ratio).

    The means are those of each pair's first and second sentence to their neighbours. Where both
    together are not positive, a ratio says nothing, and the margin is -inf. Without negative
    cosines, no ratio is larger than the number of neighbours; where negative ones bring the mean
    near 0, it is cut off there.
    """
    mean = np.asarray(means + other_means, np.float64) / 2
    has_margin = (mean > _MIN_MEAN) & np.isfinite(cosines)
    ratios = np.clip(cosines / np.where(mean > _MIN_MEAN, mean, 1), -num_neighbours, num_neighbours)
    return np.where(has_margin, ratios, -np.inf)


def _best_margins(
    neighbours: Neighbours, neighbour_means: NDArray[np.floating], num_neighbours: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Returns the neighbour with the largest margin of each sentence, and this margin."""
    means, other_means = mean_scores(neighbours), neighbour_means[neighbours.indices]
    scores = margins(neighbours.scores, means[:, np.newaxis], other_means, num_neighbours)
    best = np.arange(len(scores)), np.argmax(scores, axis=1)
    return neighbours.indices[best], scores[best]


def mean_scores(neighbours: Neighbours) -> NDArray[np.float64]:
    """Returns the mean cosine of each sentence to its neighbours."""
    is_found = neighbours.indices >= 0
    sums = np.where(is_found, neighbours.scores, 0).sum(axis=1, dtype=np.float64)
    return sums / np.maximum(is_found.sum(axis=1), 1)


def _scored_pairs(scores: NDArray[np.floating], rows: NDArray[np.int64]) -> list[ScoredPair]:
    return [
        ScoredPair(score, *row) for score, row in zip(scores.tolist(), rows.tolist(), strict=True)
    ]
