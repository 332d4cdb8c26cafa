"""Optimizers of the embedding tables, and of the dense layers of the encoder and of each head."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import keras
import tensorflow as tf

from xling_tf.config import OptimizerConfig


class FusedAdam(keras.optimizers.Adam):
    """Keras' Adam with one fused operation for each variable, which passes over its memory once."""

    def update_step(
        self,
        gradient: tf.Tensor,
        variable: tf.Variable,
        learning_rate: tf.Tensor,
        loss_weight: float,
    ) -> None:
        """Updates one variable; `learning_rate` includes the bias correction of the moments, see
        `_rate`.

        Adam does not depend on the size of a gradient. So if all gradients of a variable come from
        one weighted loss, the weight multiplies the learning rate instead.
        """
        # Private: the moments of Keras' Adam. A fused update in Keras would replace this class.
        index = self._get_variable_index(variable)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=0.0,
            beta2_power=0.0,
            lr=loss_weight * learning_rate,
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )


class RowwiseRMSprop(keras.optimizers.Optimizer):
    """RMSprop that updates only the rows of a table that a batch has looked up.

    Keras' Adam decays the moments of every row at every step, which for a table of 64 million
    entries costs more than the rest of the step. Here a row has a single mean square for all its
    entries, which does not change until the row is looked up again.

    A row also has the mean square of the weights of the losses it was looked up for. Without it, a
    word that only one task reads would move at the full rate, whatever the weight of the task's
    loss. It also corrects the bias of the mean square, as Adam does, but by the number of look-ups
    of the row. With the number of steps instead, a word first seen at step 401 would move 9.9 times
    its learning rate. Momentum did not help (docs/research/experiments.md).
    """

    beta_2, epsilon = 0.99, 1e-8

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates the mean squares of each row's gradients, and of the weights of their losses."""
        if self.built:
            return
        super().build(variables)
        self._squares, self._weights = (
            [
                self.add_variable(
                    (variable.shape[0],), name=f"{variable.path.replace('/', '_')}_{name}"
                )
                for variable in variables
            ]
            for name in ("mean_square", "mean_square_weight")
        )

    def update_step(
        self,
        gradient: tf.IndexedSlices,
        variable: tf.Variable,
        learning_rate: tf.Tensor,
        loss_weight: float,
    ) -> None:
        """Updates the rows of one table that are in `gradient`, which has each at most once."""
        index = self._get_variable_index(variable)
        rows, values = gradient.indices, gradient.values

        def update_mean(means: keras.Variable, squares: tf.Tensor | float) -> tf.Tensor:
            # `tf.gather` would copy a mirrored variable as a whole.
            before = tf.raw_ops.ResourceGather(
                resource=means.value.handle, indices=rows, dtype=tf.float32
            )
            updated = self.beta_2 * before + (1 - self.beta_2) * squares
            means.value.scatter_update(tf.IndexedSlices(updated, rows))
            return updated

        square = update_mean(self._squares[index], tf.reduce_mean(tf.square(values), axis=1))
        weight = update_mean(self._weights[index], loss_weight**2)
        # Both means have the same bias, so the quotient has none.
        rates = learning_rate * tf.sqrt(weight) / (tf.sqrt(square) + self.epsilon)
        variable.scatter_sub(tf.IndexedSlices(values * rates[:, None], rows))


# Rates are functions, because Keras would keep numbers in variables.
_KINDS: Mapping[str, tuple[Callable[[float], Any], Callable[[float], Any]]] = {
    # Keras' SGD already updates only the rows that were looked up.
    "sgd": (
        lambda rate: keras.optimizers.SGD(lambda: rate),
        lambda rate: keras.optimizers.SGD(lambda: rate),
    ),
    # beta_2 = 0.98 as in Vaswani et al. 2017, sec. 5.3.
    "adam": (
        lambda rate: FusedAdam(lambda: rate, beta_2=0.98),
        lambda rate: RowwiseRMSprop(lambda: rate),
    ),
}
TABLES = "tables"  # name of the group of the embedding tables


