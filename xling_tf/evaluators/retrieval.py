"""Translation retrieval: is the translation found among random sentences, or all of a corpus?"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xling_tf.corpora.split import normalised
from xling_tf.errors import UserError
from xling_tf.evaluators.data import Dataset, Missing, Suite
from xling_tf.evaluators.encoding import TIE, Encode, encode_checked, encode_units
from xling_tf.evaluators.parallel_texts import (
    NO_BITEXTS,
    Rows,
    datasets,
    find_bitexts,
    find_multilingual,
)
from xling_tf.search.neighbours import index_kind, nearest

_QUERIES_PER_CHUNK = 256
# Texts encoded at a time: of a corpus of millions no double-precision copy is made as a whole.
_TEXTS_PER_CHUNK = 65_536
# Right answers of one query for which room is made in its search.
_MOST_ANSWERS = 10
# What Yu et al. 2018 use: 5,000 sentences of Europarl, and WMT's newstest2012.
_NO_TEXTS = Missing(
    name="europarl",
    expected="similarity_search/<name>.tsv, a column a language (data/convert.py --format parallel_lines)",
)


class TranslationRetrieval:
    """Precision at 1, 3 and 10 of finding a sentence's translation, in both directions.

    Each query's translation is ranked by dot product among candidates drawn at random from the
    other pairs (Chidambaram et al. 2019, sec. 3.4: the right one and K = 999 others), the same for every
    system and order of `pairs`. Other translations of the query are never candidates. A tie counts
    against the system.

    Args:
        pairs: Translations held out of training: a source and a target each.
        source: The language of their sources, as "en".
        target: The language of their targets, as "es".
        name: What results call this evaluator.
        num_candidates: The right translation and the others; fewer where there are too few pairs.
        max_queries: The queries of a direction; more pairs than this are sampled.
        seed: Of sampling and drawing.

    Raises:
        UserError: There are no two pairs that differ on both sides.

    Example:
        >>> pairs = [("one", "uno"), ("two", "dos")]
        >>> evaluator = TranslationRetrieval(pairs, source="en", target="es", name="numbers")
        >>> vectors = {"one": [1, 0], "uno": [1, 0], "two": [0, 1], "dos": [0, 1]}
        >>> scores = evaluator(lambda texts: np.array([vectors[text] for text in texts]))
        >>> scores["en-es/precision_at_1"]
        1.0
    """

    def __init__(
        self,
        pairs: Sequence[tuple[Any, ...]],
        *,
        source: str,
        target: str,
        name: str,
        num_candidates: int = 1000,
        max_queries: int = 5000,
        seed: int = 0,
    ) -> None:
        self.name = name
        self.protocol: Mapping[str, Any] = {
            "num_candidates": num_candidates,
            "max_queries": max_queries,
            "seed": seed,
            "num_pairs": len(pairs),
        }
        rng = np.random.default_rng(seed)
        distinct = _distinct(pairs)
        # The sampled pairs are the pool of candidates too: no more is encoded than is asked for.
        order = rng.permutation(len(distinct))[: max(max_queries, num_candidates)]
        pool = [distinct[index] for index in order]
        self.pairs = [pair[:2] for pair in pool]
        self._texts = [list(dict.fromkeys(pair[side] for pair in pool)) for side in (0, 1)]
        rows = [{text: row for row, text in enumerate(texts)} for texts in self._texts]
        self._directions = {}
        for side, direction in enumerate((f"{source}-{target}", f"{target}-{source}")):
            here, there = rows[side], rows[1 - side]
            translations: defaultdict[str, list[int]] = defaultdict(list)
            for pair in distinct:
                if pair[1 - side] in there:
                    translations[pair[side]].append(there[pair[1 - side]])
            asked = pool[:max_queries]
            num_right = max((len(translations[pair[side]]) for pair in asked), default=0)
            num_others = min(num_candidates - 1, len(there) - num_right)
            if num_others < 1:
                raise UserError(
                    f"{name} must have pairs with different sentences on both sides, but {len(there)} of "
                    f"one side came in {len(pool)} pairs; give more data"
                )
            drawn = []
            for pair in asked:
                # As many more are drawn as may have to go, so that those that stay are still a fair draw.
                right, valid = there[pair[1 - side]], translations[pair[side]]
                others = rng.choice(len(there), num_others + len(valid), replace=False)
                drawn.append(np.append(right, others[~np.isin(others, valid)][:num_others]))
            queries = [here[pair[side]] for pair in asked]
            self._directions[direction] = (np.array(queries), np.array(drawn, np.int32))

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "<query>-<candidate language>/precision_at_<k>", "num_queries", "num_candidates"."""
        vectors = [encode_checked(encode, texts) for texts in self._texts]
        scores: dict[str, float] = {}
        for side, (direction, (queries, candidates)) in enumerate(self._directions.items()):
            ranks = _ranks(vectors[side][queries], vectors[1 - side], candidates)
            for k in (1, 3, 10):
                scores[f"{direction}/precision_at_{k}"] = float(np.mean(ranks <= k))
        shapes = [candidates.shape for _, candidates in self._directions.values()]
        counts = np.min(shapes, axis=0).astype(float).tolist()
        return scores | dict(zip(("num_queries", "num_candidates"), counts, strict=True))


