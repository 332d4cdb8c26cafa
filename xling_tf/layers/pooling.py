"""From token vectors to a sentence vector."""

import keras
from keras import ops


def masked_mean(inputs: keras.KerasTensor, padding_mask: keras.KerasTensor) -> keras.KerasTensor:
    """Averages `[batch, length, dim]` in float32 where the mask `[batch, length]` is true; zeros of none.

    Chidambaram et al. 2019, sec. 2.1.
    """
    weights = ops.expand_dims(ops.cast(padding_mask, "float32"), axis=-1)
    total = ops.sum(ops.cast(inputs, "float32") * weights, axis=1)
    return total / ops.maximum(ops.sum(weights, axis=1), 1.0)


def unit_length(inputs: keras.KerasTensor) -> keras.KerasTensor:
    """Divides the rows of `[..., dim]` by their L2 norm; a zero row stays zero."""
    squared = ops.sum(ops.square(inputs), axis=-1, keepdims=True)
    return inputs * ops.rsqrt(ops.maximum(squared, 1e-24))


def unit_entries(inputs: keras.KerasTensor) -> keras.KerasTensor:
    """Scales the rows of `[..., dim]` to a mean square of 1; a zero row stays zero."""
    squares = ops.mean(ops.square(inputs), axis=-1, keepdims=True)
    return inputs * ops.rsqrt(ops.maximum(squares, 1e-24))
