"""Sentences to word and character n-gram ids (Chidambaram et al. 2019, sec. 2.1 and 3.2)."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from xling_tf.config import TextConfig
from xling_tf.text.tokenization import tokenize

# Words longer than this are clipped before n-grams are cut: "aaaa..." must not cost a page of memory.
_MAX_WORD_CHARACTERS = 50


class TokenFeatures(NamedTuple):
    """The tokens of a batch, with each distinct word spelled out once.

    Attributes:
        word_ids: `[words]` int32 rows of the word table, one a distinct word of the batch.
        ngram_ids: `[ngrams]` int32 rows of the n-gram table, word by word.
        ngram_words: `[ngrams]` int32, the position in `word_ids` that each n-gram belongs to, ascending.
        tokens: `[batch, length]` int32 positions in `word_ids`; padding points at 0.
        lengths: `[batch]` int32 number of tokens, at least 1.
    """

    word_ids: tf.Tensor
    ngram_ids: tf.Tensor
    ngram_words: tf.Tensor
    tokens: tf.Tensor
    lengths: tf.Tensor


class WordNgramPreprocessor(tf.Module):
    """Turns strings into `TokenFeatures`, in the input pipeline, the encoder and the SavedModel alike.

    A word outside the vocabulary falls into one of the hash buckets that follow it, and keeps its
    n-grams.

    Args:
        vocabulary: The known words, most frequent first; row i of the word table is word i.
        config: Sizes and rules.

    Example:
        >>> config = TextConfig(lowercase=True, num_oov_buckets=1)
        >>> preprocess = WordNgramPreprocessor(["hola", "mundo"], config)
        >>> preprocess(tf.constant(["Hola hola", "mundo xyz"])).tokens.numpy().tolist()
        [[0, 0], [1, 2]]
    """

    def __init__(self, vocabulary: Sequence[str], config: TextConfig) -> None:
        super().__init__()
        self.vocabulary = tuple(vocabulary)
        self.config = config
        initializer = tf.lookup.KeyValueTensorInitializer(
            tf.constant(self.vocabulary, tf.string), tf.range(len(vocabulary), dtype=tf.int64)
        )
        self._table = tf.lookup.StaticVocabularyTable(
            initializer, config.num_oov_buckets, lookup_key_dtype=tf.string
        )

    @property
    def num_words(self) -> int:
        """Rows of the word table: the vocabulary and its hash buckets."""
        return len(self.vocabulary) + self.config.num_oov_buckets

    @tf.Module.with_name_scope
    def __call__(self, sentences: tf.Tensor) -> TokenFeatures:
        """Maps `[batch]` strings to their features."""
        return self.features(self.tokenize(sentences))

    def tokenize(self, sentences: tf.Tensor) -> tf.RaggedTensor:
        """Splits `[batch]` strings into `[batch, (tokens)]` strings."""
        return tokenize(
            sentences, max_tokens=self.config.max_tokens, lowercase=self.config.lowercase
        )

    def features(self, tokens: tf.RaggedTensor) -> TokenFeatures:
        """Maps `[batch, (tokens)]` strings to their features."""
        words, positions = tf.unique(tokens.values)
        word_ids, ngrams, ngram_words = self.word_features(words)
        return TokenFeatures(
            word_ids=word_ids,
            ngram_ids=ngrams,
            ngram_words=ngram_words,
            tokens=tokens.with_values(positions).to_tensor(),
            lengths=tf.cast(tokens.row_lengths(), tf.int32),
        )

    def word_features(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Maps `[words]` strings to the first three of `TokenFeatures`."""
        ngrams = ngram_ids(words, self.config)
        return self.word_ids(words), ngrams.values, tf.cast(ngrams.value_rowids(), tf.int32)

    def word_ids(self, words: tf.Tensor) -> tf.Tensor:
        """Maps `[words]` strings to `[words]` int32 rows of the word table."""
        return tf.cast(self._table.lookup(words), tf.int32)


def ngram_ids(words: tf.Tensor, config: TextConfig) -> tf.RaggedTensor:
    """Maps `[words]` strings to `[words, (ngrams)]` int32 rows of the n-gram table.

    Words are marked at both ends, so that "<an" and "an" inside a word differ and a word of one
    letter still has an n-gram.
    """
    clipped = tf.strings.substr(words, 0, _MAX_WORD_CHARACTERS, unit="UTF8_CHAR")
    characters = tf.strings.unicode_split(tf.strings.join(["<", clipped, ">"]), "UTF-8")
    ngrams = tf.strings.ngrams(characters, ngram_width=list(config.ngram_sizes), separator="")
    ids = tf.strings.to_hash_bucket_fast(ngrams.values, config.num_ngram_buckets)
    return ngrams.with_values(tf.cast(ids, tf.int32))
