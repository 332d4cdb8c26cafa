"""The transformer encoder of Chidambaram et al. 2019."""

from typing import Any

import keras
import tensorflow as tf
from keras import KerasTensor as Tensor
from keras import ops

from xling_tf.config import TransformerConfig
from xling_tf.encoders.base import TokenEncoder
from xling_tf.encoders.static import StaticEncoder
from xling_tf.layers.base import LayerNorm
from xling_tf.layers.embeddings import sinusoidal_positions
from xling_tf.layers.pooling import MASKED, masked_mean, token_mask, unit_entries, unit_length
from xling_tf.layers.transformer import EPSILON, TransformerBlock


@keras.saving.register_keras_serializable(package="xling_tf")
class TransformerEncoder(TokenEncoder):
    """Encodes sentences with a transformer, and averages its outputs (Chidambaram et al. 2019, sec.
    2.1).

    With `bow_residual`, a zero-initialised layer adds the outputs to the average of the projected
    word vectors, at unit length: the untrained encoder returns that average.

    Args:
        **kwargs: `num_words`, `num_ngrams`, `max_tokens`, the fields of `TransformerConfig`, and
            arguments of every Keras layer.

    Examples:
        >>> sizes = {"hidden_dim": 8, "num_heads": 2, "num_layers": 1}
        >>> encoder = TransformerEncoder(num_words=10, max_tokens=4, **sizes)
        >>> encoder.build_variables()
        >>> encoder.count_params()
        40912
    """

    config_type = TransformerConfig
    sizes = ("num_words", "num_ngrams", "max_tokens")

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        dtype = self.dtype_policy
        self.static = StaticEncoder(
            num_words=self.num_words,
            num_ngrams=self.num_ngrams,
            embedding_dim=self.embedding_dim,
            hidden_dim=self.hidden_dim,
            dtype=dtype,
            name="static",
        )
        self.blocks = [
            TransformerBlock(
                self.hidden_dim,
                self.num_heads,
                self.intermediate_dim,
                norm_first=self.norm_first,
                dtype=dtype,
                name=f"block_{index}",
            )
            for index in range(self.num_layers)
        ]
        self.positions = sinusoidal_positions(self.max_tokens, self.hidden_dim)
        if self.norm_first:  # the blocks normalise their inputs, but not the output of the last one
            self.final_norm = LayerNorm(epsilon=EPSILON, dtype=dtype, name="final_norm")
        if self.bow_residual:
            self.context_projection = keras.layers.Dense(
                self.hidden_dim, kernel_initializer="zeros", dtype=dtype, name="context_projection"
            )

    @property
    def embedding(self) -> keras.layers.Layer:
        """The layer of the word and n-gram tables."""
        return self.static.embedding

    @property
    def static_part(self) -> StaticEncoder | None:
        """See `TokenEncoder.static_part`."""
        return self.static if self.bow_residual else None

    def example_words(self) -> Any:
        """See `TokenEncoder.example_words`."""
        return self.static.example_words()

    def embed_words(self, words: Any, training: bool = False) -> Tensor:
        """See `TokenEncoder.embed_words`: `[words, embedding_dim]` float32."""
        return self.static.embed_words(words, training)

    def average(self, words: Tensor, positions: tf.RaggedTensor, training: bool = False) -> Tensor:
        """See `TokenEncoder.average`: `[batch, hidden_dim]`."""
        return self.static.average(words, positions, training)

    def encode(
        self, words: Tensor, tokens: Tensor, lengths: Tensor, training: bool = False
    ) -> Tensor:
        """See `TokenEncoder.encode`; projects each distinct word once."""
        return self._encode(tf.gather(self.static.project(words), tokens), lengths, training)

    def encode_tokens(self, inputs: Tensor, lengths: Tensor, training: bool = False) -> Tensor:
        """See `TokenEncoder.encode_tokens`."""
        return self._encode(self.static.project(inputs), lengths, training)

    def _encode(self, inputs: Tensor, lengths: Tensor, training: bool) -> Tensor:
        """Encodes sentences of projected words, `[batch, length, hidden_dim]`."""
        is_token = token_mask(inputs, lengths)
        attention_bias = ops.expand_dims(ops.where(is_token, 0.0, MASKED), axis=(1, 2))
        positions = ops.convert_to_tensor(self.positions, inputs.dtype)[: ops.shape(inputs)[1]]
        # Vaswani et al. 2017, sec. 3.4: without the factor, the positions would outweigh the words.
        # With the residual, the length of a word's vector is its weight in the average, so it is
        # normalised here.
        words = unit_entries(inputs) if self.bow_residual else inputs * self.hidden_dim**0.5
        hidden = ops.cast(words + positions, self.compute_dtype)
        for block in self.blocks:
            hidden = block(hidden, attention_bias, training=training)
        if self.norm_first:
            hidden = self.final_norm(hidden, training=training)
        pooled = masked_mean(hidden, is_token)
        if not self.bow_residual:
            return pooled
        # The factor keeps the context small compared to a unit vector, also after the first steps.
        context = self.context_projection(pooled * self.hidden_dim**-0.5)
        return unit_length(masked_mean(inputs, is_token)) + ops.cast(context, "float32")
