"""What retrieval protocols share: ranks of right candidates, measures. Ties are errors."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np

from xling_tf.client.neighbours import nearest
from xling_tf.evaluators.encoding import Array

# Scores that differ by less than the rounding error of vectors in float32 are ties.
TIE = 1e-6
# What a search finds: ten right answers of a query, the query itself, and a wrong one.
_NEIGHBOURS = 12
_SCORES_PER_CHUNK = 2**23


def directions(languages: Collection[str]) -> dict[tuple[str, str], str]:
    """Pairs of query and candidate language, with the prefix of their scores' names.

    Examples:
        >>> directions(["en", "de"])
        {('en', 'de'): 'en-de/', ('de', 'en'): 'de-en/'}
        >>> directions(["en"])  # is searched with its own queries
        {('en', 'en'): ''}
    """
    pairs = {pair: f"{'-'.join(pair)}/" for pair in permutations(languages, 2)}
    return pairs or {(language, language): "" for language in languages}


def inner_products(queries: Array, candidates: Array) -> Iterator[Array]:
    """Yields the rows of `queries @ candidates.T`."""
    size = max(1, _SCORES_PER_CHUNK // len(candidates))
    for start in range(0, len(queries), size):
        yield from queries[start : start + size] @ candidates.T


def relevant_ranks(
    rows: Iterable[Array], relevant: Sequence[Sequence[int] | Array], *, itself: Array | None = None
) -> list[Array]:
    """Returns the ranks of each query's relevant candidates, the best first.

    `rows` are each query's scores `[candidates]`. Irrelevant candidates rank before relevant ones
    with the same score, so that ties count as errors. One candidate of each query, `itself`, is
    left out.
    """
    ranks: list[Array] = []
    for scores in rows:
        right = np.asarray(relevant[len(ranks)])
        floors = np.sort(scores[right])[::-1] - TIE * np.abs(scores).max()
        is_other = np.ones(len(scores), bool)
        is_other[right] = False
        if itself is not None:
            is_other[itself[len(ranks)]] = False
        ahead = np.sort(scores[is_other & (scores >= floors[-1])])
        num_ahead = len(ahead) - np.searchsorted(ahead, floors)
        ranks.append(np.arange(1, len(floors) + 1) + num_ahead)
    return ranks


def average_precision(ranks: Array, k: int) -> float:
    """Returns the mean precision at the ascending ranks of relevant candidates; above k, it is 0.

    The sum is divided by the number of relevant candidates or by k, if that is smaller: 1 is
    possible.
    """
    top = ranks[ranks <= k]
    return float(np.sum(np.arange(1, len(top) + 1) / top) / min(len(ranks), k))


class Nearest(NamedTuple):
    """The best candidates of each query, `[queries, k]`."""

    rows: Array  # of the candidates
    is_nearest: Array  # True for the nearest candidate and those that tie with it
    is_found: Array  # `[queries]`: True if all of these are right


def search(
    queries: Array, candidates: Array, right: tuple[Array, Array], *, leave_out_itself: bool = False
) -> Nearest:
    """Searches unit vectors by cosine, exactly up to 200,000 candidates (see `index_kind`).

    Args:
        queries: Vectors `[n, dim]`.
        candidates: Vectors `[m, dim]`.
        right: The rows of queries, and of a right candidate of each. A query may have up to ten.
        leave_out_itself: Whether query and candidate of the same row are the same text.
    """
    neighbours = nearest(queries, candidates, _NEIGHBOURS)
    numbers = np.arange(len(queries))[:, np.newaxis]
    is_right = np.isin(
        numbers * len(candidates) + neighbours.indices, right[0] * len(candidates) + right[1]
    )
    scores = neighbours.scores
    if leave_out_itself:
        scores = np.where(neighbours.indices == numbers, -np.inf, scores)
    is_nearest = (neighbours.indices >= 0) & (scores >= scores.max(axis=1, keepdims=True) - TIE)
    return Nearest(neighbours.indices, is_nearest, (is_right | ~is_nearest).all(axis=1))
