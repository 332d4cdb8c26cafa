"""Pooling of token vectors into a sentence vector, and normalisation of vectors."""

from collections.abc import Callable, Mapping

from keras import KerasTensor as Tensor
from keras import ops

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


def unit_length(inputs: Tensor) -> Tensor:
    """Divides the rows of `[..., dim]` by their L2 norm; a zero row stays zero."""
    squared = ops.sum(ops.square(inputs), axis=-1, keepdims=True)
    return inputs * ops.rsqrt(ops.maximum(squared, 1e-24))


def unit_entries(inputs: Tensor) -> Tensor:
    """Scales the rows of `[..., dim]` to a mean square of 1; a zero row stays zero."""
    squares = ops.mean(ops.square(inputs), axis=-1, keepdims=True)
    return inputs * ops.rsqrt(ops.maximum(squares, 1e-24))
