"""Pooling of token vectors into a sentence vector, and normalisation of vectors."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
from keras import KerasTensor as Tensor
from keras import ops

from xling_tf.layers.base import Layer

# A function from `[..., dim]` word vectors to `[batch, dim]` sentence vectors.
Reduction = Callable[[Any], Any]
# Largest absolute value of a power mean, and the value below which a number counts as zero.
_LARGEST, _SMALLEST = 1e6, 1e-12
# Score of masked positions. It is not -inf, so that a sentence with nothing but padding has finite outputs;
# bfloat16 and float16 can represent it.
MASKED = -3e4


def token_mask(inputs: Tensor, lengths: Tensor) -> Tensor:
    """Returns `[batch, length]`, true for tokens, of inputs `[batch, length, any]` and `[batch]` lengths."""
    # Keras would take the dtype from `floatx`.
    return ops.arange(ops.shape(inputs)[1], dtype="int32")[None, :] < lengths[:, None]


def masked_mean(inputs: Tensor, padding_mask: Tensor) -> Tensor:
    """Averages the tokens of each sentence (Chidambaram et al. 2019, sec. 2.1).

    Args:
        inputs: `[batch, length, dim]`.
        padding_mask: `[batch, length]` bool, false for padding.

    Returns:
        `[batch, dim]` float32; zeros for a sentence without tokens.
    """
    weights = ops.cast(padding_mask, "float32")
    return _weighted_sum(inputs, weights) / _total(weights)


def weighted_mean(inputs: Tensor, padding_mask: Tensor) -> Tensor:
    """Averages the tokens, where the n-th token has weight n; see `masked_mean`."""
    weights = ops.cast(padding_mask, "float32")
    weights = weights * ops.cumsum(weights, axis=1)
    return _weighted_sum(inputs, weights) / _total(weights)


def mean_sqrt_len(inputs: Tensor, padding_mask: Tensor) -> Tensor:
    """Divides the sum of the tokens by the square root of their number; see `masked_mean`."""
    weights = ops.cast(padding_mask, "float32")
    return _weighted_sum(inputs, weights) / ops.sqrt(_total(weights))


def first_token(inputs: Tensor, padding_mask: Tensor) -> Tensor:
    """Takes the first token, such as [CLS]; see `masked_mean`."""
    return ops.cast(inputs[:, 0], "float32")


def last_token(inputs: Tensor, padding_mask: Tensor) -> Tensor:
    """Takes the last token that is not padding; see `masked_mean`."""
    weights = ops.cast(padding_mask, "float32")
    return _weighted_sum(inputs, weights - ops.pad(weights[:, 1:], ((0, 0), (0, 1))))


def _weighted_sum(inputs: Tensor, weights: Tensor) -> Tensor:
    # A matrix product takes half the time of an elementwise product and a sum.
    return ops.squeeze(ops.expand_dims(weights, axis=1) @ ops.cast(inputs, "float32"), axis=1)


def _total(weights: Tensor) -> Tensor:
    return ops.maximum(ops.sum(weights, axis=1, keepdims=True), 1.0)


def masked_max(inputs: Tensor, padding_mask: Tensor) -> Tensor:
    """Takes the maximum over the tokens; see `masked_mean`, but a sentence without tokens gets `MASKED`."""
    mask = ops.expand_dims(padding_mask, axis=-1)
    return ops.max(ops.where(mask, ops.cast(inputs, "float32"), MASKED), axis=1)


# By the names in the settings of encoders.
POOLINGS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": masked_mean,
    "cls": first_token,
    "max": masked_max,
    "weighted_mean": weighted_mean,
    "mean_sqrt_len": mean_sqrt_len,
    "last": last_token,
}


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


@keras.saving.register_keras_serializable(package="xling_tf")
class AttentionPooling(Layer):
    """A mean weighted by softmax(w tanh(W h)), one hop (Lin et al. 2017, sec. 2.1, eq. 5).

    Args:
        dim: Width of the hidden layer.
    """

    def __init__(self, dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs, autocast=False)
        self.supports_masking = True  # accepts the mask that Keras attaches to the states of an LSTM
        self.dim, dtype = dim, self.dtype_policy
        self.hidden = keras.layers.Dense(dim, activation="tanh", use_bias=False, dtype=dtype, name="hidden")
        self.scores = keras.layers.Dense(1, use_bias=False, dtype=dtype, name="scores")

    def build(self, inputs_shape: Sequence[Any], *_: Any) -> None:
        """Creates the variables for inputs `[batch, length, dim]`."""
        self.hidden.build((None, inputs_shape[-1]))
        self.scores.build((None, self.dim))

    def call(self, inputs: Tensor, padding_mask: Tensor) -> Tensor:
        """Pools the tokens of each sentence; arguments and result are those of `masked_mean`."""
        scores = ops.cast(self.scores(self.hidden(inputs)), "float32")
        weights = ops.softmax(ops.where(ops.expand_dims(padding_mask, axis=-1), scores, MASKED), axis=1)
        return ops.sum(weights * ops.cast(inputs, "float32"), axis=1)


def unit_length(inputs: Tensor) -> Tensor:
    """Divides the rows of `[..., dim]` by their L2 norm; a zero row stays zero."""
    squared = ops.sum(ops.square(inputs), axis=-1, keepdims=True)
    return inputs * ops.rsqrt(ops.maximum(squared, 1e-24))


def unit_entries(inputs: Tensor) -> Tensor:
    """Scales the rows of `[..., dim]` to a mean square of 1; a zero row stays zero."""
    squares = ops.mean(ops.square(inputs), axis=-1, keepdims=True)
    return inputs * ops.rsqrt(ops.maximum(squares, 1e-24))
