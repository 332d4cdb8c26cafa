"""LSTM over padded sequences."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from xling_tf.layers.base import Layer


@keras.saving.register_keras_serializable(package="xling_tf")
class Lstm(Layer):
    """An LSTM (Hochreiter and Schmidhuber 1997) that reads each sequence up to its length.

    What the inputs add to the gates is one product for all positions; Keras' own layer has one for each. The
    forget gate starts open (Jozefowicz et al. 2015, sec. 2.2).

    Args:
        units: Width of the state.
        reverse: Reads from the end to the begin.
    """

    def __init__(self, units: int, reverse: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs, autocast=False)
        self.units, self.reverse = units, reverse
        dtype = self.dtype_policy
        self.input_gates = keras.layers.Dense(4 * units, dtype=dtype, name="input_gates")
        # Keras gives a cell states of its own precision: float32, but for the product.
        self.cell = LstmCell(units, self.compute_dtype, dtype="float32", name="cell")
        self.loop = keras.layers.RNN(
            self.cell, return_sequences=True, go_backwards=reverse, dtype="float32", name="loop"
        )

    def build(self, inputs_shape: Sequence[Any], *_: Any) -> None:
        """Creates the variables for inputs `[batch, length, dim]`."""
        self.input_gates.build((None, inputs_shape[-1]))
        self.loop.build((None, None, 4 * self.units))
        bias = self.input_gates.bias
        bias.assign(ops.concatenate([ops.zeros(self.units), ops.ones(self.units), ops.zeros(2 * self.units)]))

    def call(
        self,
        inputs: keras.KerasTensor,
        lengths: keras.KerasTensor,
        initial: keras.KerasTensor | None = None,
        constant_gates: keras.KerasTensor | None = None,
    ) -> keras.KerasTensor:
        """Maps `[batch, length, dim]` of `[batch]` lengths to the states `[batch, length, units]`, float32.

        `initial` is the state `[batch, units]` before the first position; the cell starts at zero. At every
        position, `constant_gates` `[batch, 1, 4 * units]` are added to the gates: an input that stays is
        multiplied once.
        """
        gates = ops.cast(self.input_gates(inputs), "float32")
        if constant_gates is not None:
            gates += ops.cast(constant_gates, "float32")
        mask = ops.arange(ops.shape(inputs)[1])[None, :] < lengths[:, None]
        start = None if initial is None else [initial, ops.zeros_like(initial)]
        states = self.loop(gates, initial_state=start, mask=mask)
        return ops.flip(states, axis=1) if self.reverse else states


@keras.saving.register_keras_serializable(package="xling_tf")
class LstmCell(Layer):
    """One position of an LSTM, whose inputs are what they add to the gates.

    Args:
        units: Width of the state.
        product_dtype: Of the product with the state.
    """

    def __init__(self, units: int, product_dtype: str, **kwargs: Any) -> None:
        super().__init__(**kwargs, autocast=False)
        self.units = self.output_size = units
        self.product_dtype = product_dtype
        self.state_size = [units, units]

    def build(self, inputs_shape: Sequence[Any]) -> None:
        """Creates the variables."""
        self.recurrent = self.add_weight(
            shape=(self.units, 4 * self.units), initializer="orthogonal", name="recurrent"
        )

    def call(self, inputs: keras.KerasTensor, states: Any) -> tuple[keras.KerasTensor, list[Any]]:
        """Maps `[batch, 4 * units]` and the state and cell before, `[batch, units]`, to the next ones."""
        hidden, cell = states
        own = ops.matmul(*(ops.cast(factor, self.product_dtype) for factor in (hidden, self.recurrent)))
        take, keep, new, give = ops.split(inputs + ops.cast(own, "float32"), 4, axis=1)
        cell = ops.sigmoid(keep) * cell + ops.sigmoid(take) * ops.tanh(new)
        hidden = ops.sigmoid(give) * ops.tanh(cell)
        return hidden, [hidden, cell]
