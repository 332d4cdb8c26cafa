"""The words of the corpora, most frequent first."""

from collections import Counter
from collections.abc import Sequence

import tensorflow as tf

from xling_tf.config import TextConfig
from xling_tf.text.tokenization import EMPTY_TOKEN, tokenize
from xling_tf.text.word_ngram import ngram_ids

_SENTENCES_PER_CHUNK = 50_000


def count_words(sentences: Sequence[str], config: TextConfig) -> Counter[str]:
    """Counts the tokens of `sentences`.

    Example:
        >>> count_words(["Hola, hola."], TextConfig(lowercase=True)).most_common(1)
        [('hola', 2)]
    """
    counts: Counter[str] = Counter()
    for start in range(0, len(sentences), _SENTENCES_PER_CHUNK):
        chunk = tf.constant(sentences[start : start + _SENTENCES_PER_CHUNK])
        tokens = tokenize(chunk, max_tokens=config.max_tokens, lowercase=config.lowercase)
        words, _, chunk_counts = tf.unique_with_counts(tokens.values)
        for word, count in zip(words.numpy().tolist(), chunk_counts.numpy().tolist(), strict=True):
            counts[word.decode("utf-8")] += count
    return counts


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
