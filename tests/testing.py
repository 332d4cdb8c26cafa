"""Helpers of tests: tiny configs, batches, a model in training and NumPy references."""

import dataclasses
import itertools
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from xling_tf.client.backends import Backend
from xling_tf.client.encoder import SentenceEncoder
from xling_tf.config import TOKENIZERS, ExperimentConfig, ModelInfo
from xling_tf.corpora.records import Corpus, Record, Row
from xling_tf.corpora.store import CorpusStore
from xling_tf.encoders.base import encoder_settings
from xling_tf.exporters import wheel
from xling_tf.exporters.base import OriginalModel
from xling_tf.model import Model
from xling_tf.settings import apply_overrides
from xling_tf.tasks.base import Batch, Task
from xling_tf.tokenizers.words import WordTokenizer
from xling_tf.trainer.distribution import Workers, make_strategy
from xling_tf.trainer.experiment import make_tasks
from xling_tf.trainer.input_pipeline import BatchGraphs, Examples, batch_graphs
from xling_tf.trainer.loop import Trainer

DIM = 8
WORDS = [*"abcdefghij", "hello", "hola", "world", "mundo"]

# The sizes of TINY, also for encoders of other kinds.
SMALL = ("encoder.embedding_dim=6", f"encoder.hidden_dim={DIM}", "encoder.intermediate_dim=12")
LSTM = ("encoder.kind=lstm", *SMALL, "tokenizer.ngram_sizes=")
TINY = apply_overrides(
    ExperimentConfig(),
    [
        "tokenizer.max_tokens=12",
        "tokenizer.num_oov_buckets=4",
        "tokenizer.num_ngram_buckets=64",
        *SMALL,
        "encoder.num_layers=1",
        "encoder.num_heads=2",
        "heads.tower_dims=5",
        "heads.inference_dim=7",
        *(
            f"tasks.{task}.{setting}"
            for task in ("translation_ranking", "response_prediction", "quick_thought", "inference")
            for setting in ("weight=1", "examples_per_batch=8")
        ),
        "optimizer.learning_rate=0.1",
        "optimizer.embedding_learning_rate=1",
        "training.steps=4",
        "training.precision=float32",
    ],
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
# Files beside an exported model.
CARD_FILES = {"README.md": "# A card\n"}

# A corpus of English and Spanish.
TEXTS = (
    "the cat sleeps on the mat",
    "el gato duerme en la alfombra",
    "a dog runs through the garden",
    "un perro corre por el jardín",
    "where is the station",
    "dónde está la estación",
)
# Overrides of TINY for models of each kind, as trainings start from them.
KINDS = {
    "words and n-grams": (),
    "cnn": (
        "tokenizer.kind=sentencepiece",
        "tokenizer.num_pieces=60",
        "tokenizer.sentence_marks=true",
        "tokenizer.max_tokens=12",
        "encoder.kind=cnn",
        "encoder.num_filters=4",
        "encoder.hidden_dim=8",
        "encoder.embedding_dim=6",
        "encoder.intermediate_dim=12",
        "encoder.num_layers=1",
    ),
}


class TrainedModel(Model):
    """A model with the tasks that train it, and their config."""

    tasks: list[Task]
    experiment: ExperimentConfig


def tiny_config(*settings: str, **similarity: Any) -> ExperimentConfig:
    """The tiny config with other settings, and another similarity."""
    config = apply_overrides(TINY, settings)
    return dataclasses.replace(
        config, similarity=dataclasses.replace(config.similarity, **similarity)
    )


def tiny_model(
    config: ExperimentConfig = TINY,
    texts: Mapping[str, Sequence[str]] | Sequence[str] = tuple(WORDS),
) -> TrainedModel:
    """A model with random weights, of a vocabulary or a tokenizer fitted to texts by language."""
    assert config.tokenizer is not None
    tokenizer: Any = (
        TOKENIZERS.implementation_of(config.tokenizer).fit(config.tokenizer, texts)
        if isinstance(texts, Mapping)
        else WordTokenizer(texts, config.tokenizer)
    )
    info = ModelInfo(languages=config.data.languages, similarity=config.similarity)
    model = TrainedModel(tokenizer, encoder_settings(config.encoder, tokenizer), info)
    model.tasks, _ = make_tasks(config, config.data, model)
    model.experiment = config
    return model


def make_model(kind: str, *, seed: int = 1) -> TrainedModel:
    """A model of a kind that knows `TEXTS`, in which no weight is 0 or 1."""
    keras.utils.set_random_seed(seed)
    model = tiny_model(apply_overrides(TINY, KINDS[kind]), {"en": TEXTS[::2], "es": TEXTS[1::2]})
    add_noise(model.weights.values(), seed=seed)
    return model


def add_noise(variables: Iterable[keras.Variable], size: float = 0.1, *, seed: int = 1) -> None:
    """Adds random numbers to variables: zeros and ones would hide forgotten weights."""
    random = np.random.default_rng(seed)
    for variable in variables:
        variable.assign(variable + random.normal(0, size, variable.shape))


@cache
def two_replicas() -> tf.distribute.Strategy:
    """Two replicas on the CPU, one strategy per process: a second one's variables collide."""
    return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])


