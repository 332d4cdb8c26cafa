"""Corpora to the examples of each task, for training and held out."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from xling_tf.corpora.store import StoredCorpus, StoredRecords, join
from xling_tf.tasks.base import Task
from xling_tf.trainer.input_pipeline import Examples


class TaskExamples(NamedTuple):
    """The examples of one task."""

    train: Examples
    held_out: Examples


def task_examples(
    tasks: Iterable[Task], corpora: Sequence[StoredCorpus]
) -> Mapping[str, TaskExamples]:
    """Collects the examples of each task that has any for training; the others are left out."""
    examples = {}
    for task in tasks:
        served = [c for c in corpora if (c.kind, c.languages) == (task.kind, task.languages)]
        if any(len(task.select(corpus.train)) for corpus in served):
            train = _collect(task, [(corpus.name, corpus.train) for corpus in served])
            held_out = _collect(task, [(corpus.name, corpus.held_out) for corpus in served])
            examples[task.name] = TaskExamples(train, held_out)
    return examples


def _collect(task: Task, parts: Sequence[tuple[str, StoredRecords]]) -> Examples:
    texts_of = task.texts_of(join([part for _, part in parts]))
    parts = [(name, task.select(part)) for name, part in parts]
    records = join([part for _, part in parts])
    return Examples(
        records=records,
        texts_of=texts_of,
        num_columns=len(task.columns),
        num_contexts=task.num_contexts,
        labels=records.labels,
        lengths=records.lengths,
        corpora=tuple((name, len(part)) for name, part in parts if len(part)),
    )
