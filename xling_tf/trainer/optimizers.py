"""Optimizers: for the dense layers of the encoder and of each head, and for the embedding tables."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from xling_tf.config import OptimizerConfig
from xling_tf.trainer.schedule import learning_rate_factor


class FusedAdam(keras.optimizers.Adam):
    """Keras' Adam by TensorFlow's own operation: one a variable, and one pass over its memory."""

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor) -> None:
        """Updates one variable; `learning_rate` corrects the bias of the moments (`_rate`)."""
        index = self._get_variable_index(variable)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=0.0,
            beta2_power=0.0,
            lr=learning_rate,
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )


class RowwiseRMSprop(keras.optimizers.Optimizer):
    """RMSprop that touches only the rows a batch has looked up, each at one rate.

    Keras' Adam decays the moments of every row at every step, which on a table of 64 million entries costs
    more than the rest of the step. Here a row has one mean square for all its entries, as they are seen
    equally often, and it waits until the row is seen again. Its bias is corrected as Adam's is, but by how
    often the row has been seen: by the number of steps, a word first seen at step 401 would move 9.9 times
    as far as its rate. A momentum was worth nothing (docs/results.md, "Optimizer of the tables").
    """

    def __init__(
        self, learning_rate: float = 1e-3, beta_2: float = 0.99, epsilon: float = 1e-8, **kwargs: Any
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta_2 = beta_2
        self.epsilon = epsilon

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Makes the mean squares, and the counts of how often each row has been seen."""
        if self.built:
            return
        super().build(variables)
        rows = [(variable.shape[0],) for variable in variables]
        self._squares = [self.add_variable(shape, name="mean_square") for shape in rows]
        self._counts = [self.add_variable(shape, name="count") for shape in rows]

    def update_step(
        self, gradient: tf.IndexedSlices, variable: tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        """Updates the looked-up rows of one table; no row may come twice."""
        index = self._get_variable_index(variable)
        rows, values = gradient.indices, gradient.values
        count = _rows_of(self._counts[index], rows) + 1
        self._counts[index].value.scatter_update(tf.IndexedSlices(count, rows))
        mean_square = tf.reduce_mean(tf.square(values), axis=1)
        square = self.beta_2 * _rows_of(self._squares[index], rows) + (1 - self.beta_2) * mean_square
        self._squares[index].value.scatter_update(tf.IndexedSlices(square, rows))
        unbiased = square / (1 - self.beta_2**count)
        change = values * (learning_rate / (tf.sqrt(unbiased) + self.epsilon))[:, None]
        variable.scatter_sub(tf.IndexedSlices(change, rows))


def _rows_of(variable: keras.Variable, rows: tf.Tensor) -> tf.Tensor:
    """Reads some entries of a vector; `tf.gather` would copy a mirrored variable as a whole."""
    return tf.raw_ops.ResourceGather(resource=variable.value.handle, indices=rows, dtype=tf.float32)


_KINDS: Mapping[str, tuple[Callable[[float], Any], Callable[[float], Any]]] = {
    # Plain SGD changes only the looked-up rows as it is.
    "sgd": (keras.optimizers.SGD, keras.optimizers.SGD),
    # beta_2 = 0.98 as in Vaswani et al. 2017, sec. 5.3.
    "adam": (lambda rate: FusedAdam(rate, beta_2=0.98), RowwiseRMSprop),
}


class Optimizers:
    """An optimizer for the embedding tables, and one for each group of other variables.

    Groups have their own because Adam corrects the bias of its moments by the number of steps (Kingma and
    Ba 2015, sec. 3), and a group's steps are those of its tasks: they may begin late, and are a part of
    all. `tables` are those that are trained: none where their rate is 0. A group comes with the multiple of
    the learning rate that it learns at; `static` is one too, of the average of words.
    """

    def __init__(
        self,
        config: OptimizerConfig,
        tables: Sequence[keras.Variable],
        groups: Sequence[tuple[float, Sequence[keras.Variable]]],
        static: Sequence[keras.Variable] = (),
    ) -> None:
        self._config = config
        self.tables = list(tables) if config.embedding_learning_rate else []
        make_dense, make_tables = _KINDS[config.name]
        self._of_tables = make_tables(config.embedding_learning_rate)
        self._of_tables.build(self.tables)
        self._static = {id(variable) for variable in static}
        self._of_dense = []
        for multiple, group in ((1.0, static), *groups):
            if group:
                rate = multiple * config.learning_rate
                optimizer = make_dense(rate)
                optimizer.build(list(group))
                self._of_dense.append((optimizer, {id(variable) for variable in group}, rate))

    @property
    def variables(self) -> list[tf.Variable]:
        """The state of all optimizers."""
        optimizers = [self._of_tables, *(optimizer for optimizer, *_ in self._of_dense)]
        return [v.value for optimizer in optimizers for v in optimizer.variables]

    def set_progress(self, begin: float, end: float, static_rate: float = 1.0) -> float:
        """Sets the learning rates of one step; returns that of the encoder's dense layers.

        Args:
            begin: Share of the budget that is used when the step begins.
            end: Share of the budget that is used when it ends.
            static_rate: Multiple of the rates of the tables and of the average of words.
        """
        config = self._config
        factor = learning_rate_factor(begin, end, warmup=config.warmup, decay=config.decay)
        self._of_tables.learning_rate.assign(static_rate * factor * config.embedding_learning_rate)
        for optimizer, ids, rate in self._of_dense:
            multiple = static_rate if ids == self._static else 1.0
            optimizer.learning_rate.assign(multiple * factor * rate)
        return factor * config.learning_rate

    def apply(self, gradients: Sequence[Any], variables: Sequence[keras.Variable]) -> tf.Tensor:
        """Sums the gradients of the replicas, the tables' first, clips them and updates `variables`.

        Only the gradient of the dense layers is clipped, by its own norm: that of the tables grows
        with the number of distinct words in the batch, and they have a rate of their own. Returns the norm
        of the whole sum, tables and dense layers, before it is clipped.
        """
        context = tf.distribute.get_replica_context()
        summed = context.all_reduce("sum", list(gradients))
        split = len(self.tables)
        tables = [_with_distinct_rows(gradient) for gradient in summed[:split]]
        dense = summed[split:]
        dense_norm = tf.linalg.global_norm(dense)
        if self._config.clip_norm:
            dense, _ = tf.clip_by_global_norm(dense, self._config.clip_norm, dense_norm)
        values = [variable.value for variable in variables]
        # Only sequences of tensors pass through `merge_call`; which of them is whose does not.
        groups = [(self._of_tables, list(range(split)))]
        for optimizer, ids, _ in self._of_dense:
            groups.append((optimizer, [i for i, v in enumerate(variables) if id(v) in ids]))
        context.merge_call(partial(_update, groups=groups), args=([*tables, *dense], values))
        return tf.linalg.global_norm([*tables, dense_norm])


def _with_distinct_rows(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Adds up what rows get that are looked up more than once; most are not, and sums cost a copy."""
    rows, positions = tf.unique(gradient.indices)
    values = tf.cond(
        tf.equal(tf.size(rows), tf.size(positions)),
        lambda: gradient.values,
        lambda: tf.math.unsorted_segment_sum(gradient.values, positions, tf.size(rows)),
    )
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def _update(
    strategy: tf.distribute.Strategy,
    gradients: Sequence[Any],
    values: Sequence[Any],
    *,
    groups: Sequence[tuple[keras.optimizers.Optimizer, Sequence[int]]],
) -> None:
    """Takes a step of each optimizer whose variables, by their places in `values`, have gradients."""
    for optimizer, places in groups:
        if not places:
            continue
        update, rate = partial(_update_variable, optimizer), _rate(optimizer)
        for i in places:
            strategy.extended.update(values[i], update, args=(gradients[i], rate), group=False)
        optimizer.iterations.assign_add(1)


def _update_variable(
    optimizer: keras.optimizers.Optimizer, value: tf.Variable, gradient: Any, rate: tf.Tensor
) -> None:
    """Takes a step of one variable; Keras' own `apply` would add up the replicas' gradients once more."""
    optimizer.update_step(gradient, value, rate)


def _rate(optimizer: keras.optimizers.Optimizer) -> tf.Tensor:
    """The rate of the next step: Adam's with the bias of its moments corrected, once for all variables.

    That is the order of Kingma and Ba 2015, sec. 2, last paragraph.
    """
    rate = tf.convert_to_tensor(optimizer.learning_rate)
    step = tf.cast(optimizer.iterations + 1, tf.float32)
    if isinstance(optimizer, FusedAdam):
        rate *= tf.sqrt(1 - optimizer.beta_2**step) / (1 - optimizer.beta_1**step)
    return rate
