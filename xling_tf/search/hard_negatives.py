"""Mines hard negatives: wrong translations that resemble the right one, as sentence-transformers does."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from xling_tf.corpora.pairs import read_pairs
from xling_tf.corpora.split import normalised
from xling_tf.errors import UserError, require_known
from xling_tf.search.neighbours import Neighbours, nearest_in_chunks, require_integer, unit_vectors

STRATEGIES = ("top", "random")
QUERIES = ("target", "source")

_MAX_ANSWERS = 100  # right answers of a query, which the search finds besides the wrong ones
_OVERSAMPLING = 10  # candidates per negative where rules may drop some
_TEXTS_AT_ONCE = 16_384
# Rounding error of the cosines of half-precision vectors; those of equal texts may exceed 1.
_ROUNDING = 5e-4


@dataclass(frozen=True, kw_only=True)
class MiningConfig:
    """Which of a query's nearest candidates are its hard negatives; limits allow for rounding errors."""

    num_negatives: int = 5  # per query, fewer if fewer candidates pass (Chidambaram et al. 2019, sec. 2.2)
    range_min: int = 0  # number of the nearest passing candidates that are skipped
    # Number of the nearest wrong candidates that are considered; None: enough, and ten times the negatives
    # where a rule may drop some.
    range_max: int | None = None
    max_score: float | None = None  # candidates with a higher cosine are dropped
    min_score: float | None = None  # candidates with a lower cosine are dropped
    absolute_margin: float | None = None  # 0 to 2: candidates score lower than the right answer by this much
    relative_margin: float | None = None  # 0 to 1: or by this share of its score; 0.05 keeps at most 95%
    sampling_strategy: str = "top"  # the nearest candidates that pass; "random": any of them
    seed: int = 1
    # Candidates are similar to the right translation (Chidambaram et al. 2018, sec. 2.2); "source": to the
    # source (Guo et al. 2018, "Effective Parallel Corpus Mining using Bilingual Sentence Embeddings").
    query: str = "target"

    def __post_init__(self) -> None:
        """Checks the values."""
        require_integer(self.num_negatives, "num_negatives", 1)
        require_integer(self.range_min, "range_min", 0)
        require_integer(self.num_considered, "range_max", self.range_min + self.num_negatives)
        ranges = {
            "min_score": (-1, 1),
            "max_score": (-1, 1),
            "absolute_margin": (0, 2),
            "relative_margin": (0, 1),
        }
        for name, (lowest, highest) in ranges.items():
            limit = getattr(self, name)
            if limit is not None and not (isinstance(limit, Real) and lowest <= float(limit) <= highest):
                raise UserError(f"{name} must be a number from {lowest} to {highest}, got {limit!r}")
        if self.min_score is not None and self.max_score is not None and self.min_score > self.max_score:
            raise UserError(f"min_score must be at most max_score, got {self.min_score} and {self.max_score}")
        require_known("sampling_strategy", self.sampling_strategy, STRATEGIES)
        require_known("query", self.query, QUERIES)

    @property
    def num_considered(self) -> int:
        """Number of the nearest wrong candidates that are considered."""
        if self.range_max is not None:
            return self.range_max
        rules = (self.max_score, self.min_score, self.absolute_margin, self.relative_margin)
        drops_some = self.sampling_strategy == "random" or any(rule is not None for rule in rules)
        return self.range_min + self.num_negatives * (_OVERSAMPLING if drops_some else 1)


