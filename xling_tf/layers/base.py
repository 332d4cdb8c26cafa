"""Base class of our layers, a fast layer norm, and copies of layers in float32."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import keras
import tensorflow as tf
from keras import KerasTensor as Tensor
from keras import ops

_Layer = TypeVar("_Layer", bound=keras.layers.Layer)

# Activation functions by name. "gelu" is exact, x times the normal distribution function of x
# (Hendrycks and Gimpel 2016, "Gaussian Error Linear Units"), and "gelu_tanh" its approximation by
# tanh (sec. 2).
ACTIVATIONS: Mapping[str, Callable[[Any], Any]] = {
    # Not by erfc, as in Keras: ONNX Runtime fuses this form, and tf2onnx has no erfc.
    "gelu": lambda x: 0.5 * x * (1 + ops.erf(x * 0.5**0.5)),
    "gelu_tanh": partial(keras.activations.gelu, approximate=True),
    "relu": keras.activations.relu,
    "silu": keras.activations.silu,
    "tanh": keras.activations.tanh,
    "linear": keras.activations.linear,
}


class Layer(keras.layers.Layer):
    """A layer whose constructor arguments are attributes, from which `get_config` reads them."""

    def build(self, *_: Any) -> None:
        """Does nothing, where Keras would trace `call`: inner layers are built when called."""

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        names = inspect.signature(type(self)).parameters
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in names if name != "kwargs"},
        }


@keras.saving.register_keras_serializable(package="xling_tf")
class Dense(keras.layers.Dense):
    """Keras' dense layer, written so that TensorFlow computes it in one operation on a CPU.

    That is a product of matrices, then `bias_add`, and then the activation. It saves passes over
    the memory, and the exact GELU takes a quarter of its time.
    """

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Maps `[..., dim]` to `[..., units]`."""
        rows = tf.reshape(inputs, [-1, self.kernel.shape[0]])
        outputs = tf.matmul(rows, self.kernel)
        if self.use_bias:
            outputs = tf.nn.bias_add(outputs, self.bias)
        return tf.reshape(
            self.activation(outputs), tf.concat([tf.shape(inputs)[:-1], [self.units]], axis=0)
        )


@keras.saving.register_keras_serializable(package="xling_tf")
class LayerNorm(keras.layers.LayerNormalization):
    """Layer norm over the last axis (Ba et al. 2016), computed in float32.

    On a CPU, Keras' layer norm takes twice the time.
    """

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        """Maps `[..., dim]` to the same shape."""
        beta = ops.zeros_like(self.gamma) if self.beta is None else self.beta
        inputs, gamma, beta = (ops.cast(x, "float32") for x in (inputs, self.gamma, beta))
        # Only in training: a SavedModel with a custom gradient inside a loop cannot be loaded.
        if training:
            outputs = _norm_in_training(inputs, gamma, beta, self.epsilon)
        else:
            outputs, *_ = _norm(inputs, gamma, beta, self.epsilon)
        return ops.cast(outputs, self.compute_dtype)


def _norm(inputs: Any, gamma: Any, beta: Any, epsilon: float) -> tuple[Any, Any, Any]:
    """Returns the outputs, the normalised inputs and the scale that normalised them."""
    centred = inputs - ops.mean(inputs, axis=-1, keepdims=True)
    scale = ops.rsqrt(ops.mean(ops.square(centred), axis=-1, keepdims=True) + epsilon)
    normalised = centred * scale
    return normalised * gamma + beta, normalised, scale


@tf.custom_gradient
def _norm_in_training(inputs: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """Computes `_norm`, with a gradient that passes over memory half as often as TensorFlow's."""
    outputs, normalised, scale = _norm(inputs, gamma, beta, epsilon)

    def gradient(upstream: Any) -> Any:
        dim = inputs.shape[-1]
        rows, d_rows = (tf.reshape(x, [-1, dim]) for x in (normalised, upstream))
        products, mean = d_rows * rows, gamma[:, None] / dim
        d_centred = d_rows * gamma - d_rows @ mean - rows * (products @ mean)
        d_gamma, d_beta = tf.reduce_sum(products, axis=0), tf.reduce_sum(d_rows, axis=0)
        return tf.reshape(d_centred, tf.shape(inputs)) * scale, d_gamma, d_beta, None

    return outputs, gradient


def softmax(scores: Tensor, axis: int = -1) -> Tensor:
    """Softmax along an axis. `keras.ops`' warns of a single score, as texts of one token have."""
    return tf.nn.softmax(scores, axis=axis)


def float32_copy(layer: _Layer) -> _Layer:
    """Returns a copy of a built layer or encoder, weights included, that computes in float32."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float32")  # of inner layers that do not take the layer's own
    try:
        copy = type(layer).from_config({**layer.get_config(), "dtype": "float32"})
        if not copy.built:
            copy.build_from_config(layer.get_build_config())
    finally:
        keras.config.set_dtype_policy(policy)
    copy.set_weights(layer.get_weights())
    return copy
