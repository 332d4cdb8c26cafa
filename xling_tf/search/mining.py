"""Hard negatives: wrong translations that are similar to the right one.

Guo et al. 2018 ("Effective Parallel Corpus Mining using Bilingual Sentence Embeddings") and Chidambaram
et al. 2019, sec. 2.2. The knobs are those of sentence-transformers' `mine_hard_negatives`.
"""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from xling_tf.corpora.pairs import read_pairs
from xling_tf.corpora.split import normalised
from xling_tf.errors import UserError
from xling_tf.inputs import Texts, as_texts
from xling_tf.search.neighbours import (
    Neighbours,
    nearest_in_chunks,
    require_between,
    require_integer,
    require_positive,
    unit_vectors,
)

STRATEGIES = ("top", "random")
QUERIES = ("target", "source")

_MOST_ANSWERS = 100  # right answers of one query for which room is made in its search
_SPARE = 10  # candidates looked at for each negative where rules may drop some
_ENCODED = 16_384  # texts encoded before their vectors are rounded
# The rounding error of cosines of half-precision vectors; those of equal texts may be above 1.
_ROUNDING = 5e-4

# Options of sentence-transformers' function that may only be None or False, and what to do instead.
_UNSUPPORTED = {
    "cross_encoder": "score the negatives that are returned, and drop those of high scores",
    "query_prompt_name": "models have no named prompts; give query_prompt",
    "corpus_prompt_name": "models have no named prompts; give corpus_prompt",
    "include_positives": "negatives alone are returned, in the order of the pairs",
    "output_format": "the negatives of each pair are returned: make rows of them and the pairs",
    "output_scores": "compute them by the similarity of encoded texts",
    "use_multi_process": "one process uses all cores",
    "cache_folder": "data/mine.py keeps what it has mined",
    "as_triplets": "the negatives of each pair are returned: make rows of them and the pairs",
    "margin": "give absolute_margin or relative_margin",
}
# Options that change nothing: FAISS searches in blocks, and `counts` gets what would be printed.
_WITHOUT_EFFECT = ("faiss_batch_size", "use_faiss", "verbose")


