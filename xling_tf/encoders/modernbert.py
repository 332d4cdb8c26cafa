"""ModernBERT as a sentence encoder."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, NamedTuple

import keras
import tensorflow as tf
from keras import KerasTensor as Tensor
from keras import ops

from xling_tf.config import ModernBertConfig
from xling_tf.encoders.bert import BertEncoder
from xling_tf.layers.base import ACTIVATIONS, Dense, Layer, LayerNorm, softmax
from xling_tf.layers.pooling import MASKED, token_mask

# Texts of more tokens than this number of windows are computed in blocks, whose neighbours are
# moved to them; for shorter ones, a mask over all pairs of tokens takes less time.
_WINDOWS = 8


class _Sight(NamedTuple):
    """Where tokens are, and which of them a token attends to."""

    cos: Tensor  # of the positions' angles, [length, 1, 1, head_dim / 2] float32
    sin: Tensor
    # Hides padding and what is outside the window: [batch, 1, any, length]; for the windows of a
    # text in blocks [batch, 1, blocks, size, 3 * size], of a block and its neighbours.
    bias: Tensor


@keras.saving.register_keras_serializable(package="xling_tf")
class ModernBertEncoder(BertEncoder):
    """Encodes sentences with a ModernBERT (Warner et al. 2024, sec. 2), and pools its outputs as a
    BERT's.

    Queries and keys are rotated by their positions (Su et al. 2021, "RoFormer", eq. 34). The first
    of every `global_attn_every_n_layers` layers attends to the whole text; in the others, a token
    attends to the nearest `local_attention // 2` tokens on each side.

    Args:
        **kwargs: As of `BertEncoder`, with the fields of `ModernBertConfig`.

    Examples:
        >>> sizes = {"embedding_dim": 8, "num_heads": 2, "num_layers": 1}
        >>> encoder = ModernBertEncoder(num_words=10, max_tokens=4, **sizes)
        >>> encoder.build_variables()
        >>> [tuple(variable.shape) for variable in encoder.variables[:3]]
        [(10, 8), (8,), (8, 24)]
    """

    config_type = ModernBertConfig
    transformers_family: ClassVar[str] = "modernbert"

    def make_layers(self) -> None:
        """See `BertEncoder.make_layers`."""
        norm = {"center": self.norm_bias, "epsilon": self.epsilon, "dtype": self.dtype_policy}
        self.window = self.local_attention // 2  # on each side
        self.embedding_norm = LayerNorm(**norm, name="embedding_norm")
        settings = {field.name: getattr(self, field.name) for field in fields(ModernBertConfig)}
        self.blocks = [
            ModernBertBlock(
                settings,
                is_first=index == 0,
                is_global=index % self.global_attn_every_n_layers == 0,
                dtype=self.dtype_policy,
                name=f"block_{index}",
            )
            for index in range(self.num_layers)
        ]
        self.final_norm = LayerNorm(**norm, name="final_norm")

    def hidden_states(
        self, inputs: Tensor, lengths: Tensor, training: bool = False
    ) -> tuple[Tensor, Tensor]:
        """See `BertEncoder.hidden_states`."""
        hidden = self.embedding_norm(inputs, training=training)
        limit, length = _WINDOWS * max(1, self.window), ops.shape(inputs)[1]
        if self.max_tokens <= limit:  # the graph has no branch for long texts
            hidden = self._at_once(hidden, lengths, training)
        else:
            hidden = ops.cond(
                length > limit,
                lambda: self._in_blocks(hidden, lengths, training),
                lambda: self._at_once(hidden, lengths, training),
            )
        return self.final_norm(hidden, training=training), token_mask(inputs, lengths)

    def _at_once(self, hidden: Tensor, lengths: Tensor, training: bool) -> Tensor:
        """Runs the blocks with a mask over all pairs of tokens."""
        places = ops.arange(ops.shape(hidden)[1], dtype="int32")
        is_near = ops.abs(places[:, None] - places) <= self.window
        is_token = ops.expand_dims(token_mask(hidden, lengths), axis=(1, 2))
        return self._run(hidden, (ops.logical_and(is_near, is_token), is_token), None, training)

    def _in_blocks(self, hidden: Tensor, lengths: Tensor, training: bool) -> Tensor:
        """Runs the blocks in memory that grows with the number of tokens, not with its square."""
        size, length = max(1, self.window), ops.shape(hidden)[1]
        hidden = tf.pad(hidden, [[0, 0], [0, -length % size], [0, 0]])
        is_token = token_mask(hidden, lengths)
        places, keys = (ops.arange(count * size, dtype="int32") for count in (1, 3))
        is_near = ops.abs(places[:, None] + size - keys) <= self.window
        is_key = ops.swapaxes(_with_neighbours(is_token[:, None, :, None], size), -1, -2)
        masks = ops.logical_and(is_near, is_key), ops.expand_dims(is_token, axis=(1, 2))
        return self._run(hidden, masks, size, training)[:, :length]

    def _run(
        self, hidden: Tensor, masks: tuple[Tensor, Tensor], size: int | None, training: bool
    ) -> Tensor:
        """Runs the blocks with the masks of local and global layers, as `_Sight.bias`."""
        dim = self.embedding_dim // self.num_heads
        powers = ops.arange(0, dim, 2, dtype="float32") / -dim
        positions = ops.arange(ops.shape(hidden)[1], dtype="float32")[:, None, None, None]
        sights = [
            _Sight(ops.cos(angles), ops.sin(angles), ops.where(mask, 0.0, MASKED))
            for base, mask in zip(
                (self.local_rope_theta, self.global_rope_theta), masks, strict=True
            )
            for angles in [positions * base**powers]
        ]
        for block in self.blocks:
            hidden = block(hidden, sights[block.is_global], size=size, training=training)
        return hidden


@keras.saving.register_keras_serializable(package="xling_tf")
class ModernBertBlock(Layer):
    """Self-attention with rotated queries and keys; gated feed-forward layer (Shazeer 2020, eq. 6).

    Args:
        settings: Fields of `ModernBertConfig`.
        is_first: The input is normalised already.
        is_global: A token attends to the whole text, not to a window.
    """

    def __init__(
        self, settings: Mapping[str, Any], *, is_first: bool, is_global: bool, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.settings, self.is_first, self.is_global = settings, is_first, is_global
        config = ModernBertConfig(**settings)
        dim = config.embedding_dim
        self.num_heads = config.num_heads
        self.activation = config.activation
        norm = {"center": config.norm_bias, "epsilon": config.epsilon, "dtype": self.dtype_policy}
        attention, mlp = (
            {"use_bias": has_bias, "dtype": self.dtype_policy}
            for has_bias in (config.attention_bias, config.mlp_bias)
        )
        self.attention_norm = None if is_first else LayerNorm(**norm, name="attention_norm")
        self.query_key_value = Dense(3 * dim, **attention, name="query_key_value")
        self.attention_output = Dense(dim, **attention, name="attention_output")
        self.feedforward_norm = LayerNorm(**norm, name="feedforward_norm")
        self.intermediate = Dense(2 * config.intermediate_dim, **mlp, name="intermediate")
        self.output_projection = Dense(dim, **mlp, name="output")

    def call(
        self, inputs: Tensor, sight: _Sight, size: int | None = None, training: bool = False
    ) -> Tensor:
        """Maps `[batch, length, dim]` to the same, at once or in blocks that divide the length."""
        normed = self.attention_norm(inputs, training=training) if self.attention_norm else inputs
        inputs = inputs + self._attention(normed, sight, size)
        gated = self.intermediate(self.feedforward_norm(inputs, training=training))
        values, gate = ops.split(gated, 2, axis=-1)
        return inputs + self.output_projection(ACTIVATIONS[self.activation](values) * gate)

    def _attention(self, inputs: Tensor, sight: _Sight, size: int | None) -> Tensor:
        (batch, length), dim = ops.shape(inputs)[:2], inputs.shape[-1] // self.num_heads
        heads = ops.reshape(self.query_key_value(inputs), (batch, length, 3, self.num_heads, dim))
        first, second = ops.split(heads[:, :, :2], 2, axis=-1)
        cos, sin = (ops.cast(x, heads.dtype) for x in (sight.cos, sight.sin))
        rotated = ops.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
        query, key = ops.unstack(ops.transpose(rotated, (2, 0, 3, 1, 4)), 2)
        query, value = query * dim**-0.5, ops.transpose(heads[:, :, 2], (0, 2, 1, 3))
        if size is None:
            mixed = _attend(query, key, value, sight.bias)
        elif self.is_global:
            # One block after another: together, they would take the memory of all pairs.
            by_block = ops.transpose(_in_blocks(query, size), (2, 0, 1, 3, 4))
            mixed = tf.map_fn(
                lambda q: _attend(q, key, value, sight.bias), by_block, parallel_iterations=1
            )
            mixed = ops.transpose(mixed, (1, 2, 0, 3, 4))
        else:
            key, value = (_with_neighbours(x, size) for x in (key, value))
            mixed = _attend(_in_blocks(query, size), key, value, sight.bias)
        mixed = ops.reshape(mixed, (batch, self.num_heads, length, dim))
        return self.attention_output(
            ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (batch, length, -1))
        )


def _attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
    scores = ops.matmul(query, ops.swapaxes(key, -1, -2))
    return ops.matmul(softmax(scores + ops.cast(bias, scores.dtype)), value)


def _in_blocks(inputs: Tensor, size: int) -> Tensor:
    """Maps `[any, any, length, dim]` to `[any, any, blocks, size, dim]`."""
    return ops.reshape(inputs, (*ops.shape(inputs)[:2], -1, size, inputs.shape[-1]))


def _with_neighbours(inputs: Tensor, size: int) -> Tensor:
    """Maps `[any, any, length, dim]` to blocks and neighbours, `[..., blocks, 3 * size, dim]`."""
    blocks = _in_blocks(tf.pad(inputs, [[0, 0], [0, 0], [size, size], [0, 0]]), size)
    return ops.concatenate([blocks[:, :, :-2], blocks[:, :, 1:-1], blocks[:, :, 2:]], axis=3)
