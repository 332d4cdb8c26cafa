"""The CNN encoder of universal-sentence-encoder-multilingual/3 (Yang et al. 2019)."""

from typing import Any, ClassVar

import keras
import tensorflow as tf
from keras import KerasTensor as Tensor
from keras import ops

from xling_tf.config import CnnConfig
from xling_tf.encoders.base import TokenEncoder, average_words
from xling_tf.layers.base import LayerNorm
from xling_tf.layers.convolution import (
    EPSILON,
    ConvolutionBranch,
    NormalizedProjection,
    ResidualFeedforward,
)
from xling_tf.layers.embeddings import WordEmbedding
from xling_tf.layers.pooling import masked_mean, token_mask

# About that of the published table: embeddings and their convolutions have similar lengths.
_TABLE_STDDEV = 0.3


@keras.saving.register_keras_serializable(package="xling_tf")
class CnnEncoder(TokenEncoder):
    """Encodes sentences with convolutions of several widths (Yang et al. 2019, sec. 3.3).

    Each width above 1 has a branch of convolutions; width 1 is the embedding of the token itself.
    The outputs are normalised, averaged over the tokens and passed through feed-forward layers. The
    average is multiplied by the square root of the length, because the published module divides the
    sum by that root.

    Args:
        **kwargs: `num_words`, the fields of `CnnConfig`, and arguments of every Keras layer.
    """

    config_type = CnnConfig
    length_groups: ClassVar[int] = 3

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        dtype, num_filters = self.dtype_policy, self.num_filters
        self.embedding = WordEmbedding(
            self.num_words, self.embedding_dim, stddev=_TABLE_STDDEV, dtype=dtype, name="embedding"
        )
        widths = [width for width in self.filter_widths if width > 1]
        self.projections = [
            NormalizedProjection(num_filters, dtype=dtype, name=f"projection_{width}")
            for width in widths
        ]
        self.branches = [
            ConvolutionBranch(
                num_filters, width, self.num_layers, dtype=dtype, name=f"branch_{width}"
            )
            for width in widths
        ]
        self.norm = LayerNorm(epsilon=EPSILON, dtype=dtype, name="norm")
        self.pooled_projection = keras.layers.Dense(
            self.hidden_dim, dtype=dtype, name="pooled_projection"
        )
        self.feedforward = ResidualFeedforward(
            self.intermediate_dim, self.hidden_dim, dtype=dtype, name="feedforward"
        )

    @property
    def average_part(self) -> "_WithoutConvolutions":
        """See `TokenEncoder.average_part`."""
        return _WithoutConvolutions(self)

    def embed_words(self, words: Any, training: bool = False) -> Tensor:
        """See `TokenEncoder.embed_words`: each piece's embedding, then the branches' inputs."""
        rows = self.embedding(words)
        inputs = [projection(rows, training=training) for projection in self.projections]
        # With axis -1, TensorFlow could not compute the gradient in an exported model, where the
        # rank of the sparse gradient from the following look-up is unknown.
        return ops.concatenate([ops.cast(rows, self.compute_dtype), *inputs], axis=1)

    def encode_tokens(self, inputs: Tensor, lengths: Tensor, training: bool = False) -> Tensor:
        """See `TokenEncoder.encode_tokens`."""
        is_token = token_mask(inputs, lengths)
        # `split` rather than slices, whose gradients would be as wide as the whole tensor.
        starts = [self.embedding_dim + i * self.num_filters for i in range(len(self.branches))]
        words, *parts = ops.split(inputs, starts, axis=-1) if starts else [inputs]
        mask = ops.expand_dims(is_token, axis=-1)
        branches = zip(self.branches, parts, strict=True)
        outputs = [branch(part, mask, training=training) for branch, part in branches]
        tokens = self.norm(ops.concatenate([words, *outputs], axis=-1), training=training)
        return self.encode_average(masked_mean(tokens, is_token), lengths)

    def encode_average(self, average: Tensor, lengths: Tensor) -> Tensor:
        """Maps `[batch, any]`, the averages of tokens, to `[batch, hidden_dim]` float32."""
        roots = ops.sqrt(ops.cast(lengths, "float32"))[:, None]
        return self.feedforward(ops.cast(self.pooled_projection(average), "float32") * roots)


class _WithoutConvolutions:
    """A CNN as if its convolutions were zero: an average of words, several times as fast."""

    length_groups = 1

    def __init__(self, cnn: CnnEncoder) -> None:
        self._cnn, self.hidden_dim = cnn, cnn.hidden_dim
        self.embed_words, self.average = cnn.embed_words, cnn.average

    @property
    def dense_variables(self) -> list[keras.Variable]:
        """The CNN's variables, except for embedding tables and convolutions."""
        of_branches = {id(v) for branch in self._cnn.branches for v in branch.trainable_variables}
        return [v for v in self._cnn.dense_variables if id(v) not in of_branches]

    def encode(
        self, words: Tensor, tokens: Tensor, lengths: Tensor, training: bool = False
    ) -> Tensor:
        """See `TokenEncoder.encode`."""
        words = self._cnn.norm(words, training=training)
        positions = tf.RaggedTensor.from_tensor(tokens, lengths)
        return self._cnn.encode_average(average_words(words, positions, training), lengths)
