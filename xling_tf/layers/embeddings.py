"""Word and character n-gram embeddings, and sinusoidal positions."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from xling_tf.layers.base import Layer


def sum_groups(rows: Any, positions: Any, groups: Any, num_groups: Any) -> Any:
    """Sums `rows` at `[n]` positions by their `[n]` ascending groups: `[num_groups, dim]`."""
    if tf.distribute.has_strategy():
        return _sum_groups_in_training(rows, positions, groups, num_groups)
    return tf.sparse.segment_sum(rows, positions, groups, num_segments=num_groups)


# Not in exports: TensorFlow loads no gradient of ours within a loop.
@tf.custom_gradient
def _sum_groups_in_training(rows: Any, positions: Any, groups: Any, num_groups: Any) -> Any:
    def gradient(of_sums: Any) -> Any:
        # What each row is part of, summed likewise: TensorFlow's own gradient takes three times as long.
        order = tf.argsort(positions)
        ordered = tf.gather(groups, order), tf.gather(positions, order)
        return tf.sparse.segment_sum(of_sums, *ordered, num_segments=tf.shape(rows)[0]), None, None, None

    return tf.sparse.segment_sum(rows, positions, groups, num_segments=num_groups), gradient


@keras.saving.register_keras_serializable(package="xling_tf")
class EmbeddingTable(Layer):
    """A table of trainable rows, read and updated row by row.

    `keras.layers.Embedding` has a dense gradient, which on a table of 200,000 rows costs more than the
    transformer. It computes in float32 whatever the policy, for sums over n-grams are taken.

    Args:
        num_rows: Rows of the table.
        dim: Width of a row.
        stddev: Of the initial values.

    Attributes:
        stored: In an export, maps ids to rows that are kept in fewer bytes; None: they are the table's.
    """

    stored: Callable[[Any], Any] | None = None

    def __init__(self, num_rows: int, dim: int, stddev: float, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.num_rows, self.dim, self.stddev = num_rows, dim, stddev
        self.table = self.add_weight(
            shape=(num_rows, dim),
            initializer=keras.initializers.RandomNormal(stddev=stddev),
            name="table",
            autocast=False,  # which would read the whole table
        )
        self.built = True

    def call(self, ids: keras.KerasTensor) -> keras.KerasTensor:
        """Maps `[n]` int32 ids to `[n, dim]` float32 rows."""
        if self.stored:
            return self.stored(ids)
        table = self.table.value
        if tf.distribute.in_cross_replica_context() or not isinstance(table, tf.distribute.DistributedValues):
            return tf.nn.embedding_lookup(table, ids)
        # Of a mirrored table TensorFlow reads the whole, a copy of hundreds of megabytes.
        return tf.raw_ops.ResourceGather(resource=table.handle, indices=ids, dtype=table.dtype)

    def sum_rows(
        self, ids: keras.KerasTensor, groups: keras.KerasTensor, num_groups: keras.KerasTensor
    ) -> keras.KerasTensor:
        """Sums the rows of `[n]` ids by their `[n]` ascending groups: `[num_groups, dim]` float32."""
        unique, positions = tf.unique(ids)
        return sum_groups(self.call(unique), positions, groups, num_groups)


@keras.saving.register_keras_serializable(package="xling_tf")
class WordEmbedding(Layer):
    """Represents a word, or a piece of one, by its own embedding alone (2019, sec. 5.1).

    Args:
        num_words: Rows of the word table, hash buckets included.
        dim: Width of the table.
        stddev: Of the initial values; None: such that vectors have about length 1.
    """

    def __init__(self, num_words: int, dim: int, *, stddev: float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs, autocast=False)
        self.num_words, self.dim, self.stddev = num_words, dim, stddev
        self.words = EmbeddingTable(num_words, dim, stddev or dim**-0.5, name="words")

    @property
    def tables(self) -> list[keras.Variable]:
        """What is updated row by row."""
        return [self.words.table]

    def call(self, word_ids: keras.KerasTensor) -> keras.KerasTensor:
        """Maps `[words]` ids to `[words, dim]` float32."""
        return self.words(word_ids)


@keras.saving.register_keras_serializable(package="xling_tf")
class WordNgramEmbedding(Layer):
    """Represents a word by its own embedding and by its character n-grams.

    The n-gram embeddings of a word are summed and passed through one tanh layer; the result is averaged
    with the word's embedding (Chidambaram et al. 2019, sec. 2.1).

    Args:
        num_words: Rows of the word table, hash buckets included.
        num_ngrams: Rows of the n-gram table.
        dim: Width of both (320 in sec. 3.2).
    """

    def __init__(self, num_words: int, num_ngrams: int, dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs, autocast=False)
        self.num_words, self.num_ngrams, self.dim = num_words, num_ngrams, dim
        self.words = EmbeddingTable(num_words, dim, dim**-0.5, name="words")
        # A word has about ten n-grams: their sum starts at the size of one word embedding.
        self.ngrams = EmbeddingTable(num_ngrams, dim, (10 * dim) ** -0.5, name="ngrams")
        self.combine_ngrams = keras.layers.Dense(
            dim, activation="tanh", dtype=self.dtype_policy, name="combine_ngrams"
        )

    @property
    def tables(self) -> list[keras.Variable]:
        """What is updated row by row."""
        return [self.words.table, self.ngrams.table]

    def call(
        self,
        word_ids: keras.KerasTensor,
        ngram_ids: keras.KerasTensor,
        ngram_words: keras.KerasTensor,
    ) -> keras.KerasTensor:
        """Maps `[words]` ids, `[ngrams]` ids and their `[ngrams]` words to `[words, dim]` float32."""
        return self.combine(self.words(word_ids), ngram_ids, ngram_words)

    def combine(
        self, words: keras.KerasTensor, ngram_ids: keras.KerasTensor, ngram_words: keras.KerasTensor
    ) -> keras.KerasTensor:
        """Combines `[words, dim]` word embeddings with their n-grams'."""
        return self.join(words, self.ngrams.sum_rows(ngram_ids, ngram_words, ops.shape(words)[0]))

    def join(self, words: keras.KerasTensor, ngram_sums: keras.KerasTensor) -> keras.KerasTensor:
        """Combines `[words, dim]` word embeddings and as many sums of n-gram embeddings."""
        return (words + ops.cast(self.combine_ngrams(ngram_sums), "float32")) / 2


def sinusoidal_positions(max_length: int, dim: int) -> np.ndarray:
    """Position encodings of Vaswani et al. 2017, sec. 3.5: `[max_length, dim]` float32."""
    positions = np.arange(max_length)[:, None]
    rates = 10_000.0 ** (-np.arange(0, dim, 2) / dim)
    encodings = np.zeros((max_length, dim), np.float32)
    encodings[:, 0::2] = np.sin(positions * rates)
    encodings[:, 1::2] = np.cos(positions * rates)
    return encodings
