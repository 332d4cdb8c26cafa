"""Semantic retrieval: finds the paraphrases of a question among all questions."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from xling_tf.errors import UserError
from xling_tf.evaluators import data
from xling_tf.evaluators.encoding import Array, Encode, encode_units
from xling_tf.evaluators.ranking import (
    average_precision,
    directions,
    inner_products,
    relevant_ranks,
)

CUTOFF = 100  # Yang et al. 2019, Table 4: MAP@100

Pairs = Sequence[tuple[str, str, bool]]  # two texts, and True if they mean the same


class SemanticRetrieval:
    """MAP@100 of finding the paraphrases of a question among all questions.

    Each text of a positive pair is a query. Its paraphrases, the texts to which positive pairs
    connect it, are ranked by cosine among all other texts (Yang et al. 2019, sec. 5.1 and Table 4,
    after Gillick et al. 2018). Ties count as errors. With several languages, each is searched with
    the queries of each other language, which has the same pairs in the same order, without the
    query's own original (sec. 5.4 and Table 7).
    """

    def __init__(self, pairs: Mapping[str, Pairs], *, name: str) -> None:
        self.name = name
        self._texts: dict[str, list[str]] = {}
        self._rows: dict[str, Array] = {}
        self.pairs = [row[:2] for rows in pairs.values() for row in rows]
        labels = [[same for _, _, same in rows] for rows in pairs.values()]
        for language, rows in pairs.items():
            both = np.array([row[:2] for row in rows], object)
            texts, indices = np.unique(both, return_inverse=True)
            self._texts[language], self._rows[language] = list(texts), indices.reshape(-1, 2)
        self._is_positive = np.array(labels[0], bool)
        are_aligned = labels.count(labels[0]) == len(labels)
        if not are_aligned or not all(
            np.diff(rows[self._is_positive]).any() for rows in self._rows.values()
        ):
            counts = {language: len(rows) for language, rows in pairs.items()}
            raise UserError(
                f"{name} must have positive pairs, the same ones in each language: {counts}"
            )
        self.protocol: Mapping[str, Any] = {"num_pairs": len(self._is_positive)}

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "mean_average_precision_at_100", "num_queries" and "num_candidates".

        With several languages, each comes for each direction: "<query language>-<candidate
        language>/...".
        """
        units = {code: encode_units(encode, texts) for code, texts in self._texts.items()}
        scores: dict[str, float] = {}
        for (query_code, code), prefix in directions(units).items():
            originals, relevant = self._closure(code)
            # The lexicographically first of several translations is taken, whichever line it is in.
            translation = np.full(len(units[code]), np.iinfo(np.int64).max)
            np.minimum.at(translation, self._rows[code].ravel(), self._rows[query_code].ravel())
            queries = units[query_code][translation[originals]]
            ranks = relevant_ranks(inner_products(queries, units[code]), relevant, itself=originals)
            precisions = [average_precision(query, CUTOFF) for query in ranks]
            scores[f"{prefix}mean_average_precision_at_{CUTOFF}"] = float(np.mean(precisions))
            scores[f"{prefix}num_queries"] = float(len(queries))
            scores[f"{prefix}num_candidates"] = float(len(units[code]) - 1)
        return scores

    def _closure(self, language: str) -> tuple[Array, list[Array]]:
        """The texts that have paraphrases, and the others of each one's connected component."""
        edges, size = self._rows[language][self._is_positive].T, len(self._texts[language])
        graph = coo_array((np.ones(edges.shape[1]), tuple(edges)), [size, size])
        labels = connected_components(graph, directed=False)[1]
        order = np.argsort(labels, kind="stable")
        members = np.split(order, np.cumsum(np.bincount(labels))[:-1])
        originals = np.flatnonzero(np.bincount(labels)[labels] > 1)
        return originals, [members[labels[i]][members[labels[i]] != i] for i in originals]


def read_pairs(path: Path) -> Pairs:
    """Reads `label` (1: the same, 0: not), `question1`, `question2` or `sentence1`, `sentence2`."""
    rows = data.read_table(
        path, ("label", "question1", "question2"), others=("", "sentence1", "sentence2")
    )
    if wrong := {label for label, _, _ in rows} - {"0", "1"}:
        raise UserError(f"{path} must have labels 0 and 1, but has {min(wrong)[:80]!r}; correct it")
    return [(first, second, label == "1") for label, first, second in rows]


def _find(folder: Path, seed: int) -> Iterator[data.Dataset]:
    sets: defaultdict[str, dict[str, Path]] = defaultdict(dict)
    for name, languages in data.find_tables(folder / "paraphrase").items():
        for language, splits in languages.items():
            for split, path in splits.items():
                end = f".{split}" if split else ""
                sets[f"{name}.{language}{end}"][language] = path
                sets[f"cross-lingual.{name}{end}"][language] = path

    def load(name: str) -> SemanticRetrieval:
        pairs = map(read_pairs, sets[name].values())
        whole = data.without_blanks(name, *pairs, texts=slice(2))
        return SemanticRetrieval(dict(zip(sets[name], whole, strict=True)), name=name)

    for name, paths in sets.items():
        if len(paths) > 1 or not name.startswith("cross-lingual."):
            yield data.Dataset(name=name, files=(*paths.values(),), load=partial(load, name))


SUITE = data.Suite(
    name="semantic_retrieval",
    title="Paraphrases of a question among all questions",
    source="Yang et al. 2019, sec. 5.1 and 5.4, Tables 4 and 7",
    layout=(
        "paraphrase/<name>.<language>[.<split>].tsv, in several languages the same pairs in the "
        "same order (columns label, question1, question2, or PAWS-X's; xling-tf prepare "
        "evaluation quora or askubuntu)"
    ),
    find=_find,
)
