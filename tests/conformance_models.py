"""Small modules that keep the contracts of sentence encoders, and ones that break a single one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

ROWS, DIM = 64, 4
CALL = (tf.TensorSpec(None, tf.string), tf.TensorSpec([], tf.bool))
TEXTS = tf.TensorSpec([None], tf.string, name="inputs")


class Whole(tf.train.Checkpoint):
    """Means of hashed words, of unit length; a text without words has the mean of the row of none."""

    def __init__(self) -> None:
        super().__init__()
        table = tf.random.stateless_normal([ROWS, DIM], seed=[1, 2])
        self.table = tf.Variable(table, name="table")
        self.variables = [self.table]
        self.trainable_variables = [self.table]
        self.regularization_losses: list[Any] = []

    def encode(self, texts: tf.Tensor) -> tf.Tensor:
        words = tf.strings.split(tf.strings.join(["< ", texts]))  # invalid UTF-8 is bytes as any
        ids = words.with_values(tf.strings.to_hash_bucket_fast(words.values, ROWS))
        return tf.reduce_mean(tf.gather(self.table, ids), axis=1)

    def finish(self, vectors: tf.Tensor) -> tf.Tensor:
        return tf.math.l2_normalize(vectors, axis=1)

    @tf.function(input_signature=CALL)
    def __call__(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.finish(self.encode(tf.reshape(inputs, [-1])))

    def of_calls(self) -> dict[str, Any]:
        return {"serving_default": signature(lambda inputs: {"outputs": self(inputs)})}

    def signatures(self) -> dict[str, Any]:
        return self.of_calls()


def signature(function: Callable[..., Any], *specs: tf.TensorSpec) -> Any:
    """A signature that takes `inputs`, or what the specs say."""
    return tf.function(function).get_concrete_function(*(specs or [TEXTS]))


class NotNormalized(Whole):
    def finish(self, vectors: tf.Tensor) -> tf.Tensor:
        return 2 * tf.math.l2_normalize(vectors, axis=1)


class NoNumber(Whole):
    """Texts that start with a NUL or a blank have no words that it sees."""

    def encode(self, texts: tf.Tensor) -> tf.Tensor:
        seen = tf.strings.length(tf.strings.strip(texts)) > 0
        return super().encode(texts) / tf.cast(seen, tf.float32)[:, None]


class DependsOnBatch(Whole):
    def finish(self, vectors: tf.Tensor) -> tf.Tensor:
        return tf.math.l2_normalize(vectors + tf.reduce_sum(vectors, axis=0), axis=1)


class DependsOnNumber(Whole):
    """Mixes large batches up."""

    def finish(self, vectors: tf.Tensor) -> tf.Tensor:
        shift = tf.cast(tf.shape(vectors)[0] > 50, tf.int32)
        return tf.math.l2_normalize(tf.roll(vectors, shift, axis=0), axis=1)


class Constant(Whole):
    def encode(self, texts: tf.Tensor) -> tf.Tensor:
        return 0 * super().encode(texts) + self.table[0]


class HalfPrecision(Whole):
    @tf.function(input_signature=CALL)
    def __call__(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        vectors = self.finish(self.encode(tf.reshape(inputs, [-1])))
        return tf.cast(vectors, tf.float16)


class ListsAlone(Whole):
    @tf.function(input_signature=[TEXTS, CALL[1]])
    def __call__(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.finish(self.encode(inputs))


class Retracing(Whole):
    """Traced for a tensor when it is saved, and for each list anew when that is passed."""

    def __init__(self) -> None:
        super().__init__()
        call = tf.function(lambda inputs: self.finish(self.encode(tf.reshape(inputs, [-1]))))
        call.get_concrete_function(tf.TensorSpec(None, tf.string))
        self._call = call

    @tf.function
    def __call__(self, inputs: Any, training: bool = False) -> tf.Tensor:
        return self.finish(self.encode(tf.reshape(inputs, [-1])))


class Counting(Whole):
    """Its vectors depend on how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.count = tf.Variable(0.0, trainable=False)

    def encode(self, texts: tf.Tensor) -> tf.Tensor:
        return super().encode(texts) + self.count.assign_add(1.0)


class WithoutTraining(Whole):
    @tf.function(input_signature=CALL[:1])
    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.finish(self.encode(tf.reshape(inputs, [-1])))


class LostVariables(tf.Module):
    """A `tf.Module`: its `variables` are a property of Python, which is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = Whole()

    @tf.function(input_signature=CALL)
    def __call__(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.whole(inputs)

    def signatures(self) -> dict[str, Any]:
        return self.whole.signatures()


class Frozen(Whole):
    """Nothing in it can be trained."""

    def __init__(self) -> None:
        super().__init__()
        self.trainable_variables = []


class Stuck(Whole):
    """No gradient comes through."""

    def finish(self, vectors: tf.Tensor) -> tf.Tensor:
        return tf.stop_gradient(super().finish(vectors))


def with_signatures(make: Callable[[Whole], dict[str, Any]]) -> Callable[[], Whole]:
    """A whole module but for its signatures."""

    class Signed(Whole):
        def signatures(self) -> dict[str, Any]:
            return make(self)

    return Signed


def save(make: Callable[[], Any], folder: Path) -> Path:
    """Writes a module as a SavedModel."""
    module = make()
    tf.saved_model.save(module, str(folder), signatures=module.signatures())
    return folder
