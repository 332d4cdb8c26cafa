"""BERT and XLM-RoBERTa as sentence encoders."""

from collections.abc import Sequence
from typing import Any, ClassVar

import keras
from keras import KerasTensor as Tensor
from keras import ops

from xling_tf.encoders.base import TokenEncoder
from xling_tf.errors import UserError
from xling_tf.layers.base import ACTIVATIONS, LayerNorm
from xling_tf.layers.embeddings import WordEmbedding
from xling_tf.layers.pooling import MASKED, POOLINGS, token_mask
from xling_tf.layers.transformer import TransformerBlock

_STDDEV = 0.02  # of initial embeddings, as in the code of Devlin et al. 2019


@keras.saving.register_keras_serializable(package="xling_tf")
class BertEncoder(TokenEncoder):
    """Encodes sentences with a BERT (Devlin et al. 2019), and pools its outputs (Reimers and Gurevych 2019).

    Sums of word and position embeddings are normalised; each block normalises the sums after its
    sub-layers. The embedding of the first segment, which all tokens are in, is part of the positions'.

    Args:
        num_words: Rows of the word table.
        max_tokens: Maximum number of tokens of a sentence, special tokens included.
        **kwargs: Fields of `BertConfig`, and arguments of every Keras layer.

    Raises:
        UserError: Sentences may have more tokens than there are positions.

    Example:
        >>> encoder = BertEncoder(num_words=10, max_tokens=4, embedding_dim=8, num_heads=2, num_layers=1)
        >>> encoder.build_variables()
        >>> [tuple(variable.shape) for variable in encoder.variables[:3]]
        [(512, 8), (10, 8), (8,)]
    """

    length_groups: ClassVar[int] = 3

    def __init__(
        self,
        *,
        num_words: int,
        max_tokens: int,
        embedding_dim: int = 384,
        intermediate_dim: int = 1536,
        num_layers: int = 12,
        num_heads: int = 12,
        max_positions: int = 512,
        epsilon: float = 1e-12,
        activation: str = "gelu",
        pooling: str = "mean",
        dense_dims: Sequence[int] = (),
        dense_activations: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if max_tokens > max_positions:
            raise UserError(
                f"the encoder has positions for {max_positions} tokens, but tokenizer.max_tokens is "
                f"{max_tokens}: cut sentences at {max_positions} tokens or fewer"
            )
        self.num_words, self.max_tokens, self.embedding_dim = num_words, max_tokens, embedding_dim
        self.intermediate_dim, self.num_layers, self.num_heads = intermediate_dim, num_layers, num_heads
        self.max_positions, self.epsilon, self.activation = max_positions, epsilon, activation
        self.pooling = pooling
        self.dense_dims, self.dense_activations = tuple(dense_dims), tuple(dense_activations)
        self.hidden_dim = self.dense_dims[-1] if dense_dims else embedding_dim
        dtype = self.dtype_policy
        self.embedding = WordEmbedding(
            num_words, embedding_dim, stddev=_STDDEV, dtype=dtype, name="embedding"
        )
        self.positions = self.add_weight(
            shape=(max_positions, embedding_dim),
            initializer=keras.initializers.RandomNormal(stddev=_STDDEV),
            name="positions",
        )
        self.embedding_norm = LayerNorm(epsilon=epsilon, dtype=dtype, name="embedding_norm")
        self.blocks = [
            TransformerBlock(
                embedding_dim,
                num_heads,
                intermediate_dim,
                norm_first=False,
                activation=activation,
                epsilon=epsilon,
                dtype=dtype,
                name=f"block_{index}",
            )
            for index in range(num_layers)
        ]
        # In float32, because their outputs are the sentence vectors.
        self.dense = [
            keras.layers.Dense(dim, ACTIVATIONS[name], dtype="float32", name=f"dense_{index}")
            for index, (dim, name) in enumerate(zip(dense_dims, dense_activations, strict=True))
        ]

    def encode_tokens(self, inputs: Tensor, lengths: Tensor, training: bool = False) -> Tensor:
        """See `TokenEncoder.encode_tokens`."""
        return self.pool(*self.hidden_states(inputs, lengths, training))

    def hidden_states(self, inputs: Tensor, lengths: Tensor, training: bool = False) -> tuple[Tensor, Tensor]:
        """Returns the outputs of the last block, `[batch, length, embedding_dim]`, and the mask of tokens."""
        is_token = token_mask(inputs, lengths)
        attention_bias = ops.expand_dims(ops.where(is_token, 0.0, MASKED), axis=(1, 2))
        positions = ops.convert_to_tensor(self.positions)[: ops.shape(inputs)[1]]
        hidden = self.embedding_norm(inputs + ops.cast(positions, inputs.dtype), training=training)
        for block in self.blocks:
            hidden = block(hidden, attention_bias, training=training)
        return hidden, is_token

    def pool(self, hidden: Tensor, is_token: Tensor) -> Tensor:
        """Pools the result of `hidden_states` to `[batch, hidden_dim]` float32."""
        vectors = POOLINGS[self.pooling](hidden, is_token)
        for layer in self.dense:
            vectors = layer(vectors)
        return vectors
