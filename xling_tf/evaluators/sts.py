"""Semantic textual similarity: do the vectors' angles follow people's judgements?"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from xling_tf.errors import UserError
from xling_tf.evaluators import data
from xling_tf.evaluators.data import Dataset, Missing, stem_of, tables_in
from xling_tf.evaluators.encoding import Encode, encode_units

Scored = Sequence[tuple[str, str, float]]  # two sentences and how similar people judged them

# The test sets that SentEval has of each year.
_YEARS = {
    "sts2012": {"MSRpar", "MSRvid", "OnWN", "SMTeuroparl", "SMTnews"},
    "sts2013": {"FNWN", "OnWN", "headlines"},
    "sts2014": {"OnWN", "deft-forum", "deft-news", "headlines", "images", "tweet-news"},
    "sts2015": {"answers-forums", "answers-students", "belief", "headlines", "images"},
    "sts2016": {"answer-answer", "headlines", "plagiarism", "postediting", "question-question"},
}
_LAYOUT = "{} with the columns sentence1, sentence2 and score (data/convert.py --format {})"
_SEMEVAL = _LAYOUT.format("sts/<year>.en.<name>.test.tsv", "semeval_sts")
_BENCHMARK = _LAYOUT.format("sts/stsb.<language>.<split>.tsv", "stsbenchmark")
_EXPECTED = {
    **dict.fromkeys(("stsb.en.dev", "stsb.en.test"), _BENCHMARK),
    # Chidambaram et al. 2019 use the tracks 4a.es-en and 3.es-es.
    "sts2017": _LAYOUT.format("sts/sts2017.track<n>.<aa>-<bb>.tsv", "semeval_sts"),
    **dict.fromkeys(_YEARS, _SEMEVAL),
    "sick.test": "senteval/SICK.test.tsv with the columns sentence1, sentence2 and relatedness",
}
# Angles (in radians) of equal vectors differ by about 1e-8 for rounding.
_CONSTANT = 1e-6


class SemanticTextualSimilarity:
    """Correlation of angular similarity with gold scores.

    The similarity is -arccos(cosine) and the score its Pearson correlation (Chidambaram et al.
    2019, sec. 3.5, following Cer et al. 2018).

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
        self._texts = sorted({text for row in rows for text in row[:2]})
        place_of = {text: place for place, text in enumerate(self._texts)}
        self._places = np.array([[place_of[a], place_of[b]] for a, b, _ in rows])
        if len(set(self.gold)) < 2:
            raise UserError(
                f"{name} must have two different scores at least, but has {len(set(self.gold))} of "
                f"{len(rows)} pairs; correct the data"
            )

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "pearson_angular", "spearman_angular" (0 if all pairs are equal) and "num_pairs".

        Raises:
            UserError: A vector is zero or not finite, so that it has no angle.
        """
        scores = correlations(self.similarities(encode), self.gold)
        return {**scores, "num_pairs": float(len(self.gold))}

    def similarities(self, encode: Encode) -> NDArray[np.float64]:
        """Returns the system's similarities, in the order of the attribute `gold`."""
        first, second = encode_units(encode, self._texts)[self._places.T]
        return -np.arccos(np.clip(np.sum(first * second, axis=1), -1.0, 1.0))


