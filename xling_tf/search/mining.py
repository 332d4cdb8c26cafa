"""Hard negatives: wrong translations that are similar to the right one.

Guo et al. 2018 ("Effective Parallel Corpus Mining using Bilingual Sentence Embeddings") and Chidambaram
et al. 2019, sec. 2.2. The knobs are those of sentence-transformers' `mine_hard_negatives`.
"""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from xling_tf.corpora.split import normalised
from xling_tf.errors import UserError
from xling_tf.search.neighbours import Neighbours, nearest_in_chunks, unit_vectors

STRATEGIES = ("top", "random")
QUERIES = ("target", "source")

_MOST_ANSWERS = 100  # right answers of one query for which room is made in its search
_SPARE = 10  # candidates looked at for each negative where rules may drop some
_ENCODED = 16_384  # texts encoded before their vectors are rounded


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
        absolute_margin: Candidates are dropped that score not so far below the right answer.
        relative_margin: The same in shares of its score: 0.05 keeps those of at most 95% of it.
        sampling_strategy: "top": the nearest that pass; "random": any of them.
        seed: Of the random ones.
        query: Similar to what: the right translation ("5 translations that are similar to the correct
            translation", Chidambaram et al. 2018, sec. 2.2), or the "source" (Guo et al. 2018).
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
    query: str = "target"

    def __post_init__(self) -> None:
        """Refuses what cannot be met."""
        for name, value, least in (
            ("num_negatives", self.num_negatives, 1),
            ("range_min", self.range_min, 0),
            ("range_max", self.num_looked_at, self.range_min + self.num_negatives),
        ):
            if value < least:
                raise UserError(f"{name} must be at least {least}, got {value}")
        for name, known in (("sampling_strategy", STRATEGIES), ("query", QUERIES)):
            if getattr(self, name) not in known:
                raise UserError(f"{name} expects {' or '.join(known)}, got {getattr(self, name)!r}")

    @property
    def num_looked_at(self) -> int:
        """How many of the nearest wrong candidates are looked at."""
        if self.range_max is not None:
            return self.range_max
        rules = (self.max_score, self.min_score, self.absolute_margin, self.relative_margin)
        chooses = self.sampling_strategy == "random" or any(rule is not None for rule in rules)
        return self.range_min + self.num_negatives * (_SPARE if chooses else 1)


def mine_hard_negatives(
    encode: Callable[[list[str]], NDArray[Any]],
    pairs: Sequence[tuple[str, str]],
    config: MiningConfig | None = None,
    *,
    counts: Counter[str] | None = None,
    show_progress_bar: bool = False,
) -> list[tuple[str, ...]]:
    """Finds wrong translations among the targets of some pairs that are similar to the right ones.

    Texts that differ only in case, in spaces or in forms of their characters are one text.
    Right answers are also the targets of pairs with the same source.

    Args:
        encode: The model: n texts to `[n, dim]`, as `SentenceEncoder.encode`.
        pairs: Source and target of each pair.
        config: Which similar targets are taken; None: the nearest five.
        counts: Gets the numbers of pairs by their negatives, and of candidates dropped by each rule.
        show_progress_bar: Whether to show bars.

    Returns:
        The negatives of each pair, nearest first; fewer where fewer pass.

    Example:
        >>> angles = {"dos": 0.0, "dos ": 0.0, "tres": 0.1, "mil": 2.0}
        >>> encode = lambda texts: np.array([[np.cos(angles[t]), np.sin(angles[t])] for t in texts])
        >>> pairs = [("two", "dos"), ("three", "tres"), ("thousand", "mil")]
        >>> mine_hard_negatives(encode, pairs, MiningConfig(num_negatives=1))
        [('tres',), ('dos',), ('tres',)]
    """
    config, counts = config or MiningConfig(), Counter() if counts is None else counts
    targets, positives = _distinct([pair[1] for pair in pairs])
    sources, groups = _distinct([pair[0] for pair in pairs])
    candidates = _embed(targets, encode, show_progress_bar)
    queries, rows = candidates, positives
    if config.query == "source":
        queries, rows = _embed(sources, encode, show_progress_bar), groups
    # A group and a candidate in one number.
    group_starts = groups * len(candidates)
    answers = np.unique(group_starts + positives)
    num_answers = np.unique(answers // len(candidates), return_counts=True)[1]
    k = config.num_looked_at + min(int(num_answers.max(initial=0)), _MOST_ANSWERS)
    random = np.random.default_rng(config.seed)
    negatives: list[tuple[str, ...]] = []
    dropped: Counter[str] = Counter()
    for found in nearest_in_chunks(queries, rows, candidates, k, show_progress=show_progress_bar):
        part = slice(len(negatives), len(negatives) + len(found.indices))
        own = positives[part, None]
        products = candidates[positives[part]].astype(np.float32) * queries[rows[part]]
        is_answer = np.isin(group_starts[part, None] + found.indices, answers)
        dropped["right_answer"] += int(np.sum(is_answer & (found.indices != own)))
        passes = _passing(found, ~is_answer, products.sum(axis=1)[:, None], config, dropped)
        chosen = _chosen(passes, config, random)
        negatives += [
            tuple(targets[place] for place in found.indices[row][chosen[row]]) for row in range(len(chosen))
        ]
    numbers = Counter(map(len, negatives))
    counts.update({"pairs": len(pairs), "distinct targets": len(targets)})
    counts.update({f"pairs with {n}": numbers[n] for n in range(config.num_negatives + 1)})
    counts.update({f"dropped by {rule}": count for rule, count in dropped.items()})
    return negatives


def _embed(
    texts: Sequence[str], encode: Callable[[list[str]], NDArray[Any]], show_progress: bool
) -> NDArray[np.float16]:
    """Encodes texts into `[texts, dim]` unit vectors of half precision."""
    parts = [
        unit_vectors(encode(list(texts[start : start + _ENCODED])), "encodings").astype(np.float16)
        for start in tqdm(
            range(0, len(texts), _ENCODED), "encoding", disable=not (show_progress and sys.stderr)
        )
    ]
    return np.concatenate(parts)


def _distinct(texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Lists each text once, in its first form, and says which one each text is."""
    places: dict[str, int] = {}
    first: list[str] = []
    rows = np.empty(len(texts), np.int64)
    for number, text in enumerate(texts):
        rows[number] = places.setdefault(normalised(text), len(first))
        if rows[number] == len(first):
            first.append(text)
    return first, rows


def _passing(
    found: Neighbours,
    is_wrong: NDArray[np.bool_],
    right_scores: NDArray[np.float32],
    config: MiningConfig,
    dropped: Counter[str],
) -> NDArray[np.bool_]:
    """Says which of the wrong ones pass the rules; counts the others by the first that fails."""
    passes = is_wrong & (found.indices >= 0)
    passes &= np.cumsum(passes, axis=1) <= config.num_looked_at
    failures = {}
    if config.absolute_margin is not None:
        failures["absolute_margin"] = found.scores > right_scores - config.absolute_margin
    if config.relative_margin is not None:
        # Not (1 - margin) times the score, which for a negative score would lie above it.
        most = right_scores - np.abs(right_scores) * config.relative_margin
        failures["relative_margin"] = found.scores > most
    if config.max_score is not None:
        failures["max_score"] = found.scores > config.max_score
    if config.min_score is not None:
        failures["min_score"] = found.scores < config.min_score
    for rule, fails in failures.items():
        dropped[rule] += int(np.sum(passes & fails))
        passes &= ~fails
    return passes


def _chosen(
    passes: NDArray[np.bool_], config: MiningConfig, random: np.random.Generator
) -> NDArray[np.bool_]:
    """Says which of those that pass are the negatives of each row."""
    passes = passes & (np.cumsum(passes, axis=1) > config.range_min)
    if config.sampling_strategy == "random":
        draws = np.where(passes, random.random(passes.shape), 2)
        limit = np.sort(draws, axis=1)[:, config.num_negatives - 1, None]
        passes &= draws <= limit
    return passes & (np.cumsum(passes, axis=1) <= config.num_negatives)
