"""Optimizers: one for the dense layers, a row-sparse one for the embedding tables."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from xling_tf.config import OptimizerConfig


class RowSparseAdam(keras.optimizers.Optimizer):
    """Adam that touches only the rows a batch has looked up.

    Keras' Adam decays the moments of every row at every step, which on a table of 64 million entries
    costs more than the rest of the step. Here a row's moments wait until the row is seen again,
    as in the "lazy" Adam of other libraries; the second moment is one number a row, for the
    entries of an embedding share their frequency.

    Args:
        learning_rate: Step size.
        beta_1: Decay of the mean.
        beta_2: Decay of the row's mean square.
        epsilon: Added to the root.
    """

    def __init__(
        self,
        learning_rate: float = 1e-3,
        beta_1: float = 0.9,
        beta_2: float = 0.99,
        epsilon: float = 1e-8,
        name: str = "row_sparse_adam",
    ) -> None:
        super().__init__(learning_rate=learning_rate, name=name)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Makes the moments."""
        if self.built:
            return
        super().build(variables)
        self._means = [
            self.add_variable_from_reference(variable, name="mean") for variable in variables
        ]
        self._squares = [
            self.add_variable((variable.shape[0],), name="mean_square") for variable in variables
        ]

    def update_step(
        self, gradient: tf.IndexedSlices, variable: tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        """Updates the looked-up rows of one table."""
        index = self._get_variable_index(variable)
        mean, square = self._means[index].value, self._squares[index].value
        rows, positions = tf.unique(gradient.indices)
        values = tf.math.unsorted_segment_sum(gradient.values, positions, tf.size(rows))
        step = tf.cast(self.iterations + 1, tf.float32)
        new_mean = self.beta_1 * tf.gather(mean, rows) + (1 - self.beta_1) * values
        new_square = self.beta_2 * tf.gather(square, rows) + (1 - self.beta_2) * tf.reduce_mean(
            tf.square(values), axis=1
        )
        mean.scatter_update(tf.IndexedSlices(new_mean, rows))
        square.scatter_update(tf.IndexedSlices(new_square, rows))
        rate = learning_rate * tf.sqrt(1 - self.beta_2**step) / (1 - self.beta_1**step)
        change = rate * new_mean / (tf.sqrt(new_square) + self.epsilon)[:, None]
        variable.scatter_sub(tf.IndexedSlices(change, rows))
