"""Held-out pairs: how well a model finds each one's right text, before and after a training."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import inf, sqrt
from typing import Any

import numpy as np
from absl import logging
from numpy.typing import NDArray
from scipy import stats

from xling_tf.client.batches import encode_in_batches
from xling_tf.corpora.split import normalised
from xling_tf.corpora.store import StoredCorpus, StoredRecords
from xling_tf.evaluators.ranking import inner_products, relevant_ranks

Encode = Callable[[list[str]], Any]

_MOST_QUERIES, _MOST_ANSWERS = 1000, 2000
_FEW = 200  # pairs, whose scores have wide intervals
_CHANCE = 0.05  # from which a difference may be chance
_RESAMPLES = 500
_PATIENCE = 3  # worse scores in a row that end a training
# Shares of right answers, from which something is said about a start.
_BAD, _GOOD = 0.2, 0.98


class HeldOutPairs:
    """Scores a model on held-out pairs: the right text among all different second texts.

    The candidates are the second texts of all pairs (at most 2,000), those of held-out pairs first.
    All second texts that a first text has in any pair are right for it. Ties count as errors.

    Args:
        held_out: Pairs of texts that are not trained on.
        train: The other pairs.

    Examples:
        >>> pairs = HeldOutPairs([("a", "b"), ("c", "d")], [("e", "d")])
        >>> vectors = {"a": [1.0, 0.0], "b": [0.8, 0.6], "c": [0.9, 0.1], "d": [0.0, 1.0]}
        >>> outcome = pairs.measure(lambda texts: np.array([vectors[text] for text in texts]))
        >>> outcome.tolist(), pairs.score(outcome), pairs.metrics(outcome)["precision_at_1"]
        ([1.0, 0.5], 0.75, 0.5)
    """

    def __init__(
        self, held_out: Sequence[tuple[str, str]], train: Sequence[tuple[str, str]]
    ) -> None:
        right: defaultdict[str, set[str]] = defaultdict(set)
        for first, second in (*held_out, *train):
            right[normalised(first)].add(normalised(second))
        answers = {normalised(second): second for _, second in (*train[::-1], *held_out[::-1])}
        keys = [*reversed(answers)][:_MOST_ANSWERS]
        places = {key: place for place, key in enumerate(keys)}
        self._answers = [answers[key] for key in keys]
        queries = {normalised(first): first for first, _ in held_out}
        self._queries, self._right = [], list[list[int]]()
        for key, text in [*queries.items()][:_MOST_QUERIES]:
            if found := [places[answer] for answer in right[key] if answer in places]:
                self._queries.append(text)
                self._right.append(found)

    @property
    def can_score(self) -> bool:
        """False if there are too few pairs for a wrong answer."""
        return bool(self._queries) and len(self._answers) > max(map(len, self._right))

    @property
    def title(self) -> str:
        """What is measured, such as "P@1 of 83 held-out pairs among 800 answers"."""
        pairs, answers = len(self._queries), len(self._answers)
        return f"P@1 of {pairs} held-out pairs among {answers} answers"

    def measure(self, encode: Encode) -> NDArray[np.float64]:
        """Returns the reciprocal rank of the best right text of each held-out first text."""
        queries, answers = (_encode(encode, texts) for texts in (self._queries, self._answers))
        ranks = relevant_ranks(inner_products(queries, answers), self._right)
        return np.array([1 / rank[0] for rank in ranks])

    def score(self, outcome: NDArray[np.float64]) -> float:
        """Returns the mean reciprocal rank, which chooses a checkpoint."""
        return float(outcome.mean())

    def metrics(self, outcome: NDArray[np.float64]) -> dict[str, float]:
        """Returns P@1 with its 95% interval, the mean reciprocal rank, and numbers of texts."""
        hits, count = int(np.sum(outcome == 1)), len(outcome)
        low, high = wilson(hits, count)
        return {
            "precision_at_1": hits / count,
            "precision_at_1_low": low,
            "precision_at_1_high": high,
            "mean_reciprocal_rank": self.score(outcome),
            "num_pairs": float(count),
            "num_candidates": float(len(self._answers)),
        }

    def described(self, outcome: NDArray[np.float64]) -> str:
        """Returns P@1 with its interval, in percent."""
        hits, count = int(np.sum(outcome == 1)), len(outcome)
        return _with_interval(hits / count, wilson(hits, count))

    def comparison(self, before: NDArray[np.float64], after: NDArray[np.float64]) -> str:
        """Returns a sentence on a training: both scores, and whether they differ clearly.

        They do by a sign test of the pairs that only one of the two models gets right (McNemar
        1947).
        """
        gained = int(np.sum((after == 1) & (before < 1)))
        lost = int(np.sum((before == 1) & (after < 1)))
        chance = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
        gain = (gained - lost) / len(before)
        return _sentence(
            self.title, self.described(before), self.described(after), gain, chance, len(before)
        )

    def warning(self, outcome: NDArray[np.float64]) -> str:
        """Returns what the score of a start suggests; "" for nothing."""
        share = float(np.mean(outcome == 1))
        if share < _BAD:
            return (
                "the start finds few of the right texts: check that the rows are aligned, that the "
                "sides are not swapped, and that the model knows the languages"
            )
        if share > _GOOD:
            return "the start finds nearly all of the right texts, so there is little to learn"
        return ""


class HeldOutScores:
    """Scores a model on held-out pairs with scores: Spearman's correlation with the cosines.

    Args:
        pairs: Pairs of texts that are not trained on.
        scores: `[pairs]` scores, on any scale.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]], scores: Sequence[float]) -> None:
        self._sides = [[pair[side] for pair in pairs][:_MOST_QUERIES] for side in (0, 1)]
        self._scores = np.array(scores[:_MOST_QUERIES], float)

    @property
    def can_score(self) -> bool:
        """False if there are too few different scores for a correlation."""
        return len(self._scores) > 3 and len({*self._scores}) > 1

    @property
    def title(self) -> str:
        """What is measured."""
        return f"Spearman's correlation (in percent) of {len(self._scores)} held-out pairs"

    def measure(self, encode: Encode) -> NDArray[np.float64]:
        """Returns the `[pairs]` cosines."""
        first, second = (_encode(encode, texts) for texts in self._sides)
        return np.asarray(np.sum(first * second, axis=1), float)

    def score(self, outcome: NDArray[np.float64]) -> float:
        """Returns the correlation; 0 if all cosines are equal."""
        return _spearman(outcome, self._scores)

    def metrics(self, outcome: NDArray[np.float64]) -> dict[str, float]:
        """Returns the correlation with its 95% interval, and the number of pairs."""
        value = self.score(outcome)
        low, high = self._interval(value)
        return {
            "spearman": value,
            "spearman_low": low,
            "spearman_high": high,
            "num_pairs": float(len(outcome)),
        }

    def described(self, outcome: NDArray[np.float64]) -> str:
        """Returns the correlation with its interval, in percent."""
        value = self.score(outcome)
        return _with_interval(value, self._interval(value))

    def comparison(self, before: NDArray[np.float64], after: NDArray[np.float64]) -> str:
        """Returns a sentence on a training: both scores, and whether resampled pairs agree."""
        rng, count = np.random.default_rng(1), len(before)
        gains = []
        for _ in range(_RESAMPLES):
            rows = rng.integers(count, size=count)
            scores = self._scores[rows]
            gains.append(_spearman(after[rows], scores) - _spearman(before[rows], scores))
        chance = 2 * float(min(np.mean(np.array(gains) <= 0), np.mean(np.array(gains) >= 0)))
        gain = self.score(after) - self.score(before)
        return _sentence(
            self.title, self.described(before), self.described(after), gain, chance, count
        )

    def warning(self, outcome: NDArray[np.float64]) -> str:
        """Returns what the score of a start suggests; "" for nothing."""
        if self.score(outcome) < 0:
            return (
                "the start ranks the pairs in the opposite order: check whether the highest score "
                "means different"
            )
        return ""

    def _interval(self, value: float) -> tuple[float, float]:
        """By Fisher's transformation."""
        width = 1.96 / sqrt(max(1, len(self._scores) - 3))
        centre = np.arctanh(np.clip(value, -0.9999, 0.9999))
        return float(np.tanh(centre - width)), float(np.tanh(centre + width))


