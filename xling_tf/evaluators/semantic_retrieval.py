"""Semantic retrieval: are a question's paraphrases found among all other questions?"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from xling_tf.errors import UserError
from xling_tf.evaluators import data
from xling_tf.evaluators.data import Dataset, Missing
from xling_tf.evaluators.encoding import TIE, Encode, encode_units

CUTOFF = 100  # Yang et al. 2019, Table 4: MAP@100

_SCORES_PER_CHUNK = 2**23
_MISSING = Missing(
    name="quora.en",
    expected="paraphrase/<name>.<language>[.<split>].tsv, in several languages the same pairs in the same "
    "order (columns label, question1, question2; data/convert.py --format quora, askubuntu or pawsx)",
)


Pairs = Sequence[tuple[str, str, bool]]  # two texts and whether they mean the same


class SemanticRetrieval:
    """MAP@100 of finding the paraphrases of a question among all questions.

    Each text of a pair that means the same is a query that should retrieve its transitive closure by
    cosine among all texts but itself (Yang et al. 2019, sec. 5.1 and Table 4, following Gillick et al.
    2018). A tie counts against the system. Of several languages each is searched with the queries of
    each other one, without the query's own original (sec. 5.4 and Table 7).

    Args:
        pairs: Two texts and whether they mean the same; in every language the same pairs in order.
        name: What results call this evaluator.

    Raises:
        UserError: No two texts mean the same, or the languages do not have the same pairs.

    Example:
        >>> pairs = [("hi", "hello", True), ("hi", "bye", False)]
        >>> evaluator = SemanticRetrieval({"en": pairs}, name="greetings")
        >>> vectors = {"hi": [1, 0], "hello": [4, 3], "bye": [3, 4]}
        >>> scores = evaluator(lambda texts: np.array([vectors[text] for text in texts]))
        >>> scores["mean_average_precision_at_100"]  # "hello" first finds "bye": (1 + 1/2) / 2
        0.75
    """

    def __init__(self, pairs: Mapping[str, Pairs], *, name: str) -> None:
        self.name = name
        self._texts: dict[str, list[str]] = {}
        self._rows: dict[str, NDArray[np.int64]] = {}
        self.pairs = [row[:2] for rows in pairs.values() for row in rows]
        labels = [[same for _, _, same in rows] for rows in pairs.values()]
        for language, rows in pairs.items():
            both = np.array([row[:2] for row in rows], object)
            texts, places = np.unique(both, return_inverse=True)
            self._texts[language], self._rows[language] = list(texts), places.reshape(-1, 2)
        self._duplicate = np.array(labels[0], bool)
        first, second = next(iter(self._rows.values()))[self._duplicate].T
        if labels.count(labels[0]) < len(labels) or not np.any(first != second):
            counts = {language: len(rows) for language, rows in pairs.items()}
            raise UserError(
                f"{name} must have different texts that mean the same, and in every language the same "
                f"pairs in the same order, but its pairs are others or none: {counts}; correct the data"
            )
        self.protocol: Mapping[str, Any] = {
            "similarity": "cosine",
            "cutoff": CUTOFF,
            "ties": "against the system",
            "query_among_candidates": False,
            "num_pairs": len(self._duplicate),
            "num_duplicate_pairs": int(self._duplicate.sum()),
        }

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "mean_average_precision_at_100", "num_queries" and "num_candidates".

        Of several languages for each direction, as "<query language>-<candidate language>/num_queries".
        """
        units = {code: encode_units(encode, texts) for code, texts in self._texts.items()}
        scores: dict[str, float] = {}
        for asked, searched in list(permutations(units, 2)) or [(only, only) for only in units]:
            prefix = "" if asked == searched else f"{asked}-{searched}/"
            originals, relevant = self._closure(searched)
            # Of several translations the first one by order, in whatever line it stands.
            translation = np.full(len(units[searched]), np.iinfo(np.int64).max)
            np.minimum.at(translation, self._rows[searched].ravel(), self._rows[asked].ravel())
            queries = units[asked][translation[originals]]
            products = inner_products(queries, units[searched])
            ranks = relevant_ranks(products, relevant, itself=originals)
            precisions = [average_precision(query, CUTOFF) for query in ranks]
            scores[f"{prefix}mean_average_precision_at_{CUTOFF}"] = float(np.mean(precisions))
            scores[f"{prefix}num_queries"] = float(len(queries))
            scores[f"{prefix}num_candidates"] = float(len(units[searched]) - 1)
        return scores

    def _closure(self, language: str) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
        """The texts with paraphrases, and of each the others of its connected component."""
        edges, size = self._rows[language][self._duplicate].T, len(self._texts[language])
        graph = coo_array((np.ones(edges.shape[1]), tuple(edges)), [size, size])
        labels = connected_components(graph, directed=False)[1]
        order = np.argsort(labels, kind="stable")
        members = np.split(order, np.cumsum(np.bincount(labels))[:-1])
        originals = np.flatnonzero(np.bincount(labels)[labels] > 1)
        return originals, [members[labels[i]][members[labels[i]] != i] for i in originals]


