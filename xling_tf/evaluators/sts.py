"""Semantic textual similarity: do the vectors' angles follow people's judgements?"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from xling_tf.errors import UserError
from xling_tf.evaluators import data
from xling_tf.evaluators.data import Dataset, Missing, stem_of, tables_in
from xling_tf.evaluators.encoding import Encode, encode_units

# The test sets that SentEval has of each year.
_YEARS = {
    "sts2012": ("MSRpar", "MSRvid", "OnWN", "SMTeuroparl", "SMTnews"),
    "sts2013": ("FNWN", "OnWN", "headlines"),
    "sts2014": ("OnWN", "deft-forum", "deft-news", "headlines", "images", "tweet-news"),
    "sts2015": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "sts2016": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
_LAYOUT = "{}.tsv with the columns sentence1, sentence2 and score (data/convert.py --format {})"
# Chidambaram et al. 2019 use the tracks 4a.es-en and 3.es-es.
_EXPECTED = {
    "stsb.en.dev": _LAYOUT.format("sts/stsb.en.dev", "stsbenchmark"),
    "stsb.en.test": _LAYOUT.format("sts/stsb.en.test", "stsbenchmark"),
    "sts2017": _LAYOUT.format("sts/sts2017.track<n>.<aa>-<bb>", "semeval_sts"),
    **{year: _LAYOUT.format(f"sts/{year}.en.<name>.test", "semeval_sts") for year in _YEARS},
    "sick.test": "senteval/SICK.test.tsv with the columns sentence1, sentence2 and relatedness",
}
# Angles (in radians) of equal vectors differ by about 1e-8 for rounding.
_CONSTANT = 1e-6


class ScoredPairs(NamedTuple):
    """Sentence pairs, and how similar people judged each, on any scale."""

    pairs: Sequence[tuple[str, str]]
    gold: Sequence[float]


class SemanticTextualSimilarity:
    """Correlation of angular similarity with gold scores.

    The similarity is -arccos(cosine) and the score its Pearson correlation (Chidambaram et al.
    2019, sec. 3.5, following Cer et al. 2018).

    Args:
        pairs: The sentence pairs.
        gold: Their similarity as people judged it, any scale.
        name: What results call this evaluator.
        protocol: What else results should say of the data.

    Raises:
        UserError: There are not as many scores as pairs, or they do not differ.

    Example:
        >>> pairs = [("a", "a"), ("a", "b"), ("a", "c")]
        >>> evaluator = SemanticTextualSimilarity(pairs, [2.0, 1.0, 0.0], name="letters")
        >>> vectors = {"a": [1, 0], "b": [1, 1], "c": [0, 1]}
        >>> scores = evaluator(lambda texts: np.array([vectors[text] for text in texts]))
        >>> round(scores["pearson_angular"], 6)
        1.0
    """

    def __init__(
        self,
        pairs: Sequence[tuple[str, str]],
        gold: Sequence[float],
        *,
        name: str,
        protocol: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        if len(pairs) != len(gold) or len(set(gold)) < 2:
            raise UserError(
                f"{name} must have a score for each pair, at least two different ones, but has "
                f"{len(pairs)} pairs and {len(set(gold))} different scores; correct the data"
            )
        self.name = name
        self.protocol: Mapping[str, Any] = {
            "similarity": "-arccos",
            "num_pairs": len(pairs),
            **protocol,
        }
        # Sorted, so that sums come out the same to the last bit whatever the order of the data.
        rows = sorted(zip(pairs, gold, strict=True))
        self.gold = np.array([score for _, score in rows], np.float64)
        self._texts = sorted({text for pair in pairs for text in pair})
        row_of = {text: row for row, text in enumerate(self._texts)}
        self._rows = np.array([[row_of[text] for text in pair] for pair, _ in rows])

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "pearson_angular", "spearman_angular" and "num_pairs".

        The correlations of a system to which all pairs are equally similar are 0.

        Raises:
            UserError: A vector is zero or not finite, so that it has no angle.
        """
        scores = correlations(self.similarities(encode), self.gold)
        return {**scores, "num_pairs": float(len(self.gold))}

    def similarities(self, encode: Encode) -> NDArray[np.float64]:
        """Returns the system's similarities, in the order of the attribute `gold`."""
        first, second = encode_units(encode, self._texts)[self._rows.T]
        return -np.arccos(np.clip(np.sum(first * second, axis=1), -1.0, 1.0))