@dataclass(frozen=True, kw_only=True)
class MiningConfig:
    """Which of a query's nearest candidates are its hard negatives.

    Attributes:
        num_negatives: Wanted for each query; it gets fewer where fewer pass.
        range_min: How many of the nearest candidates that pass are skipped.
        range_max: How many of the nearest wrong candidates are looked at; None: as many as are
            needed, and ten times the negatives where a rule may drop some.
        max_score: Candidates above it are dropped; this and all limits allow for half precision's rounding.
        min_score: Candidates below it are dropped.
        absolute_margin: Candidates are dropped unless they score so far below the right answer; 0 to 2.
        relative_margin: The same in shares of its score: 0.05 keeps those of at most 95% of it; 0 to 1.
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
        require_integer(self.num_negatives, "num_negatives", 1)
        require_integer(self.range_min, "range_min", 0)
        require_integer(self.num_looked_at, "range_max", self.range_min + self.num_negatives)
        limits = {"min_score": (-1, 1), "max_score": (-1, 1)}
        limits |= {"absolute_margin": (0, 2), "relative_margin": (0, 1)}
        for name, (least, most) in limits.items():
            if (limit := getattr(self, name)) is not None:
                require_between(limit, name, least, most)
        if self.min_score is not None and self.max_score is not None and self.min_score > self.max_score:
            raise UserError(f"min_score must be at most max_score, got {self.min_score} and {self.max_score}")
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
    encode: Any = None,
    pairs: Any = None,
    config: MiningConfig | None = None,
    *,
    dataset: Any = None,
    model: Any = None,
    anchor_column_name: str | None = None,
    positive_column_name: str | None = None,
    corpus: Texts = (),
    query_prompt: str | None = None,
    corpus_prompt: str | None = None,
    batch_size: int | None = None,
    counts: Counter[str] | None = None,
    show_progress_bar: bool = False,
    **options: Any,
) -> list[tuple[str, ...]]:
    """Finds wrong translations among the targets of some pairs that are similar to the right ones.

    Texts that differ only in case, in spaces or in forms of their characters are one text.
    Right answers are also the targets of pairs with the same source.

    Args:
        encode: The model, or its `encode`: n texts to `[n, dim]`. It may come after the pairs.
        pairs: Source and target of each pair, in a list or a table, as `fine_tune` takes them.
        config: Which similar targets are taken; None: the nearest five.
        dataset: The pairs, by sentence-transformers' name.
        model: The model, by sentence-transformers' name.
        anchor_column_name: The table's column of sources, if its name does not tell.
        positive_column_name: The table's column of targets, likewise.
        corpus: More texts that may be negatives, beside the targets.
        query_prompt: Put before each source, if sources are the queries.
        corpus_prompt: Put before each target.
        batch_size: Given to `encode`; None: its default.
        counts: Gets the numbers of pairs by their negatives, and of candidates dropped by each rule.
        show_progress_bar: Whether to show bars.
        options: Attributes of `MiningConfig`, which replace those of `config`. Other options of
            sentence-transformers are refused, or change nothing.

    Returns:
        The negatives of each pair, nearest first; fewer where fewer pass.

    Raises:
        UserError: The pairs or the model are missing, a row is no pair, or an option is not supported.

    Example:
        >>> angles = {"dos": 0.0, "dos ": 0.0, "tres": 0.1, "mil": 2.0}
        >>> encode = lambda texts: np.array([[np.cos(angles[t]), np.sin(angles[t])] for t in texts])
        >>> pairs = [("two", "dos"), ("three", "tres"), ("thousand", "mil")]
        >>> mine_hard_negatives(encode, pairs, MiningConfig(num_negatives=1))
        [('tres',), ('dos',), ('tres',)]
    """
    config, counts = _configured(config, options), Counter() if counts is None else counts
    encode, pairs = _in_order(encode if model is None else model, pairs if dataset is None else dataset)
    columns = [name for name in (anchor_column_name, positive_column_name) if name is not None]
    if len(columns) == 1:
        raise UserError(f"anchor_column_name and positive_column_name are expected, got only {columns[0]!r}")
    if query_prompt is not None and config.query != "source":
        raise UserError(
            "query_prompt needs query='source'; here the queries are targets, which have corpus_prompt"
        )
    if batch_size is not None:
        require_positive(batch_size, "batch_size")
        encode = partial(encode, batch_size=batch_size)
    read = read_pairs(pairs, columns)
    if odd := next((pair for pair in read if pair.score is not None or pair.wrong), None):
        raise UserError(f"pairs of two texts are expected, got {odd}; give only these two columns")
    targets, positives = _distinct([*(pair.second for pair in read), *as_texts(corpus, "corpus")])
    sources, groups = _distinct([pair.first for pair in read])
    positives = positives[: len(read)]
    candidates = _embed(targets, encode, corpus_prompt, show_progress_bar)
    queries, rows = candidates, positives
    if config.query == "source":
        queries, rows = _embed(sources, encode, query_prompt, show_progress_bar), groups
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
    counts.update({"pairs": len(read), "distinct targets": len(targets)})
    counts.update({f"pairs with {n}": numbers[n] for n in range(config.num_negatives + 1)})
    counts.update({f"dropped by {rule}": count for rule, count in dropped.items()})
    return negatives


def _configured(config: Any, options: dict[str, Any]) -> MiningConfig:
    """Replaces attributes of a config by options; refuses options that are not supported."""
    if config is not None and not isinstance(config, MiningConfig):
        raise UserError(f"config must be a MiningConfig, got {config!r}; give other options by their names")
    known = {field.name for field in fields(MiningConfig)}
    for name, value in options.items():
        if name in _UNSUPPORTED and value is not None and value is not False:
            raise UserError(f"{name} is not supported; {_UNSUPPORTED[name]}")
        if name not in {*known, *_UNSUPPORTED, *_WITHOUT_EFFECT}:
            raise TypeError(f"mine_hard_negatives() got an unexpected keyword argument {name!r}")
    return replace(config or MiningConfig(), **{name: options[name] for name in known & {*options}})


def _in_order(some: Any, other: Any) -> tuple[Callable[..., Any], Any]:
    """Tells a model and pairs apart, in either order; returns the model's function of texts first."""
    for model, pairs in ((some, other), (other, some)):
        if isinstance(model, str):  # strings have an encode too
            continue
        if callable(getattr(type(model), "encode", None)):
            return model.encode, pairs
        if callable(model):
            return model, pairs
    raise UserError(
        f"a model and pairs are expected, got {type(some).__name__} and {type(other).__name__}; load a model "
        "with xling_tf.load, and call mine_hard_negatives(model, [(source, target), ...])"
    )


def _embed(
    texts: Sequence[str], encode: Callable[..., Any], prompt: str | None, show_progress: bool
) -> NDArray[np.float16]:
    """Encodes texts, with a prompt before each, into `[texts, dim]` unit vectors of half precision."""
    parts = []
    for start in tqdm(range(0, len(texts), _ENCODED), "encoding", disable=not (show_progress and sys.stderr)):
        part = [(prompt or "") + text for text in texts[start : start + _ENCODED]]
        vectors = unit_vectors(encode(part), "encodings")
        if len(vectors) != len(part):
            raise UserError(
                f"a model that gives a vector for each of {len(part)} texts is expected, but this one gave "
                f"{len(vectors)}"
            )
        parts.append(vectors.astype(np.float16))
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
        failures["absolute_margin"] = found.scores > right_scores - config.absolute_margin + _ROUNDING
    if config.relative_margin is not None:
        # Not (1 - margin) times the score, which for a negative score would lie above it.
        most = right_scores - np.abs(right_scores) * config.relative_margin
        failures["relative_margin"] = found.scores > most + _ROUNDING
    if config.max_score is not None:
        failures["max_score"] = found.scores > config.max_score + _ROUNDING
    if config.min_score is not None:
        failures["min_score"] = found.scores < config.min_score - _ROUNDING
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
