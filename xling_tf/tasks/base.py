"""What a task is, what a batch of it holds, and the tasks by their names."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from itertools import combinations
from typing import Any, ClassVar, NamedTuple, Self

import keras
import tensorflow as tf

from xling_tf.config import ExperimentConfig, SimilarityConfig, TaskConfig
from xling_tf.corpora.records import Record
from xling_tf.corpora.store import StoredRecords
from xling_tf.encoders.base import TokenEncoder
from xling_tf.layers.pooling import unit_entries
from xling_tf.losses import cosine_distance
from xling_tf.text.preprocessor import TextPreprocessor, TokenFeatures

# A task's settings are `config.tasks.<name>`; its class makes the mirrored tasks of an experiment.
TASKS = {
    "translation_ranking": "ranking.TranslationRanking",
    "response_prediction": "ranking.ResponsePrediction",
    "quick_thought": "ranking.QuickThought",
    "inference": "inference.Inference",
    "question_answering": "question_answering.QuestionAnswering",
    "distillation": "distillation.Distillation",
    "entailment_ranking": "entailment.EntailmentRanking",
    "graded_similarity": "graded_similarity.GradedSimilarity",
    "translation": "translation.Translation",
    "translation_detection": "inference.TranslationDetection",
}


class Batch(NamedTuple):
    """A batch of one task's examples; a task has a fixed number of text columns.

    Attributes:
        features: Of all columns' texts, first column first: `[columns * batch]` sentences, so that
            one pass of the encoder serves all.
        fingerprints: `[columns, batch]` int64, equal where two texts are equal.
        labels: `[batch]` int32; 0 where the task has none.
        vectors: `[batch, dim]` float32, of a teacher; `[batch, 0]` where the task has none.
    """

    features: TokenFeatures
    fingerprints: tf.Tensor
    labels: tf.Tensor
    vectors: tf.Tensor


class StartingEncoder:
    """Remembers the weights of an encoder, and pulls its encodings back to those made with them.

    What was encoded before training, an index say, then still is near what it encodes afterwards.

    Args:
        trained: The encoder's variables that training will change.
        weight: Of 1 - cosine to the starting encoder in the losses.
    """

    def __init__(self, trained: Sequence[keras.Variable], weight: float) -> None:
        self._weight = weight
        self._then = [(v, tf.Variable(v.numpy(), trainable=False)) for v in trained]

    def standing_in(self) -> keras.StatelessScope:
        """Within it, the encoder has its weights of then."""
        return keras.StatelessScope(state_mapping=self._then)

    def losses(self, now: Sequence[tf.Tensor], then: Sequence[tf.Tensor]) -> tf.Tensor:
        """Maps each column's `[batch, dim]` encodings, now and then, to `[batch]` losses."""
        distances = [
            cosine_distance(column, tf.stop_gradient(before))
            for column, before in zip(now, then, strict=True)
        ]
        return self._weight * tf.add_n(distances) / len(distances)


