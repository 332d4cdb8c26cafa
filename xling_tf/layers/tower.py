"""The fully connected layers that a task puts on top of the shared encoder."""

from collections.abc import Sequence

import keras


class Tower(keras.layers.Layer):
    """Feed-forward layers with tanh (320 and 512 in Chidambaram et al. 2019, sec. 2.2).

    Args:
        dims: Width of each layer.
    """

    def __init__(self, dims: Sequence[int], *, name: str | None = None) -> None:
        super().__init__(name=name)
        self.layers = [
            keras.layers.Dense(dim, activation="tanh", name=f"dense_{index}")
            for index, dim in enumerate(dims)
        ]

    def call(self, inputs: keras.KerasTensor) -> keras.KerasTensor:
        """Maps `[batch, dim]` to `[batch, dims[-1]]` float32."""
        for layer in self.layers:
            inputs = layer(inputs)
        return keras.ops.cast(inputs, "float32")
