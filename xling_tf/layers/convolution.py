"""The layers of the CNN (Yang et al. 2019, sec. 3.3; Kim 2014), as the published module has them."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from xling_tf.layers.base import Layer, LayerNorm

EPSILON = 1e-12  # of the published CNN's layer norms


@tf.custom_gradient
def _convolve_in_training(inputs: Any, kernel: Any) -> Any:
    """A convolution `[batch, length, out]` of `[batch, length, in]` by a `[width, in, out]` kernel.

    Its gradients are a convolution and matrix products; on a processor, TensorFlow takes twice as long.
    """
    width = kernel.shape[0]
    left, right = (width - 1) // 2, width // 2

    def gradient(of_outputs: Any) -> Any:
        padded = tf.pad(of_outputs, [[0, 0], [right, left], [0, 0]])
        of_inputs = tf.nn.conv1d(padded, tf.transpose(kernel[::-1], [0, 2, 1]), 1, "VALID")
        padded, length = tf.pad(inputs, [[0, 0], [left, right], [0, 0]]), tf.shape(inputs)[1]
        seen = (tf.reshape(padded[:, i : i + length], [-1, kernel.shape[1]]) for i in range(width))
        rows = tf.reshape(of_outputs, [-1, kernel.shape[2]])
        return of_inputs, tf.stack([tf.matmul(each, rows, transpose_a=True) for each in seen])

    return tf.nn.conv1d(inputs, kernel, 1, "SAME"), gradient


class _Convolution(keras.layers.Conv1D):
    """Keras' own, in half the time in training."""

    def call(self, inputs: keras.KerasTensor) -> keras.KerasTensor:
        """Maps `[batch, length, any]` to `[batch, length, filters]`."""
        if not tf.distribute.has_strategy():  # in exports, TensorFlow loads no gradient of ours within a loop
            return super().call(inputs)
        outputs = _convolve_in_training(inputs, tf.convert_to_tensor(self.kernel))
        return self.activation(outputs + self.bias)


@keras.saving.register_keras_serializable(package="xling_tf")
class ConvolutionBranch(Layer):
    """Convolutions of one width, each with ReLU and a residual connection.

    The tokens beyond a sentence's ends count as zeros, whatever stands there. An even width sees one
    token more on the right.

    Args:
        num_filters: Width of the branch (256 in sec. 4.2).
        width: Tokens that a filter sees.
        num_layers: Convolutions (2 in sec. 4.2).
    """

    def __init__(self, num_filters: int, width: int, num_layers: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_filters, self.width, self.num_layers = num_filters, width, num_layers
        self.convolutions = [
            _Convolution(
                num_filters,
                width,
                padding="same",
                activation="relu",
                dtype=self.dtype_policy,
                name=f"convolution_{index}",
            )
            for index in range(num_layers)
        ]

    def call(self, inputs: keras.KerasTensor, mask: keras.KerasTensor) -> keras.KerasTensor:
        """Maps `[batch, length, num_filters]` with a `[batch, length, 1]` mask to the same shape."""
        for convolution in self.convolutions:
            inputs = inputs + convolution(inputs * ops.cast(mask, inputs.dtype))
        return inputs


@keras.saving.register_keras_serializable(package="xling_tf")
class NormalizedProjection(Layer):
    """Projects what enters a branch, and normalises it.

    Args:
        dim: Width of the branch.
    """

    def __init__(self, dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dim = dim
        self.projection = keras.layers.Dense(dim, dtype=self.dtype_policy, name="projection")
        self.norm = LayerNorm(epsilon=EPSILON, dtype=self.dtype_policy, name="norm")

    def call(self, inputs: keras.KerasTensor) -> keras.KerasTensor:
        """Maps `[..., any]` to `[..., dim]`."""
        return self.norm(self.projection(inputs))


@keras.saving.register_keras_serializable(package="xling_tf")
class ResidualFeedforward(Layer):
    """Three ReLU layers with projected shortcuts and a tanh, without biases.

    These are the "additional feedforward layers" after the pooling (sec. 3.3), as the published module
    has them (the paper gives no sizes).

    Args:
        intermediate_dim: Of the first two layers (320).
        dim: Of the third and of the output (512).
    """

    def __init__(self, intermediate_dim: int, dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.intermediate_dim, self.dim = intermediate_dim, dim

        def linear(units: int, name: str) -> keras.layers.Layer:
            return keras.layers.Dense(units, use_bias=False, dtype=self.dtype_policy, name=name)

        self.first = linear(intermediate_dim, "first")
        self.second = linear(intermediate_dim, "second")
        self.second_shortcut = linear(intermediate_dim, "second_shortcut")
        self.third = linear(dim, "third")
        self.output_projection = linear(dim, "output")
        self.output_shortcut = linear(dim, "output_shortcut")

    def call(self, inputs: keras.KerasTensor) -> keras.KerasTensor:
        """Maps `[batch, any]` to `[batch, dim]` float32 in (-1, 1)."""
        first = ops.relu(self.first(inputs))
        second = ops.relu(self.second_shortcut(inputs) + self.second(first))
        third = ops.relu(self.third(second))
        outputs = self.output_shortcut(second) + self.output_projection(third)
        return ops.tanh(ops.cast(outputs, "float32"))