def make_examples(
    *columns: Sequence[str],
    labels: Sequence[int] | None = None,
    meanings: Sequence[int] | None = None,
    corpora: Sequence[tuple[str, int]] | None = None,
    vectors: np.ndarray | None = None,
    num_contexts: int = 0,
) -> Examples:
    """Examples of texts, whose lengths are their numbers of words."""
    count = len(columns[0])
    encoded = [np.array([text.encode() for text in column], object) for column in columns]
    lengths = [[len(text.split()) for text in column] for column in columns]
    return Examples(
        columns=lambda indices: [column[indices] for column in encoded],
        num_columns=len(columns),
        num_contexts=num_contexts,
        meanings=np.array(range(count) if meanings is None else meanings, np.int32),
        labels=np.array([0] * count if labels is None else labels, np.int32),
        lengths=np.max(lengths, axis=0).astype(np.int32),
        corpora=tuple(corpora or [("corpus", count)]),
        vectors=np.zeros((count, 0), np.float32) if vectors is None else vectors,
    )


def rows_of(examples: Examples) -> list[tuple[str, ...]]:
    """The texts of examples, one for each column."""
    columns = examples.columns(np.arange(len(examples)))
    return list(zip(*([text.decode() for text in column] for column in columns), strict=True))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListCorpus(Corpus):
    """A corpus in memory; `groups` are the keys of the records' documents, if they have any."""

    records: Sequence[Record]
    groups: Sequence[str] | None = None

    def version(self) -> str:
        """Returns a text that differs between corpora."""
        return repr(self.records)

    def __iter__(self) -> Iterator[Row]:
        """Yields the rows."""
        return zip(self.records, self.groups or [None] * len(self.records), strict=True)


def corpus(
    record_type: str, records: Sequence[Record], *, name: str = "x", **more: Any
) -> ListCorpus:
    """A corpus in English, or translations between English and Spanish, by default."""
    languages = "en-es" if record_type == "parallel" else "en"
    fields = {"languages": languages, **more}
    return ListCorpus(name=name, record_type=record_type, records=records, **fields)


def accept(store: CorpusStore) -> None:
    """Accepts any store."""


def batch_at_once(
    graphs: BatchGraphs, examples: Examples, indices: Sequence[int] | np.ndarray
) -> Batch:
    """Some examples as a batch, made without a graph, which would take a second to trace."""
    shape = examples.num_columns, examples.num_contexts, examples.prompts
    graph: Any = graphs(*shape, examples.vectors.shape[1])
    rows = np.array(indices, np.int64)
    vectors, meanings = examples.vectors[rows].astype(np.float32), examples.meanings[rows]
    parts = examples.texts(rows), meanings.astype(np.int64), examples.labels[rows], vectors
    return graph.python_function(*map(tf.constant, parts))


def make_batch(
    model: TrainedModel, examples: Examples, indices: Sequence[int] | None = None
) -> Batch:
    """The examples at these indices, or all, as one batch."""
    rows = range(len(examples)) if indices is None else indices
    return batch_at_once(batch_graphs(model.tokenizer), examples, rows)


def find_task(model: TrainedModel, name: str) -> Task:
    """The task of a model by its name."""
    return next(task for task in model.tasks if task.name == name)


