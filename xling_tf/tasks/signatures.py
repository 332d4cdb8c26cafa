"""Signatures: the functions of strings that a model exports."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import keras
import tensorflow as tf

from xling_tf.layers.pooling import unit_length

Value = TypeVar("Value")

# An argument of the Reusable SavedModel contract.
TRAINING = tf.TensorSpec([], tf.bool, name="training")


class ExportedLayers(NamedTuple):
    """What signatures compute with: the exported encoder and the heads of a task."""

    encoder: Any  # the exported form: maps [n] strings to [n, dim] vectors that are not normalised
    heads: Mapping[str, keras.layers.Layer]  # the task's layers by name, in float32
    scale_for_heads: Callable[[tf.Tensor], tf.Tensor]  # scales [n, dim] vectors as in training
    prompts: Mapping[str, str]  # see `ModelInfo.role_prompts`


class SignatureDescription(NamedTuple):
    """Name and description of a signature."""

    name: str  # also of the attribute of the loaded SavedModel
    inputs: tuple[str, ...]  # names of the inputs, all of them strings
    card: str  # description of the outputs for the model card
    example: str = ""  # a line of Python for the model card that calls `encoder`
    # The prompt before the texts, see `ModelInfo.role_prompts`; "" for no prompt.
    role: str = "default"


def texts(*names: str) -> list[tf.TensorSpec]:
    """Returns the input signature of a function of string tensors of any shape."""
    return [tf.TensorSpec(None, tf.string, name=name) for name in names]


def untracked(value: Value) -> Callable[[], Value]:
    """Returns a function that returns a value: TensorFlow exports what attributes hold, but does
    not look into functions.
    """
    return lambda: value


class Signature(tf.train.Checkpoint):
    """A function of strings that a model exports; once loaded, it is callable and has trainable
    variables.

    A subclass has a `__call__` with `@tf.function(input_signature=texts(...))` that returns one
    tensor. The base class is `tf.train.Checkpoint` because a SavedModel loses the `variables` of a
    `tf.Module`.
    """

    def __init__(self, layers: ExportedLayers, description: SignatureDescription) -> None:
        super().__init__()
        self.encoder = layers.encoder
        self.description = description
        self._exported = untracked(layers)  # else the export would have Keras' serving functions
        heads = [variable.value for head in layers.heads.values() for variable in head.variables]
        self.trainable_variables = [*layers.encoder.trainable_variables, *heads]
        self.variables = [*layers.encoder.named_weights.values(), *heads]
        self.regularization_losses: list[tf.Tensor] = []

    @property
    def prompt(self) -> str:
        """The text that is put before each input."""
        return self._exported().prompts.get(self.description.role, "")

    def head(self, name: str) -> Any:
        """Returns one of the task's layers."""
        return self._exported().heads[name]

    def encode(self, texts: tf.Tensor) -> tf.Tensor:
        """Encodes strings of any shape, after the prompt: `[n, dim]` float32, not normalised."""
        texts = tf.reshape(texts, [-1])
        return self.encoder(tf.strings.join([self.prompt, texts]) if self.prompt else texts)

    def scaled_for_heads(self, vectors: tf.Tensor) -> tf.Tensor:
        """Scales `[n, dim]` vectors as in training."""
        return self._exported().scale_for_heads(vectors)

    def concrete_function(self) -> tf.types.experimental.ConcreteFunction:
        """Traces the signature, which maps `[n]` strings to a dictionary with the key `outputs`."""
        names = self.description.inputs
        # TensorFlow Serving can only batch requests whose rank is known.
        specs = {name: tf.TensorSpec([None], tf.string, name=name) for name in names}
        function = tf.function(
            lambda **inputs: {"outputs": self(*(inputs[name] for name in names))}
        )
        return function.get_concrete_function(**specs)


class SentenceSignature(Signature):
    """Encodes strings as vectors of unit length; the head, if there is one, is applied first."""

    @tf.function(input_signature=[*texts("inputs"), TRAINING], autograph=False)
    def __call__(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns `[sentences, dim]` float32 of unit length; inputs of any shape are flattened."""
        vectors = self.encode(inputs)
        for head in self._exported().heads.values():
            vectors = head(self.scaled_for_heads(vectors))
        return unit_length(vectors)


class RawSignature(Signature):
    """Encodes strings as vectors that are not normalised, for papers that pool or classify them."""

    @tf.function(input_signature=[*texts("inputs"), TRAINING], autograph=False)
    def __call__(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns `[sentences, dim]` float32; inputs of any shape are flattened."""
        return self.encode(inputs)


def one_for_each(values: tf.Tensor, texts: tf.Tensor, message: str) -> tf.Tensor:
    """Returns a string for each of `[n]` texts, repeating single ones; see `require_as_many`."""
    repeated = tf.cond(
        tf.equal(tf.rank(values), 0),
        lambda: tf.fill(tf.shape(texts), tf.reshape(values, [])),
        lambda: tf.reshape(values, [-1]),
    )
    return require_as_many(repeated, texts, message)


def require_as_many(texts: tf.Tensor, others: tf.Tensor, message: str) -> tf.Tensor:
    """Returns `texts`; the graph fails with `message` if their number is not that of `others`."""
    with tf.control_dependencies(
        [tf.debugging.assert_equal(tf.size(texts), tf.size(others), message)]
    ):
        return tf.identity(texts)
