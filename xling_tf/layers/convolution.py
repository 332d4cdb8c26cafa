"""The layers of the published CNN encoder (Yang et al. 2019, sec. 3.3; Kim 2014)."""

from typing import Any

import keras
import tensorflow as tf
from keras import KerasTensor as Tensor
from keras import ops

from xling_tf.layers.base import Layer, LayerNorm

EPSILON = 1e-12  # of the published CNN's layer norms


@tf.custom_gradient
def _convolve_in_training(inputs: Any, kernel: Any) -> Any:
    """Convolves `[batch, length, in]`; on CPUs, its gradient takes half TensorFlow's time."""
    width = kernel.shape[0]
    left, right = (width - 1) // 2, width // 2

    def gradient(upstream: Any) -> Any:
        padded = tf.pad(upstream, [[0, 0], [right, left], [0, 0]])
        d_inputs = tf.nn.conv1d(padded, tf.transpose(kernel[::-1], [0, 2, 1]), 1, "VALID")
        padded, length = tf.pad(inputs, [[0, 0], [left, right], [0, 0]]), tf.shape(inputs)[1]
        shifted = (
            tf.reshape(padded[:, i : i + length], [-1, kernel.shape[1]]) for i in range(width)
        )
        rows = tf.reshape(upstream, [-1, kernel.shape[2]])
        # For an empty batch, such as a replica's or a group's, conv1d returns the wrong length.
        d_inputs = tf.reshape(d_inputs, tf.shape(inputs))
        return d_inputs, tf.stack([tf.matmul(part, rows, transpose_a=True) for part in shifted])

    return tf.nn.conv1d(inputs, kernel, 1, "SAME"), gradient


class _Convolution(keras.layers.Conv1D):
    """Keras' one-dimensional convolution, with the faster gradient in training on a CPU."""

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        """Maps `[batch, length, any]` to `[batch, length, filters]`."""
        # A SavedModel with a custom gradient inside a loop cannot be loaded, and cuDNN has its own
        # gradient.
        if not training or tf.config.list_logical_devices("GPU"):
            return super().call(inputs)
        outputs = _convolve_in_training(inputs, tf.convert_to_tensor(self.kernel))
        return self.activation(outputs + self.bias)


@keras.saving.register_keras_serializable(package="xling_tf")
class ConvolutionBranch(Layer):
    """A stack of convolutions of one width, each with ReLU and a residual connection.

    Padding counts as zeros. Filters of an even width see one more token on the right than on the
    left.

    Args:
        num_filters: Width of the inputs and outputs (256 in sec. 4.2).
        width: Number of tokens that a filter sees.
        num_layers: Number of convolutions (2 in sec. 4.2).
    """

    def __init__(self, num_filters: int, width: int, num_layers: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_filters, self.width, self.num_layers = num_filters, width, num_layers
        self.convolutions = [
            _Convolution(
                num_filters,
                width,
                padding="same",
                data_format="channels_last",
                activation="relu",
                dtype=self.dtype_policy,
                name=f"convolution_{index}",
            )
            for index in range(num_layers)
        ]

    def call(self, inputs: Tensor, mask: Tensor, training: bool = False) -> Tensor:
        """Maps `[batch, length, num_filters]` to itself; `[batch, length, 1]` masks padding."""
        for convolution in self.convolutions:
            inputs = inputs + convolution(inputs * ops.cast(mask, inputs.dtype), training=training)
        return inputs


@keras.saving.register_keras_serializable(package="xling_tf")
class NormalizedProjection(Layer):
    """A linear projection to width `dim`, and a layer norm."""

    def __init__(self, dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dim = dim
        self.projection = keras.layers.Dense(dim, dtype=self.dtype_policy, name="projection")
        self.norm = LayerNorm(epsilon=EPSILON, dtype=self.dtype_policy, name="norm")

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        """Maps `[..., any]` to `[..., dim]`."""
        return self.norm(self.projection(inputs), training=training)


@keras.saving.register_keras_serializable(package="xling_tf")
class ResidualFeedforward(Layer):
    """Three ReLU layers and a tanh layer, with projected shortcuts and without biases.

    These are the "additional feedforward layers" after the pooling (sec. 3.3). The paper gives no
    sizes; they are taken from the published module.

    Args:
        intermediate_dim: Width of the first two layers (320).
        dim: Width of the third layer and of the outputs (512).
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

    def call(self, inputs: Tensor) -> Tensor:
        """Maps `[batch, any]` to `[batch, dim]` float32 in (-1, 1)."""
        first = ops.relu(self.first(inputs))
        second = ops.relu(self.second_shortcut(inputs) + self.second(first))
        third = ops.relu(self.third(second))
        outputs = self.output_shortcut(second) + self.output_projection(third)
        return ops.tanh(ops.cast(outputs, "float32"))
