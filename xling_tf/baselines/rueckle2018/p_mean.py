"""The encoder of concatenated power means of word vectors (Rücklé et al. 2018)."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import KerasTensor as Tensor
from keras import ops
from numpy.typing import NDArray

from xling_tf.baselines.rueckle2018 import PowerMeanConfig
from xling_tf.encoders.base import TokenEncoder
from xling_tf.layers.embeddings import WordEmbedding
from xling_tf.layers.pooling import masked_max, masked_mean, token_mask

# A function from `[..., dim]` word vectors to `[batch, dim]` sentence vectors.
Reduction = Callable[[Any], Any]
# Largest absolute value of a power mean, and the value below which a number counts as zero.
_LARGEST, _SMALLEST = 1e6, 1e-12


@keras.saving.register_keras_serializable(package="xling_tf")
class PowerMeanEncoder(TokenEncoder):
    """Concatenates power means of the word vectors of a sentence, in each vector space (eq. 1).

    A row of the table holds the word's vector in each space, each followed by a flag that is 1 if the space
    has the word. Words that a space lacks are skipped. If it lacks all words of a sentence, the result is the
    mean vector of the space, which is stored in the rows of missing words.

    Args:
        **kwargs: `num_words`, `space_dims` (the width of each space), the fields of `PowerMeanConfig`, and
            arguments of every Keras layer.
    """

    config_type = PowerMeanConfig
    sizes = ("num_words", "space_dims")

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        dim = sum(self.space_dims)
        self.hidden_dim = dim * len(self.p_values)
        width = dim + len(self.space_dims)
        self.embedding = WordEmbedding(self.num_words, width, dtype=self.dtype_policy, name="embedding")

    def encode(self, words: Tensor, tokens: Tensor, lengths: Tensor, training: bool = False) -> Tensor:
        """See `TokenEncoder.encode`; computes the powers of each distinct word once."""
        positions = tf.RaggedTensor.from_tensor(tokens, lengths)
        places, sentences = positions.values, positions.value_rowids()

        def reductions(is_known: tf.Tensor) -> tuple[Reduction, Reduction]:
            known = tf.gather(is_known, places)
            has_known = tf.math.segment_max(tf.cast(known, tf.int32), sentences) > 0
            used = tf.where(known | ~tf.gather(has_known, sentences))[:, 0]
            rows, groups = tf.gather(places, used), tf.gather(sentences, used)
            return (
                lambda x: tf.sparse.segment_mean(x, rows, groups),
                lambda x: tf.math.segment_max(tf.gather(x, rows), groups),
            )

        return self._means(words, reductions)

    def encode_tokens(self, inputs: Tensor, lengths: Tensor, training: bool = False) -> Tensor:
        """See `TokenEncoder.encode_tokens`; uses only operations that other runtimes have."""
        is_token = token_mask(inputs, lengths)

        def reductions(is_known: Tensor) -> tuple[Reduction, Reduction]:
            known = is_token & is_known
            is_used = ops.where(ops.any(known, axis=1, keepdims=True), known, is_token)
            return partial(masked_mean, padding_mask=is_used), partial(masked_max, padding_mask=is_used)

        return self._means(inputs, reductions)

    def _means(self, inputs: Tensor, reductions: Callable[[Any], tuple[Reduction, Reduction]]) -> Tensor:
        means, end = list[Tensor](), 0
        for dim in self.space_dims:
            vectors, is_known = inputs[..., end : end + dim], inputs[..., end + dim] > 0
            mean, largest = reductions(is_known)
            means += [power_mean(vectors, float(p), mean, largest) for p in self.p_values]
            end += dim + 1
        return ops.concatenate(means, axis=-1)

    def assign_word_vectors(self, rows: NDArray[np.float32], is_known: NDArray[np.bool_]) -> None:
        """See `TokenEncoder.assign_word_vectors`; hash buckets count as missing from every space."""
        columns = list[NDArray[Any]]()
        spaces = np.split(rows, np.cumsum(self.space_dims)[:-1], axis=1)
        for vectors, known in zip(spaces, is_known.T, strict=True):
            table = np.tile(vectors[known].mean(axis=0), (self.num_words, 1))
            table[: len(rows)][known] = vectors[known]
            columns += [table, np.pad(known, (0, self.num_words - len(rows)))[:, None]]
        self.embedding.words.table.assign(np.concatenate(columns, axis=1))


def power_mean(x: Tensor, p: float, mean: Reduction, largest: Reduction) -> Tensor:
    """Computes the power mean of each sentence's words (Rücklé et al. 2018, sec. 3.1).

    Powers and roots are complex, and the real part of the root is the result (footnote 2, and the authors'
    code): with p = 3, a negative mean m of the cubes gives |m|^(1/3) cos(pi/3). p = 0 is the limit,
    exp(mean(log x)). For p <= 0 the mean is 0 if one of the numbers is 0. Results are clipped to
    [-10^6, 10^6], because those for p < 0 can be huge where powers cancel.

    Args:
        x: `[..., dim]` word vectors.
        p: The power; -inf for the minimum, inf for the maximum.
        mean: Averages `[..., dim]` numbers over the words of each sentence, to `[batch, dim]`.
        largest: Takes their maximum in the same way.

    Returns:
        `[batch, dim]` float32.

    Example:
        >>> mean, largest = (lambda x: ops.mean(x, axis=1)), (lambda x: ops.max(x, axis=1))
        >>> x = ops.array([[[1.0], [4.0]]])
        >>> ops.convert_to_numpy(power_mean(x, 0.5, mean, largest)).tolist()  # ((1 + 2) / 2)^2
        [[2.25]]
    """
    x = ops.cast(x, "float32")
    if p == 1:
        return mean(x)
    if math.isinf(p):
        return largest(x) if p > 0 else -largest(-x)
    size, angle = ops.abs(x), ops.where(x < 0, math.pi, 0.0)
    is_zero = size < _SMALLEST
    if p <= 0:
        size = ops.maximum(size, _SMALLEST)
    if p == 0:
        root, angle = ops.exp(mean(ops.log(size))), mean(angle)
    else:
        real, imaginary = (mean(size**p * part(angle * p)) for part in (ops.cos, ops.sin))
        shortest = _LARGEST**p if p < 0 else 0.0
        root = ops.maximum(ops.hypot(real, imaginary), shortest) ** (1 / p)
        angle = ops.arctan2(imaginary, real) / p
    means = ops.clip(root * ops.cos(angle), -_LARGEST, _LARGEST)
    return means if p > 0 else ops.where(mean(ops.cast(is_zero, "float32")) > 0, 0.0, means)