def task_losses(
    model: TrainedModel, name: str, examples: Examples
) -> tuple[np.ndarray, np.ndarray]:
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
        meanings=tf.range(count, dtype=tf.int64),
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
        "tasks.response_prediction.weight=0",
        "tasks.quick_thought.weight=0",
        "tasks.translation_ranking.examples_per_batch=2",
        "tasks.inference.examples_per_batch=2",
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
    **options: Any,
) -> Any:
    """A trainer of a new model, its `model`, always the same, on tasks that have examples."""
    keras.utils.set_random_seed(1)
    folder.mkdir(exist_ok=True)
    workers = workers or Workers(make_strategy())
    with workers.strategy.scope():
        model = tiny_model(config)
    model.tasks = [task for task in model.tasks if task.name in examples]
    trained = {task.group for task in model.tasks}
    model.heads = {name: heads for name, heads in model.heads.items() if name in trained}
    parts = {"model": model, "tasks": model.tasks, "config": config, "examples": examples}
    trainer: Any = Trainer(**parts, workers=workers, run_dir=folder, **options)
    trainer.model = model
    return trainer


class AtOnce:
    """Stands in for `tf.function`: computes without a graph."""

    def __init__(self, function: Any = None, **_: Any) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments) if self._function else AtOnce(*arguments)

    def get_concrete_function(self) -> Any:
        return self._function


def batches_at_once(
    examples: Examples, batch: Any, graphs: BatchGraphs, *, is_closed: threading.Event
) -> Iterator[Batch]:
    """Stands in for `make_dataset`: the same batches, without the second that its graphs take."""
    numbers = itertools.count()
    while not is_closed.is_set():
        yield batch_at_once(graphs, examples, batch(next(numbers)))


def encode(model: Model, texts: Sequence[str]) -> np.ndarray:
    """The encodings of a model in training."""
    return model.encoder(model.tokenizer(tf.constant(texts))).numpy()


def encoded(model: TrainedModel, texts: Sequence[str]) -> np.ndarray:
    """What heads see: with normalised similarities, vectors of a mean square of 1."""
    vectors = encode(model, texts)
    if model.experiment.similarity.normalize:
        vectors /= np.sqrt(np.mean(vectors**2, axis=1, keepdims=True))
    return vectors


def require_gradients(layer: keras.layers.Layer, *inputs: Any, **options: Any) -> tf.Tensor:
    """Calls a layer, checks that finite gradients reach all variables, returns the outputs."""
    with tf.GradientTape() as tape:
        outputs = layer(*inputs, **options)
        loss = tf.reduce_sum(tf.cast(outputs, tf.float32) ** 3)
    variables = layer.trainable_variables
    for variable, gradient in zip(
        variables, tape.gradient(loss, [v.value for v in variables]), strict=True
    ):
        assert gradient is not None, variable.path
        assert 0 < np.abs(tf.convert_to_tensor(gradient).numpy()).max() < np.inf, variable.path
    return outputs


def dense(inputs: np.ndarray, tower: keras.layers.Layer) -> np.ndarray:
    """A tower's tanh layers in NumPy."""
    weights = tower.get_weights()
    for kernel, bias in zip(weights[::2], weights[1::2], strict=True):
        inputs = np.tanh(inputs @ kernel + bias)
    return inputs


def numpy_ranking(
    model: TrainedModel,
    queries: np.ndarray,
    candidates: np.ndarray,
    excluded: np.ndarray | None = None,
) -> np.ndarray:
    """-log(e^{s(q.c - m)} / (e^{s(q.c - m)} + sum over wrong c' of e^{s q.c'})), row by row.

    Candidate i is right for query i; those beyond the queries are wrong for all. Scale, margin and
    length are those of the model's config.
    """
    similarity = model.experiment.similarity
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


class Responses(Backend):
    """A model whose documents are encoded by `function`, with contexts if it takes them."""

    roles = ("document",)

    def __init__(self, function, takes_contexts):
        self._function, self.takes_contexts = function, takes_contexts

    def embed(self, texts, role, *contexts):
        assert role == "document"
        return self._function(texts, *contexts)


def encode_responses(function, *columns, takes_contexts=True, **options):
    """The vectors of documents by a function."""
    encoder = SentenceEncoder(Responses(function, takes_contexts))
    contexts = dict(zip(["contexts"], columns[1:], strict=False))
    return encoder.encode_document(columns[0], **contexts, **options)


def export_package(
    form: Any,
    source: OriginalModel,
    folder: Path,
    name: str = "tiny-model",
    version: int = 1,
    **sizes: Any,
) -> None:
    """Packs a model in memory as `export` does; `form` is a format's module, `wheel` or `npm`."""
    write = wheel.export_runtime if form is wheel else wheel.export_numpy
    with tempfile.TemporaryDirectory() as model:
        write(source, Path(model), **sizes)
        form.pack(Path(model), folder, name=name, version=version)
