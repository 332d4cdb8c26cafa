"""The LSTM encoders of Yu et al. 2018 and of InferSent, and their layers."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import keras
import tensorflow as tf
from keras import KerasTensor as Tensor
from keras import ops

from xling_tf.baselines.yu2018 import LstmConfig
from xling_tf.encoders.base import TokenEncoder
from xling_tf.layers.base import Layer, softmax
from xling_tf.layers.embeddings import WordEmbedding
from xling_tf.layers.pooling import MASKED, POOLINGS, token_mask


@keras.saving.register_keras_serializable(package="xling_tf")
class Lstm(Layer):
    """An LSTM (Hochreiter and Schmidhuber 1997) that reads each sequence up to its length.

    The inputs of all positions are multiplied by the kernel at once; Keras' layer does so one by
    one. Training on a GPU uses cuDNN, as Keras' layer does. The bias of the forget gate starts at 1
    (Jozefowicz et al. 2015, sec. 2.2).

    Args:
        units: Width of the state.
        reverse: Reads the sequences from the end to the beginning.
    """

    def __init__(self, units: int, reverse: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs, autocast=False)
        self.units, self.reverse = units, reverse
        dtype = self.dtype_policy
        self.input_gates = keras.layers.Dense(4 * units, dtype=dtype, name="input_gates")
        # The states have the cell's dtype, float32; only the matrix product has the layer's.
        self.cell = LstmCell(units, self.compute_dtype, dtype="float32", name="cell")
        self.loop = keras.layers.RNN(
            self.cell, return_sequences=True, go_backwards=reverse, dtype="float32", name="loop"
        )

    def build(self, inputs_shape: Sequence[Any], *_: Any) -> None:
        """Creates the variables for inputs `[batch, length, dim]`."""
        self.input_gates.build((None, inputs_shape[-1]))
        self.loop.build((None, None, 4 * self.units))
        bias = self.input_gates.bias
        bias.assign(
            ops.concatenate(
                [ops.zeros(self.units), ops.ones(self.units), ops.zeros(2 * self.units)]
            )
        )

    def call(
        self,
        inputs: Tensor,
        lengths: Tensor,
        initial: Tensor | None = None,
        initial_gates: Any = None,
        training: bool = False,
    ) -> Tensor:
        """Computes the hidden state at each position.

        Args:
            inputs: `[batch, length, dim]`.
            lengths: `[batch]` int32.
            initial: `[batch, units]` hidden state before the first position; None for zeros.
            initial_gates: Maps `initial` to `[batch, 4 * units]`, added to the gates at every
                position.
            training: False in exports, which must also run without a GPU.

        Returns:
            `[batch, length, units]` float32.
        """
        if training and tf.config.list_logical_devices("GPU"):
            return self._by_cudnn(inputs, lengths, initial, initial_gates)
        gates = ops.cast(self.input_gates(inputs), "float32")
        if initial is not None:
            gates += ops.cast(initial_gates(initial)[:, None], "float32")
        mask = token_mask(inputs, lengths)
        start = None if initial is None else [initial, ops.zeros_like(initial)]
        states = self.loop(gates, initial_state=start, mask=mask)
        return ops.flip(states, axis=1) if self.reverse else states

    def _by_cudnn(
        self, inputs: Tensor, lengths: Tensor, initial: Any, initial_gates: Any
    ) -> Tensor:
        dtype, kernel = self.compute_dtype, self.input_gates.kernel
        inputs = ops.cast(inputs, dtype)
        hidden = cell = ops.zeros((ops.shape(inputs)[0], 1, self.units), dtype)
        if initial is not None:
            hidden = ops.cast(initial[:, None], dtype)
            inputs = ops.concatenate(
                [inputs, tf.repeat(hidden, tf.shape(inputs)[1], axis=1)], axis=2
            )
            kernel = ops.concatenate([kernel, initial_gates.kernel], axis=0)
        # The matrices of each gate, transposed, then two biases, of which one is enough.
        gates = [
            part
            for matrix in (kernel, self.cell.recurrent)
            for part in ops.split(matrix, 4, axis=1)
        ]
        weights = [*map(ops.transpose, gates), ops.zeros(4 * self.units), self.input_gates.bias]
        params = ops.cast(ops.concatenate([ops.reshape(part, (-1,)) for part in weights]), dtype)
        turn = tf.identity
        if self.reverse:
            turn = partial(tf.reverse_sequence, seq_lengths=lengths, seq_axis=1)
        arguments = {
            "input_h": hidden,
            "input_c": cell,
            "params": params,
            "sequence_lengths": lengths,
        }
        states, *_ = tf.raw_ops.CudnnRNNV3(
            input=turn(inputs), **arguments, rnn_mode="lstm", time_major=False
        )
        return ops.cast(turn(states), "float32")


@keras.saving.register_keras_serializable(package="xling_tf")
class LstmCell(Layer):
    """One step of an LSTM whose inputs are already multiplied by their kernel."""

    def __init__(self, units: int, product_dtype: str, **kwargs: Any) -> None:
        super().__init__(**kwargs, autocast=False)
        self.units = self.output_size = units
        self.product_dtype = product_dtype  # of the matrix product with the hidden state
        self.state_size = [units, units]

    def build(self, inputs_shape: Sequence[Any]) -> None:
        """Creates the variables."""
        self.recurrent = self.add_weight(
            shape=(self.units, 4 * self.units), initializer="orthogonal", name="recurrent"
        )

    def call(self, inputs: Tensor, states: Any) -> tuple[Tensor, list[Any]]:
        """Maps `[batch, 4 * units]` gates and both states to the hidden state and new states."""
        hidden, cell = states
        product = ops.matmul(*(ops.cast(f, self.product_dtype) for f in (hidden, self.recurrent)))
        gates = ops.split(inputs + ops.cast(product, "float32"), 4, axis=1)
        input_gate, forget_gate, candidate, output_gate = gates
        cell = ops.sigmoid(forget_gate) * cell + ops.sigmoid(input_gate) * ops.tanh(candidate)
        hidden = ops.sigmoid(output_gate) * ops.tanh(cell)
        return hidden, [hidden, cell]


@keras.saving.register_keras_serializable(package="xling_tf")
class AttentionPooling(Layer):
    """A mean weighted by softmax(w tanh(W h)), one hop (Lin et al. 2017, sec. 2.1, eq. 5).

    Args:
        dim: Width of the hidden layer.
    """

    def __init__(self, dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs, autocast=False)
        # Accepts the mask that Keras attaches to the states of an LSTM.
        self.supports_masking = True
        self.dim, dtype = dim, self.dtype_policy
        self.hidden = keras.layers.Dense(
            dim, activation="tanh", use_bias=False, dtype=dtype, name="hidden"
        )
        self.scores = keras.layers.Dense(1, use_bias=False, dtype=dtype, name="scores")

    def build(self, inputs_shape: Sequence[Any], *_: Any) -> None:
        """Creates the variables for inputs `[batch, length, dim]`."""
        self.hidden.build((None, inputs_shape[-1]))
        self.scores.build((None, self.dim))

    def call(self, inputs: Tensor, padding_mask: Tensor) -> Tensor:
        """Pools the tokens of each sentence; arguments and result are those of `masked_mean`."""
        scores = ops.cast(self.scores(self.hidden(inputs)), "float32")
        weights = softmax(ops.where(ops.expand_dims(padding_mask, axis=-1), scores, MASKED), axis=1)
        return ops.sum(weights * ops.cast(inputs, "float32"), axis=1)


@keras.saving.register_keras_serializable(package="xling_tf")
class LstmEncoder(TokenEncoder):
    """Encodes sentences with a bidirectional, then a unidirectional LSTM (Yu et al. 2018, sec. 2).

    Unlike the decoder, the encoder does not see the target language. With one bidirectional layer
    and maximum pooling it is InferSent's encoder (Conneau et al. 2017, "Supervised Learning of
    Universal Sentence Representations", sec. 3.2).

    Args:
        **kwargs: `num_words`, the fields of `LstmConfig`, and arguments of every Keras layer.
    """

    config_type = LstmConfig
    unsupported = {**TokenEncoder.unsupported, "litert": "an encoder without recurrent layers"}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        dtype = self.dtype_policy
        self.embedding = WordEmbedding(
            self.num_words, self.embedding_dim, dtype=dtype, name="embedding"
        )
        self.forward = Lstm(self.intermediate_dim, dtype=dtype, name="forward")
        self.backward = Lstm(self.intermediate_dim, reverse=True, dtype=dtype, name="backward")
        self.top = Lstm(self.hidden_dim, dtype=dtype, name="top") if self.num_layers > 1 else None
        self.pool: Any = POOLINGS.get(self.pooling)
        if self.pooling == "attention":
            self.pool = AttentionPooling(self.hidden_dim, dtype=dtype, name="attention_pooling")

    def encode_tokens(self, inputs: Tensor, lengths: Tensor, training: bool = False) -> Tensor:
        """See `TokenEncoder.encode_tokens`."""
        both = [read(inputs, lengths, training=training) for read in (self.forward, self.backward)]
        states = ops.concatenate(both, axis=-1)
        if self.top:
            states = self.top(states, lengths, training=training)
        return self.pool(states, token_mask(inputs, lengths))
