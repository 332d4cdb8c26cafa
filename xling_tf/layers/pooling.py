"""Pooling of token vectors into a sentence vector, and normalisation of vectors."""

from collections.abc import Callable, Mapping

from keras import KerasTensor as Tensor
from keras import ops

# Score of masked positions. It is not -inf, so that a sentence with nothing but padding has finite
# outputs; bfloat16 and float16 can represent it.
MASKED = -3e4


def token_mask(inputs: Tensor, lengths: Tensor) -> Tensor:
    """`[batch, length]`, true for tokens, of `[batch, length, any]` and `[batch]` lengths."""
    # A GPU leaves comparisons of int32 to the host.
    return (
        ops.arange(ops.shape(inputs)[1], dtype="int64")[None, :]
        < ops.cast(lengths, "int64")[:, None]
    )


def masked_mean(inputs: Tensor, padding_mask: Tensor) -> Tensor:
    """Averages the tokens of each sentence (Chidambaram et al. 2019, sec. 2.1).

    Args:
        inputs: `[batch, length, dim]`.
        padding_mask: `[batch, length]` bool, false for padding.

    Returns:
        `[batch, dim]` float32; zeros for a sentence without tokens.
    """
    weights = ops.cast(padding_mask, "float32")
    # A matrix product takes half the time of an elementwise product and a sum.
    sums = ops.squeeze(ops.expand_dims(weights, axis=1) @ ops.cast(inputs, "float32"), axis=1)
    return sums / ops.maximum(ops.sum(weights, axis=1, keepdims=True), 1.0)


def first_token(inputs: Tensor, padding_mask: Tensor) -> Tensor:
    """Takes the first token, such as [CLS]; see `masked_mean`."""
    return ops.cast(inputs[:, 0], "float32")


def masked_max(inputs: Tensor, padding_mask: Tensor) -> Tensor:
    """Takes the maximum over tokens, like `masked_mean`; without tokens, it is `MASKED`."""
    mask = ops.expand_dims(padding_mask, axis=-1)
    return ops.max(ops.where(mask, ops.cast(inputs, "float32"), MASKED), axis=1)


# By the names in the settings of encoders.
POOLINGS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": masked_mean,
    "cls": first_token,
    "max": masked_max,
}


def unit_length(inputs: Tensor) -> Tensor:
    """Divides the rows of `[..., dim]` by their L2 norm; a zero row stays zero."""
    squared = ops.sum(ops.square(inputs), axis=-1, keepdims=True)
    return inputs * ops.rsqrt(ops.maximum(squared, 1e-24))


def unit_entries(inputs: Tensor) -> Tensor:
    """Scales the rows of `[..., dim]` to a mean square of 1; a zero row stays zero."""
    squares = ops.mean(ops.square(inputs), axis=-1, keepdims=True)
    return inputs * ops.rsqrt(ops.maximum(squares, 1e-24))
