"""The encoder of Chidambaram et al.: words (and n-grams), a transformer, the mean."""

from typing import Any

import keras
from keras import ops

from xling_tf.config import EncoderConfig
from xling_tf.encoders.base import TokenEncoder
from xling_tf.encoders.static import StaticEncoder
from xling_tf.layers.base import LayerNorm
from xling_tf.layers.embeddings import sinusoidal_positions
from xling_tf.layers.pooling import MASKED, masked_mean, unit_entries, unit_length
from xling_tf.layers.transformer import EPSILON, TransformerBlock
from xling_tf.text.preprocessor import WordFeatures


@keras.saving.register_keras_serializable(package="xling_tf")
class TransformerEncoder(TokenEncoder):
    """Maps token features to sentence vectors (Chidambaram et al. 2019, sec. 2.1).

    With `add_average` its output is added to the average of the words' vectors, through a layer that
    starts at zero: what was learnt of words alone stays as it is when the blocks begin to learn.

    Args:
        config: Sizes.
        num_words: Rows of the word table, hash buckets included.
        num_ngrams: Rows of the n-gram table; 0 for words that are not spelt.
        max_tokens: Longest sentence.
    """

    def __init__(
        self,
        config: EncoderConfig,
        *,
        num_words: int,
        num_ngrams: int,
        max_tokens: int,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, num_words=num_words, **kwargs)
        self.num_ngrams = num_ngrams
        self.max_tokens = max_tokens
        dtype = self.dtype_policy
        self.static = StaticEncoder(
            config, num_words=num_words, num_ngrams=num_ngrams, dtype=dtype, name="static"
        )
        self.blocks = [
            TransformerBlock(
                config.hidden_dim,
                config.num_heads,
                config.intermediate_dim,
                norm_first=config.norm_first,
                dtype=dtype,
                name=f"block_{index}",
            )
            for index in range(config.num_layers)
        ]
        # What enters each sub-layer is normalised; what leaves the last one has to be as well.
        self.final_norm = (
            LayerNorm(epsilon=EPSILON, dtype=dtype, name="final_norm")
            if config.norm_first
            else keras.layers.Identity(dtype=dtype, name="final_norm")
        )
        self.positions = sinusoidal_positions(max_tokens, config.hidden_dim)
        if config.add_average:
            self.context_projection = keras.layers.Dense(
                config.hidden_dim, kernel_initializer="zeros", dtype=dtype, name="context_projection"
            )

    @property
    def embedding(self) -> keras.layers.Layer:
        """The tables of words and n-grams."""
        return self.static.embedding

    @property
    def static_part(self) -> StaticEncoder | None:
        """See `TokenEncoder.static_part`."""
        return self.static if self.config.add_average else None

    def embed_words(self, words: WordFeatures) -> keras.KerasTensor:
        """Represents each distinct word: `[words, hidden_dim]`. All of it can be tabulated."""
        return self.static.embed_words(words)

    def project(self, words: keras.KerasTensor) -> keras.KerasTensor:
        """See `StaticEncoder.project`."""
        return self.static.project(words)

    def encode_tokens(self, inputs: keras.KerasTensor, lengths: keras.KerasTensor) -> keras.KerasTensor:
        """Encodes `[batch, length, hidden_dim]` word vectors of `[batch]` lengths."""
        max_length = ops.shape(inputs)[1]
        padding_mask = ops.arange(max_length)[None, :] < lengths[:, None]
        attention_bias = ops.expand_dims(ops.where(padding_mask, 0.0, MASKED), axis=(1, 2))
        positions = ops.convert_to_tensor(self.positions, inputs.dtype)[:max_length]
        # Vaswani et al. 2017, sec. 3.4: without the factor the positions would drown the words. The length
        # of a word's vector is its weight in the average; here all count alike.
        words = unit_entries(inputs) if self.config.add_average else inputs * self.hidden_dim**0.5
        hidden = words + positions
        for block in self.blocks:
            hidden = block(hidden, attention_bias)
        pooled = masked_mean(self.final_norm(hidden), padding_mask)
        if not self.config.add_average:
            return pooled
        # What is added has to be small beside a unit vector, after the first steps too.
        context = self.context_projection(pooled * self.hidden_dim**-0.5)
        return unit_length(masked_mean(inputs, padding_mask)) + ops.cast(context, "float32")
