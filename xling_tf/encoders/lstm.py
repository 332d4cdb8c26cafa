"""The encoders of Yu et al. 2018 and of InferSent: one or two layers of LSTM, pooled."""

from typing import Any

import keras
from keras import ops

from xling_tf.config import EncoderConfig
from xling_tf.encoders.base import TokenEncoder
from xling_tf.layers.embeddings import WordEmbedding
from xling_tf.layers.pooling import AttentionPooling, masked_max, masked_mean
from xling_tf.layers.recurrent import Lstm
from xling_tf.text.preprocessor import WordFeatures


@keras.saving.register_keras_serializable(package="xling_tf")
class LstmEncoder(TokenEncoder):
    """Maps tokens to sentence vectors by a bidirectional and a unidirectional LSTM (Yu et al. 2018, sec. 2).

    The states are averaged, or pooled as `config.pooling` says (sec. 3). It never sees the language that a
    decoder will translate to. With one layer, the bidirectional, and maxima it is InferSent's (Conneau et al.
    2017, "Supervised Learning of Universal Sentence Representations", sec. 3.2).

    Args:
        config: Sizes; `intermediate_dim` of each direction of the first layer, `hidden_dim` of the second.
        num_words: Rows of the table.
    """

    def __init__(self, config: EncoderConfig, *, num_words: int, **kwargs: Any) -> None:
        super().__init__(config, num_words=num_words, **kwargs)
        dtype = self.dtype_policy
        self.embedding = WordEmbedding(num_words, config.embedding_dim, dtype=dtype, name="embedding")
        self.forward = Lstm(config.intermediate_dim, dtype=dtype, name="forward")
        self.backward = Lstm(config.intermediate_dim, reverse=True, dtype=dtype, name="backward")
        self.top = Lstm(config.hidden_dim, dtype=dtype, name="top") if config.num_layers > 1 else None
        self.pool: Any = {"mean": masked_mean, "max": masked_max}.get(config.pooling)
        if config.pooling == "attention":
            self.pool = AttentionPooling(config.hidden_dim, dtype=dtype, name="attention_pooling")

    def embed_words(self, words: WordFeatures) -> keras.KerasTensor:
        """Represents each distinct word or piece by its row: `[words, embedding_dim]` float32."""
        return self.embedding(words.ids)

    def encode_tokens(self, inputs: keras.KerasTensor, lengths: keras.KerasTensor) -> keras.KerasTensor:
        """Encodes `[batch, length, embedding_dim]` word vectors of `[batch]` lengths."""
        states = ops.concatenate([read(inputs, lengths) for read in (self.forward, self.backward)], axis=-1)
        if self.top:
            states = self.top(states, lengths)
        return self.pool(states, ops.arange(ops.shape(inputs)[1])[None, :] < lengths[:, None])
