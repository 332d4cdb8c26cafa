"""Words and character n-grams: the vocabulary, sentences to ids (Chidambaram et al. 2019, sec. 2.1)."""

import dataclasses
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from itertools import chain, islice

import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import NDArray

from xling_tf.config import TextConfig
from xling_tf.text.preprocessor import TextPreprocessor, WordFeatures
from xling_tf.text.tokenization import EMPTY_TOKEN, tokenize

# Words longer than this are clipped before n-grams are cut: "aaaa..." must not cost a page of memory.
MAX_WORD_CHARACTERS = 50

_SENTENCES_PER_CHUNK = 50_000


class WordPreprocessor(TextPreprocessor):
    """Represents a word by its row alone (2019, sec. 5.1: "word embeddings alone").

    A word outside the vocabulary falls into one of the hash buckets that follow it.

    Args:
        vocabulary: The known words, most frequent first; row i of the word table is word i.
        config: Sizes and rules.
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

    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """See `TextPreprocessor.join`: words between spaces, hash buckets as "?"."""
        known = tf.constant([*self.vocabulary, "?"])
        words = tf.gather(known, tf.minimum(ids.values, len(self.vocabulary)))
        return tf.strings.reduce_join(ids.with_values(words), axis=1, separator=" ")


class WordNgramPreprocessor(WordPreprocessor):
    """Represents a word by its row and by its character n-grams, which unknown words have too.

    N-grams are hashed into `config.num_ngram_buckets`. With `config.num_ngrams`, the table of n-grams
    has rows for those buckets alone that n-grams of the vocabulary fall in, and row 0 for all others.

    Attributes:
        ngram_rows: `[num_ngram_buckets]` int32, each bucket's row; None: bucket i has row i.
    """

    ngram_rows: NDArray[np.int32] | None = None

    def __init__(self, vocabulary: Sequence[str], config: TextConfig) -> None:
        super().__init__(vocabulary, config)
        self.num_ngrams = config.num_ngrams or config.num_ngram_buckets
        if config.num_ngrams:
            buckets = _occupied_buckets(vocabulary, config)
            self.ngram_rows = np.zeros(config.num_ngram_buckets, np.int32)
            self.ngram_rows[buckets] = 1 + np.arange(len(buckets))
            self._rows = tf.constant(self.ngram_rows)

    def word_features(self, words: tf.Tensor) -> WordFeatures:
        """Maps `[words]` strings to their rows and those of their n-grams."""
        ids = self.word_ids(words)
        is_known = ids < len(self.vocabulary)
        known, others = tf.where(is_known)[:, 0], tf.where(~is_known)[:, 0]
        # Most words are known: what they are spelt to is looked up.
        parts = tf.gather(self._known_ngrams, tf.gather(ids, known)), self.ngrams(tf.gather(words, others))
        ngrams = tf.gather(tf.concat(parts, axis=0), tf.argsort(tf.concat([known, others], axis=0)))
        return WordFeatures(ids, ngrams.values, tf.cast(ngrams.value_rowids(), tf.int32))

    @cached_property
    def _known_ngrams(self) -> tf.RaggedTensor:
        """The n-grams of the vocabulary's words; made when training asks for them, and never exported."""
        with tf.init_scope():
            return self.ngrams(tf.constant(self.vocabulary, tf.string))

    def ngrams(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Maps `[words]` strings to `[words, (ngrams)]` int32 rows of the n-gram table."""
        buckets = ngram_buckets(words, self.config)
        if self.ngram_rows is None:
            return buckets
        return buckets.with_values(tf.gather(self._rows, buckets.values))


def word_preprocessor(vocabulary: Sequence[str], config: TextConfig) -> WordPreprocessor:
    """Makes the preprocessor that spells words if `config` has sizes of n-grams."""
    kind = WordNgramPreprocessor if config.ngram_sizes else WordPreprocessor
    return kind(vocabulary, config)


def ngram_buckets(words: tf.Tensor, config: TextConfig) -> tf.RaggedTensor:
    """Hashes the character n-grams of `[words]` strings: `[words, (ngrams)]` int32.

    Words are marked at both ends, so that "<an" and "an" inside a word differ and a word of one
    letter still has an n-gram.
    """
    clipped = tf.strings.substr(words, 0, MAX_WORD_CHARACTERS, unit="UTF8_CHAR")
    characters = tf.strings.unicode_split(tf.strings.join(["<", clipped, ">"]), "UTF-8")
    ngrams = tf.strings.ngrams(characters, ngram_width=list(config.ngram_sizes), separator="")
    buckets = tf.strings.to_hash_bucket_fast(ngrams.values, config.num_ngram_buckets)
    return ngrams.with_values(tf.cast(buckets, tf.int32))


def fit_words(
    config: TextConfig, texts_by_language: Mapping[str, Iterable[str]]
) -> tuple[TextConfig, list[str]]:
    """Builds the vocabulary of texts, which are read once, and sizes the n-gram table by it."""
    counts = count_words(chain.from_iterable(texts_by_language.values()), config)
    vocabulary = select_vocabulary(counts, config)
    logging.info("%d words", len(vocabulary))
    if not config.ngram_sizes:
        return config, vocabulary
    num_occupied = len(_occupied_buckets(vocabulary, config))
    logging.info("%d of %d n-gram buckets", num_occupied, config.num_ngram_buckets)
    return dataclasses.replace(config, num_ngrams=1 + num_occupied), vocabulary


def count_words(sentences: Iterable[str], config: TextConfig) -> Counter[str]:
    """Counts the tokens of `sentences`, which are read once."""
    counts: Counter[str] = Counter()
    rest = iter(sentences)
    processors = os.cpu_count() or 1
    with ThreadPoolExecutor(processors) as pool:
        while chunks := [c for _ in range(processors) if (c := list(islice(rest, _SENTENCES_PER_CHUNK)))]:
            for found in pool.map(partial(_count, config=config), chunks):
                counts.update(found)
    return counts


def _count(sentences: list[str], config: TextConfig) -> dict[str, int]:
    # What splits sentences uses one processor and lets other threads run.
    words, _, counts = tf.unique_with_counts(tokenize(tf.constant(sentences), config).values)
    decoded = (word.decode("utf-8") for word in words.numpy().tolist())
    return dict(zip(decoded, counts.numpy().tolist(), strict=True))


def select_vocabulary(counts: Counter[str], config: TextConfig) -> list[str]:
    """Keeps the most frequent words, equal counts in alphabetical order, after `EMPTY_TOKEN`."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    kept = ranked[: config.max_words]
    words = [word for word, count in kept if count >= config.min_word_count and word != EMPTY_TOKEN]
    return [EMPTY_TOKEN, *words]


def _occupied_buckets(words: Sequence[str], config: TextConfig) -> NDArray[np.int32]:
    """The buckets that n-grams of `words` fall in, ascending."""
    return np.unique(ngram_buckets(tf.constant(words), config).values.numpy())
