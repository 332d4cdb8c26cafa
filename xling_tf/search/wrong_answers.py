"""Wrong answers that are hard to tell from the right one, drawn from what several searches find."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from xling_tf.client.neighbours import chunks, nearest_in_chunks
from xling_tf.corpora.split import normalised

Indices = NDArray[np.int64]
# From queries and documents to the `[documents]` scores of each query.
LexicalScores = Callable[[Sequence[str], Sequence[str]], Iterable[NDArray[Any]]]

# An answer with a larger share of the right one's score may be right as well (de Souza Moreira et
# al. 2024, "NV-Retriever", sec. 3.2, "TopK-PercPos").
_SHARE = 0.95
_NEAREST = 10  # candidates of each search, from which wrong answers are drawn
_FOUND = 100  # by a search, before right answers and those above `_SHARE` are left out
_MOST_TEXTS = 100  # that questions and answers join before they no longer count as one meaning
_ROWS = 1024


class Encoders(NamedTuple):
    """Functions that encode questions and answers as unit vectors `[n, dim]`."""

    questions: Callable[[list[str]], NDArray[Any]]
    answers: Callable[[list[str]], NDArray[Any]]


@dataclass(frozen=True)
class _Vectors:
    """Vectors of the questions of some pairs, and of some answers."""

    questions: NDArray[np.float32]
    answers: NDArray[np.float32]  # those of `pool`
    pool: Indices

    def bounds(self, right: Indices) -> NDArray[np.float32]:
        """Returns the `[pairs]` cosines above which an answer may be right."""
        return _bound(self.cosines(right[:, None])[:, 0])

    def cosines(self, found: Indices) -> NDArray[np.float32]:
        """Returns the `[pairs, k]` cosines of questions and answers; infinity for -1."""
        cosines = np.full(found.shape, np.inf, np.float32)
        for rows in chunks(np.arange(len(found)), _ROWS):
            places = np.searchsorted(self.pool, np.maximum(found[rows], self.pool[0]))
            scores = np.einsum("nd,nkd->nk", self.questions[rows], self.answers[places])
            cosines[rows] = np.where(found[rows] < 0, np.inf, scores)
        return cosines


class Answers:
    """The questions of a corpus and their right answers.

    Texts that differ only in case, spaces or Unicode form are one text. An answer is also right for
    a question if a chain of questions with shared answers joins them.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        questions, self._question_of_pair = _numbered([question for question, _ in pairs])
        answers, right = _numbered([answer for _, answer in pairs])
        self.questions, num_questions = [pair[0] for pair in pairs], len(questions)
        self.of_pair = right  # the number of its answer
        self.first_pair = np.array(answers, np.int64)  # the first pair with an answer
        self.texts = [pairs[first][1] for first in answers]
        edges = np.ones(len(pairs), bool), (self._question_of_pair, num_questions + right)
        count = num_questions + len(answers)
        _, meanings = connected_components(coo_array(edges, shape=(count, count)), directed=False)
        # Large ones have a meaning for each text.
        is_large = np.bincount(meanings, minlength=1)[meanings] > _MOST_TEXTS
        meanings = np.where(is_large, count + np.arange(count), meanings)
        self._question_meanings = meanings[self._question_of_pair]
        self._answer_meanings = meanings[num_questions:]
        self._known = np.unique(self._question_of_pair * len(answers) + right)

    def are_wrong(self, pairs: Indices, found: Indices) -> NDArray[np.bool_]:
        """Returns whether the `[pairs, k]` answers are wrong ones; False for -1."""
        same = self._answer_meanings[found] == self._question_meanings[pairs, None]
        keys = self._question_of_pair[pairs, None] * len(self.texts) + found
        # Not `np.isin`, which would sort what is known for each question.
        places = np.minimum(np.searchsorted(self._known, keys), len(self._known) - 1)
        return (found >= 0) & ~same & (self._known[places] != keys)