class Validation:
    """Scores a model while it trains: its curve, its best step, and whether to stop.

    The model is scored at each tenth of the budget. With `before`, the best step is kept, and three
    scores in a row that are worse than it end the training. Without `before`, the scores are only a
    curve.

    Args:
        pairs: What scores a model.
        before: What it measured of the model that training starts from; None for a curve alone.
    """

    def __init__(
        self, pairs: HeldOutPairs | HeldOutScores, before: NDArray[np.float64] | None = None
    ) -> None:
        self.pairs, self.before = pairs, before
        self.curve: list[tuple[int, float]] = []  # steps and scores
        self.is_over = False
        self._tenth, self._since = 0, 0

    def begin(self, state: Mapping[str, Any], progress: float, budget: str) -> None:
        """Takes over the state of a checkpoint. With a larger budget, patience begins anew.

        Args:
            state: What `state` returned when the checkpoint was written; {} for none.
            progress: Share of the budget that is used.
            budget: The limits of the training.
        """
        self._budget = budget
        self.curve = [(step, score) for step, score in state.get("curve", ())]
        self.is_over = state.get("over") == budget
        self._tenth, self._since = int(10 * progress), len(self.curve)

    def state(self) -> dict[str, Any]:
        """Returns JSON values for a checkpoint."""
        return {"curve": self.curve, "over": self._budget if self.is_over else ""}

    def is_due(self, progress: float) -> bool:
        """Returns True once for each tenth of the budget."""
        tenth, self._tenth = self._tenth, int(10 * progress)
        return self._tenth > tenth

    def add(self, step: int, encode: Encode) -> bool:
        """Scores the model after some steps; returns True if its weights are the best to keep."""
        outcome = self.pairs.measure(encode)
        score = self.pairs.score(outcome)
        described = self.pairs.described(outcome)
        if self.before is None:
            self.curve.append((step, score))
            logging.info("step %d: %s on held-out pairs", step, described)
            return False
        best = max((score for _, score in self.curve), default=-inf)
        self.curve.append((step, score))
        last = [score for _, score in self.curve[self._since :]][-_PATIENCE:]
        self.is_over = len(last) == _PATIENCE and max(last) < best
        remark = ", the best so far" if score >= best else ""
        logging.info(
            "step %d: %s on held-out pairs, %s before%s",
            step,
            described,
            self.pairs.described(self.before),
            remark,
        )
        if self.is_over:
            logging.info("stopping: the last %d scores are worse than the best one", _PATIENCE)
        return score >= best

    def result(self, encode: Encode) -> tuple[dict[str, dict[str, float]], str]:
        """Scores the trained model.

        Returns:
            Its scores and those of the start, by name and metric; and a sentence that compares
            them. Nothing without a start.
        """
        if self.before is None:
            return {}, ""
        after = self.pairs.measure(encode)
        scores = {
            "held-out pairs": self.pairs.metrics(after),
            "held-out pairs before": self.pairs.metrics(self.before),
        }
        return scores, self.pairs.comparison(self.before, after)

    @property
    def best_step(self) -> int:
        """The step to keep: the best one, of equal ones the last; 0 for none."""
        if self.before is None:
            return 0
        return max(self.curve, key=lambda point: (point[1], point[0]), default=(0, 0.0))[0]


