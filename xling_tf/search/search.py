"""What vectors are for: semantic search, paraphrases, translations; names and forms as in
sentence-transformers.

Everything is computed in blocks, so that besides the vectors, a copy of them in FAISS and the result
only little is in memory.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xling_tf.search.arrays import require_positive, require_same_dim, unit_vectors
from xling_tf.search.margins import NUM_NEIGHBOURS, mine_by_margin
from xling_tf.search.neighbours import IndexKind, Neighbours, nearest, nearest_in_chunks
from xling_tf.search.quantization import Int8Ranges, Precision
from xling_tf.search.quantized_neighbours import nearest_quantized


class Hit(TypedDict):
    """A result of a search.

    Attributes:
        corpus_id: The place in the corpus.
        score: The cosine.
    """

    corpus_id: int
    score: float


class ScoredPair(NamedTuple):
    """Two sentences by their places.

    Attributes:
        score: How well they go together.
        first: The place of the one.
        second: The place of the other.
    """

    score: float
    first: int
    second: int


class Encoder(Protocol):
    """What makes sentences vectors."""

    def encode(self, sentences: Sequence[str], /) -> NDArray[Any]:
        """Encodes sentences: `[sentences, dim]`."""


def semantic_search(queries: ArrayLike, corpus: ArrayLike, top_k: int = 10) -> list[list[Hit]]:
    """Finds the vectors of a corpus that are nearest to each query: exactly, all are looked at.

    Args:
        queries: `[queries, dim]` or one vector `[dim]`.
        corpus: `[corpus, dim]`; unit vectors may be memory-mapped, others are copied.
        top_k: How many are wanted of each; fewer where the corpus has fewer.

    Returns:
        For each query its hits, the best first, of equal ones the first of the corpus.

    Raises:
        UserError: They are no finite vectors, of different dimensions, or FAISS is not installed.

    Example:
        >>> semantic_search([0.0, 2.0], [[1.0, 0.0], [0.0, 1.0]], top_k=1)
        [[{'corpus_id': 1, 'score': 1.0}]]
    """
    require_positive(top_k, "top_k")
    query_units, units = unit_vectors(queries, "queries"), unit_vectors(corpus, "corpus")
    if not len(query_units) or not len(units):
        return [[] for _ in query_units]
    require_same_dim(query_units, units, "queries", "corpus")
    return _hits(nearest(query_units, units, min(top_k, len(units)), kind="flat"))


def quantized_search(
    queries: ArrayLike,
    codes: ArrayLike,
    precision: Precision,
    top_k: int = 10,
    *,
    ranges: Int8Ranges | None = None,
    oversampling: int = 10,
    rescore_with: ArrayLike | None = None,
) -> list[list[Hit]]:
    """Finds what `semantic_search` does, nearly, in a corpus of int8 numbers or bits.

    `top_k * oversampling` candidates are found by the codes: int8 by their products with the query, bits
    by how many differ from the query's. These are scored again by the query in float32, and the best kept
    (Yamada et al. 2021, sec. 3).

    Args:
        queries: `[queries, dim]` or one vector `[dim]`, in floats.
        codes: The corpus as `quantize` or `encode` gave it.
        precision: That it was given: "int8", "binary" or "ubinary".
        top_k: How many are wanted of each query; fewer where the corpus has fewer.
        ranges: That the int8 codes were made with.
        oversampling: Candidates for each hit. More cost time and find more; 1 finds by the codes alone.
        rescore_with: The same corpus in floats, or in int8 codes of the ranges, `[corpus, dim]`, which
            may be memory-mapped; None: the codes themselves.

    Returns:
        As `semantic_search` does; the score is the query's product with what it was scored by.

    Raises:
        UserError: Arrays do not suit each other, the precision or the ranges, or FAISS is not installed.

    Example:
        >>> corpus = np.array([[255, 0], [0, 255]], np.uint8)
        >>> quantized_search([-1.0] * 8 + [1.0] * 8, corpus, "ubinary", top_k=1)
        [[{'corpus_id': 1, 'score': 1.0}]]
    """
    require_positive(top_k, "top_k")
    require_positive(oversampling, "oversampling")
    found = nearest_quantized(
        unit_vectors(queries, "queries"),
        codes,
        precision,
        top_k,
        ranges=ranges,
        oversampling=oversampling,
        rescore_with=rescore_with,
    )
    return _hits(found)


def paraphrase_mining(
    encoder: Encoder, sentences: Sequence[str], *, top_k: int = 100, max_pairs: int = 500_000
) -> list[ScoredPair]:
    """Finds the sentences of a list that are most similar to each other.

    Args:
        encoder: What makes them vectors.
        sentences: The list.
        top_k: As in `paraphrase_mining_embeddings`.
        max_pairs: Alike.

    Returns:
        As `paraphrase_mining_embeddings` does.

    Raises:
        UserError: As it does.
    """
    vectors = encoder.encode(sentences)
    return paraphrase_mining_embeddings(vectors, top_k=top_k, max_pairs=max_pairs)


def paraphrase_mining_embeddings(
    vectors: ArrayLike,
    *,
    top_k: int = 100,
    max_pairs: int = 500_000,
    kind: IndexKind | None = None,
    show_progress: bool = False,
) -> list[ScoredPair]:
    """Finds the vectors that are most similar to each other.

    Args:
        vectors: `[sentences, dim]`.
        top_k: How many neighbours of each are looked at.
        max_pairs: How many pairs are wanted at most.
        kind: Of the index; None: exact up to some 100,000s (`neighbours.index_kind`).
        show_progress: Whether to show a bar.

    Returns:
        The pairs, the best first, each once: its score is the cosine, and `first` less than `second`.

    Raises:
        UserError: They are no finite vectors, or FAISS is not installed.

    Example:
        >>> pairs = paraphrase_mining_embeddings([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
        >>> [(round(score, 3), first, second) for score, first, second in pairs]
        [(0.8, 1, 2), (0.6, 0, 2), (0.0, 0, 1)]
    """
    require_positive(top_k, "top_k")
    require_positive(max_pairs, "max_pairs")
    units = unit_vectors(vectors, "vectors")
    count = len(units)
    if count < 2:
        return []
    scores, keys = np.zeros(0, np.float32), np.zeros(0, np.int64)
    rows, k = np.arange(count), min(top_k + 1, count)  # each is its own neighbour
    start = 0
    for found in nearest_in_chunks(units, rows, units, k, kind=kind, show_progress=show_progress):
        some = rows[start : start + len(found.indices), np.newaxis]
        start += len(some)
        is_other = (found.indices != some) & (found.indices >= 0)
        is_other &= np.cumsum(is_other, axis=1) <= top_k
        some = np.broadcast_to(some, found.indices.shape)[is_other]
        others = found.indices[is_other]
        new_keys = np.minimum(some, others) * count + np.maximum(some, others)
        scores, keys = _best_once(
            np.append(scores, found.scores[is_other]), np.append(keys, new_keys), max_pairs
        )
    return _pairs(scores, np.stack([keys // count, keys % count], axis=1))


def bitext_mining(
    source: ArrayLike,
    target: ArrayLike,
    *,
    num_neighbours: int = NUM_NEIGHBOURS,
    kind: IndexKind | None = None,
) -> list[ScoredPair]:
    """Finds the translations among two lists of sentences, most of which need have none.

    The score is the margin of `margins.mine_by_margin` (Artetxe and Schwenk 2019, eq. 2, ratio). The
    last ones are no translations: where to cut is chosen on sentences whose translations are known.

    Args:
        source: `[sources, dim]`.
        target: `[targets, dim]`.
        num_neighbours: Of each sentence, that its margin is computed over.
        kind: Of the index; None: exact up to some 100,000s (`neighbours.index_kind`).

    Returns:
        The pairs, the best first, `first` a source and `second` a target, and none of them twice.

    Raises:
        UserError: They are no finite vectors, of different dimensions, or FAISS is not installed.

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
    mined = mine_by_margin(sources, targets, num_neighbours=num_neighbours, kind=kind)
    return _pairs(mined.margins, mined.rows)


def _hits(found: Neighbours) -> list[list[Hit]]:
    rows = zip(found.indices.tolist(), found.scores.tolist(), strict=True)
    return [
        [Hit(corpus_id=place, score=score) for place, score in zip(*row, strict=True)]
        for row in rows
    ]


def _pairs(scores: NDArray[np.floating], rows: NDArray[np.int64]) -> list[ScoredPair]:
    both = zip(scores.tolist(), rows.tolist(), strict=True)
    return [ScoredPair(score, *row) for score, row in both]


def _best_once(
    scores: NDArray[np.float32], keys: NDArray[np.int64], count: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The best pairs, falling, each once: it was found from both of its sides."""
    order = np.lexsort((-scores, keys))
    scores, keys = scores[order], keys[order]
    is_first = np.append(True, keys[1:] != keys[:-1])
    scores, keys = scores[is_first], keys[is_first]
    order = np.lexsort((keys, -scores))[:count]
    return scores[order], keys[order]
