"""BERT and XLM-RoBERTa as sentence encoders."""

from typing import Any, ClassVar

import keras
from keras import KerasTensor as Tensor
from keras import ops

from xling_tf.config import BertConfig
from xling_tf.encoders.base import TokenEncoder
from xling_tf.errors import UserError
from xling_tf.layers.base import ACTIVATIONS, LayerNorm
from xling_tf.layers.embeddings import WordEmbedding
from xling_tf.layers.pooling import MASKED, POOLINGS, token_mask
from xling_tf.layers.transformer import TransformerBlock

_STDDEV = 0.02  # of initial embeddings, as in the code of Devlin et al. 2019


@keras.saving.register_keras_serializable(package="xling_tf")
class BertEncoder(TokenEncoder):
    """Encodes sentences with a BERT (Devlin et al. 2019), and pools its outputs (Reimers and
    Gurevych 2019).

    Sums of word and position embeddings are normalised; each block normalises the sums after its
    sub-layers. All tokens are in the first segment, whose embedding is added to the position
    embeddings.

    Args:
        **kwargs: `num_words`, `max_tokens` (special tokens included), the fields of `BertConfig`,
            and arguments of every Keras layer.

    Raises:
        UserError: Sentences may have more tokens than there are positions.

    Examples:
        >>> sizes = {"embedding_dim": 8, "num_heads": 2, "num_layers": 1}
        >>> encoder = BertEncoder(num_words=10, max_tokens=4, **sizes)
        >>> encoder.build_variables()
        >>> [tuple(variable.shape) for variable in encoder.variables[:3]]
        [(512, 8), (10, 8), (8,)]
    """

    config_type = BertConfig
    sizes = ("num_words", "max_tokens")
    length_groups: ClassVar[int] = 3
    transformers_family: ClassVar[str] = "bert"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if self.max_tokens > self.max_positions:
            raise UserError(
                f"the encoder has positions for {self.max_positions} tokens, but "
                f"tokenizer.max_tokens is {self.max_tokens}: cut sentences at "
                f"{self.max_positions} tokens or fewer"
            )
        dim = self.embedding_dim
        self.hidden_dim = (dim, *self.dense_dims)[-1]
        self.embedding = WordEmbedding(
            self.num_words, dim, stddev=_STDDEV, dtype=self.dtype_policy, name="embedding"
        )
        self.make_layers()
        # In float32, because their outputs are the sentence vectors.
        self.dense = [
            keras.layers.Dense(dim, ACTIVATIONS[name], dtype="float32", name=f"dense_{index}")
            for index, (dim, name) in enumerate(
                zip(self.dense_dims, self.dense_activations, strict=True)
            )
        ]

    def make_layers(self) -> None:
        """Makes the layers between the table of words and the pooling."""
        dtype, dim, epsilon = self.dtype_policy, self.embedding_dim, self.epsilon
        self.positions = self.add_weight(
            shape=(self.max_positions, dim),
            initializer=keras.initializers.RandomNormal(stddev=_STDDEV),
            name="positions",
        )
        self.embedding_norm = LayerNorm(epsilon=epsilon, dtype=dtype, name="embedding_norm")
        self.blocks = [
            TransformerBlock(
                dim,
                self.num_heads,
                self.intermediate_dim,
                norm_first=False,
                activation=self.activation,
                epsilon=epsilon,
                dtype=dtype,
                name=f"block_{index}",
            )
            for index in range(self.num_layers)
        ]

    def encode_tokens(self, inputs: Tensor, lengths: Tensor, training: bool = False) -> Tensor:
        """See `TokenEncoder.encode_tokens`."""
        return self.pool(*self.hidden_states(inputs, lengths, training))

    def hidden_states(
        self, inputs: Tensor, lengths: Tensor, training: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Returns the last block's `[batch, length, embedding_dim]` outputs, and tokens' mask."""
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