class Task(ABC):
    """A training task over a shared encoder.

    Args:
        name: Unique in the experiment; names its losses in logs.
        languages: Of its corpora: "en-es" or "en".
        config: `config.tasks.<name>` of the experiment; a task with settings of its own has a subclass.
        similarity: How vectors are compared. Where it is by their cosine, heads see them at one length, at
            which numbers are about 1: tanh layers stay linear on those of unit vectors, which are about 0.04.

    Attributes:
        columns: The record's text fields that it encodes, in the order of `score`; a task may set
            its own where a setting decides.
        num_contexts: How many of the columns, the last ones, are contexts: longer texts that do not
            pass through the encoder.
        kind: Of its corpora: "parallel", "conversations", "documents", "nli", "questions" or "similarity".
        by_length: True if its training batches are of examples of similar length; else they are of
            neighbours in a corpus.
        heads: The layers that are its own, which mirrored tasks share.
    """

    columns: tuple[str, ...]
    num_contexts: int = 0
    heads: tuple[keras.layers.Layer, ...] = ()
    kind: ClassVar[str]
    by_length: ClassVar[bool] = True

    def __init__(
        self, *, name: str, languages: str, config: TaskConfig, similarity: SimilarityConfig
    ) -> None:
        self.name = name
        self.languages = languages
        self.config = config
        self.similarity = similarity

    @classmethod
    @abstractmethod
    def of_experiment(cls, config: ExperimentConfig) -> list[Self]:
        """Makes the tasks of this kind, mirrored over the languages (2019, sec. 2.2)."""

    @classmethod
    def mirrored(
        cls, config: ExperimentConfig, name: str, languages: Iterable[str], **arguments: Any
    ) -> list[Self]:
        """Makes the task `name` of `TASKS` for each of some languages or pairs, with the same arguments."""
        shared = {"config": getattr(config.tasks, name), "similarity": config.tasks.similarity, **arguments}
        return [cls(name=f"{name}_{each}", languages=each, **shared) for each in languages]

    def select(self, records: StoredRecords) -> StoredRecords:
        """Keeps the records of its corpora that are examples: all, if a task does not say otherwise."""
        return records

    def texts_of(self, records: StoredRecords) -> Callable[[Record], tuple[str, ...]]:
        """What gives the texts of a record of its corpora that are encoded, one for each of `columns`."""
        return self.texts

    def texts(self, record: Record) -> tuple[str, ...]:
        """The texts of a record that are the fields named by `columns`."""
        return tuple(getattr(record, column) for column in self.columns)

    def prepare(self, preprocessor: TextPreprocessor, texts: Iterable[Sequence[str]]) -> None:
        """Sees a sample of its training texts, in parts, before it is trained; most tasks ignore it."""
        del preprocessor, texts

    def losses(
        self, encoder: TokenEncoder, batch: Batch, start: StartingEncoder | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Encodes a batch: `[batch]` losses, with the distance from `start`, and hits (1 where right)."""
        columns, losses, hits = self.encode_and_score(encoder, batch)
        if start is not None:
            with start.standing_in():
                before = self.encode(encoder, batch.features)
            sentences = slice(len(columns) - self.num_contexts)
            losses += start.losses(columns[sentences], before[sentences])
        return losses, hits

    @abstractmethod
    def encode_and_score(
        self, encoder: TokenEncoder, batch: Batch
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        """The encodings of a batch's columns, `[batch]` losses and `[batch]` hits."""

    def encode(self, encoder: TokenEncoder, features: TokenFeatures) -> list[tf.Tensor]:
        """Maps the texts of a batch to what `score` takes of each column: `[batch, dim]`."""
        words = encoder.embed_words(features.words)
        return tf.split(self.encode_sentences(encoder, words, features), len(self.columns))

    def encode_sentences(self, encoder: TokenEncoder, words: tf.Tensor, features: TokenFeatures) -> tf.Tensor:
        """Maps sentences of `[words, any]` embedded words to `[sentences, dim]` as heads see them."""
        encodings = encoder.encode(words, features.tokens, features.lengths)
        return unit_entries(encodings) if self.similarity.normalize else encodings

    def build_heads(self, encoder: TokenEncoder) -> None:
        """Creates the heads' variables for what an encoder gives; mirrored tasks share them."""
        for head in self.heads:
            if not head.built:
                head.build((None, encoder.hidden_dim))

    @property
    def graph(self) -> str:
        """Names the graph of its losses, which mirrored tasks share where their batches alone differ."""
        return type(self).__name__

    def variables(self) -> list[keras.Variable]:
        """The trainable variables of the heads."""
        return [v for head in self.heads for v in head.trainable_variables]


class VectorTask(Task):
    """A task whose losses depend on the encodings of its columns alone."""

    @abstractmethod
    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Maps each column's `[batch, dim]` encodings to `[batch]` losses and `[batch]` hits."""

    def encode_and_score(
        self, encoder: TokenEncoder, batch: Batch
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        """See `Task.encode_and_score`."""
        columns = self.encode(encoder, batch.features)
        return columns, *self.score(columns, batch)


def native_languages(config: ExperimentConfig, *, with_targets: bool = True) -> list[str]:
    """The language of the source, and those of the targets."""
    return [config.data.source, *(config.data.targets if with_targets else ())]


def language_pairs(config: ExperimentConfig) -> list[str]:
    """The pairs of the source and each target, as "en-es", and of any two targets with `data.all_pairs`."""
    source, targets = config.data.source, config.data.targets
    pairs = [(source, target) for target in targets]
    if config.data.all_pairs:
        pairs += combinations(targets, 2)
    return ["-".join(pair) for pair in pairs]


def task_classes(config: ExperimentConfig) -> list[type[Task]]:
    """The classes of the tasks whose weight is not 0."""
    homes = [home.split(".") for name, home in TASKS.items() if getattr(config.tasks, name).weight > 0]
    return [getattr(import_module(f"xling_tf.tasks.{module}"), name) for module, name in homes]


def build_tasks(config: ExperimentConfig) -> list[Task]:
    """Makes every task whose weight is not 0."""
    return [task for each in task_classes(config) for task in each.of_experiment(config)]


def gather_candidates(values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Joins the rows `[rows, ...]` of all replicas in their order; says where this replica's begin.

    So two replicas compute what one computes on their joined batch; their numbers of rows may differ.
    """
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return values, tf.constant(0)
    # The copy is this replica's: what comes from outside has no device, and gathering needs one.
    values = tf.identity(values)
    counts = context.all_gather(tf.shape(values)[:1], axis=0)
    offset = tf.reduce_sum(counts[: context.replica_id_in_sync_group])
    gathered = context.all_gather(values, axis=0)
    # A look-up in them has a sparse gradient, which all_gather cannot take; a reshape makes it dense.
    return tf.reshape(gathered, tf.shape(gathered)), offset


def draw_others(fingerprints: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws another example of the batch of all replicas for each example, at random.

    An example with an equal text in any column is never drawn: it may be as right as the example itself.
    The texts of the batch are the seed, so that the same batch has the same draws after a restart and on
    any number of replicas.

    Args:
        fingerprints: `[2, batch]` int64 of this replica's texts.

    Returns:
        `[batch]` int32 places of the drawn ones among the candidates of all replicas, and `[batch]` bool,
        false where there is no such example.
    """
    columns, offset = gather_candidates(tf.transpose(fingerprints))
    own, columns = fingerprints[:, :, None], tf.transpose(columns)
    is_other = tf.reduce_all(tf.not_equal(own, columns[:, None, :]), axis=0)
    count, size = tf.shape(fingerprints)[1], tf.shape(columns)[1]
    priorities = tf.random.stateless_uniform([size, size], seed=tf.reduce_sum(columns, axis=1))
    priorities = tf.where(is_other, priorities[offset : offset + count], -1.0)
    return tf.argmax(priorities, axis=1, output_type=tf.int32), tf.reduce_any(is_other, axis=1)
