"""Mines hard negatives: wrong translations or answers that resemble the right one, or the query."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xling_tf.corpora.pairs import read_pairs
from xling_tf.corpora.split import normalised
from xling_tf.errors import UserError
from xling_tf.length_batches import encode_in_batches
from xling_tf.search.neighbours import nearest_in_chunks, require_positive, unit_vectors

NUM_NEGATIVES = 5  # Chidambaram et al. 2019, sec. 2.2

# Right answers of a query for which the first search has room; a second one is for queries with
# more.
_MAX_ANSWERS = 100
# Candidates per negative where the margin may drop some, or the first search found few.
_OVERSAMPLING = 10
_TEXTS_AT_ONCE = 16_384
# Rounding error of the cosines of half-precision vectors; those of equal texts may exceed 1.
_ROUNDING = 5e-4


def mine_hard_negatives(
    model: Any,
    pairs: Any,
    *,
    num_negatives: int = NUM_NEGATIVES,
    relative_margin: float | None = None,
    by_query: bool = False,
    counts: Counter[str] | None = None,
    show_progress_bar: bool = False,
) -> list[tuple[str, ...]]:
    """Finds, for each pair, targets of other pairs that are similar to the right one.

    These are hard negatives as in Guo et al. 2018 ("Effective Parallel Corpus Mining using
    Bilingual Sentence Embeddings"), which here resemble the right translation (Chidambaram et al.
    2018, sec. 2.2), or, with `by_query`, the query (de Souza Moreira et al. 2024, "NV-Retriever",
    sec. 3).

    Texts that differ only in case, spaces or Unicode form count as one text. All targets of a
    source are right answers.

    Args:
        model: The model, or its `encode`: n texts to `[n, dim]`. The pairs may also come first.
        pairs: Source and target of each pair, in a list or a table, as `fine_tune` takes them.
        num_negatives: Number of negatives of a pair, fewer if fewer candidates pass. A zero vector,
            which stands for a blank text, is no negative and has none.
        relative_margin: 0 to 1: candidates score lower than the right answer by this share of its
            score, or, if that is negative, of its absolute value; 0.05 keeps those whose cosine to
            it is 0.95 at most. None keeps all.
        by_query: Whether scores are cosines to the query, as in sentence-transformers, instead of
            cosines to the right answer, whose own is 1.
        counts: Receives statistics: pairs by their number of negatives, and candidates that were
            dropped.
        show_progress_bar: Whether to show progress bars.

    Returns:
        The negatives of each pair, nearest first.

    Raises:
        UserError: The model cannot encode, a row is not a pair, or an argument is out of range.

    Example:
        >>> angles = {"dos": 0.0, "dos ": 0.0, "tres": 0.1, "mil": 2.0}
        >>> encode = lambda texts: np.array([[np.cos(angles[t]), np.sin(angles[t])] for t in texts])
        >>> pairs = [("two", "dos"), ("three", "tres"), ("thousand", "mil")]
        >>> mine_hard_negatives(encode, pairs, num_negatives=1)
        [('tres',), ('dos',), ('tres',)]
    """
    encode, pairs = _in_order(model, pairs)
    require_positive(num_negatives, "num_negatives")
    if relative_margin is not None and not (
        isinstance(relative_margin, Real) and 0 <= relative_margin <= 1
    ):
        raise UserError(f"relative_margin must be a number from 0 to 1, got {relative_margin!r}")
    rows = read_pairs(pairs)
    if wrong := next((pair for pair in rows if pair.score is not None or pair.wrong), None):
        raise UserError(f"expected pairs of two texts, got {wrong}; give only these two columns")
    targets, positives = _distinct([pair.second for pair in rows])
    sources, groups = _distinct([pair.first for pair in rows])
    units = partial(
        encode_in_batches,
        lambda texts: unit_vectors(encode(texts), "encodings").astype(np.float16),
        max_rows=_TEXTS_AT_ONCE,
        show_progress=show_progress_bar,
    )
    candidates = units(targets)
    queries, query_rows = (units(sources), groups) if by_query else (candidates, positives)
    # A source and one of its candidates as one number.
    group_starts = groups * len(candidates)
    answers = np.unique(group_starts + positives)
    answers_of_pair = np.bincount(answers // max(len(candidates), 1), minlength=1)[groups]
    num_right = min(int(answers_of_pair.max(initial=0)), _MAX_ANSWERS)
    wanted = num_negatives * (1 if relative_margin is None else _OVERSAMPLING)
    negatives: list[tuple[str, ...]] = [()] * len(rows)
    # Candidates of each pair that a rule dropped.
    dropped = {
        "right_answer": np.zeros(len(rows), int),
        "relative_margin": np.zeros(len(rows), int),
    }

    def search(numbers: NDArray[np.int64], k: int) -> None:
        """Sets the negatives of some pairs, out of the nearest k candidates."""
        start, chosen_rows = 0, query_rows[numbers]
        for scores, indices in nearest_in_chunks(
            queries, chosen_rows, candidates, k, show_progress=show_progress_bar
        ):
            part = numbers[start : (start := start + len(indices))]
            is_found = indices >= 0
            is_answer = np.isin(group_starts[part, None] + indices, answers) & is_found
            is_another = is_answer & (indices != positives[part, None])
            dropped["right_answer"][part] = np.sum(is_another, axis=1)
            passes = is_found & ~is_answer
            if relative_margin is not None:
                pairs_of_vectors = queries[query_rows[part]], candidates[positives[part]]
                right = np.einsum("nd,nd->n", *pairs_of_vectors, dtype=np.float32)
                bound = right - relative_margin * np.abs(right)
                fails = scores > bound[:, None] + _ROUNDING
                dropped["relative_margin"][part] = np.sum(passes & fails, axis=1)
                passes &= ~fails
            passes &= np.cumsum(passes, axis=1) <= num_negatives
            for number, found, chosen in zip(part.tolist(), indices, passes, strict=True):
                negatives[number] = tuple(targets[index] for index in found[chosen])

    k = min(wanted + num_right, len(candidates))
    search(np.arange(len(rows)), k)
    # Right answers, or candidates within the margin, may have been all that was found.
    is_short = np.array([len(found) < num_negatives for found in negatives], bool)
    if len(short := np.flatnonzero(is_short)) and k < len(candidates):
        most_answers = int(answers_of_pair[short].max())
        search(short, min(_OVERSAMPLING * wanted + most_answers, len(candidates)))
    if counts is not None:
        numbers = Counter(map(len, negatives))
        counts.update({"pairs": len(rows), "distinct targets": len(targets)})
        counts.update({f"pairs with {n}": numbers[n] for n in range(num_negatives + 1)})
        rules = dropped if relative_margin is not None else ("right_answer",)
        counts.update({f"dropped by {rule}": int(dropped[rule].sum()) for rule in rules})
    return negatives


def _in_order(first: Any, second: Any) -> tuple[Callable[..., Any], Any]:
    """Returns the model's function of texts and the pairs, which are given in either order."""
    for model, pairs in ((first, second), (second, first)):
        if isinstance(model, str):  # strings have an encode too
            continue
        if callable(getattr(type(model), "encode", None)):
            return model.encode, pairs
        if callable(model):
            return model, pairs
    names = f"{type(first).__name__} and {type(second).__name__}"
    raise UserError(f"expected pairs and a model, as xling_tf.load returns it, got {names}")


def _distinct(texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Lists the distinct texts, as first spelt, and maps each text to its index in the list."""
    keys = [normalised(text) for text in texts]
    first_spelling = dict(zip(reversed(keys), reversed(texts), strict=True))
    index_of = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    return [first_spelling[key] for key in index_of], np.array(
        [index_of[key] for key in keys], np.int64
    )
