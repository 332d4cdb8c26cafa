"""Word tokenizer, with character n-grams (Chidambaram et al. 2019, sec. 2.1)."""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from itertools import chain, islice, zip_longest
from typing import Any, Self

import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import NDArray

from xling_tf.client.batches import available_cpus
from xling_tf.client.words import BYTES_PER_TOKEN
from xling_tf.config import WordsConfig
from xling_tf.corpora.line_files import without_country
from xling_tf.errors import library
from xling_tf.tokenizers.base import SpelledWords, VocabularyTokenizer
from xling_tf.tokenizers.treebank import EMPTY_TOKEN, rules, tokenize

# Words are clipped to this length before n-grams are taken, which bounds the memory for "aaaa...".
MAX_WORD_CHARACTERS = 50

_SENTENCES_PER_CHUNK = 50_000


class WordTokenizer(VocabularyTokenizer):
    """Splits text into words, each with a row of the word table and, optionally, rows of n-grams.

    Words outside the vocabulary are hashed to the rows after it. With `config.ngram_sizes`, these
    words have n-grams too. N-grams are hashed into `config.num_ngram_buckets`. The n-gram table has
    one row for each bucket with an n-gram of the vocabulary, and row 0 for all other buckets. 1.7%
    of the n-grams of words that training never saw have row 0; a row for each bucket is no better
    (evaluation/results/experiments.json, ngram-rows).

    Args:
        vocabulary: The known words, most frequent first; word i has row i of the word table.
        config: Sizes and rules.

    Examples:
        >>> config = WordsConfig(ngram_sizes=(), num_oov_buckets=1)
        >>> tokenizer = WordTokenizer(["<empty>", "hola"], config)
        >>> tokenizer(tf.constant(["hola hola amigo"])).words.numpy().tolist()
        [1, 2]
    """

    file_names = ("vocabulary.txt",)
    config: WordsConfig

    def __init__(self, vocabulary: Sequence[str], config: WordsConfig) -> None:
        super().__init__(vocabulary, config)
        self.known_words = self.vocabulary
        self.num_words = len(self.vocabulary) + config.num_oov_buckets
        initializer = tf.lookup.KeyValueTensorInitializer(
            tf.constant(self.vocabulary, tf.string), tf.range(len(vocabulary), dtype=tf.int64)
        )
        self._table = tf.lookup.StaticVocabularyTable(
            initializer, config.num_oov_buckets, lookup_key_dtype=tf.string
        )
        if config.ngram_sizes:
            buckets = np.unique(ngram_buckets(tf.constant(self.vocabulary), config).values.numpy())
            self.num_ngrams = 1 + len(buckets)
            self.ngram_rows = np.zeros(config.num_ngram_buckets, np.int32)
            self.ngram_rows[buckets] = 1 + np.arange(len(buckets))
            self._rows = tf.constant(self.ngram_rows)

    @classmethod
    def fit(cls, config: WordsConfig, texts_by_language: Mapping[str, Iterable[str]]) -> Self:
        """See `Tokenizer.fit`: takes the texts' most frequent words and `config.common_words`."""
        counts = count_words(chain.from_iterable(texts_by_language.values()), config)
        vocabulary = select_vocabulary(counts, config)
        if config.common_words:
            vocabulary += common_words(texts_by_language, vocabulary, config)
        tokenizer = cls(vocabulary, config)
        logging.info("%d words", len(tokenizer.vocabulary))
        if config.ngram_sizes:
            logging.info(
                "%d of %d n-gram buckets", tokenizer.num_ngrams - 1, config.num_ngram_buckets
            )
        return tokenizer

    def tokenize(self, sentences: tf.Tensor, max_tokens: int | None = None) -> tf.RaggedTensor:
        """See `Tokenizer.tokenize`: strings."""
        return tokenize(sentences, self.config, max_tokens)

    def word_ids(self, tokens: tf.Tensor) -> tf.Tensor:
        """See `Tokenizer.word_ids`."""
        return tf.cast(self._table.lookup(tokens), tf.int32)

    def is_unknown(self, tokens: tf.Tensor) -> tf.Tensor:
        """See `Tokenizer.is_unknown`: words outside the vocabulary, and without a known n-gram."""
        is_new = self.word_ids(tokens) >= len(self.vocabulary)
        if self.ngram_rows is None:
            return is_new
        has_ngram = tf.reduce_any(self.ngrams(tokens) > 0, axis=1)
        # N-grams share buckets, so those of an unknown script may seem known; its letters do not.
        codes = tf.strings.unicode_decode(tokens, "UTF-8")
        is_known = codes.with_values(tf.gather(self._known_letters, codes.values))
        return is_new & ~(has_ngram & tf.reduce_any(is_known, axis=1))

    @cached_property
    def _known_letters(self) -> NDArray[np.bool_]:
        """`[code points]`: whether the vocabulary has the character."""
        letters = np.zeros(sys.maxunicode + 1, bool)
        letters[[ord(letter) for letter in {*"".join(self.vocabulary)}]] = True
        return letters

    def rules(self) -> dict[str, Any]:
        """See `Tokenizer.rules`."""
        config = self.config
        ngrams = {
            "sizes": config.ngram_sizes,
            "num_buckets": config.num_ngram_buckets,
            "max_characters": MAX_WORD_CHARACTERS,
        }
        return {
            "kind": "words",
            "max_tokens": config.max_tokens,
            "max_bytes": BYTES_PER_TOKEN * config.max_tokens,
            "lowercase": config.lowercase,
            "empty": EMPTY_TOKEN,
            "num_buckets": config.num_oov_buckets,
            "ngrams": ngrams if config.ngram_sizes else None,
            **rules(config),
        }

    def word_features(self, tokens: tf.Tensor) -> Any:
        """See `Tokenizer.word_features`: returns `SpelledWords` if words have n-grams."""
        ids = self.word_ids(tokens)
        if self.ngram_rows is None:
            return ids
        is_known = ids < len(self.vocabulary)
        known, unknown = tf.where(is_known)[:, 0], tf.where(~is_known)[:, 0]
        # Most words are known: their n-grams are looked up rather than computed.
        parts = (
            tf.gather(self._known_ngrams, tf.gather(ids, known)),
            self.ngrams(tf.gather(tokens, unknown)),
        )
        ngrams = tf.gather(
            tf.concat(parts, axis=0), tf.argsort(tf.concat([known, unknown], axis=0))
        )
        return SpelledWords(ids, ngrams.values, tf.cast(ngrams.value_rowids(), tf.int32))

    @cached_property
    def _known_ngrams(self) -> tf.RaggedTensor:
        """The vocabulary's n-grams, computed when training first uses them; exports lack them."""
        with tf.init_scope():
            return self.ngrams(tf.constant(self.vocabulary, tf.string))

    def ngrams(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Maps `[words]` strings to `[words, (ngrams)]` int32 rows of the n-gram table."""
        buckets = ngram_buckets(words, self.config)
        return buckets.with_values(tf.gather(self._rows, buckets.values))


def ngram_buckets(words: tf.Tensor, config: WordsConfig) -> tf.RaggedTensor:
    """Hashes the n-grams of `[words]` strings to `[words, (ngrams)]` int32 buckets."""
    # "<" and ">" mark the ends of a word: n-grams at its ends differ from those inside, and a word
    # of one letter still has one.
    clipped = tf.strings.substr(words, 0, MAX_WORD_CHARACTERS, unit="UTF8_CHAR")
    characters = tf.strings.unicode_split(tf.strings.join(["<", clipped, ">"]), "UTF-8")
    ngrams = tf.strings.ngrams(characters, ngram_width=list(config.ngram_sizes), separator="")
    buckets = tf.strings.to_hash_bucket_fast(ngrams.values, config.num_ngram_buckets)
    return ngrams.with_values(tf.cast(buckets, tf.int32))


def count_words(sentences: Iterable[str], config: WordsConfig) -> Counter[str]:
    """Counts the words of any number of sentences, which are read once, on all processors."""
    counts: Counter[str] = Counter()
    rest = iter(sentences)
    processors = available_cpus()
    with ThreadPoolExecutor(processors) as pool:
        while chunks := [
            c for _ in range(processors) if (c := list(islice(rest, _SENTENCES_PER_CHUNK)))
        ]:
            for part in pool.map(partial(_count, config=config), chunks):
                counts.update(part)
    return counts


def _count(sentences: list[str], config: WordsConfig) -> dict[str, int]:
    # The tokenizer's operations use one thread each, and release Python's lock.
    tokens = tokenize(tf.constant(sentences), config)
    words, _, counts = tf.unique_with_counts(tokens.values)
    decoded = (word.decode("utf-8") for word in words.numpy().tolist())
    return dict(zip(decoded, counts.numpy().tolist(), strict=True))


def select_vocabulary(counts: Counter[str], config: WordsConfig) -> list[str]:
    """Returns `EMPTY_TOKEN`, then the most frequent words; on ties, the alphabetically first."""
    frequent = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[: config.max_words]
    words = [word for word, c in frequent if c >= config.min_word_count and word != EMPTY_TOKEN]
    return [EMPTY_TOKEN, *words]


def common_words(
    languages: Iterable[str], vocabulary: Sequence[str], config: WordsConfig
) -> list[str]:
    """Returns languages' most frequent words that a vocabulary lacks and still has room for."""
    # wordfreq counts them in subtitles, books, news, the web and Wikipedia.
    wordfreq = library("wordfreq", "wordfreq", "data")
    known = wordfreq.available_languages()
    codes = dict.fromkeys(map(without_country, languages))
    lists = [wordfreq.top_n_list(code, config.common_words) for code in codes if code in known]
    ranked = dict.fromkeys(word for w in zip_longest(*lists) for word in w if word is not None)
    present = set(vocabulary)
    new = [word for word in ranked if word not in present]
    # The tokenizer splits some of them: "don't", and Chinese words of more than two characters, or
    # without bigrams of more than one.
    tokens = tokenize(tf.constant(new, tf.string), config)
    whole = tf.reduce_any(tf.equal(tokens, tf.constant(new, tf.string)[:, None]), axis=1).numpy()
    room = max(0, config.max_words + 1 - len(vocabulary))
    return [word for word, is_whole in zip(new, whole, strict=True) if is_whole][:room]
