"""The CNN of Yang et al. 2019, as the published universal-sentence-encoder-multilingual/3 has it."""

from typing import Any

import keras
from keras import ops

from xling_tf.config import EncoderConfig
from xling_tf.encoders.base import TokenEncoder
from xling_tf.layers.base import LayerNorm
from xling_tf.layers.convolution import (
    EPSILON,
    ConvolutionBranch,
    NormalizedProjection,
    ResidualFeedforward,
)
from xling_tf.layers.embeddings import WordEmbedding
from xling_tf.layers.pooling import masked_mean
from xling_tf.text.preprocessor import WordFeatures

# Of the published table, about: a token's vector and its convolutions are then of one size.
_TABLE_STDDEV = 0.3


@keras.saving.register_keras_serializable(package="xling_tf")
class CnnEncoder(TokenEncoder):
    """Maps pieces to sentence vectors by convolutions of several widths (Yang et al. 2019, sec. 3.3).

    Each width above 1 has a branch of convolutions; width 1 is the token's own embedding. What they give
    is normalised, averaged over the tokens and passed through feed-forward layers. The average is
    multiplied by the root of the length: the published module divides the sum by that root.

    Args:
        config: Sizes; `num_layers` convolutions a branch.
        num_words: Rows of the table.
    """

    def __init__(self, config: EncoderConfig, *, num_words: int, **kwargs: Any) -> None:
        super().__init__(config, num_words=num_words, **kwargs)
        dtype = self.dtype_policy
        self.embedding = WordEmbedding(
            num_words, config.embedding_dim, stddev=_TABLE_STDDEV, dtype=dtype, name="embedding"
        )
        widths = [width for width in config.filter_widths if width > 1]
        self.projections = [
            NormalizedProjection(config.num_filters, dtype=dtype, name=f"projection_{width}")
            for width in widths
        ]
        self.branches = [
            ConvolutionBranch(
                config.num_filters, width, config.num_layers, dtype=dtype, name=f"branch_{width}"
            )
            for width in widths
        ]
        self.norm = LayerNorm(epsilon=EPSILON, dtype=dtype, name="norm")
        self.pooled_projection = keras.layers.Dense(config.hidden_dim, dtype=dtype, name="pooled_projection")
        self.feedforward = ResidualFeedforward(
            config.intermediate_dim, config.hidden_dim, dtype=dtype, name="feedforward"
        )

    def embed_words(self, words: WordFeatures) -> keras.KerasTensor:
        """Represents each distinct piece by its embedding and what enters each branch."""
        rows = self.embedding(words.ids)
        inputs = [projection(rows) for projection in self.projections]
        # Not axis -1, whose gradient TensorFlow cannot compute in an exported model: what is looked up
        # next makes it sparse, and the rank is no longer known there.
        return ops.concatenate([ops.cast(rows, self.compute_dtype), *inputs], axis=1)

    def encode_tokens(self, inputs: keras.KerasTensor, lengths: keras.KerasTensor) -> keras.KerasTensor:
        """Encodes `[batch, length, any]` vectors of `embed_words`, of `[batch]` lengths."""
        padding_mask = ops.arange(ops.shape(inputs)[1])[None, :] < lengths[:, None]
        # Not sliced: the gradient of a slice is as wide as the whole, once for each part.
        sizes = self.config
        starts = [sizes.embedding_dim + i * sizes.num_filters for i in range(len(self.branches))]
        words, *parts = ops.split(inputs, starts, axis=-1)
        mask = ops.expand_dims(padding_mask, axis=-1)
        outputs = [branch(part, mask) for branch, part in zip(self.branches, parts, strict=True)]
        tokens = self.norm(ops.concatenate([words, *outputs], axis=-1))
        pooled = self.pooled_projection(masked_mean(tokens, padding_mask))
        roots = ops.sqrt(ops.cast(lengths, "float32"))[:, None]
        return self.feedforward(ops.cast(pooled, "float32") * roots)
