"""The files of SentEval's transfer tasks, as SentEval has them and as tables."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from xling_tf.errors import UserError
from xling_tf.evaluators.classification.relatedness import ScoredPair, TransferRelatedness
from xling_tf.evaluators.classification.transfer import Example, TransferClassification
from xling_tf.evaluators.data import Dataset, Missing, Suite, find_file, read_table
from xling_tf.evaluators.encoding import Evaluator

Row = tuple[str, ...]  # a label and one or two sentences

# SentEval's scripts make a folder data/downstream.
_FOLDERS = ("senteval", "downstream")
_PAIR = ("sentence1", "sentence2")
_MAX_FILE = 1 << 26  # bytes; SentEval's largest has 10 million


def _labelled_by_ending(path: Path) -> list[Row]:
    """A sentence a line, labelled by what follows the dot in the file's name."""
    return [(path.suffix[1:], line) for line in _lines(path)]


def _fields(
    path: Path, *, places: Sequence[int], separator: str = "\t", skip: int = 0
) -> list[Row]:
    """Fields of each line in the order of `places`, the label's first."""
    rows = []
    most = -1 if separator == "\t" else max(places)
    for number, line in enumerate(_lines(path)[skip:], skip + 1):
        parts = [part.strip() for part in line.split(separator, most)]
        if len(parts) <= max(places):
            raise UserError(
                f"{path} must have {max(places) + 1} fields in every line, separated by "
                f"{separator!r}, as SentEval's file of that name has, but line {number} is "
                f"{line[:80]!r}; fetch it again or correct that line"
            )
        rows.append(tuple(parts[place] for place in places))
    return rows


def _questions(path: Path) -> list[Row]:
    """TREC's `LABEL:finer question`; the finer label is not used."""
    return [
        (label.partition(":")[0], question)
        for label, question in _fields(path, places=(0, 1), separator=" ")
    ]


