"""Sentences to word and character n-gram ids (Chidambaram et al. 2019, sec. 2.1, 3.2 and 5.1)."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from xling_tf.config import TextConfig
from xling_tf.text.preprocessor import TextPreprocessor
from xling_tf.text.tokenization import tokenize

# Words longer than this are clipped before n-grams are cut: "aaaa..." must not cost a page of memory.
MAX_WORD_CHARACTERS = 50


class WordPreprocessor(TextPreprocessor):
    """Represents a word by its row alone (2019, sec. 5.1: "word embeddings alone").

    A word outside the vocabulary falls into one of the hash buckets that follow it.

    Args:
        vocabulary: The known words, most frequent first; row i of the word table is word i.
        config: Sizes and rules.

    Example:
        >>> config = TextConfig(lowercase=True, num_oov_buckets=1)
        >>> preprocess = WordPreprocessor(["hola", "mundo"], config)
        >>> preprocess(tf.constant(["Hola hola", "mundo xyz"])).tokens.numpy().tolist()
        [[0, 0], [1, 2]]
    """

    def __init__(self, vocabulary: Sequence[str], config: TextConfig) -> None:
        super().__init__(config)
        self.vocabulary = tuple(vocabulary)
        self.num_words = len(self.vocabulary) + config.num_oov_buckets
        initializer = tf.lookup.KeyValueTensorInitializer(
            tf.constant(self.vocabulary, tf.string), tf.range(len(vocabulary), dtype=tf.int64)
        )
        self._table = tf.lookup.StaticVocabularyTable(
            initializer, config.num_oov_buckets, lookup_key_dtype=tf.string
        )

    def tokenize(self, sentences: tf.Tensor, max_tokens: int | None = None) -> tf.RaggedTensor:
        """Splits `[batch]` strings into `[batch, (tokens)]` strings."""
        kept = max_tokens or self.config.max_tokens
        return tokenize(sentences, dataclasses.replace(self.config, max_tokens=kept))

    def word_ids(self, words: tf.Tensor) -> tf.Tensor:
        """Maps `[words]` strings to `[words]` int32 rows of the word table."""
        return tf.cast(self._table.lookup(words), tf.int32)


class WordNgramPreprocessor(WordPreprocessor):
    """Represents a word by its row and by its character n-grams, which unknown words have too.

    Args:
        vocabulary: The known words, most frequent first; row i of the word table is word i.
        config: Sizes and rules.
    """

    def __init__(self, vocabulary: Sequence[str], config: TextConfig) -> None:
        super().__init__(vocabulary, config)
        self.num_ngrams = config.num_ngram_buckets

    def word_features(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Maps `[words]` strings to the first three of `TokenFeatures`."""
        ngrams = ngram_ids(words, self.config)
        return self.word_ids(words), ngrams.values, tf.cast(ngrams.value_rowids(), tf.int32)


def word_preprocessor(vocabulary: Sequence[str], config: TextConfig) -> WordPreprocessor:
    """Makes the preprocessor that spells words if `config` has sizes of n-grams."""
    kind = WordNgramPreprocessor if config.ngram_sizes else WordPreprocessor
    return kind(vocabulary, config)


def ngram_ids(words: tf.Tensor, config: TextConfig) -> tf.RaggedTensor:
    """Maps `[words]` strings to `[words, (ngrams)]` int32 rows of the n-gram table.

    Words are marked at both ends, so that "<an" and "an" inside a word differ and a word of one
    letter still has an n-gram.
    """
    clipped = tf.strings.substr(words, 0, MAX_WORD_CHARACTERS, unit="UTF8_CHAR")
    characters = tf.strings.unicode_split(tf.strings.join(["<", clipped, ">"]), "UTF-8")
    ngrams = tf.strings.ngrams(characters, ngram_width=list(config.ngram_sizes), separator="")
    ids = tf.strings.to_hash_bucket_fast(ngrams.values, config.num_ngram_buckets)
    return ngrams.with_values(tf.cast(ids, tf.int32))