def inner_products(
    queries: NDArray[np.float64], candidates: NDArray[np.float64]
) -> Iterator[NDArray[np.float64]]:
    """Yields some rows of `queries @ candidates.T` at a time."""
    rows = max(1, _SCORES_PER_CHUNK // len(candidates))
    for start in range(0, len(queries), rows):
        yield queries[start : start + rows] @ candidates.T


def relevant_ranks(
    chunks: Iterable[NDArray[np.floating]],
    relevant: Sequence[Sequence[int] | NDArray[np.integer]],
    *,
    itself: NDArray[np.integer] | None = None,
) -> list[NDArray[np.int64]]:
    """The ranks of each query's relevant candidates (columns) among all but `itself`, the best first.

    Of candidates with the same score those that are not relevant come first, so that a tie counts
    against the system. `chunks` are scores `[rows, candidates]` of a few queries at a time.
    """
    ranks: list[NDArray[np.int64]] = []
    for scores in (row for chunk in chunks for row in chunk):
        right = np.asarray(relevant[len(ranks)])
        floors = np.sort(scores[right])[::-1] - TIE * np.abs(scores).max()
        is_other = np.ones(len(scores), bool)
        is_other[right] = False
        if itself is not None:
            is_other[itself[len(ranks)]] = False
        ahead = np.sort(scores[is_other & (scores >= floors[-1])])
        num_ahead = len(ahead) - np.searchsorted(ahead, floors)
        ranks.append(np.arange(1, len(floors) + 1) + num_ahead)
    return ranks


def average_precision(ranks: NDArray[np.int64], k: int) -> float:
    """The mean precision at the ascending ranks of the relevant; above k they count as not found.

    Where more than k are relevant, k are what can be found, so that 1 can always be reached.
    """
    found = ranks[ranks <= k]
    return float(np.sum(np.arange(1, len(found) + 1) / found) / min(len(ranks), k))


def read_pairs(path: Path) -> Pairs:
    """Reads pairs: `label` (1: the same, 0: not) and `question1`, `question2` or `sentence1`, `sentence2`."""
    text = "sentence" if "sentence1" in data.header_of(path) else "question"
    rows = data.read_table(path, (f"{text}1", f"{text}2", "label"))
    if wrong := {label for _, _, label in rows} - {"0", "1"}:
        bad = min(wrong)[:80]
        raise UserError(f"{path} must have the labels 0 and 1, but has {bad!r}; correct it")
    return [(first, second, label == "1") for first, second, label in rows]


def _find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    sets: defaultdict[str, dict[str, Path]] = defaultdict(dict)
    for name, languages in data.find_tables(folder / "paraphrase").items():
        for language, splits in languages.items():
            for split, path in splits.items():
                end = f".{split}" if split else ""
                sets[f"{name}.{language}{end}"][language] = path
                sets[f"cross-lingual.{name}{end}"][language] = path
    for name, paths in sets.items():
        if len(paths) > 1 or not name.startswith("cross-lingual."):
            yield Dataset(name=name, files=(*paths.values(),), load=partial(_load, name, paths))
    if not sets:
        yield _MISSING


def _load(name: str, paths: Mapping[str, Path]) -> SemanticRetrieval:
    pairs = {language: read_pairs(path) for language, path in paths.items()}
    return SemanticRetrieval(pairs, name=name)


SUITE = data.Suite(
    name="semantic_retrieval",
    title="Paraphrases of a question among all questions",
    source="Yang et al. 2019, sec. 5.1 and 5.4, Tables 4 and 7",
    find=_find,
)
