"""Semantic textual similarity: correlates the angles of vectors with human judgements."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging
from scipy import stats

from xling_tf.corpora.readers import SCORED_COLUMNS
from xling_tf.errors import UserError
from xling_tf.evaluators import data
from xling_tf.evaluators.encoding import Encode, encode_units

Scored = Sequence[tuple[str, str, float]]  # two sentences, and their similarity as people judged it

_Translated = Mapping[str, tuple[Path, Scored]]  # a file and its rows, by language

# This is "mostly equivalent" in the annotators' instructions: pairs graded lower differ in meaning.
_SAME = 4.0
# The angles (in radians) of equal vectors differ by rounding errors of about 1e-8.
_CONSTANT = 1e-6


class SemanticTextualSimilarity:
    """Correlation of angular similarity with gold scores.

    The similarity is -arccos(cosine) (Chidambaram et al. 2019, sec. 3.5, after Cer et al. 2018).
    Gold scores are on any scale; `protocol` has more parameters for results.
    """

    def __init__(self, rows: Scored, *, name: str, **protocol: Any) -> None:
        self.name = name
        self.protocol: Mapping[str, Any] = {"num_pairs": len(rows), **protocol}
        rows = sorted(rows)  # the rounding of sums depends on their order
        self.gold = np.array([score for _, _, score in rows], np.float64)
        if len(np.unique(self.gold)) < 2:
            raise UserError(
                f"{name} must have two different scores, but has only {self.gold[0]:g}; add rows"
            )
        self.pairs = [row[:2] for row in rows]
        self._texts, indices = np.unique(np.array(self.pairs, object), return_inverse=True)
        self._indices = indices.reshape(-1, 2).T

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "pearson_angular", "spearman_angular" (0 if all are equal) and "num_pairs"."""
        first, second = encode_units(encode, list(self._texts))[self._indices]
        similarities = -np.arccos(np.clip(np.sum(first * second, axis=1), -1.0, 1.0))
        pearson, spearman = correlations(similarities, self.gold)
        scores = {"pearson_angular": pearson, "spearman_angular": spearman}
        return {**scores, "num_pairs": float(len(self.gold))}


def correlations(predicted: np.ndarray, gold: np.ndarray) -> tuple[float, float]:
    """Pearson's and Spearman's correlation; 0 if predictions differ only by rounding errors."""
    if np.ptp(predicted) < _CONSTANT:
        return 0.0, 0.0
    pearson, spearman = stats.pearsonr(predicted, gold), stats.spearmanr(predicted, gold)
    return float(pearson.statistic), float(spearman.statistic)


def read_scored(path: Path) -> Scored:
    """Reads a table with the columns sentence1, sentence2, and score or (SICK) relatedness."""
    rows = data.read_table(path, SCORED_COLUMNS)
    try:
        scored = [(first, second, float(score)) for first, second, score in rows]
    except ValueError:
        scored = []
    if not scored or not np.isfinite([score for *_, score in scored]).all():
        raise UserError(f"{path} must have finite numbers in the column of scores; correct it")
    return scored


def find_sts(folder: Path, languages: Iterable[str]) -> list[SemanticTextualSimilarity]:
    """Reads the development sets `eval/sts/stsb.<language>.dev.tsv` that a data folder has."""
    tables = data.tables_in(folder / "eval" / "sts")
    names = [f"stsb.{language}.dev" for language in languages]
    return [_load(name, tables[name]) for name in names if name in tables]


def _find(folder: Path, seed: int) -> Iterator[data.Dataset]:
    pattern = r"stsb\.\w+\.(dev|test)|sts201[2-6]\.en\..+\.test|sts2017\..+"
    tables = {n: p for n, p in data.tables_in(folder / "sts").items() if re.fullmatch(pattern, n)}
    # The benchmark comes before the many sets of SemEval's years.
    tables = dict(sorted(tables.items(), key=lambda table: not table[0].startswith("stsb.")))
    if sick := data.tables_in(folder / "senteval").get("SICK.test"):
        tables["sick.test"] = sick
    for name, path in tables.items():
        yield data.Dataset(name=name, files=(path,), load=partial(_load, name, path))
    for split, translated in _translated(folder):
        for language in [*translated][1:] if "en" in translated else ():  # English is the first
            yield _across(split, "en", language, translated)
            yield _across(split, language, "en", translated)


def _load(name: str, path: Path) -> SemanticTextualSimilarity:
    return _evaluator(read_scored(path), name=name)


def _evaluator(rows: Scored, **options: Any) -> SemanticTextualSimilarity:
    (whole,) = data.without_blanks(options["name"], rows, texts=slice(2))
    return SemanticTextualSimilarity(whole, **options)


def _translated(folder: Path) -> Iterator[tuple[str, _Translated]]:
    """Yields each part of the STS Benchmark in languages whose files translate each other by row.

    Languages whose scores differ from those of English or, without it, of the first language are
    left out.
    """
    tables = data.find_tables(folder / "sts").get("stsb", {})
    for split in ("dev", "test"):
        translated: dict[str, tuple[Path, Scored]] = {}
        for language in sorted(tables, key=lambda code: (code != "en", code)):
            if path := tables[language].get(split):
                with suppress(UserError):  # the run reports it when it comes to the file itself
                    translated[language] = path, read_scored(path)
        scores = {language: [score for *_, score in r] for language, (_, r) in translated.items()}
        first = next(iter(scores.values()), [])
        for language in [code for code in scores if scores[code] != first]:
            path, _ = translated.pop(language)
            logging.info("%s is compared with no other language: its scores differ", path)
        yield split, translated


def _across(split: str, first: str, second: str, translated: _Translated) -> data.Dataset:
    """Pairs the first sentences in one language with the second sentences in another."""
    (path, firsts), (other, seconds) = translated[first], translated[second]
    rows = [(a, b, gold) for (a, _, gold), (_, b, _) in zip(firsts, seconds, strict=True)]
    name = f"stsb.{first}-{second}.{split}"
    origin = (
        f"sentence1 of {data.stem_of(path)}, sentence2 of the same row of {data.stem_of(other)}"
    )
    load = partial(_evaluator, rows, name=name, built_from=origin)
    return data.Dataset(name=name, files=(path, other), load=load)


def find_translated_sts(folder: Path) -> Iterator[data.ParallelTexts]:
    """Finds the STS Benchmark's sentences in several languages, see `_translated`.

    The second sentences of pairs that people graded 4 or more are left out, because these mean the
    same.
    """
    for split, translated in _translated(folder):
        columns = [
            [a for a, _, _ in rows] + [b for _, b, score in rows if score < _SAME]
            for _, rows in translated.values()
        ]
        if len(columns) > 1:
            files = tuple(path for path, _ in translated.values())
            texts = [*zip(*columns, strict=True)]
            yield data.ParallelTexts(f"stsb.{split}", tuple(translated), files, texts.copy)


SUITE = data.Suite(
    name="sts",
    title="Semantic textual similarity",
    source="Chidambaram et al. 2019, sec. 3.5, Tables 2 and 3",
    layout="sts/stsb.<language>.<split>.tsv, sts/sts2012.en.<name>.test.tsv, "
    "sts/sts2017.track<n>.<aa>-<bb>.tsv (columns sentence1, sentence2, score; xling-tf prepare "
    "evaluation stsbenchmark or semeval_sts), senteval/SICK.test.tsv (relatedness)",
    find=_find,
)
