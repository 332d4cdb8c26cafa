"""What all layers have in common: they are made anew of their config."""

import inspect
from typing import Any, TypeVar

import keras
import tensorflow as tf
from keras import ops

_Layer = TypeVar("_Layer", bound=keras.layers.Layer)


def arguments_of(layer: keras.layers.Layer) -> dict[str, Any]:
    """The arguments of a layer's constructor but Keras' own, which it has as attributes."""
    names = inspect.signature(type(layer)).parameters
    return {name: getattr(layer, name) for name in names if name != "kwargs"}


class Layer(keras.layers.Layer):
    """A layer whose config is the arguments of its constructor, which it has as attributes."""

    def get_config(self) -> dict[str, Any]:
        """Returns what `from_config` makes an untrained layer of the same sizes from."""
        return {**super().get_config(), **arguments_of(self)}


@keras.saving.register_keras_serializable(package="xling_tf")
class LayerNorm(keras.layers.LayerNormalization):
    """Layer norm of the last axis (Ba et al. 2016), computed in float32.

    Keras' own scales and shifts by numbers of rows and columns in turn: twice the time on a processor.
    """

    def call(self, inputs: keras.KerasTensor) -> keras.KerasTensor:
        """Maps `[..., dim]` to the same shape."""
        inputs, gamma, beta = (ops.cast(x, "float32") for x in (inputs, self.gamma, self.beta))
        # Not in exports: TensorFlow loads no gradient of ours within a loop.
        if tf.distribute.has_strategy():
            outputs = _norm_in_training(inputs, gamma, beta, self.epsilon)
        else:
            outputs, *_ = _norm(inputs, gamma, beta, self.epsilon)
        return ops.cast(outputs, self.compute_dtype)


def _norm(inputs: Any, gamma: Any, beta: Any, epsilon: float) -> tuple[Any, Any, Any]:
    """Returns the layer norm, the normalised inputs and the scale that normalised them."""
    centred = inputs - ops.mean(inputs, axis=-1, keepdims=True)
    scale = ops.rsqrt(ops.mean(ops.square(centred), axis=-1, keepdims=True) + epsilon)
    normalised = centred * scale
    return normalised * gamma + beta, normalised, scale


@tf.custom_gradient
def _norm_in_training(inputs: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """As `_norm`, whose gradient by TensorFlow goes through memory twice as often."""
    outputs, normalised, scale = _norm(inputs, gamma, beta, epsilon)

    def gradient(of_outputs: Any) -> Any:
        dim = inputs.shape[-1]
        rows, of_rows = (tf.reshape(x, [-1, dim]) for x in (normalised, of_outputs))
        products, mean = of_rows * rows, gamma[:, None] / dim
        of_centred = of_rows * gamma - of_rows @ mean - rows * (products @ mean)
        of_gamma, of_beta = tf.reduce_sum(products, axis=0), tf.reduce_sum(of_rows, axis=0)
        return tf.reshape(of_centred, tf.shape(inputs)) * scale, of_gamma, of_beta, None

    return outputs, gradient


def float32_copy(layer: _Layer) -> _Layer:
    """Copies a trained layer, or an encoder, weights and all, into one that computes in float32."""
    copy = type(layer).from_config({**layer.get_config(), "dtype": "float32"})
    copy.build_from_config(layer.get_build_config())
    copy.set_weights(layer.get_weights())
    return copy
