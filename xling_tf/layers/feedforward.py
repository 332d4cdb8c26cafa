"""The feed-forward layers between a CNN's pooled tokens and the sentence vector."""

import keras
from keras import ops


class ResidualFeedforward(keras.layers.Layer):
    """Three ReLU layers with projected shortcuts and a tanh, without biases.

    These are the "additional feedforward layers" of Yang et al. 2019, sec. 3.3, as the published module
    has them (the paper gives no sizes).

    Args:
        intermediate_dim: Of the first two layers (320).
        dim: Of the third and of the output (512).
    """

    def __init__(self, intermediate_dim: int, dim: int, *, name: str | None = None) -> None:
        super().__init__(name=name)
        self.first = _linear(intermediate_dim, "first")
        self.second = _linear(intermediate_dim, "second")
        self.second_shortcut = _linear(intermediate_dim, "second_shortcut")
        self.third = _linear(dim, "third")
        self.output_projection = _linear(dim, "output")
        self.output_shortcut = _linear(dim, "output_shortcut")

    def call(self, inputs: keras.KerasTensor) -> keras.KerasTensor:
        """Maps `[batch, any]` to `[batch, dim]` float32 in (-1, 1)."""
        first = ops.relu(self.first(inputs))
        second = ops.relu(self.second_shortcut(inputs) + self.second(first))
        third = ops.relu(self.third(second))
        outputs = self.output_shortcut(second) + self.output_projection(third)
        return ops.tanh(ops.cast(outputs, "float32"))


def _linear(dim: int, name: str) -> keras.layers.Layer:
    return keras.layers.Dense(dim, use_bias=False, name=name)
