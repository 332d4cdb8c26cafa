"""Semantic textual similarity in one language, across languages, and of SemEval's years."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.evaluators.data import Dataset, Missing, Suite, stem_of
from xling_tf.evaluators.encoding import Encode
from xling_tf.evaluators.similarity.sts import SemanticTextualSimilarity, correlations
from xling_tf.evaluators.similarity.sts_files import (
    ScoredFiles,
    ScoredPairs,
    find_benchmark,
    find_sick,
    find_tracks,
    find_year,
)

# The test sets that SentEval has of each year.
_SUBSETS = {
    2012: ("MSRpar", "MSRvid", "OnWN", "SMTeuroparl", "SMTnews"),
    2013: ("FNWN", "OnWN", "headlines"),
    2014: ("OnWN", "deft-forum", "deft-news", "headlines", "images", "tweet-news"),
    2015: ("answers-forums", "answers-students", "belief", "headlines", "images"),
    2016: ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
_COLUMNS = "with the columns sentence1, sentence2 and score"
_BENCHMARK_LAYOUT = (
    "sts/stsb.en.{split}.tsv, " + _COLUMNS + ", or, as published, sts/STSBenchmark/sts-{split}.csv"
)
_TRACKS_LAYOUT = (
    "as published, sts/STS2017.eval.v1.1/STS.input.track<n>.<aa>-<bb>.txt and "
    "sts/STS2017.gs/STS.gs.track<n>.<aa>-<bb>.txt (4a.es-en and 3.es-es are those of Chidambaram et al.)"
)
_YEAR_LAYOUT = (
    "sts/sts{year}.en.<name>.test.tsv, " + _COLUMNS + ", or, as SentEval has them, "
    "STS/STS{short}-en-test/STS.input.<name>.txt and STS.gs.<name>.txt"
)
_SICK_LAYOUT = (
    "senteval/SICK.test.tsv with the columns sentence1, sentence2 and relatedness, or, as published, "
    "senteval/SICK/SICK_test_annotated.txt"
)


class SimilarityOfSubsets:
    """Semantic textual similarity on the test sets of a year, and over all of them.

    SentEval (Conneau and Kiela 2018) gives the means of the sets' correlations; the correlation over
    the pairs of all sets together is what others call the score of the year.

    Args:
        subsets: Each test set by its name.
        name: What results call this evaluator.
        missing: Sets of that year that are not among them.

    Example:
        >>> pairs = ScoredPairs([("a", "a"), ("a", "b")], [5.0, 0.0])
        >>> evaluator = SimilarityOfSubsets({"one": pairs, "two": pairs}, name="sts2012")
        >>> scores = evaluator(lambda texts: np.array([[len(t), t == "a"] for t in texts]))
        >>> round(scores["two/pearson_angular"], 6), round(scores["mean/pearson_angular"], 6)
        (1.0, 1.0)
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
            "num_pairs": {
                subset: len(evaluator.gold) for subset, evaluator in self._subsets.items()
            },
        }

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Correlates the system's similarities with the gold scores of each subset.

        Args:
            encode: The system.

        Returns:
            Under "mean/", "weighted_mean/" (by the number of pairs), "all/" (the pairs of all subsets
            together) and "<subset>/" each "pearson_angular" and "spearman_angular".

        Raises:
            UserError: A vector is zero or not finite.
        """
        similarities = [subset.similarities(encode) for subset in self._subsets.values()]
        gold = [subset.gold for subset in self._subsets.values()]
        each = [correlations(*both) for both in zip(similarities, gold, strict=True)]
        together = correlations(np.concatenate(similarities), np.concatenate(gold))
        weights = [len(scores) for scores in gold]
        parts = {
            "mean": {m: float(np.mean([e[m] for e in each])) for m in together},
            "weighted_mean": {
                m: float(np.average([e[m] for e in each], weights=weights)) for m in together
            },
            "all": together,
            **dict(zip(self._subsets, each, strict=True)),
        }
        return {
            f"{part}/{m}": score for part, scores in parts.items() for m, score in scores.items()
        }


def _find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    del seed  # nothing is drawn
    yield from _find_benchmark(folder)
    yield from _find_tracks(folder)
    for year in _SUBSETS:
        yield _find_year(folder, year)
    sick = find_sick(folder)
    yield _dataset("sick.test", sick) if sick else Missing(name="sick.test", expected=_SICK_LAYOUT)


def _find_benchmark(folder: Path) -> Iterator[Dataset | Missing]:
    """Yields the STS Benchmark in each language, and between English and each other one."""
    found = find_benchmark(folder)
    for (language, split), files in found.items():
        yield _dataset(f"stsb.{language}.{split}", files)
    for (language, split), files in found.items():
        if language != "en" and ("en", split) in found:
            yield from _find_across(split, {"en": found["en", split], language: files})
    for split in ("dev", "test"):
        if ("en", split) not in found:
            yield Missing(name=f"stsb.en.{split}", expected=_BENCHMARK_LAYOUT.format(split=split))


def _find_across(split: str, files: Mapping[str, ScoredFiles]) -> Iterator[Dataset | Missing]:
    """Yields both ways between two languages, where the rows of their files belong together."""
    one, other = (of_language.read().gold for of_language in files.values())
    for first, second in permutations(files):
        name = f"stsb.{first}-{second}.{split}"
        if one == other:
            paths = files[first].files + files[second].files
            load = partial(_load_across, name, files[first], files[second])
            yield Dataset(name=name, files=paths, load=load)
        else:
            expected = (
                f"the same rows with the same scores in the {split} sets of {first} and {second}"
            )
            yield Missing(name=name, expected=expected)


def _load_across(name: str, first: ScoredFiles, second: ScoredFiles) -> SemanticTextualSimilarity:
    """Puts the first sentences of one file beside the second ones of the same rows of another.

    The STS Benchmark is translated row by row, so the scores of its pairs hold across languages.
    """
    firsts, seconds = first.read(), second.read()
    pairs = [(a, b) for (a, _), (_, b) in zip(firsts.pairs, seconds.pairs, strict=True)]
    names = [stem_of(files.files[0]) for files in (first, second)]
    built = {"built_from": f"sentence1 of {names[0]}, sentence2 of the same row of {names[1]}"}
    return SemanticTextualSimilarity(pairs, firsts.gold, name=name, protocol=built)


def _find_tracks(folder: Path) -> Iterator[Dataset | Missing]:
    tracks = find_tracks(folder)
    for track, files in tracks.items():
        yield _dataset(f"sts2017.{track}", files)
    if not tracks:
        yield Missing(name="sts2017", expected=_TRACKS_LAYOUT)


def _find_year(folder: Path, year: int) -> Dataset | Missing:
    subsets = find_year(folder, year)
    if not subsets:
        layout = _YEAR_LAYOUT.format(year=year, short=year % 100)
        return Missing(name=f"sts{year}", expected=layout)
    return Dataset(
        name=f"sts{year}",
        files=tuple(path for files in subsets.values() for path in files.files),
        load=partial(_load_year, year, subsets),
    )


def _dataset(name: str, files: ScoredFiles) -> Dataset:
    def load() -> SemanticTextualSimilarity:
        return SemanticTextualSimilarity(*files.read(), name=name)

    return Dataset(name=name, files=files.files, load=load)


def _load_year(year: int, subsets: Mapping[str, ScoredFiles]) -> SimilarityOfSubsets:
    read = {subset: files.read() for subset, files in subsets.items()}
    missing = sorted(set(_SUBSETS[year]) - set(subsets))
    return SimilarityOfSubsets(read, name=f"sts{year}", missing=missing)


SUITE = Suite(
    name="sts",
    title="Semantic textual similarity",
    source="Chidambaram et al. 2019, sec. 3.5, Tables 2 and 3",
    find=_find,
)
