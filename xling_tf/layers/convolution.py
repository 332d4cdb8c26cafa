"""Convolutions over the tokens of a sentence (Yang et al. 2019, sec. 3.3; Kim 2014)."""

import keras
from keras import ops

# Of the published CNN.
_EPSILON = 1e-12


class ConvolutionBranch(keras.layers.Layer):
    """Convolutions of one width, each with ReLU and a residual connection.

    The tokens beyond a sentence's ends count as zeros, whatever stands there. An even width sees one
    token more on the right.

    Args:
        num_filters: Width of the branch (256 in sec. 4.2).
        width: Tokens that a filter sees.
        num_layers: Convolutions (2 in sec. 4.2).
    """

    def __init__(
        self, num_filters: int, width: int, num_layers: int, *, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        self.width = width
        self.convolutions = [
            keras.layers.Conv1D(
                num_filters, width, padding="same", activation="relu", name=f"convolution_{index}"
            )
            for index in range(num_layers)
        ]

    def call(self, inputs: keras.KerasTensor, mask: keras.KerasTensor) -> keras.KerasTensor:
        """Maps `[batch, length, num_filters]` with a `[batch, length, 1]` mask to the same shape."""
        for convolution in self.convolutions:
            inputs = inputs + convolution(inputs * ops.cast(mask, inputs.dtype))
        return inputs


class NormalizedProjection(keras.layers.Layer):
    """Projects what enters a branch, and normalises it.

    Args:
        dim: Width of the branch.
    """

    def __init__(self, dim: int, *, name: str | None = None) -> None:
        super().__init__(name=name)
        self.projection = keras.layers.Dense(dim, name="projection")
        self.norm = layer_norm("norm")

    def call(self, inputs: keras.KerasTensor) -> keras.KerasTensor:
        """Maps `[..., any]` to `[..., dim]`."""
        return self.norm(self.projection(inputs))


def layer_norm(name: str) -> keras.layers.Layer:
    """Makes a layer norm with the published CNN's epsilon."""
    return keras.layers.LayerNormalization(epsilon=_EPSILON, name=name)
