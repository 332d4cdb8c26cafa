"""Labelled pairs of premise and hypothesis, as evaluation data has them."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from xling_tf.corpora.records import NLI_LABELS
from xling_tf.corpora.snli import SNLI_FILE, SNLI_FOLDERS, read_snli
from xling_tf.errors import UserError
from xling_tf.evaluators.data import LANGUAGE, find_file, read_table

TWO_WAY_LABELS = ("entailment", "not_entailment")
# Bowman et al. 2015, sec. 2.2: the annotators of a pair did not agree, and it is not to be used.
_NO_LABEL = "-"
# What `read_snli` says of lines that are as published and yet of no use.
_UNUSABLE = ("no gold label", "empty sentence")

# Conneau et al. 2018, table 1; each file has all languages.
_XNLI_LANGUAGES = (
    *("ar", "bg", "de", "el", "en", "es", "fr"),
    *("hi", "ru", "sw", "th", "tr", "ur", "vi", "zh"),
)
_XNLI_FOLDERS = ("nli", "XNLI-1.0", ".")
_XNLI_SPLITS = ("dev", "test")
_XNLI_COLUMNS = ("language", "gold_label", "sentence1", "sentence2")

_TABLE = re.compile(rf"([^.]+)\.({LANGUAGE})(?:\.([a-z_]+))?\.tsv(?:\.gz)?")


class LabelledPair(NamedTuple):
    """A premise, a hypothesis and the name of their relation."""

    premise: str
    hypothesis: str
    label: str


class InferenceSet(NamedTuple):
    """What a file holds.

    Attributes:
        pairs: In order of their texts, whatever their order in the file.
        labels: Those that the pairs may have: `NLI_LABELS` or `TWO_WAY_LABELS`.
        num_left_out: Pairs without a label, whose annotators did not agree, or without a sentence.
    """

    pairs: list[LabelledPair]
    labels: tuple[str, ...]
    num_left_out: int


@dataclass(frozen=True, kw_only=True)
class InferenceFile:
    """A set that was found.

    Args:
        name: As "xnli.es.dev".
        language: Of the pairs, as "es".
        split: As "dev"; "" where the set has none.
        path: Where it is.
        read: Reads it.
    """

    name: str
    language: str
    split: str
    path: Path
    read: Callable[[], InferenceSet]


def find_inference_files(folder: Path) -> list[InferenceFile]:
    """Finds the sets for natural language inference of an evaluation folder.

    They are tables `nli/<name>.<language>[.<split>].tsv` (label, premise, hypothesis), or as published:
    SNLI and MultiNLI in JSON lines, XNLI with all its languages in one table. Where a set comes twice,
    a table goes before what is published.

    Args:
        folder: The evaluation folder.

    Returns:
        The sets by name.
    """
    found: dict[str, InferenceFile] = {}
    for file in (*_tables(folder), *_snli(folder), *_xnli(folder)):
        found.setdefault(file.name, file)
    return [found[name] for name in sorted(found)]


def read_labelled(path: Path) -> InferenceSet:
    """Reads a table with the columns label, premise and hypothesis.

    Args:
        path: Text or, by its name, gzip; the label is one of `NLI_LABELS` or, in the whole file, of
            `TWO_WAY_LABELS`, or "-" where there is none.

    Raises:
        UserError: A column is missing, or a label is another one.
    """
    return _as_set(path, read_table(path, ("premise", "hypothesis", "label")))


def read_xnli(path: Path, language: str) -> InferenceSet:
    """Reads the pairs in one language of `xnli.dev.tsv` or `xnli.test.tsv` (Conneau et al. 2018).

    Raises:
        UserError: A column is missing, there are no pairs in the language, or a label is none.
    """
    rows = [
        (premise, hypothesis, label)
        for row_language, label, premise, hypothesis in read_table(path, _XNLI_COLUMNS)
        if row_language == language
    ]
    return _as_set(path, rows)


def read_published_snli(path: Path) -> InferenceSet:
    """Reads JSON lines as SNLI and MultiNLI are published in.

    Raises:
        UserError: A line is something else.
    """
    reading = read_snli(path)
    rows = [(record.premise, record.hypothesis, NLI_LABELS[record.label]) for record, _ in reading]
    num_left_out = sum(reading.malformed.pop(reason, 0) for reason in _UNUSABLE)
    if reading.malformed:
        raise UserError(
            f"{path} must hold JSON with gold_label, sentence1 and sentence2 in every line, but has "
            f"others: {reading.summary()}; fetch it again"
        )
    return _as_set(path, rows)._replace(num_left_out=num_left_out)


def _as_set(path: Path, rows: Sequence[tuple[str, ...]]) -> InferenceSet:
    pairs = sorted(LabelledPair(*row) for row in rows if row[-1] != _NO_LABEL)
    present = {pair.label for pair in pairs}
    labels = TWO_WAY_LABELS if TWO_WAY_LABELS[1] in present else NLI_LABELS
    if not pairs or present - set(labels):
        raise UserError(
            f"{path} must have pairs labelled {', '.join(NLI_LABELS)}, or only "
            f"{' and '.join(TWO_WAY_LABELS)}, but its labels are "
            f"{', '.join(map(repr, sorted(present))) or 'missing'}; correct the file"
        )
    return InferenceSet(pairs, labels, len(rows) - len(pairs))


def _tables(folder: Path) -> Iterator[InferenceFile]:
    published = {f"xnli.{split}.tsv" for split in _XNLI_SPLITS}
    for path in sorted((folder / "nli").glob("*.tsv*")):
        match = _TABLE.fullmatch(path.name)
        if match is None or path.name.removesuffix(".gz") in published:
            continue
        name, language, split = match.groups(default="")
        yield InferenceFile(
            name=".".join(filter(None, (name, language, split))),
            language=language,
            split=split,
            path=path,
            read=partial(read_labelled, path),
        )


def _snli(folder: Path) -> Iterator[InferenceFile]:
    for place in SNLI_FOLDERS:
        for path in sorted((folder / place).glob("*_1.0_*.jsonl*")):
            if match := SNLI_FILE.fullmatch(path.name):
                corpus, split = match["name"].removesuffix("_1.0"), match["split"]
                yield InferenceFile(
                    name=f"{corpus}.en.{split}",
                    language="en",
                    split=split,
                    path=path,
                    read=partial(read_published_snli, path),
                )


def _xnli(folder: Path) -> Iterator[InferenceFile]:
    for place in _XNLI_FOLDERS:
        for split in _XNLI_SPLITS:
            if path := find_file(folder / place, f"xnli.{split}.tsv"):
                for language in _XNLI_LANGUAGES:
                    yield InferenceFile(
                        name=f"xnli.{language}.{split}",
                        language=language,
                        split=split,
                        path=path,
                        read=partial(read_xnli, path, language),
                    )