class SimilarityOfSubsets:
    """Semantic textual similarity on the test sets of a year, and over all of them.

    SentEval (Conneau and Kiela 2018) gives the means of the sets' correlations; the correlation over
    the pairs of all sets together is what others call the score of the year.

    Args:
        subsets: The rows of each test set by its name.
        name: What results call this evaluator.
        missing: Sets of that year that are not among them.
    """

    def __init__(
        self, subsets: Mapping[str, Scored], *, name: str, missing: Sequence[str] = ()
    ) -> None:
        self.name = name
        self._subsets = {
            subset: SemanticTextualSimilarity(rows, name=f"{name}.{subset}")
            for subset, rows in sorted(subsets.items())
        }
        self.protocol: Mapping[str, Any] = {
            "similarity": "-arccos",
            "subsets_missing": list(missing),
            "num_pairs": {subset: len(each.gold) for subset, each in self._subsets.items()},
        }

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "pearson_angular" and "spearman_angular" of each part, as "mean/pearson_angular".

        The parts are "mean", "weighted_mean" (by the number of pairs), "all" (the pairs of all subsets
        together) and the subsets.
        """
        similarities = [subset.similarities(encode) for subset in self._subsets.values()]
        gold = [subset.gold for subset in self._subsets.values()]
        each = list(map(correlations, similarities, gold))
        together = correlations(np.concatenate(similarities), np.concatenate(gold))
        weights = [len(scores) for scores in gold]
        scores: dict[str, float] = {}
        for metric, value in together.items():
            values = [of_subset[metric] for of_subset in each]
            scores[f"mean/{metric}"] = float(np.mean(values))
            scores[f"weighted_mean/{metric}"] = float(np.average(values, weights=weights))
            scores[f"all/{metric}"] = value
            scores |= zip((f"{subset}/{metric}" for subset in self._subsets), values, strict=True)
        return scores


def correlations(similarity: NDArray[np.float64], gold: NDArray[np.float64]) -> dict[str, float]:
    """Correlates similarities with gold scores; 0 where all similarities are equal."""
    if np.ptp(similarity) <= _CONSTANT:
        return {"pearson_angular": 0.0, "spearman_angular": 0.0}
    return {
        "pearson_angular": float(stats.pearsonr(similarity, gold).statistic),
        "spearman_angular": float(stats.spearmanr(similarity, gold).statistic),
    }


def read_scored(path: Path) -> Scored:
    """Reads a table with the columns sentence1, sentence2, and score or (SICK) relatedness."""
    column = "relatedness" if "relatedness" in data.header_of(path) else "score"
    rows = data.read_table(path, ("sentence1", "sentence2", column))
    try:
        scored = [(first, second, float(score)) for first, second, score in rows]
        if not np.isfinite([score for _, _, score in scored]).all():
            raise ValueError("a score is not finite")
    except ValueError as error:
        message = f"{path} must have numbers in the column {column}, but: {error}; correct it"
        raise UserError(message) from None
    return scored


def find_sts(folder: Path, languages: Iterable[str]) -> list[SemanticTextualSimilarity]:
    """Reads what a data folder has of `eval/sts/stsb.<language>.dev.tsv` in some languages."""
    tables = tables_in(folder / "eval" / "sts")
    names = [f"stsb.{language}.dev" for language in languages]
    return [_load(name, tables[name]) for name in names if name in tables]


def _find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    del seed  # nothing is drawn
    single: dict[str, Path] = {}
    years: defaultdict[str, dict[str, Path]] = defaultdict(dict)
    for name, path in tables_in(folder / "sts").items():
        if match := re.fullmatch(r"(sts\d+)\.en\.(.+)\.test", name):
            years[match[1]][match[2]] = path
        elif re.fullmatch(r"stsb\.\w+\.(dev|test)|sts2017\..+", name):
            single[name] = path
    if sick := data.find_file(folder / "senteval", "SICK.test.tsv"):
        single["sick.test"] = sick
    found = [
        Dataset(name=name, files=(path,), load=partial(_load, name, path))
        for name, path in single.items()
    ]
    for name, sets in years.items():
        load = partial(_load_year, name, sets)
        found.append(Dataset(name=name, files=(*sets.values(),), load=load))
    yield from found
    names = " ".join(dataset.name for dataset in found)
    yield from (Missing(name=n, expected=e) for n, e in _EXPECTED.items() if n not in names)
    for name, path in single.items():
        english = single.get(re.sub(r"\.\w+\.", ".en.", name))
        if name.startswith("stsb.") and english not in (None, path):
            _, language, split = name.split(".")
            yield _across(f"stsb.en-{language}.{split}", english, path)
            yield _across(f"stsb.{language}-en.{split}", path, english)


def _load(name: str, path: Path) -> SemanticTextualSimilarity:
    return SemanticTextualSimilarity(read_scored(path), name=name)


def _load_year(name: str, sets: Mapping[str, Path]) -> SimilarityOfSubsets:
    missing = sorted(_YEARS.get(name, set()) - set(sets))
    rows = {subset: read_scored(path) for subset, path in sets.items()}
    return SimilarityOfSubsets(rows, name=name, missing=missing)


def _across(name: str, first: Path, second: Path) -> Dataset | Missing:
    """The first sentences of one language beside the second ones of the same rows of another.

    The STS Benchmark is translated row by row, so the scores of its pairs hold across languages.
    """
    firsts, seconds = read_scored(first), read_scored(second)
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