def _lines(path: Path) -> list[str]:
    """The lines that are not blank; SentEval has some files in UTF-8 and some in Latin-1."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE + 1)
    except OSError as error:
        raise UserError(
            f"{path} must be a readable file, but is not ({error.strerror}); correct the path"
        ) from error
    if len(content) > _MAX_FILE or b"\0" in content:
        came = "holds NUL" if b"\0" in content else f"is larger than {_MAX_FILE >> 20} MiB"
        raise UserError(
            f"{path} must be text in UTF-8 or Latin-1, as SentEval has it, but {came}; fetch it again"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]


@dataclass(frozen=True, kw_only=True)
class _Task:
    """Where a task's sets are and what is made of them.

    `tables` and `published` name files by the set that they make ("train", "dev", "test").
    """

    name: str
    tables: Mapping[str, str]
    columns: Sequence[str]
    published: Mapping[str, tuple[str, ...]]
    read: Callable[[Path], list[Row]]
    folders: Sequence[str] = _FOLDERS
    optional: Sequence[str] = field(default=())
    relatedness: bool = False
    positive: str | None = None

    def expected(self) -> str:
        """Tells which files would make it."""
        tables = ", ".join(f"{self.folders[0]}/{name}.tsv" for name in self.tables.values())
        published = ", ".join(
            f"senteval/{name}" for names in self.published.values() for name in names
        )
        return (
            f"{tables} ({' TAB '.join(self.columns)} under a line with these names) or, as "
            f"published, {published}"
        )


class _Files(NamedTuple):
    of_set: Mapping[str, tuple[Path, ...]]
    read: Callable[[Path], list[Row]]


def _whole(name: str, *endings: str) -> _Task:
    """A task without a test set, whose published files are labelled by their endings."""
    return _Task(
        name=name,
        tables={"train": name},
        columns=("label", "text"),
        published={"train": tuple(f"{name}/{ending}" for ending in endings)},
        read=_labelled_by_ending,
    )


def _split(table: str) -> dict[str, str]:
    return {split: f"{table}.{split}" for split in ("train", "dev", "test")}


_SICK = {
    "train": ("SICK/SICK_train.txt",),
    "dev": ("SICK/SICK_trial.txt",),
    "test": ("SICK/SICK_test_annotated.txt",),
}
_STSB = {split: (f"STS/STSBenchmark/sts-{split}.csv",) for split in ("train", "dev", "test")}
_read_stsb = partial(_fields, places=(4, 5, 6))

_TASKS = (
    _whole("MR", "rt-polarity.neg", "rt-polarity.pos"),
    _whole("CR", "custrev.neg", "custrev.pos"),
    _whole("SUBJ", "subj.objective", "subj.subjective"),
    _whole("MPQA", "mpqa.neg", "mpqa.pos"),
    _Task(
        name="TREC",
        tables=_split("TREC"),
        columns=("label", "text"),
        published={"train": ("TREC/train_5500.label",), "test": ("TREC/TREC_10.label",)},
        read=_questions,
        optional=("dev",),
    ),
    _Task(
        name="SST2",
        tables=_split("SST2"),
        columns=("label", "text"),
        published={split: (f"SST/binary/sentiment-{split}",) for split in ("train", "dev", "test")},
        read=partial(_fields, places=(1, 0)),
    ),
    _Task(
        name="SST5",
        tables=_split("SST5"),
        columns=("label", "text"),
        published={split: (f"SST/fine/sentiment-{split}",) for split in ("train", "dev", "test")},
        read=partial(_fields, places=(0, 1), separator=" "),
    ),
    _Task(
        name="MRPC",
        tables=_split("MRPC"),
        columns=("label", *_PAIR),
        published={split: (f"MRPC/msr_paraphrase_{split}.txt",) for split in ("train", "test")},
        read=partial(_fields, places=(0, 3, 4), skip=1),
        optional=("dev",),
        positive="1",
    ),
    _Task(
        name="SICK-E",
        tables=_split("SICK"),
        columns=("entailment", *_PAIR),
        published=_SICK,
        read=partial(_fields, places=(4, 1, 2), skip=1),
    ),
    _Task(
        name="SICK-R",
        tables=_split("SICK"),
        columns=("relatedness", *_PAIR),
        published=_SICK,
        read=partial(_fields, places=(3, 1, 2), skip=1),
        relatedness=True,
    ),
    _Task(
        name="STSB",
        tables=_split("stsb.en"),
        columns=("score", *_PAIR),
        published=_STSB,
        read=_read_stsb,
        folders=("sts", *_FOLDERS),
        relatedness=True,
    ),
    # Learnt on the training pairs alone: for who has no test set, and the papers give both figures.
    _Task(
        name="STSB.dev",
        tables={"train": "stsb.en.train", "test": "stsb.en.dev"},
        columns=("score", *_PAIR),
        published={"train": _STSB["train"], "test": _STSB["dev"]},
        read=_read_stsb,
        folders=("sts", *_FOLDERS),
        relatedness=True,
    ),
)


def find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    """Finds SentEval's transfer tasks.

    Args:
        folder: Holds `senteval/` (and `sts/`) with tables, or SentEval's `downstream/` or its content
            in `senteval/`.
        seed: Of folds and networks.

    Yields:
        Each task.
    """
    for task in _TASKS:
        files = _locate(folder, task)
        if files is None:
            yield Missing(name=task.name, expected=task.expected())
        else:
            paths = tuple(path for paths in files.of_set.values() for path in paths)
            yield Dataset(name=task.name, files=paths, load=partial(_load, task, files, seed))


def _locate(folder: Path, task: _Task) -> _Files | None:
    for name in task.folders:
        tables = {
            split: (path,)
            for split, stem in task.tables.items()
            if (path := find_file(folder / name, f"{stem}.tsv"))
        }
        if set(task.tables) - set(task.optional) <= set(tables):
            return _Files(tables, partial(_read_table, columns=task.columns))
    for name in task.folders:
        published = {
            split: tuple(folder / name / file for file in files)
            for split, files in task.published.items()
        }
        if all(path.is_file() for paths in published.values() for path in paths):
            return _Files(published, task.read)
    return None


def _read_table(path: Path, *, columns: Sequence[str]) -> list[Row]:
    return read_table(path, columns)


def _load(task: _Task, files: _Files, seed: int) -> Evaluator:
    sets = {
        split: [row for path in files.of_set.get(split, ()) for row in files.read(path)]
        for split in ("train", "dev", "test")
    }
    for split, paths in files.of_set.items():
        if not sets[split]:
            raise UserError(f"{paths[0]} has no examples; fetch it again or take it away")
    if task.relatedness:
        pairs = {split: [_scored(row, task) for row in rows] for split, rows in sets.items()}
        return TransferRelatedness(**pairs, name=task.name, seed=seed)
    examples = {
        split: [Example(tuple(row[1:]), row[0]) for row in rows] for split, rows in sets.items()
    }
    return TransferClassification(**examples, name=task.name, positive=task.positive, seed=seed)


def _scored(row: Row, task: _Task) -> ScoredPair:
    try:
        score = float(row[0])
        if not math.isfinite(score):
            raise ValueError(row[0])
        return ScoredPair((row[1], row[2]), score)
    except ValueError:
        raise UserError(
            f"{task.name} must give each pair a number, but gives {row[0][:40]!r} to "
            f"{row[1][:60]!r}; correct that line"
        ) from None


SUITE = Suite(
    name="senteval",
    title="SentEval's transfer tasks",
    source="Chidambaram et al. 2019, Table 1; Yang et al. 2019, Table 8; Yu et al. 2018, Table 1",
    find=find,
)
