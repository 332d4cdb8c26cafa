"""The LSTM encoders of Yu et al. 2018 and of InferSent."""

from typing import Any

import keras
from keras import KerasTensor as Tensor
from keras import ops

from xling_tf.encoders.base import TokenEncoder
from xling_tf.layers.embeddings import WordEmbedding
from xling_tf.layers.pooling import POOLINGS, AttentionPooling, token_mask
from xling_tf.layers.recurrent import Lstm


@keras.saving.register_keras_serializable(package="xling_tf")
class LstmEncoder(TokenEncoder):
    """Encodes sentences with a bidirectional and then a unidirectional LSTM (Yu et al. 2018, sec. 2).

    Unlike the decoder, the encoder does not see the target language. With one bidirectional layer and
    maximum pooling it is InferSent's encoder (Conneau et al. 2017, "Supervised Learning of Universal
    Sentence Representations", sec. 3.2).

    Args:
        num_words: Rows of the table.
        **kwargs: Fields of `LstmConfig`, and arguments of every Keras layer.
    """

    def __init__(
        self,
        *,
        num_words: int,
        embedding_dim: int = 300,
        hidden_dim: int = 1024,
        intermediate_dim: int = 512,
        num_layers: int = 2,
        pooling: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_words, self.embedding_dim, self.hidden_dim = num_words, embedding_dim, hidden_dim
        self.intermediate_dim, self.num_layers, self.pooling = intermediate_dim, num_layers, pooling
        dtype = self.dtype_policy
        self.embedding = WordEmbedding(num_words, embedding_dim, dtype=dtype, name="embedding")
        self.forward = Lstm(intermediate_dim, dtype=dtype, name="forward")
        self.backward = Lstm(intermediate_dim, reverse=True, dtype=dtype, name="backward")
        self.top = Lstm(hidden_dim, dtype=dtype, name="top") if num_layers > 1 else None
        self.pool = (
            AttentionPooling(hidden_dim, dtype=dtype, name="attention_pooling")
            if pooling == "attention"
            else POOLINGS[pooling]
        )

    def encode_tokens(self, inputs: Tensor, lengths: Tensor, training: bool = False) -> Tensor:
        """See `TokenEncoder.encode_tokens`."""
        states = ops.concatenate([read(inputs, lengths) for read in (self.forward, self.backward)], axis=-1)
        if self.top:
            states = self.top(states, lengths)
        return self.pool(states, token_mask(inputs, lengths))