class Optimizers:
    """An optimizer for the embedding tables, and one for each group of dense variables.

    Groups have optimizers of their own because Adam corrects the bias of its moments by the number
    of steps (Kingma and Ba 2015, sec. 3), and a group takes only the steps of its tasks, which may
    begin late.

    Args:
        tables: Embedding tables, which are not trained if their learning rate is 0.
        encoder: Groups, by name, of dense variables that all tasks share.
        heads: Dense variables of each head by its name, with the multiple of the learning rate.
    """

    def __init__(
        self,
        config: OptimizerConfig,
        tables: Sequence[keras.Variable],
        encoder: Mapping[str, Sequence[keras.Variable]],
        heads: Mapping[str, tuple[float, Sequence[keras.Variable]]] | None = None,
    ) -> None:
        self._config = config
        self.tables = list(tables) if config.embedding_learning_rate else []
        make_dense, make_tables = _KINDS[config.name]
        self._groups: dict[str, tuple[Any, list[keras.Variable]]] = {
            TABLES: (make_tables(config.embedding_learning_rate), self.tables)
        }
        self._shared = {*encoder}
        groups = {**{name: (1.0, group) for name, group in encoder.items()}, **(heads or {})}
        for name, (multiple, group) in groups.items():
            if group:
                self._groups[name] = make_dense(multiple * config.learning_rate), list(group)
        for optimizer, variables in self._groups.values():
            optimizer.build(variables)

    @property
    def named_variables(self) -> dict[str, tf.Variable]:
        """The state of all optimizers by name."""
        return {
            f"{name}/{variable.path.rpartition('/')[2]}": variable.value
            for name, (optimizer, _) in self._groups.items()
            for variable in optimizer.variables
        }

    def apply(
        self,
        gradients: Sequence[Any],
        variables: Sequence[keras.Variable],
        factor: tf.Tensor | float = 1.0,
        *,
        loss_weight: float = 1.0,
        rates: Mapping[str, float] = MappingProxyType({}),
    ) -> tf.Tensor:
        """Sums the gradients of the replicas, clips them, and updates the tables, then the dense
        variables.

        Only the gradient of the dense layers is clipped, by its norm. The norm of the tables'
        gradient grows with the number of distinct words in the batch, and the tables have another
        learning rate.

        Args:
            gradients: The gradients of a task's weighted loss, one for each variable.
            variables: The tables, then dense variables.
            factor: Multiplies all learning rates.
            loss_weight: The weight of the loss.
            rates: Multiplies the learning rates of the groups of these names; `TABLES` is one.

        Returns:
            The norm of all gradients before clipping.
        """
        context = tf.distribute.get_replica_context()
        split = len(self.tables)
        tables = [_distinct_rows(gradient) for gradient in gradients[:split]]
        summed = context.all_reduce(
            "sum", [*(table.values for table in tables), *gradients[split:]]
        )
        dense = summed[split:]
        tables = [
            tf.IndexedSlices(v, table.indices) for v, table in zip(summed, tables, strict=False)
        ]
        dense_norm = tf.linalg.global_norm(dense)
        if self._config.clip_norm:
            dense, _ = tf.clip_by_global_norm(dense, self._config.clip_norm, dense_norm)
        values = [variable.value for variable in variables]
        # `merge_call` passes only sequences of tensors, so optimizers refer to variables by
        # position.
        groups = []
        for name, (optimizer, group) in self._groups.items():
            positions = [
                i for i, variable in enumerate(variables) if id(variable) in map(id, group)
            ]
            multiple = rates[name] * factor if name in rates else factor
            # The gradients of what tasks share differ in their weights, as they should.
            weight = 1.0 if name in self._shared else loss_weight
            groups.append((optimizer, positions, multiple, weight))
        context.merge_call(partial(_update, groups=groups), args=([*tables, *dense], values))
        return tf.linalg.global_norm([*tables, dense_norm])


def _distinct_rows(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Sums gradients of rows looked up more than once, and adds the other replicas' rows."""
    context = tf.distribute.get_replica_context()
    rows, positions = tf.unique(gradient.indices)
    is_distinct = tf.equal(tf.size(rows), tf.size(positions))  # then nothing is copied
    # Replicas exchange ids, so that only sums of rows remain to be exchanged.
    if context.num_replicas_in_sync > 1:
        rows = tf.sort(tf.unique(context.all_gather(rows, axis=0))[0])
        positions, is_distinct = tf.searchsorted(rows, gradient.indices), tf.constant(False)
    values = tf.cond(
        is_distinct,
        lambda: gradient.values,
        lambda: tf.math.unsorted_segment_sum(gradient.values, positions, tf.size(rows)),
    )
    return tf.IndexedSlices(values, rows)


def _update(
    strategy: tf.distribute.Strategy,
    gradients: Sequence[Any],
    values: Sequence[Any],
    *,
    groups: Sequence[tuple[keras.optimizers.Optimizer, Sequence[int], tf.Tensor | float, float]],
) -> None:
    """Steps each optimizer that has gradients: by position, rate factor and loss weight."""
    for optimizer, positions, multiple, loss_weight in groups:
        if not positions:
            continue
        step = optimizer.update_step
        if isinstance(optimizer, FusedAdam | RowwiseRMSprop):
            step = partial(step, loss_weight=loss_weight)

        def update(value: tf.Variable, gradient: Any, rate: Any, step: Any = step) -> None:
            # Keras' `apply` would sum the gradients of the replicas again.
            step(gradient, value, rate)

        rate = multiple * _rate(optimizer)
        for i in positions:
            strategy.extended.update(values[i], update, args=(gradients[i], rate), group=False)
        optimizer.iterations.assign_add(1)


def _rate(optimizer: keras.optimizers.Optimizer) -> tf.Tensor:
    """The next step's rate, Adam's with bias correction (Kingma and Ba 2015, end of sec. 2)."""
    rate = tf.constant(optimizer.learning_rate)
    step = tf.cast(optimizer.iterations + 1, tf.float32)
    if isinstance(optimizer, FusedAdam):
        rate *= tf.sqrt(1 - optimizer.beta_2**step) / (1 - optimizer.beta_1**step)
    return rate
