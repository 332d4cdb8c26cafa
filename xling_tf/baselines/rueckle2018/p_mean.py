"""The encoder of concatenated power means of word vectors (Rücklé et al. 2018)."""

import math
from functools import partial
from typing import Any

import keras
import numpy as np
from keras import KerasTensor as Tensor
from keras import ops
from numpy.typing import NDArray

from xling_tf.baselines.rueckle2018 import PowerMeanConfig
from xling_tf.encoders.base import TokenEncoder
from xling_tf.layers.embeddings import WordEmbedding
from xling_tf.layers.pooling import masked_max, masked_mean, token_mask

# Largest absolute value of a power mean, and the value below which a number counts as zero.
_LARGEST, _SMALLEST = 1e6, 1e-12


@keras.saving.register_keras_serializable(package="xling_tf")
class PowerMeanEncoder(TokenEncoder):
    """Concatenates power means of the word vectors of a sentence, in each vector space (eq. 1).

    A row of the table holds the word's vector in each space, each followed by a flag that is 1 if
    the space has the word. Words that a space lacks are skipped. If it lacks all words of a
    sentence, the result is the mean vector of the space, which is stored in the rows of missing
    words.

    Args:
        **kwargs: `num_words`, `space_dims` (the width of each space), the fields of
            `PowerMeanConfig`, and arguments of every Keras layer.
    """

    config_type = PowerMeanConfig
    sizes = ("num_words", "space_dims")

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        dim = sum(self.space_dims)
        self.hidden_dim = dim * len(self.p_values)
        width = dim + len(self.space_dims)
        self.embedding = WordEmbedding(
            self.num_words, width, dtype=self.dtype_policy, name="embedding"
        )

    def encode_tokens(self, inputs: Tensor, lengths: Tensor, training: bool = False) -> Tensor:
        """See `TokenEncoder.encode_tokens`."""
        is_token = token_mask(inputs, lengths)
        means, end = list[Tensor](), 0
        for dim in self.space_dims:
            vectors = inputs[..., end : end + dim]
            is_known = is_token & (inputs[..., end + dim] > 0)
            is_used = ops.where(ops.any(is_known, axis=1, keepdims=True), is_known, is_token)
            means += [power_mean(vectors, float(p), is_used) for p in self.p_values]
            end += dim + 1
        return ops.concatenate(means, axis=-1)

    def assign_word_vectors(self, rows: NDArray[np.float32], is_known: NDArray[np.bool_]) -> None:
        """See `TokenEncoder.assign_word_vectors`; hash buckets are missing from every space."""
        columns = list[NDArray[Any]]()
        spaces = np.split(rows, np.cumsum(self.space_dims)[:-1], axis=1)
        for vectors, known in zip(spaces, is_known.T, strict=True):
            table = np.tile(vectors[known].mean(axis=0), (self.num_words, 1))
            table[: len(rows)][known] = vectors[known]
            columns += [table, np.pad(known, (0, self.num_words - len(rows)))[:, None]]
        self.embedding.words.table.assign(np.concatenate(columns, axis=1))


def power_mean(x: Tensor, p: float, padding_mask: Tensor) -> Tensor:
    """Computes the power mean of each sentence's words (Rücklé et al. 2018, sec. 3.1).

    Powers and roots are complex, and the real part of the root is the result (footnote 2, and the
    authors' code): with p = 3, a negative mean m of the cubes gives |m|^(1/3) cos(pi/3). p = 0 is
    the limit, exp(mean(log x)). For p <= 0 the mean is 0 if one of the numbers is 0. Results are
    clipped to [-10^6, 10^6], because those for p < 0 can be huge where powers cancel.

    Args:
        x: `[batch, length, dim]` word vectors.
        p: The power; -inf for the minimum, inf for the maximum.
        padding_mask: `[batch, length]` bool, false for words that do not count.

    Returns:
        `[batch, dim]` float32.

    Examples:
        >>> x, mask = ops.array([[[1.0], [4.0]]]), ops.ones((1, 2), bool)
        >>> ops.convert_to_numpy(power_mean(x, 0.5, mask)).tolist()  # ((1 + 2) / 2)^2
        [[2.25]]
    """
    x, mean = ops.cast(x, "float32"), partial(masked_mean, padding_mask=padding_mask)
    if p == 1:
        return mean(x)
    if math.isinf(p):
        return masked_max(x, padding_mask) if p > 0 else -masked_max(-x, padding_mask)
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