def held_out_of(corpus: StoredCorpus) -> HeldOutPairs | HeldOutScores | None:
    """Returns what scores a model on the held-out pairs of a corpus; None if they are too few."""
    scorer: HeldOutPairs | HeldOutScores
    if corpus.record_type == "similarity":
        records = corpus.held_out
        scorer = HeldOutScores(_texts(records), [float(label) for label in records.labels])
    else:
        scorer = HeldOutPairs(_texts(corpus.held_out), _texts(corpus.train))
    return scorer if scorer.can_score else None


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Returns the 95% interval of a share (Wilson 1927).

    Examples:
        >>> [round(end, 3) for end in wilson(81, 83)]
        [0.916, 0.993]
    """
    low, high = stats.binomtest(hits, count).proportion_ci(method="wilson")
    return float(low), float(high)


def _encode(encode: Encode, texts: list[str]) -> NDArray[np.float64]:
    return np.asarray(encode_in_batches(encode, texts, max_rows=32, max_length=2**14), float)


def _texts(records: StoredRecords) -> list[tuple[str, str]]:
    columns = [[text.decode() for text in records.column(name)] for name in records.type.fields[:2]]
    return [*zip(*columns, strict=True)]


def _spearman(cosines: NDArray[np.float64], scores: NDArray[np.float64]) -> float:
    if np.ptp(cosines) == 0 or np.ptp(scores) == 0:
        return 0.0
    return float(stats.spearmanr(cosines, scores).statistic)


def _with_interval(value: float, interval: tuple[float, float]) -> str:
    low, high = (100 * end for end in interval)
    return f"{100 * value:.3g} ({low:.0f} to {high:.0f})"


def _sentence(title: str, before: str, after: str, gain: float, chance: float, count: int) -> str:
    verdict = "no clear difference"
    if chance < _CHANCE:
        verdict = f"a {'gain' if gain > 0 else 'loss'} of {abs(100 * gain):.1f} points"
    few = f"; {count} pairs are few" if count < _FEW else ""
    return f"{title}: {before} before, {after} after: {verdict}{few}"
