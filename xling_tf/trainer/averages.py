"""Moving averages of the weights, at the cost of the rows that a step touches."""

import math
from collections.abc import Sequence

import keras
import tensorflow as tf


class WeightAverages:
    """Exponential moving averages of the weights over the steps, the first ones unbiased.

    The average after n steps weighs the weights after step i by decay^(n - i), as the averaged model
    of Polyak & Juditsky 1992 with a window; the weights sum to 1 from the first step on (the bias
    correction of Kingma & Ba 2015, sec. 3). A weight that kept its value v from step s to n has

        average(n) = v + decay^(n - s) (1 - decay^s) / (1 - decay^n) (average(s) - v)

    so a row of a table is brought up to date only when it is about to change: exact, and a step costs
    what its rows cost, not what the table would.

    Args:
        decay: Weight of the average against the newest weights; 0.999, say.
        tables: Embedding tables.
        dense: All other variables.
    """

    def __init__(
        self, decay: float, tables: Sequence[keras.Variable], dense: Sequence[keras.Variable]
    ) -> None:
        self._log_decay = math.log(decay)
        self._tables = [table.value for table in tables]
        self._dense = [variable.value for variable in dense]
        self._of_tables, self._of_dense = (
            [tf.Variable(tf.zeros(v.shape), trainable=False) for v in variables]
            for variables in (tables, dense)
        )
        self._row_steps = [
            tf.Variable(tf.zeros(table.shape[:1], tf.int32), trainable=False) for table in tables
        ]

    @property
    def variables(self) -> list[tf.Variable]:
        """The averages, and the step at which each row's was brought up to date."""
        return [*self._of_tables, *self._row_steps, *self._of_dense]

    def before_step(
        self, strategy: tf.distribute.Strategy, rows: Sequence[tf.Tensor], steps: tf.Variable
    ) -> None:
        """Brings up to date what the next step changes.

        Args:
            strategy: In whose cross-replica context this is.
            rows: Of each table, which change.
            steps: Steps done so far.
        """
        update = strategy.extended.update
        for average, variable in zip(self._of_dense, self._dense, strict=True):
            update(average, self._renew, args=(variable, steps), group=False)
        of_tables = zip(self._of_tables, self._tables, self._row_steps, rows, strict=True)
        for average, table, row_steps, changing in of_tables:
            args = (table, row_steps, changing, steps)
            update(average, self._renew_rows, args=args, group=False)

    def assign(self, steps: tf.Variable) -> None:
        """Overwrites the weights with their averages after `steps` steps."""
        for average, variable in zip(self._of_dense, self._dense, strict=True):
            variable.assign(self._renewed(average, variable, steps - 1, steps))
        of_tables = zip(self._of_tables, self._tables, self._row_steps, strict=True)
        for average, table, row_steps in of_tables:
            table.assign(self._renewed(average, table, row_steps[:, None], steps))

    def _renew(self, average: tf.Variable, variable: tf.Variable, steps: tf.Variable) -> None:
        average.assign(self._renewed(average, variable, steps - 1, steps))

    def _renew_rows(
        self,
        average: tf.Variable,
        table: tf.Variable,
        row_steps: tf.Variable,
        rows: tf.Tensor,
        steps: tf.Variable,
    ) -> None:
        since = tf.gather(row_steps, rows)[:, None]
        renewed = self._renewed(tf.gather(average, rows), tf.gather(table, rows), since, steps)
        now = tf.fill(tf.shape(rows), tf.cast(steps, tf.int32))
        average.scatter_update(tf.IndexedSlices(renewed, rows))
        row_steps.scatter_update(tf.IndexedSlices(now, rows))

    def _renewed(
        self, average: tf.Tensor, value: tf.Tensor, since: tf.Tensor, steps: tf.Tensor
    ) -> tf.Tensor:
        """The average at `steps`, from that at `since` and the value kept from then on."""
        since, steps = tf.cast(since, tf.float32), tf.cast(steps, tf.float32)
        # With 1 - decay^n = -expm1(n log decay); nothing is left of an average of no steps.
        left = tf.math.divide_no_nan(
            tf.math.expm1(since * self._log_decay), tf.math.expm1(steps * self._log_decay)
        )
        left *= tf.exp((steps - since) * self._log_decay)
        return value + left * (average - value)
