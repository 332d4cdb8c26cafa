"""Semantic textual similarity: do the vectors' angles follow people's judgements?"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy import stats

from xling_tf.errors import UserError
from xling_tf.evaluators import data
from xling_tf.evaluators.data import Dataset, Missing, stem_of, tables_in
from xling_tf.evaluators.encoding import Encode, encode_units

Scored = Sequence[tuple[str, str, float]]  # two sentences and how similar people judged them

_LAYOUT = "{} with the columns sentence1, sentence2 and score (data/convert.py --format {})"
_EXPECTED = {
    "stsb.en.dev": _LAYOUT.format("sts/stsb.<language>.<split>.tsv", "stsbenchmark"),
    "stsb.en.test": _LAYOUT.format("sts/stsb.<language>.<split>.tsv", "stsbenchmark"),
    # Chidambaram et al. 2019 use the tracks 4a.es-en and 3.es-es.
    "sts2017": _LAYOUT.format("sts/sts2017.track<n>.<aa>-<bb>.tsv", "semeval_sts"),
    "sick.test": "senteval/SICK.test.tsv with the columns sentence1, sentence2 and relatedness",
}
# Angles (in radians) of equal vectors differ by about 1e-8 for rounding.
_CONSTANT = 1e-6


class SemanticTextualSimilarity:
    """Correlation of angular similarity with gold scores.

    The similarity is -arccos(cosine) (Chidambaram et al. 2019, sec. 3.5, following Cer et al. 2018).

    Args:
        rows: Pairs of sentences with their similarity as people judged it, on any scale.
        name: What results call this evaluator.
        protocol: What else results should say of the data.

    Raises:
        UserError: The scores do not differ.

    Example:
        >>> rows = [("a", "a", 2.0), ("a", "b", 1.0), ("a", "c", 0.0)]
        >>> vectors = {"a": [1, 0], "b": [1, 1], "c": [0, 1]}
        >>> evaluator = SemanticTextualSimilarity(rows, name="letters")
        >>> scores = evaluator(lambda texts: np.array([vectors[text] for text in texts]))
        >>> round(scores["pearson_angular"], 6)
        1.0
    """

    def __init__(
        self, rows: Scored, *, name: str, protocol: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self.name = name
        self.protocol: Mapping[str, Any] = {
            "similarity": "-arccos",
            "num_pairs": len(rows),
            **protocol,
        }
        # Sorted, so that sums come out the same to the last bit whatever the order of the data.
        rows = sorted(rows)
        self.gold = np.array([score for _, _, score in rows], np.float64)
        if len(set(self.gold)) < 2:
            raise UserError(
                f"{name} must have two different scores at least, but has {len(set(self.gold))} of "
                f"{len(rows)} pairs; correct the data"
            )
        self.pairs = [row[:2] for row in rows]
        self._texts, places = np.unique(np.array(self.pairs, object), return_inverse=True)
        self._places = places.reshape(-1, 2).T

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "pearson_angular", "spearman_angular" (0 if all pairs are equal) and "num_pairs"."""
        first, second = encode_units(encode, list(self._texts))[self._places]
        similarities = -np.arccos(np.clip(np.sum(first * second, axis=1), -1.0, 1.0))
        pearson, spearman = correlations(similarities, self.gold)
        scores = {"pearson_angular": pearson, "spearman_angular": spearman}
        return {**scores, "num_pairs": float(len(self.gold))}


def correlations(predicted: np.ndarray, gold: np.ndarray) -> tuple[float, float]:
    """Pearson's and Spearman's; 0 of predictions that vary by rounding alone."""
    if np.ptp(predicted) < _CONSTANT:
        return 0.0, 0.0
    pearson, spearman = stats.pearsonr(predicted, gold), stats.spearmanr(predicted, gold)
    return float(pearson.statistic), float(spearman.statistic)


def read_scored(path: Path) -> Scored:
    """Reads a table with the columns sentence1, sentence2, and score or (SICK) relatedness."""
    column = "relatedness" if "relatedness" in data.header_of(path) else "score"
    rows = data.read_table(path, ("sentence1", "sentence2", column))
    try:
        scored = [(first, second, float(score)) for first, second, score in rows]
        if np.isfinite([score for _, _, score in scored]).all():
            return scored
        reason = "a score is not finite"
    except ValueError as error:
        reason = str(error)
    raise UserError(f"{path} must have numbers in the column {column}, but: {reason}; correct it")


def find_sts(folder: Path, languages: Iterable[str]) -> list[SemanticTextualSimilarity]:
    """Reads what a data folder has of `eval/sts/stsb.<language>.dev.tsv` in some languages."""
    tables = tables_in(folder / "eval" / "sts")
    names = [f"stsb.{language}.dev" for language in languages]
    return [_load(name, tables[name]) for name in names if name in tables]


def _find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    pattern = r"stsb\.\w+\.(dev|test)|sts201[2-6]\.en\..+\.test|sts2017\..+"
    tables = {n: path for n, path in tables_in(folder / "sts").items() if re.fullmatch(pattern, n)}
    # The benchmark is scored first, the many sets of SemEval's years after it.
    tables = dict(sorted(tables.items(), key=lambda table: not table[0].startswith("stsb.")))
    if sick := data.find_file(folder / "senteval", "SICK.test.tsv"):
        tables["sick.test"] = sick
    for name, path in tables.items():
        yield Dataset(name=name, files=(path,), load=partial(_load, name, path))
    for name, expected in _EXPECTED.items():
        if not any(table.startswith(name) for table in tables):
            yield Missing(name=name, expected=expected)
    for name, path in tables.items():
        english = tables.get(re.sub(r"\.\w+\.", ".en.", name))
        if name.startswith("stsb.") and english not in (None, path):
            _, language, split = name.split(".")
            yield _across(f"stsb.en-{language}.{split}", english, path)
            yield _across(f"stsb.{language}-en.{split}", path, english)


def _load(name: str, path: Path) -> SemanticTextualSimilarity:
    return SemanticTextualSimilarity(read_scored(path), name=name)


def _across(name: str, first: Path, second: Path) -> Dataset | Missing:
    """The first sentences of one language beside the second ones of the same rows of another.

    The STS Benchmark is translated row by row, so the scores of its pairs hold across languages.
    """
    try:
        firsts, seconds = read_scored(first), read_scored(second)
    except UserError as error:  # The faulty file is a data set itself, which tells it after all others.
        return Missing(name=name, expected=f"two sets without a fault, but {error}")
    if [row[2] for row in firsts] != [row[2] for row in seconds]:
        return Missing(name=name, expected=f"the same scores in the rows of {first} and {second}")
    origin = f"sentence1 of {stem_of(first)}, sentence2 of the same row of {stem_of(second)}"
    rows = [(a, b, gold) for (a, _, gold), (_, b, _) in zip(firsts, seconds, strict=True)]
    load = partial(SemanticTextualSimilarity, rows, name=name, protocol={"built_from": origin})
    return Dataset(name=name, files=(first, second), load=load)


SUITE = data.Suite(
    name="sts",
    title="Semantic textual similarity",
    source="Chidambaram et al. 2019, sec. 3.5, Tables 2 and 3",
    find=_find,
)
