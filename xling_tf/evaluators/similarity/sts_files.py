"""Sentence pairs with gold scores: their readers, and which of them an evaluation folder has."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from xling_tf.corpora.line_files import read_every_line
from xling_tf.errors import UserError
from xling_tf.evaluators.bitext.parallel_files import read_aligned
from xling_tf.evaluators.data import find_file, read_table

COLUMNS = ("sentence1", "sentence2", "score")

_FOLDERS = ("sts", "STS", "senteval/STS")
_BENCHMARK = re.compile(r"stsb\.(\w+)\.(dev|test)\.tsv(?:\.gz)?")
_BENCHMARK_FOLDERS = ("STSBenchmark", "stsbenchmark")
_YEAR = re.compile(r"sts\d+\.en\.(.+)\.test\.tsv(?:\.gz)?")
_TRACK = re.compile(r"STS\.input\.(track\w+\.\w+-\w+)\.txt")
_SICK = {
    "senteval/SICK.test.tsv": ("sentence1", "sentence2", "relatedness"),
    "senteval/SICK/SICK_test_annotated.txt": ("sentence_A", "sentence_B", "relatedness_score"),
}


class ScoredPairs(NamedTuple):
    """Sentence pairs, and how similar people judged each."""

    pairs: list[tuple[str, str]]
    gold: list[float]


@dataclass(frozen=True, kw_only=True)
class ScoredFiles:
    """Scored pairs that were found.

    Args:
        files: What is read.
        read: Reads them.
    """

    files: tuple[Path, ...]
    read: Callable[[], ScoredPairs]


def read_scored_pairs(path: Path, columns: tuple[str, str, str] = COLUMNS) -> ScoredPairs:
    """Reads a table of two sentences and a score.

    Args:
        path: UTF-8 text or, by its name, gzip.
        columns: The names of these three in its first line.

    Raises:
        UserError: A column is missing, or a score is no number.
    """
    return _scored(path, enumerate(read_table(path, columns), start=2))


def read_benchmark(path: Path) -> ScoredPairs:
    """Reads the STS Benchmark as it was published: seven fields or more between tabs, no quoting.

    They are genre, file, year, number, score and the two sentences; what follows tells whence they come.

    Raises:
        UserError: A line has fewer fields, or a score is no number.
    """
    lines = ((number, line.split("\t")) for number, line in read_every_line(path))
    return _scored(path, ((number, [*line[5:7], *line[4:5]]) for number, line in lines))


def read_semeval(path: Path, gold_path: Path) -> ScoredPairs:
    """Reads pairs and scores as SemEval published them: `STS.input.<name>.txt` and `STS.gs.<name>.txt`.

    Pairs whose line of scores is empty were not judged and are left out, as SentEval does.

    Raises:
        UserError: The files differ in length, a line has no two sentences, or a score is no number.
    """
    rows = enumerate(read_aligned((path, gold_path)), start=1)
    judged = ((number, [*line.split("\t")[:2], gold]) for number, (line, gold) in rows if gold)
    return _scored(path, judged)


def find_benchmark(folder: Path) -> dict[tuple[str, str], ScoredFiles]:
    """Finds the development and test sets of the STS Benchmark and its translations.

    Args:
        folder: The evaluation folder.

    Returns:
        They, by language and split, as ("en", "dev").
    """
    found: dict[tuple[str, str], ScoredFiles] = {}
    for path in _paths(folder, "stsb.*"):
        if match := _BENCHMARK.fullmatch(path.name):
            found.setdefault((match[1], match[2]), _table(path))
    for split in ("dev", "test"):
        for subfolder in _BENCHMARK_FOLDERS:
            for path in _paths(folder, f"{subfolder}/sts-{split}.csv"):
                files = ScoredFiles(files=(path,), read=partial(read_benchmark, path))
                found.setdefault(("en", split), files)
    return dict(sorted(found.items()))


def find_year(folder: Path, year: int) -> dict[str, ScoredFiles]:
    """Finds the test sets of a year of SemEval's STS task, by name, as "MSRpar".

    They are `sts/sts2012.en.<name>.test.tsv` or in SentEval's folder `STS/STS12-en-test`.
    """
    found: dict[str, ScoredFiles] = {}
    for path in _paths(folder, f"sts{year}.en.*"):
        if match := _YEAR.fullmatch(path.name):
            found.setdefault(match[1], _table(path))
    for path in _paths(folder, f"STS{year % 100}-en-test/STS.input.*.txt"):
        name = path.name.removeprefix("STS.input.").removesuffix(".txt")
        # A mark of those that were kept secret until the test.
        found.setdefault(name.removeprefix("surprise."), _semeval(path, path.parent))
    return dict(sorted(found.items()))


def find_tracks(folder: Path) -> dict[str, ScoredFiles]:
    """Finds the tracks of SemEval-2017's STS task, by name, as "track4a.es-en".

    Pairs and scores lie in `STS2017.eval.v1.1` and `STS2017.gs`, as they were published, or together.
    """
    found: dict[str, ScoredFiles] = {}
    for pattern in ("STS.input.track*", "*/STS.input.track*"):
        for path in _paths(folder, pattern):
            if match := _TRACK.fullmatch(path.name):
                published = path.parent.parent / "STS2017.gs"
                gold_folder = published if published.is_dir() else path.parent
                found.setdefault(match[1], _semeval(path, gold_folder))
    return dict(sorted(found.items()))


def find_sick(folder: Path) -> ScoredFiles | None:
    """Finds the relatedness scores of SICK's test set, in the kit's layout or as published."""
    for name, columns in _SICK.items():
        if path := find_file(folder, name):
            return ScoredFiles(files=(path,), read=partial(read_scored_pairs, path, columns))
    return None


def _paths(folder: Path, pattern: str) -> list[Path]:
    # Where the file system knows no case, "sts" and "STS" are one folder: the first name stays.
    return [path for name in _FOLDERS for path in sorted((folder / name).glob(pattern))]


def _table(path: Path) -> ScoredFiles:
    return ScoredFiles(files=(path,), read=partial(read_scored_pairs, path))


def _semeval(path: Path, gold_folder: Path) -> ScoredFiles:
    gold = gold_folder / path.name.replace("STS.input.", "STS.gs.")
    return ScoredFiles(files=(path, gold), read=partial(read_semeval, path, gold))


def _scored(path: Path, rows: Iterable[tuple[int, Sequence[str]]]) -> ScoredPairs:
    pairs, gold = [], []
    for number, row in rows:
        try:
            first, second, score = row
            gold.append(float(score))
            if not math.isfinite(gold[-1]):
                raise ValueError(score)
        except ValueError:
            raise UserError(
                f"{path} must have two sentences and a score in every line, but in line {number} are "
                f"{'|'.join(row)[:80]!r}; correct that line"
            ) from None
        pairs.append((first.strip(), second.strip()))
    return ScoredPairs(pairs, gold)
