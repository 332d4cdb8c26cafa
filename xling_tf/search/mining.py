"""Hard negatives: wrong translations that are similar to the right one.

Guo et al. 2018 ("Effective Parallel Corpus Mining using Bilingual Sentence Embeddings") and
Chidambaram et al. 2019, sec. 2.2. The knobs have the names and the meaning of sentence-transformers'
`mine_hard_negatives`.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xling_tf.errors import UserError
from xling_tf.search.neighbours import IndexKind, Neighbours, nearest_in_chunks

STRATEGIES = ("top", "random")

_MOST_ANSWERS = 100  # right answers of one query for which room is made in its search
_SPARE = 10  # candidates looked at for each negative where rules may drop some


@dataclass(frozen=True, kw_only=True)
class MiningConfig:
    """Which of a query's nearest candidates are its hard negatives.

    Attributes:
        num_negatives: Wanted for each query; it gets fewer where fewer pass.
        range_min: How many of the nearest candidates that pass are skipped.
        range_max: How many of the nearest wrong candidates are looked at; None: as many as are
            needed, and ten times the negatives where a rule may drop some.
        max_score: Candidates above it are dropped.
        min_score: Candidates below it are dropped.
        absolute_margin: Candidates are dropped whose score is not this far below that of the right
            answer.
        relative_margin: The same in shares of the right answer's score: 0.05 keeps those that
            score at most 95% of it.
        sampling_strategy: "top": the nearest that pass; "random": any of them.
        seed: Of the random ones.
    """

    num_negatives: int = 5  # Chidambaram et al. 2019, sec. 2.2
    range_min: int = 0
    range_max: int | None = None
    max_score: float | None = None
    min_score: float | None = None
    absolute_margin: float | None = None
    relative_margin: float | None = None
    sampling_strategy: str = "top"
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuses what cannot be met.

        Raises:
            UserError: A number is out of its range, or the strategy is unknown.
        """
        for name, value, least in (
            ("num_negatives", self.num_negatives, 1),
            ("range_min", self.range_min, 0),
            ("range_max", self.num_looked_at, self.range_min + self.num_negatives),
        ):
            if value < least:
                raise UserError(f"{name} must be at least {least}, got {value}")
        if self.sampling_strategy not in STRATEGIES:
            expected = " or ".join(STRATEGIES)
            raise UserError(f"sampling_strategy expects {expected}, got {self.sampling_strategy!r}")

    @property
    def num_looked_at(self) -> int:
        """How many of the nearest wrong candidates are looked at."""
        if self.range_max is not None:
            return self.range_max
        rules = (self.max_score, self.min_score, self.absolute_margin, self.relative_margin)
        chooses = self.sampling_strategy == "random" or any(rule is not None for rule in rules)
        return self.range_min + self.num_negatives * (_SPARE if chooses else 1)


class HardNegatives(NamedTuple):
    """What was mined.

    Attributes:
        indices: `[examples, num_negatives]` int64 candidates, nearest first; -1 where too few passed.
        dropped: How many candidates each rule dropped, by the rule's name.
    """

    indices: NDArray[np.int64]
    dropped: Counter[str]


