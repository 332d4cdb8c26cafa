"""What a task is, and what a batch of it holds."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from xling_tf.corpora.records import Record
from xling_tf.corpora.store import StoredRecords
from xling_tf.encoders.base import TokenEncoder
from xling_tf.encoders.gradient_caching import encode_in_chunks
from xling_tf.encoders.starting import StartingEncoder
from xling_tf.layers.pooling import unit_length
from xling_tf.text.preprocessor import TokenFeatures


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


class Task(ABC):
    """A training task over a shared encoder.

    Args:
        name: Unique in the experiment; names its losses in logs.
        languages: Of its corpora: "en-es" or "en".
        weight: Steps it gets in each cycle of the schedule.
        examples_per_batch: On average; batches of short sentences hold more.
        candidates: Examples of a training batch, if they are more than are encoded at once.
        loss_weight: Multiplies the gradients. Under Adam, which levels the scale of a head's own
            gradients, it only sets how much the task moves the shared encoder.
        normalize: Whether heads and losses see unit vectors, as the exported model gives them, which
            keeps the gradients of the tasks at one scale.

    Attributes:
        batch_size: Examples of a training batch on average.
        columns: The record's text fields that it encodes, in the order of `score`; a task may set
            its own where a setting decides.
        num_contexts: How many of the columns, the last ones, are contexts: longer texts that do not
            pass through the encoder.
        kind: Of its corpora: "parallel", "conversations", "documents", "nli" or "questions".
    """

    columns: tuple[str, ...]
    num_contexts: int = 0
    kind: ClassVar[str]

    def __init__(
        self,
        *,
        name: str,
        languages: str,
        weight: int,
        examples_per_batch: int,
        candidates: int = 0,
        loss_weight: float,
        normalize: bool,
    ) -> None:
        self.name = name
        self.languages = languages
        self.weight = weight
        self.examples_per_batch = examples_per_batch
        self.batch_size = candidates or examples_per_batch
        self.loss_weight = loss_weight
        self.normalize = normalize

    def select(self, records: StoredRecords) -> StoredRecords:
        """Keeps the records of its corpora that are examples: all, if a task does not say otherwise."""
        return records

    def texts_of(self, records: StoredRecords) -> Callable[[Record], tuple[str, ...]]:
        """What gives the texts of a record that are encoded, one for each of `columns`.

        Args:
            records: All of its corpora.
        """
        return self.texts

    def texts(self, record: Record) -> tuple[str, ...]:
        """The texts of a record that are the fields named by `columns`."""
        return tuple(getattr(record, column) for column in self.columns)

    @property
    @abstractmethod
    def heads(self) -> tuple[keras.layers.Layer, ...]:
        """The layers that are this task's own (mirrored tasks of two languages share them)."""

    @abstractmethod
    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Maps each column's `[batch, dim]` encodings to `[batch]` losses and `[batch]` hits."""

    def losses(
        self, encoder: TokenEncoder, batch: Batch, start: StartingEncoder | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Encodes a batch: `[batch]` losses, and `[batch]` float32 hits (1 where right).

        Args:
            encoder: In training.
            batch: Of this task.
            start: What the encodings are to stay near to, which adds to the losses.
        """
        columns = self.encode(encoder, batch.features)
        losses, hits = self.score(columns, batch)
        if start is not None:
            with start.standing_in():
                before = self.encode(encoder, batch.features)
            sentences = slice(len(columns) - self.num_contexts)
            losses += start.losses(columns[sentences], before[sentences])
        return losses, hits

    def encode(self, encoder: TokenEncoder, features: TokenFeatures) -> list[tf.Tensor]:
        """Maps the texts of a batch to what `score` takes of each column: `[batch, dim]`."""
        words = encoder.embed_words(features.word_ids, features.ngram_ids, features.ngram_words)
        return tf.split(self.encode_sentences(encoder, words, features), len(self.columns))

    def encode_sentences(
        self, encoder: TokenEncoder, words: tf.Tensor, features: TokenFeatures
    ) -> tf.Tensor:
        """Maps sentences of `[words, any]` embedded words to `[sentences, dim]` as heads see them."""
        num_chunks = -(-self.batch_size // self.examples_per_batch)
        encodings = (
            encode_in_chunks(encoder, words, features, num_chunks)
            if num_chunks > 1
            else encoder.encode_tokens(tf.gather(words, features.tokens), features.lengths)
        )
        return unit_length(encodings) if self.normalize else encodings

    def build_heads(self, encoder: TokenEncoder) -> None:
        """Creates the heads' variables for what an encoder gives."""
        for head in self.heads:
            head(np.zeros((1, encoder.hidden_dim), np.float32))

    def variables(self) -> list[keras.Variable]:
        """The trainable variables of the heads."""
        return [v for head in self.heads for v in head.trainable_variables]