def mine_hard_negatives(
    model: Any,
    pairs: Any,
    config: MiningConfig | None = None,
    *,
    counts: Counter[str] | None = None,
    show_progress_bar: bool = False,
    **options: Any,
) -> list[tuple[str, ...]]:
    """Finds, for each pair, targets of other pairs that are similar to the right one.

    Texts that differ only in case, spaces or Unicode form count as one text. All targets of a source are
    right answers.

    Args:
        model: The model, or its `encode`: n texts to `[n, dim]`. The pairs may also come first.
        pairs: Source and target of each pair, in a list or a table, as `fine_tune` takes them.
        config: Which similar targets are taken; None: the nearest five.
        counts: Receives statistics: pairs by their number of negatives, and candidates dropped by each rule.
        show_progress_bar: Whether to show progress bars.
        **options: Attributes of `MiningConfig`, which override those of `config`.

    Returns:
        The negatives of each pair, nearest first.

    Raises:
        UserError: The model cannot encode, a row is not a pair, or an option is unknown or out of range.

    Example:
        >>> angles = {"dos": 0.0, "dos ": 0.0, "tres": 0.1, "mil": 2.0}
        >>> encode = lambda texts: np.array([[np.cos(angles[t]), np.sin(angles[t])] for t in texts])
        >>> pairs = [("two", "dos"), ("three", "tres"), ("thousand", "mil")]
        >>> mine_hard_negatives(encode, pairs, num_negatives=1)
        [('tres',), ('dos',), ('tres',)]
    """
    encode, pairs = _in_order(model, pairs)
    for name in options:
        require_known("an option", name, [field.name for field in fields(MiningConfig)])
    config, counts = replace(config or MiningConfig(), **options), Counter() if counts is None else counts
    rows = read_pairs(pairs)
    if wrong := next((pair for pair in rows if pair.score is not None or pair.wrong), None):
        raise UserError(f"expected pairs of two texts, got {wrong}; give only these two columns")
    targets, positives = _distinct([pair.second for pair in rows])
    sources, groups = _distinct([pair.first for pair in rows])
    candidates = _embed(targets, encode, show_progress_bar)
    queries, query_rows = candidates, positives
    if config.query == "source":
        queries, query_rows = _embed(sources, encode, show_progress_bar), groups
    # A source and one of its candidates as one number.
    group_starts = groups * len(candidates)
    answers = np.unique(group_starts + positives)
    num_answers = np.unique(answers // len(candidates), return_counts=True)[1]
    num_right = min(int(num_answers.max(initial=0)), _MAX_ANSWERS)
    k = min(config.num_considered + num_right, len(candidates))
    random = np.random.default_rng(config.seed)
    negatives: list[tuple[str, ...]] = []
    dropped: Counter[str] = Counter()
    for neighbours in nearest_in_chunks(queries, query_rows, candidates, k, show_progress=show_progress_bar):
        part = slice(len(negatives), len(negatives) + len(neighbours.indices))
        products = candidates[positives[part]].astype(np.float32) * queries[query_rows[part]]
        is_answer = np.isin(group_starts[part, None] + neighbours.indices, answers) & (
            neighbours.indices >= 0
        )
        dropped["right_answer"] += int(np.sum(is_answer & (neighbours.indices != positives[part, None])))
        passes = _passing(neighbours, ~is_answer, products.sum(axis=1)[:, None], config, dropped)
        is_chosen = _chosen(passes, config, random)
        for indices, chosen in zip(neighbours.indices, is_chosen, strict=True):
            negatives.append(tuple(targets[index] for index in indices[chosen]))
    numbers = Counter(map(len, negatives))
    counts.update({"pairs": len(rows), "distinct targets": len(targets)})
    counts.update({f"pairs with {n}": numbers[n] for n in range(config.num_negatives + 1)})
    counts.update({f"dropped by {rule}": count for rule, count in dropped.items()})
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


def _embed(texts: Sequence[str], encode: Callable[..., Any], show_progress: bool) -> NDArray[np.float16]:
    """Encodes texts to unit vectors `[texts, dim]` of half precision."""
    parts = []
    is_hidden = not (show_progress and sys.stderr)
    for start in tqdm(range(0, len(texts), _TEXTS_AT_ONCE), "encoding", disable=is_hidden):
        part = texts[start : start + _TEXTS_AT_ONCE]
        vectors = unit_vectors(encode(part), "encodings")
        if len(vectors) != len(part):
            raise UserError(f"expected a vector for each of {len(part)} texts, got {len(vectors)}")
        parts.append(vectors.astype(np.float16))
    return np.concatenate(parts)


def _distinct(texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Lists each distinct text once, as first spelt, and maps each text to its index in this list."""
    keys = [normalised(text) for text in texts]
    first_spelling = dict(zip(reversed(keys), reversed(texts), strict=True))
    index_of = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    return [first_spelling[key] for key in index_of], np.array([index_of[key] for key in keys], np.int64)


def _passing(
    neighbours: Neighbours,
    is_wrong: NDArray[np.bool_],
    right_scores: NDArray[np.float32],
    config: MiningConfig,
    dropped: Counter[str],
) -> NDArray[np.bool_]:
    """Marks the wrong candidates that pass all rules; counts the others by the first rule that fails."""
    passes = is_wrong & (neighbours.indices >= 0)
    passes &= np.cumsum(passes, axis=1) <= config.num_considered
    failures = {}
    if config.absolute_margin is not None:
        failures["absolute_margin"] = neighbours.scores > right_scores - config.absolute_margin + _ROUNDING
    if config.relative_margin is not None:
        # Not (1 - margin) times the score, which would be a higher limit if the score is negative.
        limit = right_scores - np.abs(right_scores) * config.relative_margin
        failures["relative_margin"] = neighbours.scores > limit + _ROUNDING
    if config.max_score is not None:
        failures["max_score"] = neighbours.scores > config.max_score + _ROUNDING
    if config.min_score is not None:
        failures["min_score"] = neighbours.scores < config.min_score - _ROUNDING
    for rule, fails in failures.items():
        dropped[rule] += int(np.sum(passes & fails))
        passes &= ~fails
    return passes


def _chosen(
    passes: NDArray[np.bool_], config: MiningConfig, random: np.random.Generator
) -> NDArray[np.bool_]:
    """Marks the passing candidates that become negatives."""
    passes = passes & (np.cumsum(passes, axis=1) > config.range_min)
    if config.sampling_strategy == "random":
        draws = np.where(passes, random.random(passes.shape), 2)
        limit = np.sort(draws, axis=1)[:, : config.num_negatives][:, -1:]
        passes &= draws <= limit
    return passes & (np.cumsum(passes, axis=1) <= config.num_negatives)
