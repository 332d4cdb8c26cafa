"""An exported model as a layer of a Keras model."""

import os
from typing import Any

import keras
import tensorflow as tf

from xling_tf.errors import UserError
from xling_tf.hub.saved_models import load_saved_model, one_line, require_not_forked, resolve

_Shape = tuple[int | None, ...]


@keras.saving.register_keras_serializable(package="xling_tf")
class KerasEncoder(keras.layers.Layer):
    """Encodes strings in a Keras model: texts `[batch]` or `[batch, 1]` as vectors `[batch, dim]`.

    Vectors are float32 of unit length. Texts of any other shape keep it: `[batch, 3]` gives
    `[batch, 3, dim]`. The layer is trained with the model, saved with it as `.keras` and exported with it by
    `model.export`. As with every Keras layer for text, `fit` and `predict` take tensors, NumPy arrays
    `[batch]` of dtype object and `tf.data`, but no lists.

    Args:
        path: The folder of an exported model, or what else `xling_tf.load` takes; a `.keras` file has the
            weights, but needs the model too.
        trainable: Whether its weights change with the model's.
        **kwargs: Of the layer.

    Raises:
        UserError: There is no such model, or its input is not of strings.

    Example:
        >>> model = keras.Sequential(
        ...     [keras.Input((), dtype="string"), KerasEncoder("exported/en-es"), keras.layers.Dense(3)]
        ... )  # doctest: +SKIP
        >>> model.compile("adam", "mse")  # doctest: +SKIP
    """

    def __init__(self, path: str | os.PathLike[str], trainable: bool = True, **kwargs: Any) -> None:
        # Keras would make an input of floats from the argument; from the attribute, `Sequential` makes one of
        # `compute_dtype`.
        if (shape := kwargs.pop("input_shape", None)) is not None:
            self.input_shape = (None, *shape)
        super().__init__(**kwargs)
        self._convert_input_args = False  # to floats
        self.supports_jit = False  # XLA has no strings
        self._folder = os.fspath(path)
        self._loaded = load_saved_model(resolve(path))
        encode = self._loaded.signatures["serving_default"]
        (output,) = encode.structured_outputs.values()
        self._dim = output.shape[-1]
        self._shared = [_shared(variable, str(i)) for i, variable in enumerate(encode.trainable_variables)]
        self._number_varies = False
        self.trainable = trainable  # after its variables, which follow it

    @property
    def compute_dtype(self) -> str:
        """The dtype of the inputs that a `Sequential` model makes for its first layer."""
        return "string"

    @property
    def variable_dtype(self) -> str:
        """Also "string": Keras would cast the variables of a layer with two different dtypes."""
        return "string"

    def build(self, texts_shape: _Shape) -> None:
        """Notes whether the number of texts in a row varies: then `[n, 1]` is no column."""
        self._number_varies = len(texts_shape) == 2 and texts_shape[1] is None

    def __call__(self, texts: Any, **kwargs: Any) -> Any:
        """Takes lists and arrays of strings too, which Keras would convert to floats."""
        if not isinstance(texts, keras.KerasTensor):
            try:
                texts = tf.convert_to_tensor(texts, tf.string)
            except (TypeError, ValueError) as error:  # TensorFlow's names no remedy
                raise UserError(
                    "strings are expected, in a tensor, or in lists or arrays with rows of one length, but "
                    f"got {type(texts).__name__}: {one_line(error)}"
                ) from error
        return super().__call__(texts, **kwargs)

    def call(self, texts: Any) -> Any:
        """Encodes strings of any shape."""
        require_not_forked()
        inner = tf.shape(texts)[: 1 if self._is_column(texts.shape) else None]
        return tf.reshape(self._loaded(texts), tf.concat([inner, [self._dim]], 0))

    def _is_column(self, texts_shape: Any) -> bool:
        return len(texts_shape) == 2 and texts_shape[1] == 1 and not self._number_varies

    def compute_output_shape(self, texts_shape: _Shape) -> _Shape:
        """The shape of the vectors of texts of this shape."""
        return (*texts_shape[: 1 if self._is_column(texts_shape) else None], self._dim)

    def compute_output_spec(self, texts: Any) -> keras.KerasTensor:
        """The symbolic vectors of symbolic texts."""
        if texts.dtype != "string":
            raise UserError(
                f'strings are expected, as from keras.Input((), dtype="string"), but got {texts.dtype}'
            )
        return keras.KerasTensor(self.compute_output_shape(texts.shape), "float32")

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "path": self._folder}


def _shared(variable: tf.Variable, name: str) -> keras.Variable:
    """A Keras variable that is a variable of the loaded graph, not a copy of it."""
    shared = keras.Variable(tf.zeros, shape=tuple(variable.shape), dtype=variable.dtype.name, name=name)
    shared._value = variable
    return shared
