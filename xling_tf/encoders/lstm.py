"""The LSTM encoders of Yu et al. 2018 and of InferSent."""

from typing import Any

import keras
from keras import KerasTensor as Tensor
from keras import ops

from xling_tf.config import LstmConfig
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
        **kwargs: `num_words`, the fields of `LstmConfig`, and arguments of every Keras layer.
    """

    config_type = LstmConfig

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        dtype = self.dtype_policy
        self.embedding = WordEmbedding(self.num_words, self.embedding_dim, dtype=dtype, name="embedding")
        self.forward = Lstm(self.intermediate_dim, dtype=dtype, name="forward")
        self.backward = Lstm(self.intermediate_dim, reverse=True, dtype=dtype, name="backward")
        self.top = Lstm(self.hidden_dim, dtype=dtype, name="top") if self.num_layers > 1 else None
        self.pool = (
            AttentionPooling(self.hidden_dim, dtype=dtype, name="attention_pooling")
            if self.pooling == "attention"
            else POOLINGS[self.pooling]
        )

    def encode_tokens(self, inputs: Tensor, lengths: Tensor, training: bool = False) -> Tensor:
        """See `TokenEncoder.encode_tokens`."""
        states = ops.concatenate([read(inputs, lengths) for read in (self.forward, self.backward)], axis=-1)
        if self.top:
            states = self.top(states, lengths)
        return self.pool(states, token_mask(inputs, lengths))