def find_wrong_answers(
    pairs: Sequence[tuple[str, str]],
    rows: Indices,
    count: int,
    *,
    lexical: LexicalScores | None = None,
    models: Sequence[Encoders] = (),
    seed: int = 0,
) -> NDArray[np.int32]:
    """Draws wrong answers to questions from the ten nearest that each search finds.

    The searches take turns. They leave out the right answers, those of questions that share an
    answer with this one, and those with more than 0.95 of the right answer's score by any of the
    models, or by the lexical search if there are no models.

    Args:
        pairs: Questions and right answers.
        rows: `[n]` pairs to find wrong answers for. If they are not all pairs, models search only
            the answers of these and those that the lexical search finds, which takes less time.
        count: Number of wrong answers of a pair.
        lexical: Scores of words, such as BM25's.
        models: Encoders of each model.
        seed: Of the draws.

    Returns:
        `[n, count]` pairs whose answers are wrong for the question. If there are fewer, the pair
        itself fills the row.

    Examples:
        >>> pairs = [("who sings", "she sings well"), ("who ran well", "he ran well")]
        >>> def shared_words(questions, answers):
        ...     words = [set(answer.split()) for answer in answers]
        ...     return (np.array([len(w & {*q.split()}) for w in words]) for q in questions)
        >>> find_wrong_answers(pairs, np.arange(2), 1, lexical=shared_words).tolist()
        [[0], [0]]
    """
    answers = Answers(pairs)
    right = answers.of_pair[rows]
    found: list[Indices] = []  # by each search, `[n, _NEAREST]`, -1 for none
    if lexical is not None:
        found.append(_lexical(answers, rows, lexical, with_bound=not models))
    pool = np.arange(len(answers.texts))
    if len(rows) < len(pairs):
        pool = np.unique(np.concatenate([right, *(part[part >= 0] for part in found)]))
    judges = [_encoded(answers, rows, pool, encoders) for encoders in models]
    found += [_nearest(answers, rows, judge) for judge in judges]
    for judge in judges:
        bounds = judge.bounds(right)[:, None]
        found = [np.where(judge.cosines(part) <= bounds, part, -1) for part in found]
    random, chosen = np.random.default_rng(seed), np.tile(rows[:, None], count).astype(np.int32)
    for number, parts in enumerate(zip(*found, strict=True)):
        drawn = [random.permutation(part[part >= 0]).tolist() for part in parts]
        in_turn = chain.from_iterable(zip_longest(*drawn))
        distinct = [*dict.fromkeys(answer for answer in in_turn if answer is not None)][:count]
        chosen[number, : len(distinct)] = answers.first_pair[distinct]
    return chosen


def _lexical(
    answers: Answers, rows: Indices, lexical: LexicalScores, *, with_bound: bool
) -> Indices:
    """Returns the `[rows, _NEAREST]` best wrong answers by words, -1 for none."""
    best, right = [], answers.of_pair[rows]
    queries = [answers.questions[row] for row in rows]
    for number, scores in enumerate(lexical(queries, answers.texts)):
        k = min(_FOUND, len(scores))
        places = np.sort(np.argpartition(-scores, k - 1)[:k])
        places = places[np.argsort(-scores[places], kind="stable")]
        limit = _bound(scores[right[number]]) if with_bound else np.inf
        is_allowed = (scores[places] > 0) & (scores[places] <= limit)
        is_allowed &= answers.are_wrong(rows[number : number + 1], places[None])[0]
        best.append(_first(places[None], is_allowed[None])[0])
    return np.array(best, np.int64).reshape(len(rows), _NEAREST)


def _encoded(answers: Answers, rows: Indices, pool: Indices, encoders: Encoders) -> _Vectors:
    return _Vectors(
        np.asarray(encoders.questions([answers.questions[row] for row in rows]), np.float32),
        np.asarray(encoders.answers([answers.texts[place] for place in pool]), np.float32),
        pool,
    )


def _nearest(answers: Answers, rows: Indices, judge: _Vectors) -> Indices:
    """Returns the `[rows, _NEAREST]` nearest wrong answers within the bound, -1 for none."""
    best, bounds, start = [], judge.bounds(answers.of_pair[rows]), 0
    order, k = np.arange(len(rows)), min(_FOUND, len(judge.pool))
    for scores, places in nearest_in_chunks(judge.questions, order, judge.answers, k):
        part = slice(start, start := start + len(places))
        places = np.where(places < 0, -1, judge.pool[places])
        is_allowed = answers.are_wrong(rows[part], places) & (scores <= bounds[part, None])
        best.append(_first(places, is_allowed))
    return np.concatenate([np.zeros((0, _NEAREST), np.int64), *best])


def _bound(right: NDArray[Any]) -> NDArray[Any]:
    """Returns the scores above which an answer may be right, given the right ones'."""
    return right - (1 - _SHARE) * np.abs(right)


def _first(places: Indices, is_allowed: NDArray[np.bool_]) -> Indices:
    """Returns the first `_NEAREST` allowed places of each row, padded with -1."""
    order = np.argsort(~is_allowed, axis=1, kind="stable")[:, :_NEAREST]
    first = np.where(is_allowed, places, -1)
    first = np.take_along_axis(first, order, axis=1)
    return np.pad(first, ((0, 0), (0, _NEAREST - first.shape[1])), constant_values=-1)


def _numbered(texts: Sequence[str]) -> tuple[list[int], Indices]:
    """Returns where each distinct text comes first, and the number of each text."""
    first: dict[str, int] = {}
    keys = [normalised(text) for text in texts]
    for place, key in enumerate(keys):
        first.setdefault(key, place)
    numbers = {key: number for number, key in enumerate(first)}
    return [*first.values()], np.array([numbers[key] for key in keys], np.int64)
