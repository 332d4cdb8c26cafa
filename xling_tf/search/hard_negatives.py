"""Mines hard negatives: wrong translations or answers that resemble the right one, or the query."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xling_tf.client.batches import encode_in_batches
from xling_tf.client.neighbours import nearest_in_chunks, require_positive, unit_vectors
from xling_tf.corpora.pairs import read_pairs
from xling_tf.corpora.split import normalised
from xling_tf.errors import UserError

NUM_NEGATIVES = 5  # Chidambaram et al. 2019, sec. 2.2

# Right answers for which a query's first search has room; queries with more get a second.
_MAX_ANSWERS = 100
# Candidates per negative where the margin may drop some, or the first search found few.
_OVERSAMPLING = 10
_TEXTS_AT_ONCE = 16_384
# Rounding error of the cosines of half-precision vectors; those of equal texts may exceed 1.
_ROUNDING = 5e-4


def mine_hard_negatives(
    pairs: Any,
    model: Any,
    *,
    num_negatives: int = NUM_NEGATIVES,
    relative_margin: float | None = None,
    by_query: bool = False,
    show_progress_bar: bool = False,
) -> list[tuple[str, ...]]:
    """Finds, for each pair, targets of other pairs that are similar to its own.

    These are hard negatives (Guo et al. 2018, "Effective Parallel Corpus Mining using Bilingual
    Sentence Embeddings"). They resemble the right translation (Chidambaram et al. 2018, sec. 2.2)
    or, with `by_query`, the query (de Souza Moreira et al. 2024, "NV-Retriever", sec. 3).

    Texts that differ only in case, spaces or Unicode form count as one text. All targets of a
    source are right answers.

    Args:
        pairs: Source and target of each pair, in a list or a table, as `fine_tune` takes them.
        model: The model, or its `encode`: n texts to `[n, dim]`.
        num_negatives: Number of negatives of a pair, or fewer if fewer candidates pass. A blank
            text, whose vector is zero, is not a negative, and gets none.
        relative_margin: From 0 to 1. Drops candidates whose score is not lower than the right
            answer's by this share of its absolute value. Without `by_query`, 0.05 keeps those whose
            cosine to the right answer is at most 0.95. None keeps all.
        by_query: Whether a candidate's score is its cosine to the query, as in
            sentence-transformers, or to the right answer.
        show_progress_bar: Whether to show progress bars.

    Returns:
        The negatives of each pair, nearest first.

    Raises:
        UserError: The model cannot encode, a row is not a pair, or an argument is out of range.

    Examples:
        >>> angles = {"dos": 0.0, "dos ": 0.0, "tres": 0.1, "mil": 2.0}
        >>> encode = lambda texts: np.array([[np.cos(angles[t]), np.sin(angles[t])] for t in texts])
        >>> pairs = [("two", "dos"), ("three", "tres"), ("thousand", "mil")]
        >>> mine_hard_negatives(pairs, encode, num_negatives=1)
        [('tres',), ('dos',), ('tres',)]
    """
    return mine_and_count(
        pairs,
        model,
        num_negatives=num_negatives,
        relative_margin=relative_margin,
        by_query=by_query,
        show_progress_bar=show_progress_bar,
    )[0]


def mine_and_count(
    pairs: Any,
    model: Any,
    *,
    num_negatives: int = NUM_NEGATIVES,
    relative_margin: float | None = None,
    by_query: bool = False,
    show_progress_bar: bool = False,
) -> tuple[list[tuple[str, ...]], dict[str, int]]:
    """Does what `mine_hard_negatives` does, and also returns counts.

    They say how many pairs have how many negatives, and how many candidates were dropped.
    """
    encode = _encode_of(pairs, model)
    require_positive(num_negatives, "num_negatives")
    if relative_margin is not None and not (
        isinstance(relative_margin, Real) and 0 <= relative_margin <= 1
    ):
        raise UserError(f"`relative_margin` must be a number from 0 to 1, got {relative_margin!r}")
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
    search = _Search(
        targets,
        queries,
        query_rows,
        candidates,
        positives,
        group_starts,
        answers,
        num_negatives,
        relative_margin,
        show_progress_bar,
    )
    num_right = min(int(answers_of_pair.max(initial=0)), _MAX_ANSWERS)
    wanted = num_negatives * (1 if relative_margin is None else _OVERSAMPLING)
    k = min(wanted + num_right, len(candidates))
    search.find(np.arange(len(rows)), k)
    # Right answers, or candidates within the margin, may have been all that was found.
    is_short = np.array([len(found) < num_negatives for found in search.negatives], bool)
    if len(short := np.flatnonzero(is_short)) and k < len(candidates):
        most_answers = int(answers_of_pair[short].max())
        search.find(short, min(_OVERSAMPLING * wanted + most_answers, len(candidates)))
    counts = {"pairs": len(rows), "distinct targets": len(targets), **search.counts()}
    return search.negatives, counts


@dataclass
class _Search:
    """Searches the nearest candidates of pairs that are not right answers."""

    targets: Sequence[str]  # the candidates' texts
    queries: NDArray[np.float16]  # unit vectors
    query_rows: NDArray[np.int64]  # of each pair
    candidates: NDArray[np.float16]  # unit vectors
    positives: NDArray[np.int64]  # each pair's right answer among the candidates
    group_starts: NDArray[np.int64]  # each pair's source times the number of candidates
    answers: NDArray[np.int64]  # right answers of all sources, each added to its source's start
    num_negatives: int
    relative_margin: float | None
    show_progress: bool

    def __post_init__(self) -> None:
        num_pairs = len(self.positives)
        # Negatives of each pair, and numbers of candidates that a rule dropped.
        self.negatives: list[tuple[str, ...]] = [()] * num_pairs
        self._right_answers = np.zeros(num_pairs, int)
        self._within_margin = np.zeros(num_pairs, int)

    def find(self, numbers: NDArray[np.int64], k: int) -> None:
        """Chooses the negatives of some pairs, out of the nearest k candidates."""
        start = 0
        for scores, indices in nearest_in_chunks(
            self.queries,
            self.query_rows[numbers],
            self.candidates,
            k,
            show_progress=self.show_progress,
        ):
            part = numbers[start : (start := start + len(indices))]
            passes = self._passes(part, scores, indices)
            passes &= np.cumsum(passes, axis=1) <= self.num_negatives
            for number, found, chosen in zip(part.tolist(), indices, passes, strict=True):
                self.negatives[number] = tuple(self.targets[index] for index in found[chosen])

    def _passes(
        self, part: NDArray[np.int64], scores: NDArray[np.float32], indices: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Applies the rules to the `[pairs, k]` candidates of some pairs."""
        is_found = indices >= 0
        is_answer = np.isin(self.group_starts[part, None] + indices, self.answers) & is_found
        is_another = is_answer & (indices != self.positives[part, None])
        self._right_answers[part] = np.sum(is_another, axis=1)
        passes = is_found & ~is_answer
        if self.relative_margin is not None:
            queries = self.queries[self.query_rows[part]]
            right_answers = self.candidates[self.positives[part]]
            right = np.einsum("nd,nd->n", queries, right_answers, dtype=np.float32)
            bound = right - self.relative_margin * np.abs(right)
            fails = scores > bound[:, None] + _ROUNDING
            self._within_margin[part] = np.sum(passes & fails, axis=1)
            passes &= ~fails
        return passes

    def counts(self) -> dict[str, int]:
        """Returns the numbers of pairs by their negatives, and of candidates that were dropped."""
        numbers = Counter(map(len, self.negatives))
        counts = {f"pairs with {n} negatives": numbers[n] for n in range(self.num_negatives + 1)}
        counts["dropped by right_answer"] = int(self._right_answers.sum())
        if self.relative_margin is not None:
            counts["dropped by relative_margin"] = int(self._within_margin.sum())
        return counts


def _encode_of(pairs: Any, model: Any) -> Callable[..., Any]:
    """Returns the model's function of texts."""
    if not isinstance(model, str):  # strings have an encode too
        if callable(getattr(type(model), "encode", None)):
            return model.encode
        if callable(model):
            return model
    names = f"{type(pairs).__name__} and {type(model).__name__}"
    raise UserError(
        f"expected pairs, then a model of xling_tf.load, got {names}; give both in this order"
    )


def _distinct(texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Lists the distinct texts, as first spelt, and maps each text to its index in the list."""
    keys = [normalised(text) for text in texts]
    first_spelling = dict(zip(reversed(keys), reversed(texts), strict=True))
    index_of = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    return [first_spelling[key] for key in index_of], np.array(
        [index_of[key] for key in keys], np.int64
    )
