"""Semantic retrieval: are a question's paraphrases found among all other questions?"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from xling_tf.errors import UserError
from xling_tf.evaluators.data import Dataset, Missing, Suite, find_file, stem_of
from xling_tf.evaluators.encoding import Encode, encode_checked
from xling_tf.evaluators.ranking.metrics import (
    inner_products,
    mean_average_precision,
    relevant_ranks,
    unit_vectors,
)
from xling_tf.evaluators.ranking.paraphrase_files import (
    Pair,
    read_askubuntu,
    read_pairs,
    read_quora,
)

CUTOFF = 100  # Yang et al. 2019, Table 4: MAP@100

_TABLE_NAME = re.compile(r"(?P<name>[^.]+)\.(?P<language>[a-z-]+)\.(?P<split>[^.]+)")
_QUORA = "quora_duplicate_questions.tsv"
_ASKUBUNTU = "askubuntu"
_CORPUS = "text_tokenized.txt"


class _Direction(NamedTuple):
    prefix: str  # of the names of its scores
    asked: str  # the language of the queries
    searched: str  # the language of the candidates
    queries: NDArray[np.int64]  # [num_queries], rows of the texts in the language asked
    originals: NDArray[np.int64]  # [num_queries], rows of the same questions among the candidates
    relevant: list[NDArray[np.int64]]  # of each query, rows of its paraphrases


class SemanticRetrieval:
    """MAP@100 of finding the paraphrases of a question among all questions.

    The pairs that mean the same are the edges of a graph; each text that has an edge is a query that
    should retrieve all others of its connected component, by cosine (Yang et al. 2019, sec. 5.1 and
    Table 4, following Gillick et al. 2018; the transitive closure). All texts of the data are
    candidates but the query itself. A tie counts against the system.

    Given in several languages, each is searched with the queries of each other one (sec. 5.4 and
    Table 7), and the query's own original is left out of the candidates as above.

    Args:
        pairs: The data by language; in each the same pairs in the same order.
        name: What results call this evaluator.
        further: Candidates beside those in the pairs, where there is one language.

    Raises:
        UserError: No two texts mean the same, or the languages do not have the same pairs.

    Example:
        >>> pairs = [Pair("hi", "hello", True), Pair("hi", "bye", False)]
        >>> evaluator = SemanticRetrieval({"en": pairs}, name="greetings")
        >>> vectors = {"hi": [1, 0], "hello": [4, 3], "bye": [3, 4]}
        >>> scores = evaluator(lambda texts: np.array([vectors[text] for text in texts]))
        >>> scores["mean_average_precision_at_100"]  # "hello" first finds "bye": (1 + 1/2) / 2
        0.75
    """

    def __init__(
        self, pairs: Mapping[str, Sequence[Pair]], *, name: str, further: Sequence[str] = ()
    ) -> None:
        self.name = name
        duplicates = [[pair.duplicate for pair in rows] for rows in pairs.values()]
        if not any(duplicates[0]) or any(flags != duplicates[0] for flags in duplicates):
            raise UserError(
                f"{name} must have pairs that mean the same, and in every language the same pairs in "
                f"the same order, but {_counts(pairs)}; correct the data"
            )
        self._texts = {
            language: sorted({text for pair in rows for text in pair[:2]}.union(further))
            for language, rows in pairs.items()
        }
        rows = {language: _rows(self._texts[language], pairs[language]) for language in pairs}
        ways = list(permutations(pairs, 2)) or [(only, only) for only in pairs]
        self._directions = [
            _direction(way, rows, np.array(duplicates[0]), len(self._texts[way[1]])) for way in ways
        ]
        if not all(len(direction.queries) for direction in self._directions):
            raise UserError(
                f"{name} must have two different texts that mean the same, but its duplicates are "
                "pairs of equal texts; correct the data"
            )
        self.protocol: Mapping[str, Any] = {
            "similarity": "cosine",
            "cutoff": CUTOFF,
            "ties": "against the system",
            "query_among_candidates": False,
            "num_pairs": len(duplicates[0]),
            "num_duplicate_pairs": sum(duplicates[0]),
        }

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Searches with every query.

        Args:
            encode: The system.

        Returns:
            "mean_average_precision_at_100", "num_queries" and "num_candidates"; of several
            languages for each direction, as "<query language>-<candidate language>/num_queries".

        Raises:
            UserError: The system gave something else than a finite vector for each text.
        """
        units = {
            language: unit_vectors(encode_checked(encode, texts))
            for language, texts in self._texts.items()
        }
        scores: dict[str, float] = {}
        for prefix, asked, searched, queries, originals, relevant in self._directions:
            products = inner_products(units[asked][queries], units[searched])
            ranks = relevant_ranks(products, relevant, itself=originals)
            metric = f"{prefix}mean_average_precision_at_{CUTOFF}"
            scores[metric] = mean_average_precision(ranks, CUTOFF)
            scores[f"{prefix}num_queries"] = float(len(queries))
            scores[f"{prefix}num_candidates"] = float(len(units[searched]) - 1)
        return scores


