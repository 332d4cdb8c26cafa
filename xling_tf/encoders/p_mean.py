"""Concatenated power means of words' vectors (Rücklé et al. 2018)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from numpy.typing import NDArray

from xling_tf.config import EncoderConfig
from xling_tf.encoders.base import TokenEncoder
from xling_tf.layers.embeddings import WordEmbedding
from xling_tf.layers.pooling import Reduction, masked_max, masked_mean, power_mean
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

    def encode(
        self, words: keras.KerasTensor, tokens: keras.KerasTensor, lengths: keras.KerasTensor
    ) -> keras.KerasTensor:
        """See `TokenEncoder.encode`; powers are taken once a word, and none is padded."""
        positions = tf.RaggedTensor.from_tensor(tokens, lengths)
        places, sentences = positions.values, positions.value_rowids()

        def reductions(is_known: tf.Tensor) -> tuple[Reduction, Reduction]:
            known = tf.gather(is_known, places)
            knows_any = tf.math.segment_max(tf.cast(known, tf.int32), sentences) > 0
            counted = tf.where(known | ~tf.gather(knows_any, sentences))[:, 0]
            own, group = tf.gather(places, counted), tf.gather(sentences, counted)
            return (
                lambda x: tf.sparse.segment_mean(x, own, group),
                lambda x: tf.math.segment_max(tf.gather(x, own), group),
            )

        return self._means(words, reductions)

    def encode_tokens(self, inputs: keras.KerasTensor, lengths: keras.KerasTensor) -> keras.KerasTensor:
        """Encodes `[batch, length, any]` rows of `[batch]` lengths, as other runtimes can compute it."""
        is_token = ops.arange(ops.shape(inputs)[1])[None, :] < lengths[:, None]

        def reductions(is_known: keras.KerasTensor) -> tuple[Reduction, Reduction]:
            known = is_token & is_known
            counted = ops.where(ops.any(known, axis=1, keepdims=True), known, is_token)
            return partial(masked_mean, padding_mask=counted), partial(masked_max, padding_mask=counted)

        return self._means(inputs, reductions)

    def _means(
        self, inputs: keras.KerasTensor, reductions: Callable[[Any], tuple[Reduction, Reduction]]
    ) -> keras.KerasTensor:
        means, end = list[keras.KerasTensor](), 0
        for dim in self.config.space_dims:
            vectors, is_known = inputs[..., end : end + dim], inputs[..., end + dim] > 0
            mean, largest = reductions(is_known)
            means += [power_mean(vectors, float(p), mean, largest) for p in self.config.p_values]
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
