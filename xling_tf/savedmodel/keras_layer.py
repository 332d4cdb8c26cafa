"""An exported model as a layer of a Keras model."""

import os
from typing import Any

import keras
import tensorflow as tf

from xling_tf.errors import UserError, as_user_error
from xling_tf.processes import require_not_forked
from xling_tf.savedmodel.saved_models import find_model, load_saved_model

_Shape = tuple[int | None, ...]


@keras.saving.register_keras_serializable(package="xling_tf")
class KerasEncoder(keras.layers.Layer):
    """Maps texts `[batch]` or `[batch, 1]` to vectors `[batch, dim]` inside a Keras model.

    The vectors are float32 of unit length. Texts of any other shape keep it: `[batch, 3]` become
    `[batch, 3, dim]`. The layer is trained with the Keras model, saved with it as `.keras`, and
    exported by `model.export`. As with every Keras layer for text, `fit` and `predict` take
    tensors, `[batch]` NumPy arrays of dtype object and `tf.data`, but no lists.

    Args:
        path: The exported model, in any form that `xling_tf.load` takes. A `.keras` file holds the
            weights, but loading it also needs the exported model.
        trainable: True to train the encoder with the Keras model.
        **kwargs: Arguments of every Keras layer.

    Raises:
        UserError: There is no such model, or the input of the layer is not of strings.

    Examples:
        >>> encoder = KerasEncoder("exported/en-es")  # doctest: +SKIP
        >>> model = keras.Sequential(
        ...     [keras.Input((), dtype="string"), encoder, keras.layers.Dense(3)]
        ... )  # doctest: +SKIP
        >>> model.compile("adam", "mse")  # doctest: +SKIP
    """

    # A `Sequential` model makes inputs of this dtype for its first layer; Keras casts the variables
    # of layers where the two differ.
    compute_dtype = variable_dtype = "string"

    def __init__(self, path: str | os.PathLike[str], trainable: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Private: Keras converts inputs to floats, and has no public way to turn that off.
        self._convert_input_args = False
        self.supports_jit = False  # XLA has no strings
        self._folder = os.fspath(path)
        self._loaded = load_saved_model(find_model(path))
        encode = self._loaded.signatures["serving_default"]
        (output,) = encode.structured_outputs.values()
        self._dim = output.shape[-1]
        self._shared = [_shared(v, str(i)) for i, v in enumerate(encode.trainable_variables)]
        self._number_varies = False
        self.trainable = trainable  # set last, so that it applies to the variables too

    def build(self, texts_shape: _Shape) -> None:
        """Remembers if the number of texts in a row varies, as `[n, 1]` is then not a column."""
        self._number_varies = len(texts_shape) == 2 and texts_shape[1] is None

    def __call__(self, texts: Any, **kwargs: Any) -> Any:
        """Encodes texts, also lists and arrays of strings, which Keras would convert to floats."""
        if not isinstance(texts, keras.KerasTensor):
            message = "expected strings, in rows of equal length: {error}"
            with as_user_error(message, TypeError, ValueError):
                texts = tf.convert_to_tensor(texts, tf.string)
        return super().__call__(texts, **kwargs)

    def call(self, texts: Any) -> Any:
        """Encodes strings of any shape."""
        require_not_forked()
        inner = tf.shape(texts)[: 1 if self._is_column(texts.shape) else None]
        return tf.reshape(self._loaded(texts), tf.concat([inner, [self._dim]], 0))

    def _is_column(self, texts_shape: Any) -> bool:
        return len(texts_shape) == 2 and texts_shape[1] == 1 and not self._number_varies

    def compute_output_shape(self, texts_shape: _Shape) -> _Shape:
        """Returns the shape of the vectors of texts of this shape."""
        return (*texts_shape[: 1 if self._is_column(texts_shape) else None], self._dim)

    def compute_output_spec(self, texts: Any) -> keras.KerasTensor:
        """Returns symbolic vectors of symbolic texts."""
        if texts.dtype != "string":
            raise UserError(
                f'expected strings, as from keras.Input((), dtype="string"), got {texts.dtype}'
            )
        return keras.KerasTensor(self.compute_output_shape(texts.shape), "float32")

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "path": self._folder}


def _shared(variable: tf.Variable, name: str) -> keras.Variable:
    """Returns a Keras variable that shares the memory of a variable of the loaded graph.

    Private: `Variable._value`. Keras has no public way to wrap an existing TensorFlow variable.
    """
    shared = keras.Variable(
        tf.zeros, shape=tuple(variable.shape), dtype=variable.dtype.name, name=name
    )
    shared._value = variable
    return shared