def _distinct(pairs: Iterable[tuple[Any, ...]]) -> list[tuple[str, ...]]:
    """Texts that differ in case or spaces only are one text, spelt as in the first pair by order."""
    spellings: tuple[dict[str, str], dict[str, str]] = ({}, {})
    spelt = (
        tuple(known.setdefault(normalised(text), text) for known, text in zip(spellings, pair, strict=False))
        for pair in sorted(pairs)
    )
    return list(dict.fromkeys(spelt))


def _ranks(
    queries: NDArray[np.float64], texts: NDArray[np.float64], candidates: NDArray[np.int32]
) -> NDArray[np.int64]:
    """The ranks of the first candidates, which are the right ones; the candidates are rows of texts."""
    # A matrix product of a few queries and all texts is faster than gathering each query's candidates.
    lengths = np.linalg.norm(texts, axis=1)
    ranks = []
    for start in range(0, len(queries), _QUERIES_PER_CHUNK):
        chunk = queries[start : start + _QUERIES_PER_CHUNK]
        rows = candidates[start : start + _QUERIES_PER_CHUNK]
        scores = np.take_along_axis(chunk @ texts.T, rows, axis=1)
        tie = TIE * np.linalg.norm(chunk, axis=1) * lengths[rows[:, 0]]
        ranks.append(np.sum(scores >= (scores[:, 0] - tie)[:, np.newaxis], axis=1))
    return np.concatenate(ranks)


class SimilaritySearch:
    """The error of finding each sentence's translation, for every ordered pair of languages.

    Schwenk and Douze 2017; Yu et al. 2018, sec. 4 and Table 2, which gives the accuracy, and where the
    corpus' copies of a sentence are errors ("strict"). Otherwise every translation that the corpus has of the
    query is right. The search by cosine is exact up to 200,000 sentences (`index_kind`). A tie counts against
    the system.

    Args:
        rows: Sentences that translate each other, one of each language.
        languages: Their codes.
        name: What results call this evaluator.

    Raises:
        UserError: There is only one language, or one has no two different sentences.

    Example:
        >>> rows = [("one", "uno", "eins"), ("two", "dos", "zwei")]
        >>> evaluator = SimilaritySearch(rows, ("en", "es", "de"), name="numbers")
        >>> vectors = {**dict.fromkeys(rows[0], [1, 0]), "two": [0, 1], "dos": [0, 1], "zwei": [1, 0]}
        >>> scores = evaluator(lambda texts: np.array([vectors[text] for text in texts]))
        >>> scores["en-es/error_rate"], scores["en-de/error_rate"], scores["de-es/error_rate"]
        (0.0, 1.0, 0.5)
    """

    def __init__(self, rows: Rows, languages: Sequence[str], *, name: str) -> None:
        # The different texts of each language in order, and each row's place among them.
        self._sides = {
            language: np.unique(np.array([row[place] for row in rows], object), return_inverse=True)
            for place, language in enumerate(languages)
        }
        counts = {language: len(texts) for language, (texts, _) in self._sides.items()}
        if len(counts) < 2 or min(counts.values()) < 2:
            raise UserError(
                f"{name} must have at least two languages with two different sentences each, but has "
                f"{counts}; give more data"
            )
        self.name = name
        self.pairs = [pair for row in rows for pair in combinations(row, 2)]
        self.protocol: Mapping[str, Any] = {
            "similarity": "cosine",
            "right": "every translation of the query's text",
            "index": index_kind(max(counts.values())),
            "num_rows": len(rows),
            "num_candidates": counts,
        }

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "mean/error_rate", each "<query>-<candidate language>/error_rate", and so "strict"."""
        shares = self._shares(encode)
        scores = dict[str, float]()
        for place, name in enumerate(("error_rate", "strict_error_rate")):
            errors = {f"{pair}/{name}": 1 - share[place] for pair, share in shares.items()}
            scores |= {f"mean/{name}": float(np.mean([*errors.values()])), **errors}
        return scores

    def _shares(self, encode: Encode) -> dict[str, tuple[float, float]]:
        """What `share_found` says, by "<query language>-<candidate language>", of every ordered pair."""
        sides = {
            code: (encode_in_chunks(encode, [*texts]), rows) for code, (texts, rows) in self._sides.items()
        }
        pairs = permutations(sides, 2)
        return {f"{one}-{other}": share_found(*sides[one], *sides[other]) for one, other in pairs}


class BitextRetrieval(SimilaritySearch):
    """Precision at 1 of finding each sentence's translation among all of a corpus, both ways.

    Yang et al. 2019, sec. 5.2 and Table 5; Artetxe and Schwenk 2019 give the error on Tatoeba. Arguments
    and what counts as found are as in `SimilaritySearch`.
    """

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "<query>-<candidate language>/precision_at_1" both ways, and their "error_rate"."""
        precisions = {pair: found for pair, (found, _) in self._shares(encode).items()}
        scores = {f"{pair}/precision_at_1": value for pair, value in precisions.items()}
        return {**scores, "error_rate": 1 - float(np.mean([*precisions.values()]))}


