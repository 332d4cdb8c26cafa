"""Natural language inference (Chidambaram et al. 2019, sec. 2.2)."""

from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from xling_tf.corpora.records import NLI_LABELS
from xling_tf.encoders.base import TokenEncoder
from xling_tf.losses import softmax_cross_entropy
from xling_tf.tasks.base import Batch, Task


class InferenceHead(keras.layers.Layer):
    """Classifies the relation of two encodings from (u, v, |u - v|, u * v).

    Args:
        dim: Width of the hidden layer (512).
    """

    def __init__(self, dim: int, *, name: str | None = None) -> None:
        super().__init__(name=name, autocast=False)
        self.hidden = keras.layers.Dense(dim, activation="tanh", name="hidden")
        self.logits = keras.layers.Dense(len(NLI_LABELS), name="logits")

    def call(self, premise: keras.KerasTensor, hypothesis: keras.KerasTensor) -> keras.KerasTensor:
        """Maps two `[batch, dim]` to `[batch, 3]` float32 logits."""
        relation = [premise, hypothesis, abs(premise - hypothesis), premise * hypothesis]
        hidden = self.hidden(keras.ops.concatenate(relation, axis=1))
        return keras.ops.cast(self.logits(hidden), "float32")


class Inference(Task):
    """Says whether a premise entails a hypothesis, contradicts it, or neither.

    Args:
        head: The classifier.
        **kwargs: Of `Task`.
    """

    kind: ClassVar[str] = "nli"
    columns = ("premise", "hypothesis")

    def __init__(self, *, head: InferenceHead, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.head = head

    @property
    def heads(self) -> tuple[keras.layers.Layer, ...]:
        """The classifier."""
        return (self.head,)

    def build_heads(self, encoder: TokenEncoder) -> None:
        """Creates the classifier's variables."""
        encoding = np.zeros((1, encoder.hidden_dim), np.float32)
        self.head(encoding, encoding)

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Classifies the pairs."""
        return softmax_cross_entropy(self.head(*columns), batch.labels)