class SimilarityOfSubsets:
    """Semantic textual similarity on the test sets of a year, and over all of them.

    SentEval (Conneau and Kiela 2018) gives the means of the sets' correlations; the correlation over
    the pairs of all sets together is what others call the score of the year.

    Args:
        subsets: Each test set by its name.
        name: What results call this evaluator.
        missing: Sets of that year that are not among them.
    """

    def __init__(
        self, subsets: Mapping[str, ScoredPairs], *, name: str, missing: Sequence[str] = ()
    ) -> None:
        self.name = name
        self._subsets = {
            subset: SemanticTextualSimilarity(*scored, name=f"{name}.{subset}")
            for subset, scored in sorted(subsets.items())
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
        each = [correlations(*both) for both in zip(similarities, gold, strict=True)]
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


def read_scored(path: Path) -> ScoredPairs:
    """Reads a table with the columns sentence1, sentence2, and score or (SICK) relatedness."""
    column = "relatedness" if "relatedness" in data.header_of(path) else "score"
    rows = data.read_table(path, ("sentence1", "sentence2", column))
    try:
        gold = [float(score) for _, _, score in rows]
        if not np.isfinite(gold).all():
            raise ValueError("a score is not finite")
    except ValueError as error:
        message = f"{path} must have numbers in the column {column}, but: {error}; correct it"
        raise UserError(message) from None
    return ScoredPairs([(first, second) for first, second, _ in rows], gold)


def find_sts(folder: Path, languages: Iterable[str]) -> list[SemanticTextualSimilarity]:
    """Reads what a data folder has of `eval/sts/stsb.<language>.dev.tsv` in some languages."""
    tables = tables_in(folder / "eval" / "sts")
    names = [f"stsb.{language}.dev" for language in languages]
    return [_load(name, tables[name]) for name in names if name in tables]


def _find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    del seed  # nothing is drawn
    found: list[Dataset] = []
    benchmark: dict[tuple[str, str], Path] = {}
    years: defaultdict[str, dict[str, Path]] = defaultdict(dict)
    for name, path in tables_in(folder / "sts").items():
        if match := re.fullmatch(r"stsb\.(\w+)\.(dev|test)", name):
            benchmark[match[1], match[2]] = path
        elif match := re.fullmatch(r"(sts\d+)\.en\.(.+)\.test", name):
            years[match[1]][match[2]] = path
        if name.startswith("sts2017.") or path in benchmark.values():
            found.append(Dataset(name=name, files=(path,), load=partial(_load, name, path)))
    for name, subsets in years.items():
        load_year = partial(_load_year, name, subsets)
        found.append(Dataset(name=name, files=tuple(subsets.values()), load=load_year))
    if sick := data.find_file(folder / "senteval", "SICK.test.tsv"):
        load_sick = partial(_load, "sick.test", sick)
        found.append(Dataset(name="sick.test", files=(sick,), load=load_sick))
    yield from found
    yield from data.missing(_EXPECTED, found)
    for (language, split), path in benchmark.items():
        english = benchmark.get(("en", split))
        if english and language != "en":
            yield _across(f"stsb.en-{language}.{split}", english, path)
            yield _across(f"stsb.{language}-en.{split}", path, english)


def _load(name: str, path: Path) -> SemanticTextualSimilarity:
    return SemanticTextualSimilarity(*read_scored(path), name=name)


def _load_year(name: str, subsets: Mapping[str, Path]) -> SimilarityOfSubsets:
    missing = sorted(set(_YEARS.get(name, ())) - set(subsets))
    read = {subset: read_scored(path) for subset, path in subsets.items()}
    return SimilarityOfSubsets(read, name=name, missing=missing)


def _across(name: str, first: Path, second: Path) -> Dataset | Missing:
    """The first sentences of one language beside the second ones of the same rows of another.

    The STS Benchmark is translated row by row, so the scores of its pairs hold across languages.
    """
    if read_scored(first).gold != read_scored(second).gold:
        return Missing(name=name, expected=f"the same scores in the rows of {first} and {second}")

    def load() -> SemanticTextualSimilarity:
        (firsts, gold), (seconds, _) = read_scored(first), read_scored(second)
        pairs = [(pair[0], other[1]) for pair, other in zip(firsts, seconds, strict=True)]
        rows = f"sentence1 of {stem_of(first)}, sentence2 of the same row of {stem_of(second)}"
        return SemanticTextualSimilarity(pairs, gold, name=name, protocol={"built_from": rows})

    return Dataset(name=name, files=(first, second), load=load)


SUITE = data.Suite(
    name="sts",
    title="Semantic textual similarity",
    source="Chidambaram et al. 2019, sec. 3.5, Tables 2 and 3",
    find=_find,
)
