"""Pairs of vectors that are much more similar to each other than to their other neighbours."""

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xling_tf.search.neighbours import IndexKind, Neighbours, nearest

NUM_NEIGHBOURS = 4  # Artetxe and Schwenk 2019, sec. 4: "k = 4"

# Sentences whose neighbours are all at right angles or beyond have no margin worth a quotient.
_LEAST_SIMILARITY = 1e-6


class Mined(NamedTuple):
    """Pairs of sentences, each of which occurs once, the best ones first.

    Attributes:
        rows: The source's and the target's place, `[pairs, 2]`.
        margins: How much more similar they are than their neighbours, `[pairs]`.
    """

    rows: NDArray[np.int64]
    margins: NDArray[np.float64]


def mine_by_margin(
    sources: NDArray[np.floating],
    targets: NDArray[np.floating],
    *,
    num_neighbours: int = NUM_NEIGHBOURS,
    kind: IndexKind | None = None,
) -> Mined:
    """Finds the sentences that are much more similar to each other than to their other neighbours.

    The margin of a pair is its cosine divided by the mean cosine of its sentences to their nearest
    neighbours (Artetxe and Schwenk 2019, "Margin-based parallel corpus mining", eq. 2, ratio). The
    candidates are every sentence's best in both directions, and no sentence is taken twice (its
    retrieval strategy "max").

    Args:
        sources: Unit vectors, `[sources, dim]`, at least one.
        targets: Unit vectors, `[targets, dim]`, at least one.
        num_neighbours: Of each sentence, at most.
        kind: Of the index, as in `nearest`.

    Returns:
        The pairs; of as many as there are, some are no translations.

    Raises:
        UserError: FAISS is not installed.

    Example:
        >>> mined = mine_by_margin(np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32)[[2, 0, 1]])
        >>> mined.rows.tolist()
        [[0, 1], [1, 2], [2, 0]]
    """
    forward = nearest(sources, targets, min(num_neighbours, len(targets)), kind=kind)
    backward = nearest(targets, sources, min(num_neighbours, len(sources)), kind=kind)
    means = [found.scores.astype(np.float64).mean(axis=1) for found in (forward, backward)]
    best_target, target_margins = _best(forward, means[0], means[1])
    best_source, source_margins = _best(backward, means[1], means[0])
    rows = np.concatenate(
        [
            np.stack([np.arange(len(sources)), best_target], axis=1),
            np.stack([best_source, np.arange(len(targets))], axis=1),
        ]
    )
    margins = np.concatenate([target_margins, source_margins])
    order = np.argsort(-margins, kind="stable")
    kept = _each_once(rows[order])
    return Mined(rows[order][kept], margins[order][kept])


def _best(
    found: Neighbours, own_means: NDArray[np.float64], other_means: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Picks each sentence's neighbour with the best margin, and tells that margin."""
    means = (own_means[:, np.newaxis] + other_means[found.indices]) / 2
    margins = found.scores / np.maximum(means, _LEAST_SIMILARITY)
    best = np.argmax(margins, axis=1)[:, np.newaxis]
    pick = partial(np.take_along_axis, indices=best, axis=1)
    return pick(found.indices)[:, 0], pick(margins)[:, 0]


def _each_once(rows: NDArray[np.int64]) -> list[int]:
    """The places of the pairs whose sentences occur in no earlier pair that is kept."""
    seen: tuple[set[int], set[int]] = (set(), set())
    kept = []
    for place, (source, target) in enumerate(rows.tolist()):
        if source not in seen[0] and target not in seen[1]:
            seen[0].add(source)
            seen[1].add(target)
            kept.append(place)
    return kept
