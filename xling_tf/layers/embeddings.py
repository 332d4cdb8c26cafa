"""Word and character n-gram embeddings, and sinusoidal positions."""

import keras
import numpy as np
from keras import ops

if keras.backend.backend() == "tensorflow":
    from tensorflow.nn import embedding_lookup as _lookup
else:
    from functools import partial

    _lookup = partial(ops.take, axis=0)


class EmbeddingTable(keras.layers.Layer):
    """A table of trainable rows, read and updated row by row.

    `keras.layers.Embedding` reads and writes the whole table at every step (a dense gradient), which
    on a table of 200,000 rows costs more than the transformer; on TensorFlow this layer uses the
    sparse lookup instead.

    Args:
        num_rows: Rows of the table.
        dim: Width of a row.
        stddev: Of the initial values.

    Call arguments:
        ids: `[n]` int32.

    Returns:
        `[n, dim]` float32, whatever the compute dtype, for sums over n-grams are taken from it.
    """

    def __init__(self, num_rows: int, dim: int, *, stddev: float, name: str | None = None) -> None:
        super().__init__(name=name, dtype="float32")
        self.table = self.add_weight(
            shape=(num_rows, dim),
            initializer=keras.initializers.RandomNormal(stddev=stddev),
            dtype="float32",
            name="table",
        )

    def call(self, ids: keras.KerasTensor) -> keras.KerasTensor:
        """Looks the rows up."""
        return _lookup(self.table.value, ids)


class WordEmbedding(keras.layers.Layer):
    """Represents a word, or a piece of one, by its own embedding alone (2019, sec. 5.1).

    Args:
        num_words: Rows of the word table, hash buckets included.
        dim: Width of the table.
        stddev: Of the initial values; None: such that vectors have about length 1.
    """

    def __init__(
        self, num_words: int, dim: int, *, stddev: float | None = None, name: str | None = None
    ) -> None:
        super().__init__(name=name, autocast=False)
        self.words = EmbeddingTable(num_words, dim, stddev=stddev or dim**-0.5, name="words")

    @property
    def tables(self) -> list[keras.Variable]:
        """What is updated row by row."""
        return [self.words.table]

    def call(
        self,
        word_ids: keras.KerasTensor,
        ngram_ids: keras.KerasTensor,
        ngram_words: keras.KerasTensor,
    ) -> keras.KerasTensor:
        """Maps `[words]` ids, as of words that are not spelt, to `[words, dim]` float32."""
        return self.words(word_ids)


class WordNgramEmbedding(keras.layers.Layer):
    """Represents a word by its own embedding and by its character n-grams.

    The n-gram embeddings of a word are summed and passed through one tanh layer; the result is averaged
    with the word's embedding (Chidambaram et al. 2019, sec. 2.1).

    Args:
        num_words: Rows of the word table, hash buckets included.
        num_ngrams: Rows of the n-gram table.
        dim: Width of both (320 in sec. 3.2).
    """

    def __init__(
        self, num_words: int, num_ngrams: int, dim: int, *, name: str | None = None
    ) -> None:
        super().__init__(name=name, autocast=False)
        self.words = EmbeddingTable(num_words, dim, stddev=dim**-0.5, name="words")
        # A word has about ten n-grams: their sum starts at the size of one word embedding.
        self.ngrams = EmbeddingTable(num_ngrams, dim, stddev=(10 * dim) ** -0.5, name="ngrams")
        self.combine_ngrams = keras.layers.Dense(dim, activation="tanh", name="combine_ngrams")

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
        return self.combine(self.words(word_ids), self.ngrams(ngram_ids), ngram_words)

    def combine(
        self,
        words: keras.KerasTensor,
        ngrams: keras.KerasTensor,
        ngram_words: keras.KerasTensor,
    ) -> keras.KerasTensor:
        """Combines `[words, dim]` word and `[ngrams, dim]` n-gram embeddings."""
        return self.join(
            words, ops.segment_sum(ngrams, ngram_words, num_segments=ops.shape(words)[0])
        )

    def join(self, words: keras.KerasTensor, ngram_sums: keras.KerasTensor) -> keras.KerasTensor:
        """Combines `[words, dim]` word embeddings and as many sums of n-gram embeddings."""
        return (words + ops.cast(self.combine_ngrams(ngram_sums), "float32")) / 2


def sinusoidal_positions(max_length: int, dim: int) -> np.ndarray:
    """Position encodings of Vaswani et al. 2017, sec. 3.5: `[max_length, dim]` float32.

    Example:
        >>> sinusoidal_positions(2, 4).round(2).tolist()
        [[0.0, 1.0, 0.0, 1.0], [0.8399999737739563, 0.5400000214576721, 0.009999999776482582, 1.0]]
    """
    positions = np.arange(max_length)[:, None]
    rates = 10_000.0 ** (-np.arange(0, dim, 2) / dim)
    encodings = np.zeros((max_length, dim), np.float32)
    encodings[:, 0::2] = np.sin(positions * rates)
    encodings[:, 1::2] = np.cos(positions * rates)
    return encodings
