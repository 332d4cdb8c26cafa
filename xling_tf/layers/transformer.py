"""The transformer sub-networks of Vaswani et al. 2017."""

from typing import Any

import keras
from keras import KerasTensor as Tensor
from keras import ops

from xling_tf.layers.base import ACTIVATIONS, Dense, Layer, LayerNorm, softmax

EPSILON = 1e-6  # of layer norms in Vaswani et al.'s code


@keras.saving.register_keras_serializable(package="xling_tf")
class SelfAttention(Layer):
    """Multi-head self-attention (Vaswani et al. 2017, sec. 3.2.2).

    Args:
        hidden_dim: Width of input and output.
        num_heads: Number of heads, each of width `hidden_dim / num_heads`.
    """

    def __init__(self, hidden_dim: int, num_heads: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hidden_dim, self.num_heads, dtype = hidden_dim, num_heads, self.dtype_policy
        self.query_key_value = Dense(3 * hidden_dim, dtype=dtype, name="query_key_value")
        self.output_projection = Dense(hidden_dim, dtype=dtype, name="output")
        self.head_dim = hidden_dim // num_heads

    def call(self, inputs: Tensor, attention_bias: Tensor) -> Tensor:
        """Maps `[batch, length, hidden_dim]` to the same; `[batch, 1, 1, length]` hides padding."""
        batch, length = ops.shape(inputs)[:2]
        heads = ops.reshape(
            self.query_key_value(inputs), (batch, length, 3, self.num_heads, self.head_dim)
        )
        query, key, value = ops.unstack(ops.transpose(heads, (2, 0, 3, 1, 4)), 3)
        scores = ops.matmul(query * self.head_dim**-0.5, ops.swapaxes(key, -1, -2))
        weights = softmax(scores + ops.cast(attention_bias, scores.dtype))
        mixed = ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3))
        return self.output_projection(ops.reshape(mixed, (batch, length, -1)))


@keras.saving.register_keras_serializable(package="xling_tf")
class TransformerBlock(Layer):
    """Self-attention and a feed-forward layer, each with a residual connection and layer norm.

    Args:
        hidden_dim: Width of the residual stream (512).
        num_heads: Attention heads (8).
        intermediate_dim: Width of the feed-forward layer (filter size 2048).
        norm_first: Normalises the input of each sub-layer. If False, as in Vaswani et al. 2017,
            sec. 3.1, normalises the sum after it.
        activation: Of the feed-forward layer, by its name in `ACTIVATIONS`.
        epsilon: Added to the variance in layer norms.
    """

    def __init__(
        self,
        hidden_dim: int,
        num_heads: int,
        intermediate_dim: int,
        *,
        norm_first: bool,
        activation: str = "relu",
        epsilon: float = EPSILON,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_dim, self.num_heads = hidden_dim, num_heads
        self.intermediate_dim, self.norm_first = intermediate_dim, norm_first
        self.activation, self.epsilon = activation, epsilon
        dtype = self.dtype_policy
        self.attention = SelfAttention(hidden_dim, num_heads, dtype=dtype, name="attention")
        self.attention_norm = LayerNorm(epsilon=epsilon, dtype=dtype, name="attention_norm")
        self.intermediate = Dense(
            intermediate_dim, activation=ACTIVATIONS[activation], dtype=dtype, name="intermediate"
        )
        self.output_projection = Dense(hidden_dim, dtype=dtype, name="output")
        self.feedforward_norm = LayerNorm(epsilon=epsilon, dtype=dtype, name="feedforward_norm")

    def call(self, inputs: Tensor, attention_bias: Tensor, training: bool = False) -> Tensor:
        """Maps `[batch, length, hidden_dim]` to the same; see `SelfAttention.call` for the bias."""
        if self.norm_first:
            normed = self.attention_norm(inputs, training=training)
            inputs = inputs + self.attention(normed, attention_bias)
            return inputs + self.feedforward(self.feedforward_norm(inputs, training=training))
        outputs = self.attention(inputs, attention_bias)
        inputs = self.attention_norm(inputs + outputs, training=training)
        return self.feedforward_norm(inputs + self.feedforward(inputs), training=training)

    def feedforward(self, inputs: Tensor) -> Tensor:
        """Position-wise feed-forward layer (Vaswani et al. 2017, sec. 3.3)."""
        return self.output_projection(self.intermediate(inputs))
