"""An exported model as a layer of a Keras model."""

from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from xling_tf.hub.saved_models import load_saved_model, resolve


@keras.saving.register_keras_serializable(package="xling_tf")
class KerasEncoder(keras.layers.Layer):
    """Encodes `[batch]` strings in a Keras model: `[batch, dim]` float32 of unit length.

    It is trained with the model, saved with it as `.keras` and exported with it by `model.export`. Of Keras'
    own `TFSMLayer` the optimizers refuse the variables' names.

    Args:
        path: The folder of an exported model, or what else `xling_tf.load` takes; a `.keras` file has the
            weights, but needs the model too.
        trainable: Whether its weights change with the model's.
        **kwargs: Of the layer.

    Example:
        >>> texts = keras.Input((), dtype="string")  # doctest: +SKIP
        >>> topics = keras.layers.Dense(3)(KerasEncoder("exported/en-es")(texts))  # doctest: +SKIP
        >>> keras.Model(texts, topics).compile("adam", "mse")  # doctest: +SKIP
    """

    def __init__(self, path: str | Path, trainable: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs, autocast=False)
        self._folder = str(path)
        self._loaded = load_saved_model(resolve(path))
        encode = self._loaded.signatures["serving_default"]
        (output,) = encode.structured_outputs.values()
        self._dim = output.shape[-1]
        self._shared = [_shared(variable, str(i)) for i, variable in enumerate(encode.trainable_variables)]
        self.trainable = trainable  # after its variables, which follow it

    def call(self, texts: Any) -> Any:
        """Encodes strings of any rank, flattened."""
        return self._loaded(texts)

    def compute_output_shape(self, texts_shape: tuple[int | None, ...]) -> tuple[int | None, int]:
        """The shape of the vectors of `[batch]` texts."""
        return texts_shape[0], self._dim

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "path": self._folder}


def _shared(variable: tf.Variable, name: str) -> keras.Variable:
    """A Keras variable that is a variable of the loaded graph, not a copy of it."""
    shared = keras.Variable(tf.zeros, shape=tuple(variable.shape), dtype=variable.dtype.name, name=name)
    shared._value = variable
    return shared
