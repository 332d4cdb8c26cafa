"""The words of the corpora, most frequent first."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

import tensorflow as tf
from absl import logging

from xling_tf.config import TextConfig
from xling_tf.text.tokenization import EMPTY_TOKEN, tokenize
from xling_tf.text.word_ngram import ngram_ids

_SENTENCES_PER_CHUNK = 50_000


def fit_words(
    config: TextConfig, texts_by_language: Mapping[str, Iterable[str]]
) -> tuple[TextConfig, list[str]]:
    """Builds the vocabulary, and shrinks the n-gram table to the n-grams that occur.

    Args:
        config: As asked for.
        texts_by_language: Read once, language after language.

    Returns:
        `config` with the size of the n-gram table, and the vocabulary.
    """
    counts = count_words(chain.from_iterable(texts_by_language.values()), config)
    vocabulary = select_vocabulary(counts, config)
    logging.info("%d words", len(vocabulary))
    if not config.ngram_sizes:
        return config, vocabulary
    num_ngrams = count_ngrams(list(counts), config)
    logging.info("%d n-gram buckets", num_ngrams)
    return dataclasses.replace(config, num_ngram_buckets=num_ngrams), vocabulary


def count_words(sentences: Iterable[str], config: TextConfig) -> Counter[str]:
    """Counts the tokens of `sentences`, which are read once.

    Example:
        >>> count_words(["Hola, hola."], TextConfig(lowercase=True)).most_common(1)
        [('hola', 2)]
    """
    counts: Counter[str] = Counter()
    for chunk in _chunks(sentences):
        tokens = tokenize(tf.constant(chunk), config)
        words, _, chunk_counts = tf.unique_with_counts(tokens.values)
        for word, count in zip(words.numpy().tolist(), chunk_counts.numpy().tolist(), strict=True):
            counts[word.decode("utf-8")] += count
    return counts


def _chunks(sentences: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(sentences)
    while chunk := list(islice(rest, _SENTENCES_PER_CHUNK)):
        yield chunk


def select_vocabulary(counts: Counter[str], config: TextConfig) -> list[str]:
    """Keeps the most frequent words, equal counts in alphabetical order.

    `EMPTY_TOKEN` is always known, so that no vocabulary is empty and every model knows "".

    Args:
        counts: How often each word occurs.
        config: `max_words` (200k in Chidambaram et al. 2019, sec. 3.2) and `min_word_count`: a word
            seen less often teaches its row nothing that its n-grams do not.
    """
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    kept = ranked[: config.max_words]
    words = [word for word, count in kept if count >= config.min_word_count and word != EMPTY_TOKEN]
    return [EMPTY_TOKEN, *words]


def count_ngrams(words: Sequence[str], config: TextConfig) -> int:
    """Counts the distinct n-gram buckets that `words` fall into, to size the n-gram table."""
    return int(tf.size(tf.unique(ngram_ids(tf.constant(words), config).values).y))
