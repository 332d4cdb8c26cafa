"""Concatenated power means of words' vectors (Rücklé et al. 2018)."""

from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from xling_tf.config import EncoderConfig
from xling_tf.encoders.base import TokenEncoder
from xling_tf.layers.embeddings import WordEmbedding
from xling_tf.layers.pooling import power_mean
from xling_tf.text.preprocessor import WordFeatures


@keras.saving.register_keras_serializable(package="xling_tf")
class PowerMeanEncoder(TokenEncoder):
    """Concatenates the power means of a sentence's words, in each space of vectors (2018, eq. 1).

    A row of the table has the word's vector in each space, and after each whether the space knows the word.
    Words it does not know are skipped; a sentence of such words alone is the mean of the space, their row.

    Args:
        config: Sizes: `space_dims` of the spaces, and `p_values`.
        num_words: Rows of the table.
    """

    def __init__(self, config: EncoderConfig, *, num_words: int, **kwargs: Any) -> None:
        super().__init__(config, num_words=num_words, **kwargs)
        width = sum(config.space_dims) + len(config.space_dims)
        self.embedding = WordEmbedding(num_words, width, dtype=self.dtype_policy, name="embedding")

    def embed_words(self, words: WordFeatures) -> keras.KerasTensor:
        """Looks each distinct word up: `[words, sum(space_dims) + spaces]`."""
        return self.embedding(words.ids)

    def encode_tokens(self, inputs: keras.KerasTensor, lengths: keras.KerasTensor) -> keras.KerasTensor:
        """Encodes `[batch, length, any]` rows of `[batch]` lengths."""
        is_token = ops.arange(ops.shape(inputs)[1])[None, :] < lengths[:, None]
        means, end = list[keras.KerasTensor](), 0
        for dim in self.config.space_dims:
            is_known = is_token & (inputs[:, :, end + dim] > 0)
            counts = ops.where(ops.any(is_known, axis=1, keepdims=True), is_known, is_token)
            vectors = inputs[:, :, end : end + dim]
            means += [power_mean(vectors, counts, float(p)) for p in self.config.p_values]
            end += dim + 1
        return ops.concatenate(means, axis=-1)

    def start_words(self, rows: NDArray[np.float32], is_known: NDArray[np.bool_]) -> None:
        """See `TokenEncoder.start_words`; a space knows no hash bucket."""
        columns = list[NDArray[Any]]()
        parts = np.split(rows, np.cumsum(self.config.space_dims)[:-1], axis=1)
        for part, known in zip(parts, is_known.T, strict=True):
            whole = np.tile(part[known].mean(axis=0), (self.num_words, 1))
            whole[: len(rows)][known] = part[known]
            columns += [whole, np.pad(known, (0, self.num_words - len(rows)))[:, None]]
        self.embedding.words.table.assign(np.concatenate(columns, axis=1))
