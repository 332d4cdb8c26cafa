"""The encoder without context: the average of the words' vectors."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from xling_tf.config import EncoderConfig
from xling_tf.encoders.base import TokenEncoder, average_words
from xling_tf.layers.embeddings import WordEmbedding, WordNgramEmbedding
from xling_tf.layers.pooling import masked_mean
from xling_tf.text.preprocessor import WordFeatures


@keras.saving.register_keras_serializable(package="xling_tf")
class StaticEncoder(TokenEncoder):
    """Averages the vectors of a sentence's words, whatever their order.

    A vector's length is the weight of its word. It trains and encodes tens of times as fast as a
    transformer, whose input it makes (Chidambaram et al. 2019, sec. 2.1: words and their n-grams).

    Args:
        config: Sizes.
        num_words: Rows of the word table, hash buckets included.
        num_ngrams: Rows of the n-gram table; 0 for words that are not spelt.
    """

    def __init__(self, config: EncoderConfig, *, num_words: int, num_ngrams: int, **kwargs: Any) -> None:
        super().__init__(config, num_words=num_words, **kwargs)
        self.num_ngrams = num_ngrams
        dtype, dim = self.dtype_policy, config.embedding_dim
        self.embedding = (
            WordNgramEmbedding(num_words, num_ngrams, dim, dtype=dtype, name="embedding")
            if num_ngrams
            else WordEmbedding(num_words, dim, dtype=dtype, name="embedding")
        )
        self.input_projection = keras.layers.Dense(config.hidden_dim, dtype=dtype, name="input_projection")

    @property
    def static_part(self) -> "StaticEncoder":
        """Itself."""
        return self

    def embed_words(self, words: WordFeatures) -> keras.KerasTensor:
        """Represents each distinct word: `[words, hidden_dim]`. All of it can be tabulated."""
        return self.project(self.embedding(*(words if self.num_ngrams else words[:1])))

    def project(self, words: keras.KerasTensor) -> keras.KerasTensor:
        """Maps `[words, embedding_dim]`, a word's embedding joined with its n-grams', to `hidden_dim`."""
        return self.input_projection(words)

    def encode(
        self, words: keras.KerasTensor, tokens: keras.KerasTensor, lengths: keras.KerasTensor
    ) -> keras.KerasTensor:
        """See `TokenEncoder.encode`; no vector is copied to where it occurs."""
        return average_words(words, tf.RaggedTensor.from_tensor(tokens, lengths))

    def encode_tokens(self, inputs: keras.KerasTensor, lengths: keras.KerasTensor) -> keras.KerasTensor:
        """Averages `[batch, length, hidden_dim]` word vectors of `[batch]` lengths."""
        return masked_mean(inputs, ops.arange(ops.shape(inputs)[1])[None, :] < lengths[:, None])
