"""Trained heads as they are exported: in float32, apart from the layers they were trained as."""

import keras
import tensorflow as tf

from xling_tf.layers.pooling import unit_length
from xling_tf.layers.towers import Tower


class FrozenTower(tf.Module):
    """A trained tower in float32, whatever precision it was trained in.

    Args:
        tower: The trained tower.
        normalize: Whether it was trained on unit vectors.
    """

    def __init__(self, tower: Tower, *, normalize: bool) -> None:
        super().__init__(name=tower.name)
        self._normalize = normalize
        self.weights = [tf.Variable(weight) for weight in tower.get_weights()]

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        """Maps `[batch, dim]` to `[batch, tower dim]`."""
        if self._normalize:
            inputs = unit_length(inputs)
        for kernel, bias in zip(self.weights[::2], self.weights[1::2], strict=True):
            inputs = tf.tanh(tf.matmul(inputs, kernel) + bias)
        return inputs


class FrozenAnswerHead(tf.Module):
    """The trained layers over an answer and its context (Yang et al. 2019, sec. 3.1).

    Args:
        context_encoder: Over the average of the context's words.
        answer_tower: Over the answer's encoding, followed by the context's.
        normalize: Whether they were trained on unit vectors.
    """

    def __init__(self, context_encoder: Tower, answer_tower: Tower, *, normalize: bool) -> None:
        super().__init__()
        self._normalize = normalize
        self.context_encoder = FrozenTower(context_encoder, normalize=normalize)
        self.answer_tower = FrozenTower(answer_tower, normalize=False)
        self.weights = [*self.answer_tower.weights, *self.context_encoder.weights]

    def __call__(self, answers: tf.Tensor, averages: tf.Tensor) -> tf.Tensor:
        """Maps `[batch, dim]` encodings and `[batch, any]` averages to `[batch, tower dim]`."""
        if self._normalize:
            answers = unit_length(answers)
        return self.answer_tower(tf.concat([answers, self.context_encoder(averages)], axis=1))


class FrozenInferenceHead(tf.Module):
    """A trained head for inference in float32, whatever precision it was trained in.

    Args:
        head: The trained head.
        normalize: Whether it was trained on unit vectors.
    """

    def __init__(self, head: keras.layers.Layer, *, normalize: bool) -> None:
        super().__init__(name=head.name)
        self._normalize = normalize
        self.weights = [tf.Variable(weight) for weight in head.get_weights()]

    def __call__(self, premise: tf.Tensor, hypothesis: tf.Tensor) -> tf.Tensor:
        """Maps two `[batch, dim]` to `[batch, 3]` logits."""
        if self._normalize:
            premise, hypothesis = unit_length(premise), unit_length(hypothesis)
        relation = [premise, hypothesis, abs(premise - hypothesis), premise * hypothesis]
        hidden_kernel, hidden_bias, kernel, bias = self.weights
        hidden = tf.tanh(tf.matmul(tf.concat(relation, axis=1), hidden_kernel) + hidden_bias)
        return tf.matmul(hidden, kernel) + bias