def mine_hard_negatives(
    queries: NDArray[np.floating],
    candidates: NDArray[np.floating],
    positives: NDArray[np.integer],
    groups: NDArray[np.integer],
    config: MiningConfig,
    *,
    query_rows: NDArray[np.integer] | None = None,
    kind: IndexKind | None = None,
    show_progress: bool = False,
) -> HardNegatives:
    """Finds for each example the candidates most similar to its query that are wrong.

    Right is an example's own positive, and that of every other example of its group.

    Args:
        queries: `[queries, dim]` unit vectors; may be memory-mapped.
        candidates: `[candidates, dim]` unit vectors of distinct texts, alike.
        positives: `[examples]`, the candidate that is right.
        groups: `[examples]`, equal where examples share their right answers.
        config: Which of the nearest are taken.
        query_rows: `[examples]`, the row of `queries`; None: row i for example i.
        kind: Of the index, as in `nearest`.
        show_progress: Whether to show a bar.

    Returns:
        The negatives of each example.

    Raises:
        UserError: FAISS is not installed.

    Example:
        >>> vectors, places = np.array([[1, 0], [0.8, 0.6], [0, 1]]), np.arange(3)
        >>> config = MiningConfig(num_negatives=1)
        >>> mine_hard_negatives(vectors, vectors, places, places, config).indices.tolist()
        [[1], [0], [1]]
    """
    rows = np.arange(len(queries)) if query_rows is None else query_rows
    # A group and a candidate in one number.
    group_starts = groups.astype(np.int64) * len(candidates)
    answers = np.unique(group_starts + positives)
    num_answers = np.unique(answers // len(candidates), return_counts=True)[1]
    k = config.num_looked_at + min(int(num_answers.max(initial=0)), _MOST_ANSWERS)
    random = np.random.default_rng(config.seed)
    indices = np.full((len(rows), config.num_negatives), -1)
    dropped: Counter[str] = Counter()
    start = 0
    for neighbours in nearest_in_chunks(
        queries, rows, candidates, k, kind=kind, show_progress=show_progress
    ):
        part = slice(start, start + len(neighbours.indices))
        start = part.stop
        own = positives[part]
        products = candidates[own].astype(np.float32) * queries[rows[part]]
        is_answer = np.isin(group_starts[part, None] + neighbours.indices, answers)
        dropped["right_answer"] += int(np.sum(is_answer & (neighbours.indices != own[:, None])))
        passes = _passing(neighbours, ~is_answer, np.sum(products, axis=1), config, dropped)
        indices[part] = _chosen(neighbours.indices, passes, config, random)
    return HardNegatives(indices, dropped)


def _passing(
    neighbours: Neighbours,
    is_wrong: NDArray[np.bool_],
    right_scores: NDArray[np.float32],
    config: MiningConfig,
    dropped: Counter[str],
) -> NDArray[np.bool_]:
    """Says which of the wrong ones pass the rules, and counts the others by the first that fails."""
    passes = is_wrong & (neighbours.indices >= 0)
    passes &= np.cumsum(passes, axis=1) <= config.num_looked_at
    for rule, fails in _failures(neighbours, right_scores[:, None], config):
        dropped[rule] += int(np.sum(passes & fails))
        passes &= ~fails
    return passes


def _failures(
    neighbours: Neighbours, right_scores: NDArray[np.float32], config: MiningConfig
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yields the rules of the config, and which neighbours each would drop."""
    scores = neighbours.scores
    if config.absolute_margin is not None:
        yield "absolute_margin", scores + config.absolute_margin > right_scores
    if config.relative_margin is not None:
        # Not (1 - margin) times the score, which for a negative score would lie above it.
        most = right_scores - np.abs(right_scores) * config.relative_margin
        yield "relative_margin", scores > most
    if config.max_score is not None:
        yield "max_score", scores > config.max_score
    if config.min_score is not None:
        yield "min_score", scores < config.min_score


def _chosen(
    indices: NDArray[np.int64],
    passes: NDArray[np.bool_],
    config: MiningConfig,
    random: np.random.Generator,
) -> NDArray[np.int64]:
    """Takes the negatives of each row from those that pass, nearest first, -1 for what lacks."""
    passes = passes & (np.cumsum(passes, axis=1) > config.range_min)
    if config.sampling_strategy == "random":
        draws = np.where(passes, random.random(passes.shape), 2)
        limit = np.sort(draws, axis=1)[:, config.num_negatives - 1, None]
        passes &= draws <= limit
    first = np.argsort(~passes, axis=1, kind="stable")[:, : config.num_negatives]
    return np.take_along_axis(np.where(passes, indices, -1), first, axis=1)