def encode_in_chunks(encode: Encode, texts: list[str]) -> NDArray[np.float32]:
    """Encodes texts, of which there may be millions, to unit vectors `[n, dim]`."""
    starts = range(0, len(texts), _TEXTS_PER_CHUNK)
    chunks = (encode_units(encode, texts[start : start + _TEXTS_PER_CHUNK]) for start in starts)
    return np.concatenate([chunk.astype(np.float32) for chunk in chunks])


def share_found(
    queries: NDArray[np.float32],
    query_rows: NDArray[np.int64],
    candidates: NDArray[np.float32],
    answer_rows: NDArray[np.int64],
) -> tuple[float, float]:
    """The share of rows whose query has one of its answers nearest, and nothing else as near.

    Row i says that `candidates[answer_rows[i]]` answers `queries[query_rows[i]]`; all are unit vectors
    of distinct texts. The second share is of rows whose own answer, which no other row has, is the nearest.
    """
    answers = np.unique(query_rows * len(candidates) + answer_rows)
    most = np.unique(answers // len(candidates), return_counts=True)[1].max()
    neighbours = nearest(queries, candidates, 1 + min(int(most), _MOST_ANSWERS))
    pairs = np.arange(len(queries))[:, np.newaxis] * len(candidates) + neighbours.indices
    is_wrong = (neighbours.indices >= 0) & ~np.isin(pairs, answers)
    best_wrong = np.where(is_wrong, neighbours.scores, -np.inf).max(axis=1)
    is_found = best_wrong < neighbours.scores[:, 0] - TIE
    is_own = neighbours.indices[query_rows, 0] == answer_rows
    is_alone = np.bincount(answer_rows)[answer_rows] == 1
    is_untied = (neighbours.scores[:, 1] < neighbours.scores[:, 0] - TIE)[query_rows]
    return float(np.mean(is_found[query_rows])), float(np.mean(is_own & is_alone & is_untied))


def _find(folder: Path, seed: int) -> Iterable[Dataset | Missing]:
    def make(rows: Rows, languages: Sequence[str], name: str) -> TranslationRetrieval:
        source, target = languages
        return TranslationRetrieval(rows, source=source, target=target, name=name, seed=seed)

    return datasets(find_bitexts(folder), make) or [NO_BITEXTS]


SUITES = (
    Suite(
        name="retrieval",
        title="Translation retrieval among 999 random others",
        source="Chidambaram et al. 2019, sec. 3.4",
        find=_find,
    ),
    Suite(
        name="bitext",
        title="Translation retrieval from a whole corpus",
        source="Yang et al. 2019, sec. 5.2, Table 5",
        find=lambda folder, seed: datasets(find_bitexts(folder), BitextRetrieval) or [NO_BITEXTS],
    ),
    Suite(
        name="similarity_search",
        title="Every language's sentences searched by every other's",
        source="Yu et al. 2018, sec. 4, Table 2",
        find=lambda folder, seed: datasets(find_multilingual(folder), SimilaritySearch) or [_NO_TEXTS],
    ),
)
