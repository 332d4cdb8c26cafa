"""An encoder as it is exported: what a known word's n-grams become is looked up."""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from xling_tf.config import EncoderConfig
from xling_tf.encoders.base import TokenEncoder
from xling_tf.encoders.registry import build_encoder
from xling_tf.text.preprocessor import TextPreprocessor
from xling_tf.text.word_ngram import WordNgramPreprocessor, ngram_ids

# Sentences encoded together; sorted by length, so memory is bounded by this many of the longest.
_MICRO_BATCH = 256
_WORDS_PER_CHUNK = 8192

# A Keras model out of TensorFlow's sight: it would add its own serving function to the export.
_Hidden = Callable[[], TokenEncoder]


class FoldedEncoder(tf.Module):
    """An encoder that computes in float32, with its spelt words tabulated.

    Args:
        preprocessor: The trained encoder's.
        encoder: The trained encoder.
        config: Its sizes.
    """

    def __init__(
        self, preprocessor: TextPreprocessor, encoder: TokenEncoder, config: EncoderConfig
    ) -> None:
        super().__init__()
        self._preprocessor = preprocessor
        body = _in_float32(encoder, preprocessor, config)
        self._body: _Hidden = lambda: body
        self._words = (
            _SpellingTable(preprocessor, self._body)
            if isinstance(preprocessor, WordNgramPreprocessor)
            else _WordTable(preprocessor, self._body)
        )
        self.weights = [*self._words.weights, *(v.value for v in body.dense_variables)]

    def __call__(self, sentences: tf.Tensor) -> tf.Tensor:
        """Encodes `[batch]` strings to `[batch, hidden_dim]`, not normalised, in bounded memory."""
        tokens = self._preprocessor.tokenize(sentences)
        order = tf.argsort(tokens.row_lengths())
        tokens = tf.gather(tokens, order)
        count = tf.shape(sentences)[0]
        chunks = tf.maximum(1, -(-count // _MICRO_BATCH))
        encodings = tf.TensorArray(
            tf.float32,
            size=chunks,
            infer_shape=False,
            element_shape=[None, self._body().hidden_dim],
        )
        for chunk in tf.range(chunks):
            begin = chunk * _MICRO_BATCH
            micro_batch = self._encode(tokens[begin : begin + _MICRO_BATCH])
            encodings = encodings.write(chunk, micro_batch)
        return tf.gather(encodings.concat(), tf.argsort(order))

    def _encode(self, tokens: tf.RaggedTensor) -> tf.Tensor:
        words, positions = tf.unique(tokens.values)
        inputs = tf.gather(self._words(words), tokens.with_values(positions).to_tensor())
        return self._body().encode_tokens(inputs, tf.cast(tokens.row_lengths(), tf.int32))


class _WordTable(tf.Module):
    """Represents words by their rows alone, as in training: a look-up is all that could be saved."""

    def __init__(self, preprocessor: TextPreprocessor, body: _Hidden) -> None:
        super().__init__()
        self._preprocessor = preprocessor
        self._body = body
        self.weights = [table.value for table in body().table_variables]

    def __call__(self, words: tf.Tensor) -> tf.Tensor:
        """Represents `[words]` tokens: `[words, any]`."""
        none = tf.zeros([0], tf.int32)
        return self._body().embed_words(self._preprocessor.word_ids(words), none, none)


class _SpellingTable(tf.Module):
    """Represents words by their rows and n-grams: a table of the vocabulary, n-grams and all.

    Only words outside of it are spelt into n-grams at run time.
    """

    def __init__(self, preprocessor: WordNgramPreprocessor, body: _Hidden) -> None:
        super().__init__()
        self._preprocessor = preprocessor
        self._body = body
        self._num_known = len(preprocessor.vocabulary)
        rows = [
            body().embed_words(*preprocessor.word_features(tf.constant(chunk)))
            for chunk in _chunks(np.array(preprocessor.vocabulary, object))
        ]
        self._rows = tf.Variable(np.concatenate(rows), name="vocabulary")
        # The rows of known words are in the table now; only those of the hash buckets stay.
        embedding = body().embedding
        buckets = embedding.words.table.numpy()[self._num_known :]
        self._bucket_words = tf.Variable(buckets, name="bucket_words")
        self.weights = [self._rows, self._bucket_words, embedding.ngrams.table.value]

    def __call__(self, words: tf.Tensor) -> tf.Tensor:
        """Represents `[words]` strings: `[words, hidden_dim]`."""
        ids = self._preprocessor.word_ids(words)
        is_known = ids < self._num_known
        vectors = tf.gather(self._rows, tf.where(is_known, ids, 0))
        unknown = tf.where(~is_known)
        spelt = self._spell(tf.gather_nd(words, unknown), tf.gather_nd(ids, unknown))
        return tf.tensor_scatter_nd_update(vectors, unknown, spelt)

    def _spell(self, words: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Represents words by their bucket and their n-grams."""
        ngrams = ngram_ids(words, self._preprocessor.config)
        embedding = self._body().embedding
        combined = embedding.combine(
            tf.gather(self._bucket_words, ids - self._num_known),
            embedding.ngrams(ngrams.values),
            tf.cast(ngrams.value_rowids(), tf.int32),
        )
        return self._body().input_projection(combined)


def _chunks(words: np.ndarray) -> list[np.ndarray]:
    return np.split(words, range(_WORDS_PER_CHUNK, len(words), _WORDS_PER_CHUNK))


def _in_float32(
    encoder: TokenEncoder, preprocessor: TextPreprocessor, config: EncoderConfig
) -> TokenEncoder:
    """Copies an encoder trained in any precision into one that computes in float32."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float32")
    try:
        body = build_encoder(config, preprocessor)
    finally:
        keras.config.set_dtype_policy(policy)
    body.set_weights(encoder.get_weights())
    return body
