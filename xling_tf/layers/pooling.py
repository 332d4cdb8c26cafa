"""From token vectors to a sentence vector."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from xling_tf.layers.base import Layer

# Maps `[..., dim]` numbers of words to `[batch, dim]` of the sentences that they are in.
Reduction = Callable[[Any], Any]
# What power means are at most, and what counts as zero where it is divided by.
_LARGEST, _SMALLEST = 1e6, 1e-12
# Not -inf: a row with nothing but padding must give numbers. bfloat16 and float16 both hold it.
MASKED = -3e4


def masked_mean(inputs: keras.KerasTensor, padding_mask: keras.KerasTensor) -> keras.KerasTensor:
    """Averages `[batch, length, dim]` in float32 where the mask `[batch, length]` is true; zeros of none.

    Chidambaram et al. 2019, sec. 2.1.
    """
    weights = ops.expand_dims(ops.cast(padding_mask, "float32"), axis=1)
    total = ops.squeeze(weights @ ops.cast(inputs, "float32"), axis=1)  # half the time of a product and a sum
    return total / ops.maximum(ops.sum(weights, axis=-1), 1.0)


def masked_max(inputs: keras.KerasTensor, padding_mask: keras.KerasTensor) -> keras.KerasTensor:
    """The maxima over the length of `[batch, length, dim]`, float32, where `[batch, length]` is true."""
    mask = ops.expand_dims(padding_mask, axis=-1)
    return ops.max(ops.where(mask, ops.cast(inputs, "float32"), MASKED), axis=1)


def power_mean(x: keras.KerasTensor, p: float, mean: Reduction, largest: Reduction) -> keras.KerasTensor:
    """The power mean of each sentence's words, float32 (Rücklé et al. 2018, sec. 3.1).

    Powers are complex, both ways, and the mean's real part is kept (footnote 2, and the authors' code): with
    p = 3, a negative mean m of the cubes gives |m|^(1/3) cos(pi/3). p = 0 is the limit, exp(mean(log x)).
    Means of p <= 0 are 0 if a number is. None is beyond 10^6: those of p < 0 would be, where powers cancel.

    Args:
        x: `[..., dim]`, of words.
        p: From -inf, the minimum, to inf, the maximum.
        mean: Averages as many numbers as `x` has over the words of each sentence: `[batch, dim]`.
        largest: Their maxima likewise.

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


@keras.saving.register_keras_serializable(package="xling_tf")
class AttentionPooling(Layer):
    """A mean weighted by softmax(w tanh(W h)), one hop (Lin et al. 2017, sec. 2.1, eq. 5).

    Args:
        dim: Width of the hidden layer.
    """

    def __init__(self, dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs, autocast=False)
        self.supports_masking = True  # Keras marks the states of an LSTM; the mask is given as well
        self.dim, dtype = dim, self.dtype_policy
        self.hidden = keras.layers.Dense(dim, activation="tanh", use_bias=False, dtype=dtype, name="hidden")
        self.scores = keras.layers.Dense(1, use_bias=False, dtype=dtype, name="scores")

    def build(self, inputs_shape: Sequence[Any], *_: Any) -> None:
        """Creates the variables for inputs `[batch, length, dim]`."""
        self.hidden.build((None, inputs_shape[-1]))
        self.scores.build((None, self.dim))

    def call(self, inputs: keras.KerasTensor, padding_mask: keras.KerasTensor) -> keras.KerasTensor:
        """Maps `[batch, length, dim]` to `[batch, dim]` float32, of the positions that the mask has."""
        scores = ops.cast(self.scores(self.hidden(inputs)), "float32")
        weights = ops.softmax(ops.where(ops.expand_dims(padding_mask, axis=-1), scores, MASKED), axis=1)
        return ops.sum(weights * ops.cast(inputs, "float32"), axis=1)


def unit_length(inputs: keras.KerasTensor) -> keras.KerasTensor:
    """Divides the rows of `[..., dim]` by their L2 norm; a zero row stays zero."""
    squared = ops.sum(ops.square(inputs), axis=-1, keepdims=True)
    return inputs * ops.rsqrt(ops.maximum(squared, 1e-24))


def unit_entries(inputs: keras.KerasTensor) -> keras.KerasTensor:
    """Scales the rows of `[..., dim]` to a mean square of 1; a zero row stays zero."""
    squares = ops.mean(ops.square(inputs), axis=-1, keepdims=True)
    return inputs * ops.rsqrt(ops.maximum(squares, 1e-24))
