"""The transformer encoder of Chidambaram et al. 2019."""

from typing import Any

import keras
import tensorflow as tf
from keras import KerasTensor as Tensor
from keras import ops

from xling_tf.encoders.base import TokenEncoder
from xling_tf.encoders.static import StaticEncoder
from xling_tf.layers.base import Dropout, LayerNorm
from xling_tf.layers.embeddings import sinusoidal_positions
from xling_tf.layers.pooling import MASKED, masked_mean, token_mask, unit_entries, unit_length
from xling_tf.layers.transformer import EPSILON, TransformerBlock


@keras.saving.register_keras_serializable(package="xling_tf")
class TransformerEncoder(TokenEncoder):
    """Encodes sentences with a transformer, and averages its outputs (Chidambaram et al. 2019, sec. 2.1).

    With `bow_residual`, a zero-initialised layer adds the outputs to the average of the projected word
    vectors, at unit length: the untrained encoder returns that average.

    Args:
        num_words: Rows of the word table, hash buckets included.
        num_ngrams: Rows of the n-gram table; 0 if words have no n-grams.
        max_tokens: Maximum number of tokens of a sentence.
        **kwargs: Fields of `TransformerConfig`, and arguments of every Keras layer.

    Example:
        >>> encoder = TransformerEncoder(num_words=10, max_tokens=4, hidden_dim=8, num_heads=2, num_layers=1)
        >>> encoder.build_variables()
        >>> encoder.count_params()
        40912
    """

    def __init__(
        self,
        *,
        num_words: int,
        num_ngrams: int = 0,
        max_tokens: int,
        embedding_dim: int = 320,
        hidden_dim: int = 512,
        intermediate_dim: int = 2048,
        num_layers: int = 3,
        num_heads: int = 8,
        norm_first: bool = False,
        bow_residual: bool = False,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_words, self.num_ngrams, self.max_tokens = num_words, num_ngrams, max_tokens
        self.embedding_dim, self.hidden_dim = embedding_dim, hidden_dim
        self.intermediate_dim, self.num_layers, self.num_heads = intermediate_dim, num_layers, num_heads
        self.norm_first, self.bow_residual, self.dropout = norm_first, bow_residual, dropout
        dtype = self.dtype_policy
        self.static = StaticEncoder(
            num_words=num_words,
            num_ngrams=num_ngrams,
            embedding_dim=embedding_dim,
            hidden_dim=hidden_dim,
            dtype=dtype,
            name="static",
        )
        self.blocks = [
            TransformerBlock(
                hidden_dim,
                num_heads,
                intermediate_dim,
                norm_first=norm_first,
                dropout=dropout,
                dtype=dtype,
                name=f"block_{index}",
            )
            for index in range(num_layers)
        ]
        # If the blocks normalise their inputs, the output of the last one still has to be normalised.
        self.final_norm = LayerNorm(epsilon=EPSILON, dtype=dtype, name="final_norm") if norm_first else None
        self.positions = sinusoidal_positions(max_tokens, hidden_dim)
        self.drop = Dropout(dropout, dtype=dtype, name="dropout")
        if bow_residual:
            self.context_projection = keras.layers.Dense(
                hidden_dim, kernel_initializer="zeros", dtype=dtype, name="context_projection"
            )

    @property
    def embedding(self) -> keras.layers.Layer:
        """The layer of the word and n-gram tables."""
        return self.static.embedding

    @property
    def bow_encoder(self) -> StaticEncoder | None:
        """See `TokenEncoder.bow_encoder`."""
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

    def encode(self, words: Tensor, tokens: Tensor, lengths: Tensor, training: bool = False) -> Tensor:
        """See `TokenEncoder.encode`; projects each distinct word once."""
        return self._encode(ops.take(self.static.project(words), tokens, axis=0), lengths, training)

    def encode_tokens(self, inputs: Tensor, lengths: Tensor, training: bool = False) -> Tensor:
        """See `TokenEncoder.encode_tokens`."""
        return self._encode(self.static.project(inputs), lengths, training)

    def _encode(self, inputs: Tensor, lengths: Tensor, training: bool) -> Tensor:
        """Encodes sentences of projected words, `[batch, length, hidden_dim]`."""
        is_token = token_mask(inputs, lengths)
        attention_bias = ops.expand_dims(ops.where(is_token, 0.0, MASKED), axis=(1, 2))
        positions = ops.convert_to_tensor(self.positions, inputs.dtype)[: ops.shape(inputs)[1]]
        # Vaswani et al. 2017, sec. 3.4: without the factor, the positions would outweigh the words. With the
        # residual, the length of a word's vector is its weight in the average, so it is normalised here.
        words = unit_entries(inputs) if self.bow_residual else inputs * self.hidden_dim**0.5
        hidden = self.drop(ops.cast(words + positions, self.compute_dtype), training=training)
        for block in self.blocks:
            hidden = block(hidden, attention_bias, training=training)
        if self.final_norm:
            hidden = self.final_norm(hidden, training=training)
        pooled = masked_mean(hidden, is_token)
        if not self.bow_residual:
            return pooled
        # The factor keeps the context small compared to a unit vector, also after the first steps.
        context = self.context_projection(pooled * self.hidden_dim**-0.5)
        return unit_length(masked_mean(inputs, is_token)) + ops.cast(context, "float32")
