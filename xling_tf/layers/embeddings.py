"""Word and character n-gram embeddings, and sinusoidal positions."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import KerasTensor as Tensor
from keras import ops

from xling_tf.layers.base import Layer


def sum_groups(
    rows: Any, positions: Any, groups: Any, num_groups: Any, training: bool = False
) -> Any:
    """Sums selected rows by group.

    Args:
        rows: `[rows, dim]`.
        positions: `[n]` int32 positions in `rows`.
        groups: `[n]` int32 group of each position, ascending.
        num_groups: Number of groups.
        training: Uses a faster gradient, which a SavedModel cannot load inside a loop.

    Returns:
        `[num_groups, dim]` sums.
    """
    if training:
        return _sum_groups_in_training(rows, positions, groups, num_groups)
    return _segment_sum(rows, positions, groups, num_groups)


def _segment_sum(rows: Any, positions: Any, groups: Any, num_groups: Any) -> Any:
    # A GPU's kernel fails if there are no groups, as in a text of known words alone.
    return tf.sparse.segment_sum(rows, positions, groups, num_segments=tf.maximum(num_groups, 1))[
        :num_groups
    ]


@tf.custom_gradient
def _sum_groups_in_training(rows: Any, positions: Any, groups: Any, num_groups: Any) -> Any:
    def gradient(upstream: Any) -> Any:
        # The gradient is a sum of the same kind, from groups to rows; TensorFlow's takes three
        # times as long.
        order = tf.argsort(positions)
        ordered = tf.gather(groups, order), tf.gather(positions, order)
        return _segment_sum(upstream, *ordered, tf.shape(rows)[0]), None, None, None

    return _segment_sum(rows, positions, groups, num_groups), gradient


@keras.saving.register_keras_serializable(package="xling_tf")
class EmbeddingTable(Layer):
    """A trainable table in float32 whose gradient is row-sparse.

    The gradient of `keras.layers.Embedding` is dense, which costs more than the transformer if the
    table has 200,000 rows.

    Args:
        num_rows: Rows of the table.
        dim: Width of a row.
        stddev: Standard deviation of the initial values.
    """

    # Maps `[n]` ids to rows; set if an export quantizes the table.
    stored: Callable[[Any], Any] | None = None

    def __init__(self, num_rows: int, dim: int, stddev: float, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.num_rows, self.dim, self.stddev = num_rows, dim, stddev

    def build(self, *_: Any) -> None:
        """Creates the table."""
        self.table = self.add_weight(
            shape=(self.num_rows, self.dim),
            initializer=keras.initializers.RandomNormal(stddev=self.stddev),
            name="table",
            autocast=False,  # a cast would read the whole table
        )

    def call(self, ids: Tensor) -> Tensor:
        """Maps `[n]` int32 ids to `[n, dim]` float32 rows."""
        if self.stored:
            return self.stored(ids)
        table = self.table.value
        if tf.distribute.in_cross_replica_context() or not isinstance(
            table, tf.distribute.DistributedValues
        ):
            return tf.nn.embedding_lookup(table, ids)
        # `embedding_lookup` would copy a mirrored table as a whole, hundreds of megabytes.
        return tf.raw_ops.ResourceGather(resource=table.handle, indices=ids, dtype=table.dtype)

    def sum_rows(
        self, ids: Tensor, groups: Tensor, num_groups: Tensor, training: bool = False
    ) -> Tensor:
        """Sums rows of `[n]` int32 ids by group, see `sum_groups`: `[num_groups, dim]` float32."""
        # After `unique`, Grappler reads the whole table.
        unique, positions, _ = tf.unique_with_counts(ids)
        return sum_groups(self(unique), positions, groups, num_groups, training)


@keras.saving.register_keras_serializable(package="xling_tf")
class WordEmbedding(Layer):
    """Embeds words, or pieces of words, optionally with their character n-grams.

    With n-grams, the vector of a word is the mean of its embedding and of a tanh layer over the sum
    of its n-grams' embeddings (Chidambaram et al. 2019, sec. 2.1; without, sec. 5.1).

    Args:
        num_words: Rows of the word table, hash buckets included.
        dim: Width of the tables (320 in sec. 3.2).
        num_ngrams: Rows of the n-gram table; 0 for no n-grams.
        stddev: Standard deviation of the initial values; None for vectors of about length 1.
    """

    def __init__(
        self,
        num_words: int,
        dim: int,
        *,
        num_ngrams: int = 0,
        stddev: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs, autocast=False)
        self.num_words, self.dim, self.num_ngrams, self.stddev = num_words, dim, num_ngrams, stddev
        self.words = EmbeddingTable(num_words, dim, stddev or dim**-0.5, name="words")
        if num_ngrams:
            # A word has about ten n-grams: their sum starts at the length of one word embedding.
            self.ngrams = EmbeddingTable(num_ngrams, dim, (10 * dim) ** -0.5, name="ngrams")
            self.combine_ngrams = keras.layers.Dense(
                dim, activation="tanh", dtype=self.dtype_policy, name="combine_ngrams"
            )

    @property
    def tables(self) -> list[keras.Variable]:
        """The variables that are updated row by row."""
        return [self.words.table, self.ngrams.table] if self.num_ngrams else [self.words.table]

    def call(
        self,
        word_ids: Tensor,
        ngram_ids: Tensor | None = None,
        ngram_words: Tensor | None = None,
        training: bool = False,
    ) -> Tensor:
        """Embeds `[words]` int32 ids, with n-grams as in `SpelledWords`: `[words, dim]` float32."""
        words = self.words(word_ids)
        return words if ngram_ids is None else self.combine(words, ngram_ids, ngram_words, training)

    def combine(
        self, words: Tensor, ngram_ids: Tensor, ngram_words: Tensor, training: bool = False
    ) -> Tensor:
        """Combines `[words, dim]` word embeddings with their n-grams, as `call` does."""
        sums = self.ngrams.sum_rows(ngram_ids, ngram_words, ops.shape(words)[0], training)
        return (words + self.ngram_part(sums)) / 2

    def separate(self, combined: Tensor, ngram_ids: Tensor, ngram_words: Tensor) -> Tensor:
        """Inverts `combine`: returns the `[words, dim]` word embeddings behind `combined`."""
        sums = self.ngrams.sum_rows(ngram_ids, ngram_words, ops.shape(combined)[0])
        return 2 * combined - self.ngram_part(sums)

    def ngram_part(self, ngram_sums: Tensor) -> Tensor:
        """Maps `[words, dim]` sums of n-grams to the vectors that are averaged with the words'."""
        return ops.cast(self.combine_ngrams(ngram_sums), "float32")


def sinusoidal_positions(max_length: int, dim: int) -> np.ndarray:
    """Returns Vaswani et al.'s (2017, sec. 3.5) `[max_length, dim]` position encodings."""
    positions = np.arange(max_length)[:, None]
    rates = 10_000.0 ** (-np.arange(0, dim, 2) / dim)
    encodings = np.zeros((max_length, dim), np.float32)
    encodings[:, 0::2] = np.sin(positions * rates)
    encodings[:, 1::2] = np.cos(positions * rates[: dim // 2])
    return encodings
