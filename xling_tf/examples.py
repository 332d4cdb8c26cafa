"""Corpora to the examples of each task, for training and held out."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from xling_tf.corpora.folder import Corpus
from xling_tf.corpora.records import Record
from xling_tf.corpora.split import split_corpora
from xling_tf.input_pipeline import Examples
from xling_tf.tasks.base import Task

# The graph's tokenizer in brief, for bucketing: words, with marks that may stand inside them, and
# single marks. Scripts without spaces between words have a token a character.
_TOKENS = re.compile(r"\w+(?:[-.'’]\w+)*|[^\w\s]")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")

# One endless line must not count as a batch of its own.
_LONGEST = 256


class TaskExamples(NamedTuple):
    """The examples of one task."""

    train: Examples
    held_out: Examples


class SplitCorpus(NamedTuple):
    """A corpus with its records divided into training and held-out ones."""

    corpus: Corpus
    train: list[Record]
    held_out: list[Record]


def split(corpora: Sequence[Corpus]) -> list[SplitCorpus]:
    """Holds the stable tenth of every corpus out."""
    parts = split_corpora(corpora)
    return [
        SplitCorpus(corpus, part.train, part.held_out)
        for corpus, part in zip(corpora, parts, strict=True)
    ]


def training_texts(corpora: Iterable[SplitCorpus]) -> list[str]:
    """Lists every distinct training text once, for the vocabulary."""
    texts: dict[str, None] = {}
    for corpus in corpora:
        for record in corpus.train:
            texts.update(dict.fromkeys(part for part in record if isinstance(part, str)))
    return list(texts)


def task_examples(
    tasks: Iterable[Task], corpora: Sequence[SplitCorpus]
) -> Mapping[str, TaskExamples]:
    """Collects the examples of each task that has any for training; the others are left out."""
    examples = {}
    for task in tasks:
        served = [
            corpus
            for corpus in corpora
            if (corpus.corpus.kind, corpus.corpus.languages) == (task.kind, task.languages)
        ]
        train = _collect(task, [(corpus.corpus.name, corpus.train) for corpus in served])
        if len(train):
            held_out = _collect(task, [(corpus.corpus.name, corpus.held_out) for corpus in served])
            examples[task.name] = TaskExamples(train, held_out)
    return examples


def _collect(task: Task, parts: Sequence[tuple[str, Sequence[Record]]]) -> Examples:
    records = [record for _, part in parts for record in part]
    texts = [[getattr(record, column) for record in records] for column in task.columns]
    lengths = [np.fromiter(map(_approximate_length, column), np.int32) for column in texts]
    return Examples(
        columns=tuple(_bytes(column) for column in texts),
        labels=np.fromiter((getattr(record, "label", 0) for record in records), np.int32),
        lengths=np.max(lengths, axis=0),
        corpora=tuple((name, len(part)) for name, part in parts if len(part)),
    )


def _bytes(texts: Sequence[str]) -> np.ndarray:
    array = np.empty(len(texts), object)
    array[:] = [text.encode("utf-8") for text in texts]
    return array


def _approximate_length(text: str) -> int:
    """Estimates a text's tokens, well enough to put texts of similar length together."""
    length = len(_TOKENS.findall(text))
    if not text.isascii():
        length += len(_UNSPACED.findall(text))
    return min(max(length, 1), _LONGEST)
