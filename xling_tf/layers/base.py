"""What all layers have in common: they are made anew of their config."""

import inspect
from typing import Any, TypeVar

import keras
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
        inputs = ops.cast(inputs, "float32")
        centred = inputs - ops.mean(inputs, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
        gamma, beta = ops.cast(self.gamma, "float32"), ops.cast(self.beta, "float32")
        outputs = centred * ops.rsqrt(variance + self.epsilon) * gamma + beta
        return ops.cast(outputs, self.compute_dtype)


def float32_copy(layer: _Layer) -> _Layer:
    """Copies a trained layer, or an encoder, weights and all, into one that computes in float32."""
    copy = type(layer).from_config({**layer.get_config(), "dtype": "float32"})
    copy.build_from_config(layer.get_build_config())
    copy.set_weights(layer.get_weights())
    return copy
