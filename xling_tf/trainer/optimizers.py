"""Optimizers: one for the dense layers, a row-sparse one for the embedding tables."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from xling_tf.config import OptimizerConfig
from xling_tf.errors import UserError
from xling_tf.trainer.averages import WeightAverages
from xling_tf.trainer.schedule import learning_rate_factor


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
        """Updates the looked-up rows of one table; no row may come twice."""
        index = self._get_variable_index(variable)
        mean, square = self._means[index].value, self._squares[index].value
        rows, values = gradient.indices, gradient.values
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


_KINDS: Mapping[str, tuple[Callable[[float], Any], Callable[[float], Any]]] = {
    # Plain SGD changes only the looked-up rows as it is.
    "sgd": (keras.optimizers.SGD, keras.optimizers.SGD),
    # beta_2 = 0.98 as in Vaswani et al. 2017, sec. 5.3.
    "adam": (lambda rate: keras.optimizers.Adam(rate, beta_2=0.98), RowSparseAdam),
}


class Optimizers:
    """An optimizer for the dense variables and one for the embedding tables.

    The layers of an encoder have the rates of Howard and Ruder 2018, sec. 3.2 ("discriminative
    fine-tuning"): heads the whole one, its uppermost layer `layer_decay` of that, the one below
    `layer_decay` of its, down to the tables.

    Args:
        config: Kinds, rates, clipping and averaging.
        tables: Embedding tables.
        dense: All other trainable variables.
        layers: Those of an encoder, tables too, from its lowest layer to its uppermost one.

    Attributes:
        tables: Those that are trained: none where their rate is 0.
    """

    def __init__(
        self,
        config: OptimizerConfig,
        tables: Sequence[keras.Variable],
        dense: Sequence[keras.Variable],
        layers: Sequence[Sequence[keras.Variable]] = (),
    ) -> None:
        kinds = _KINDS.get(config.name)
        if kinds is None:
            raise UserError(
                f"optimizer.name expects one of {', '.join(_KINDS)}, got {config.name!r}"
            )
        self._config = config
        self.tables = tables = list(tables) if config.embedding_learning_rate else []
        self._factors = {
            id(variable): config.layer_decay**depth
            for depth, layer in enumerate(reversed(layers), start=1)
            for variable in layer
        }
        self._weights = [*tables, *dense]
        self._num_tables = len(tables)
        make_dense, make_tables = kinds
        self._dense = make_dense(config.learning_rate)
        self._tables = make_tables(config.embedding_learning_rate)
        self._dense.build(list(dense))
        self._tables.build(list(tables))
        decay = config.average_decay
        self._averages = WeightAverages(decay, tables, dense) if decay else None

    @property
    def variables(self) -> list[tf.Variable]:
        """The state of both optimizers, and the averages."""
        state = [v.value for v in (*self._dense.variables, *self._tables.variables)]
        return state + (self._averages.variables if self._averages else [])

    def set_progress(self, progress: float) -> float:
        """Sets the learning rates for a share of the budget; returns that of the dense layers."""
        factor = learning_rate_factor(
            progress, warmup=self._config.warmup, decay=self._config.decay
        )
        self._dense.learning_rate.assign(factor * self._config.learning_rate)
        self._tables.learning_rate.assign(factor * self._config.embedding_learning_rate)
        return factor * self._config.learning_rate

    def apply(self, gradients: Sequence[Any], variables: Sequence[keras.Variable]) -> tf.Tensor:
        """Sums the gradients of the replicas, clips them and updates `variables`.

        Only the gradient of the dense layers is clipped, by its own norm: that of the tables grows
        with the number of distinct words in the batch, and they have a rate of their own.

        Args:
            gradients: Of this replica, the tables' first.
            variables: What they are the gradients of; others stay as they are.

        Returns:
            The norm of the whole sum, tables and dense layers, before it is clipped.
        """
        context = tf.distribute.get_replica_context()
        summed = context.all_reduce("sum", list(gradients))
        tables = [_with_distinct_rows(gradient) for gradient in summed[: self._num_tables]]
        dense = summed[self._num_tables :]
        dense_norm = tf.linalg.global_norm(dense)
        if self._config.clip_norm:
            dense, _ = tf.clip_by_global_norm(dense, self._config.clip_norm, dense_norm)
        values = [variable.value for variable in variables]
        rows = [gradient.indices for gradient in tables]
        factors = [self._factors.get(id(variable), 1.0) for variable in variables]
        update = partial(self._update, factors=factors)
        context.merge_call(update, args=([*tables, *dense], values, rows))
        return tf.linalg.global_norm([*tables, dense_norm])

    def use_averages(self) -> None:
        """Overwrites the weights with their averages, if those are kept and a step was done."""
        if self._averages and self._dense.iterations.numpy():
            self._averages.assign(self._dense.iterations.value)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Lets the averages, if they are kept, stand in for the weights within the block."""
        if self._averages is None:
            yield
            return
        weights = [weight.numpy() for weight in self._weights]
        try:
            self.use_averages()
            yield
        finally:
            for weight, value in zip(self._weights, weights, strict=True):
                weight.assign(value)

    def _update(
        self,
        strategy: tf.distribute.Strategy,
        gradients: Sequence[Any],
        values: Sequence[Any],
        rows: Sequence[Any],
        *,
        factors: Sequence[float],
    ) -> None:
        """Updates the variables of all replicas, each at its share of the learning rate."""
        split = self._num_tables
        if self._averages:
            self._averages.before_step(strategy, rows, self._dense.iterations.value)
        _step(self._tables, strategy, gradients[:split], values[:split], factors[:split])
        _step(self._dense, strategy, gradients[split:], values[split:], factors[split:])


def _with_distinct_rows(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Adds up what rows get that are looked up more than once."""
    rows, positions = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, positions, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def _step(
    optimizer: keras.optimizers.Optimizer,
    strategy: tf.distribute.Strategy,
    gradients: Sequence[Any],
    values: Sequence[Any],
    factors: Sequence[float],
) -> None:
    """Takes one step; Keras' own `apply` would add up the replicas' gradients once more."""
    rate = tf.convert_to_tensor(optimizer.learning_rate)

    def update(value: tf.Variable, gradient: Any, rate: tf.Tensor) -> None:
        optimizer.update_step(gradient, value, rate)

    for gradient, value, factor in zip(gradients, values, factors, strict=True):
        strategy.extended.update(value, update, args=(gradient, factor * rate), group=False)
    optimizer.iterations.assign_add(1)