def _counts(pairs: Mapping[str, Sequence[Pair]]) -> str:
    return ", ".join(
        f"{language} has {len(rows)} pairs, {sum(pair.duplicate for pair in rows)} of them duplicates"
        for language, rows in pairs.items()
    )


def _rows(texts: list[str], pairs: Sequence[Pair]) -> NDArray[np.int64]:
    row_of = {text: row for row, text in enumerate(texts)}
    return np.array([[row_of[pair.first], row_of[pair.second]] for pair in pairs])


def _direction(
    way: tuple[str, str],
    rows: Mapping[str, NDArray[np.int64]],
    duplicate: NDArray[np.bool_],
    num_candidates: int,
) -> _Direction:
    asked, searched = way
    edges = rows[searched][duplicate].T
    graph = coo_array((np.ones(edges.shape[1]), tuple(edges)), [num_candidates, num_candidates])
    labels = connected_components(graph, directed=False)[1]
    order = np.argsort(labels, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(labels))[:-1])
    originals = np.flatnonzero(np.bincount(labels)[labels] > 1)
    # Rows are in the order of the texts: of several translations the first one, in whatever line.
    translation = np.full(num_candidates, np.iinfo(np.int64).max)
    np.minimum.at(translation, rows[searched].ravel(), rows[asked].ravel())
    return _Direction(
        prefix="" if asked == searched else f"{asked}-{searched}/",
        asked=asked,
        searched=searched,
        queries=translation[originals],
        originals=originals,
        relevant=[members[labels[row]][members[labels[row]] != row] for row in originals],
    )


def find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    """Looks for pairs of paraphrases; nothing is drawn, so that the seed makes no difference."""
    paraphrases = folder / "paraphrase"
    tables = {stem_of(path): path for path in sorted(paraphrases.glob("*.*.*.tsv*"))}
    languages: defaultdict[str, dict[str, Path]] = defaultdict(dict)
    for stem, path in tables.items():
        if match := _TABLE_NAME.fullmatch(stem):
            languages[f"{match['name']}.{match['split']}"][match["language"]] = path
            yield _dataset(stem, {match["language"]: path})
    for name, paths in languages.items():
        if len(paths) > 1:
            yield _dataset(f"cross-lingual.{name}", paths)
    yield from _published_quora(paraphrases)
    yield from _askubuntu(paraphrases / _ASKUBUNTU)
    if not any(len(paths) > 1 for paths in languages.values()):
        yield Missing(
            name="cross-lingual.quora",
            expected="paraphrase/quora.<language>.<split>.tsv in two languages or more: the same pairs "
            "in the same order, translated (columns label, question1, question2)",
        )


def _dataset(name: str, paths: Mapping[str, Path]) -> Dataset:
    def load() -> SemanticRetrieval:
        pairs = {language: read_pairs(path) for language, path in paths.items()}
        return SemanticRetrieval(pairs, name=name)

    return Dataset(name=name, files=tuple(paths.values()), load=load)


def _published_quora(folder: Path) -> Iterator[Dataset | Missing]:
    path = find_file(folder, _QUORA)
    if path is None:
        yield Missing(name="quora.en", expected=f"paraphrase/{_QUORA}, as published")
    else:
        yield Dataset(
            name="quora.en",
            files=(path,),
            load=lambda: SemanticRetrieval({"en": read_quora(path)}, name="quora.en"),
        )


def _askubuntu(folder: Path) -> Iterator[Dataset | Missing]:
    corpus = find_file(folder, _CORPUS)
    for split in ("dev", "test"):
        name = f"askubuntu.en.{split}"
        annotations = find_file(folder, f"{split}.txt")
        if corpus is None or annotations is None:
            yield Missing(
                name=name,
                expected=f"paraphrase/{_ASKUBUNTU}/{_CORPUS}.gz and {split}.txt, as published by "
                "Lei et al. 2016 (taolei87/askubuntu)",
            )
        else:
            yield _askubuntu_dataset(name, corpus, annotations)


def _askubuntu_dataset(name: str, corpus: Path, annotations: Path) -> Dataset:
    def load() -> SemanticRetrieval:
        pairs, titles = read_askubuntu(corpus, annotations)
        return SemanticRetrieval({"en": pairs}, name=name, further=titles)

    return Dataset(name=name, files=(corpus, annotations), load=load)


SUITE = Suite(
    name="semantic_retrieval",
    title="Paraphrases of a question among all questions",
    source="Yang et al. 2019, sec. 5.1 and 5.4, Tables 4 and 7",
    find=find,
)
