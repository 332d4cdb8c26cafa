"""What several test files share: tiny configs, batches, a model in training and NumPy references."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from xling_tf.config import (
    EncoderConfig,
    ExperimentConfig,
    OptimizerConfig,
    TaskConfig,
    TasksConfig,
    TextConfig,
    TrainingConfig,
    apply_overrides,
)
from xling_tf.corpora.records import Corpus, Kind, Record, Row
from xling_tf.corpora.store import CorpusStore
from xling_tf.model import Model
from xling_tf.tasks.base import Batch, Task
from xling_tf.trainer.development import Development
from xling_tf.trainer.distribution import Workers, make_strategy
from xling_tf.trainer.input_pipeline import Examples, make_dataset
from xling_tf.trainer.loop import Trainer

DIM = 8
WORDS = [*"abcdefghij", "hello", "hola", "world", "mundo"]

TINY = ExperimentConfig(
    text=TextConfig(max_tokens=12, num_oov_buckets=4, num_ngram_buckets=64),
    encoder=EncoderConfig(embedding_dim=6, hidden_dim=DIM, intermediate_dim=12, num_layers=1, num_heads=2),
    tasks=TasksConfig(
        translation_ranking=TaskConfig(examples_per_batch=8),
        response_prediction=TaskConfig(examples_per_batch=8),
        quick_thought=TaskConfig(examples_per_batch=8),
        inference=TaskConfig(examples_per_batch=8),
        tower_dims=(5, DIM),
        inference_dim=7,
    ),
    optimizer=OptimizerConfig(learning_rate=0.1, embedding_learning_rate=1.0),
    training=TrainingConfig(steps=4, precision="float32"),
)

# Known words, unknown ones, both, and none.
SENTENCES = [
    "Hola",
    "el gato duerme.",
    "Kängurus hüpfen!",
    "the kangaroo is sleeping",
    "¿qué tal?",
    "",
]
# What lies beside an exported model.
CARD_FILES = {"README.md": "# A card\n", "config.json": "{}\n"}


def tiny_config(**similarity: float | bool) -> ExperimentConfig:
    """The tiny config, with another similarity."""
    changed = dataclasses.replace(TINY.tasks.similarity, **similarity)
    return dataclasses.replace(TINY, tasks=dataclasses.replace(TINY.tasks, similarity=changed))


def tiny_model(config: ExperimentConfig = TINY) -> Model:
    """A model with random weights."""
    return Model.build(config, WORDS)


@cache
def two_replicas() -> tf.distribute.Strategy:
    """Two replicas on the CPU, one strategy for the process: those of a second one collide with it."""
    return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])


def make_examples(
    *columns: Sequence[str],
    labels: Sequence[int] | None = None,
    corpora: Sequence[tuple[str, int]] | None = None,
    vectors: np.ndarray | None = None,
    num_contexts: int = 0,
) -> Examples:
    """Examples of texts, whose lengths are their numbers of words."""
    count = len(columns[0])
    lengths = [[len(text.split()) for text in column] for column in columns]
    return Examples(
        records=list(zip(*columns, strict=True)),
        texts_of=tuple,
        num_columns=len(columns),
        num_contexts=num_contexts,
        labels=np.array([0] * count if labels is None else labels, np.int32),
        lengths=np.max(lengths, axis=0).astype(np.int32),
        corpora=tuple(corpora or [("corpus", count)]),
        vectors=np.zeros((count, 0), np.float32) if vectors is None else vectors,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListCorpus(Corpus):
    """A corpus in memory; `groups` are the keys of the records' documents, if they have any."""

    records: Sequence[Record]
    groups: Sequence[str] | None = None

    def version(self) -> str:
        """Tells it from others."""
        return repr(self.records)

    def __iter__(self) -> Iterator[Row]:
        """Yields its rows."""
        return zip(self.records, self.groups or [None] * len(self.records), strict=True)


def corpus(kind: Kind, records: Sequence[Record], *, name: str = "x", **more: Any) -> ListCorpus:
    """A corpus of English, or of English and Spanish, if nothing else is said."""
    languages = "en-es" if kind == "parallel" else "en"
    return ListCorpus(**{"name": name, "kind": kind, "languages": languages, "records": records, **more})


def accept(store: CorpusStore) -> None:
    """Any store will do."""


def make_batches(model: Model, examples: Examples, batches: Sequence[Sequence[int]]) -> tf.data.Dataset:
    """Streams the examples at these indices."""

    def batch(position: int) -> np.ndarray:
        return np.array(batches[position], np.int64)

    return make_dataset(examples, batch, model.preprocessor, count=len(batches))


