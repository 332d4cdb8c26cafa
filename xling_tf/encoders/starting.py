"""An encoder as it was before training, and how far training may take it from there."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from xling_tf.losses import cosine_distance


class StartingEncoder:
    """Remembers the weights of an encoder, and pulls its encodings back to those made with them.

    The encoder itself encodes with the remembered weights; tables that are not trained are its own. What
    was encoded before training, an index say, then still is near what it encodes afterwards.

    Args:
        trained: The encoder's variables that training will change.
        weight: Of 1 - cosine to the starting encoder in the losses.
    """

    def __init__(self, trained: Sequence[keras.Variable], weight: float) -> None:
        self._weight = weight
        self._then = [(v, tf.Variable(v.numpy(), trainable=False)) for v in trained]

    def standing_in(self) -> keras.StatelessScope:
        """Within it, the encoder has its weights of then."""
        return keras.StatelessScope(state_mapping=self._then)

    def losses(self, now: Sequence[tf.Tensor], then: Sequence[tf.Tensor]) -> tf.Tensor:
        """Maps each column's `[batch, dim]` encodings, now and then, to `[batch]` losses.

        Texts of an example count alike; no gradient goes through those of then.
        """
        distances = [
            cosine_distance(column, tf.stop_gradient(before))
            for column, before in zip(now, then, strict=True)
        ]
        return self._weight * tf.add_n(distances) / len(distances)
