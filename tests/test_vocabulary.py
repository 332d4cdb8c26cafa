from collections import Counter

import pytest
import tensorflow as tf

from xling_tf.config import ExperimentConfig, TextConfig
from xling_tf.errors import UserError
from xling_tf.model import fit_text
from xling_tf.overrides import apply_overrides
from xling_tf.text import vocabulary
from xling_tf.text.tokenization import EMPTY_TOKEN
from xling_tf.text.vocabulary import count_ngrams, count_words, select_vocabulary
from xling_tf.text.word_ngram import ngram_ids

TEXTS = ["Hola, hola.", "the cat, the dog", "cat"]


def test_counts_of_tokens():
    # "Hola , hola ." + "the cat , the dog" + "cat"
    expected = {"Hola": 1, "hola": 1, ",": 2, ".": 1, "the": 2, "cat": 2, "dog": 1}
    assert count_words(TEXTS, TextConfig()) == expected


def test_counts_follow_the_rules_of_the_config():
    counts = count_words(TEXTS, TextConfig(lowercase=True, max_tokens=1))
    assert counts == {"hola": 1, "the": 1, "cat": 1}


def test_counts_do_not_depend_on_the_chunks(monkeypatch):
    whole = count_words(TEXTS, TextConfig())
    monkeypatch.setattr(vocabulary, "_SENTENCES_PER_CHUNK", 2)
    assert count_words(TEXTS, TextConfig()) == whole


def test_nothing_counts_nothing():
    assert count_words([], TextConfig()) == Counter()


COUNTS = Counter({"rare": 1, "b": 2, "a": 2, "z": 5, "ñ": 2})


def test_the_most_frequent_come_first_and_equals_by_the_alphabet():
    assert select_vocabulary(COUNTS, TextConfig()) == [EMPTY_TOKEN, "z", "a", "b", "ñ", "rare"]


def test_the_order_does_not_depend_on_the_order_of_counting():
    other = Counter(dict(reversed(COUNTS.items())))
    assert select_vocabulary(other, TextConfig()) == select_vocabulary(COUNTS, TextConfig())


@pytest.mark.parametrize(
    ("max_words", "min_word_count", "expected"),
    [
        (2, 1, ["z", "a"]),
        (0, 1, []),
        (100, 2, ["z", "a", "b", "ñ"]),
        (3, 3, ["z"]),
        (100, 6, []),
    ],
)
def test_sizes(max_words, min_word_count, expected):
    config = TextConfig(max_words=max_words, min_word_count=min_word_count)
    assert select_vocabulary(COUNTS, config) == [EMPTY_TOKEN, *expected]


@pytest.mark.parametrize("count", [1, 3, 100])
def test_the_empty_token_is_first_and_never_there_twice(count):
    counts = COUNTS + Counter({EMPTY_TOKEN: count})
    words = select_vocabulary(counts, TextConfig(max_words=100))
    assert words == [EMPTY_TOKEN, "z", "a", "b", "ñ", "rare"]


def test_without_texts_there_is_a_vocabulary_all_the_same():
    assert select_vocabulary(Counter(), TextConfig()) == [EMPTY_TOKEN]


def test_ngram_buckets_in_use_are_counted():
    # "<ab>": <ab ab> <ab>; "<abc>": <ab abc bc> <abc abc>: 3 + 5, "<ab" twice: 7 (no collision in
    # a million buckets).
    config = TextConfig(num_ngram_buckets=10**6)
    assert count_ngrams(["ab", "abc"], config) == 7
    # More words than buckets: no more than the buckets.
    words = [f"word{i}" for i in range(100)]
    assert count_ngrams(words, TextConfig(num_ngram_buckets=10)) == 10


def test_fit_text_shrinks_the_ngram_table_and_keeps_the_rest():
    config = TextConfig(num_ngram_buckets=10**6, min_word_count=2)
    fitted, words = fit_text(config, {"en": iter(["ab abc"]), "es": iter(["ab"])})
    assert words == [EMPTY_TOKEN, "ab"]
    assert fitted.num_ngram_buckets == 7
    assert fitted.max_words == config.max_words
    ids = ngram_ids(tf.constant(["ab", "abc", "unseen"]), fitted).values.numpy()
    assert ids.max() < 7


def test_words_alone_have_no_ngram_table_to_shrink():
    config = apply_overrides(ExperimentConfig(), ["text.ngram_sizes="]).text
    assert config.ngram_sizes == ()
    assert fit_text(config, {"en": iter(["ab abc", "ab"])}) == (config, [EMPTY_TOKEN, "ab", "abc"])


@pytest.mark.parametrize("override", ["text.ngram_sizes=0,3", "text.sentencepiece_size=0"])
def test_sizes_of_0_are_refused(override):
    with pytest.raises(UserError, match=r"text\.\w+ must be at least 1, got 0"):
        apply_overrides(ExperimentConfig(), [override])