def make_batch(model: Model, examples: Examples) -> Batch:
    """All examples as one batch."""
    return next(iter(make_batches(model, examples, [range(len(examples))])))


def find_task(model: Model, name: str) -> Task:
    """The task of a model by its name."""
    return next(task for task in model.tasks if task.name == name)


def task_losses(model: Model, name: str, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """A task's losses and hits on examples."""
    per_example, hits = find_task(model, name).losses(model.encoder, make_batch(model, examples))
    assert per_example.shape == hits.shape == (len(examples),)
    return per_example.numpy(), hits.numpy()


def scored(
    task: Task, columns: Sequence[Any], fingerprints: Any, vectors: Any
) -> tuple[list[float], list[float]]:
    """A task's losses and hits on columns of encodings."""
    count = len(columns[0])
    batch = Batch(
        features=None,
        fingerprints=tf.constant(fingerprints, tf.int64),
        labels=tf.zeros([count], tf.int32),
        vectors=tf.constant(vectors, tf.float32),
    )
    losses, hits = task.score([tf.constant(column) for column in columns], batch)
    assert losses.shape == hits.shape == (count,)
    return losses.numpy().tolist(), hits.numpy().tolist()


# Two tasks, in batches of two.
TWO_TASKS = apply_overrides(
    TINY,
    [
        *("tasks.response_prediction.weight=0", "tasks.quick_thought.weight=0"),
        *("tasks.translation_ranking.examples_per_batch=2", "tasks.inference.examples_per_batch=2"),
    ],
)
EXAMPLES = {
    "translation_ranking_en-es": make_examples(WORDS[:10], [f"{word} hola" for word in WORDS[:10]]),
    "inference": make_examples(WORDS[:10], WORDS[9::-1], labels=[0, 1, 2, 0, 1, 2, 0, 1, 2, 0]),
}


def make_trainer(
    folder: Path,
    config: ExperimentConfig = TWO_TASKS,
    examples: Mapping[str, Examples] = EXAMPLES,
    *,
    workers: Workers | None = None,
    development: Callable[[Model], Development] | None = None,
) -> Trainer:
    """A trainer of a new model, always the same one, on the tasks that have examples."""
    keras.utils.set_random_seed(1)
    folder.mkdir(exist_ok=True)
    workers = workers or Workers(make_strategy())
    with workers.strategy.scope():
        model = tiny_model(config)
    model = model._replace(tasks=[task for task in model.tasks if task.name in examples])
    scores = development(model) if development else None
    return Trainer(model=model, examples=examples, workers=workers, run_dir=folder, development=scores)


def encode(model: Model, texts: Sequence[str]) -> np.ndarray:
    """The encodings of a model in training."""
    return model.encoder(model.preprocessor(tf.constant(texts))).numpy()


def encoded(model: Model, texts: Sequence[str]) -> np.ndarray:
    """What heads see: with normalised similarities, vectors of a mean square of 1."""
    vectors = encode(model, texts)
    if model.config.tasks.similarity.normalize:
        vectors /= np.sqrt(np.mean(vectors**2, axis=1, keepdims=True))
    return vectors


def dense(inputs: np.ndarray, tower: keras.layers.Layer) -> np.ndarray:
    """A tower's tanh layers in NumPy."""
    weights = tower.get_weights()
    for kernel, bias in zip(weights[::2], weights[1::2], strict=True):
        inputs = np.tanh(inputs @ kernel + bias)
    return inputs


def numpy_ranking(
    model: Model, queries: np.ndarray, candidates: np.ndarray, excluded: np.ndarray | None = None
) -> np.ndarray:
    """-log(e^{s(q.c - m)} / (e^{s(q.c - m)} + sum over wrong c' of e^{s q.c'})), row by row.

    Candidate i is right for query i; those beyond the queries are wrong for all. Scale, margin and length
    are of the model's config.
    """
    similarity = model.config.tasks.similarity
    if similarity.normalize:
        queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
        candidates = candidates / np.linalg.norm(candidates, axis=1, keepdims=True)
    losses = []
    for row, query in enumerate(queries):
        right = np.exp(similarity.scale * (query @ candidates[row] - similarity.margin))
        wrong = sum(
            np.exp(similarity.scale * (query @ candidate))
            for place, candidate in enumerate(candidates)
            if place != row and (excluded is None or not excluded[row, place])
        )
        losses.append(-np.log(right / (right + wrong)))
    return np.array(losses)
