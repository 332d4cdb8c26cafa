import dataclasses
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
from testing import TINY

from xling_tf.config import TextConfig
from xling_tf.hub.module import export
from xling_tf.layers.pooling import unit_length
from xling_tf.model import Model
from xling_tf.text import words as words_module
from xling_tf.text.preprocessor import fit_text
from xling_tf.text.tokenization import EMPTY_TOKEN
from xling_tf.text.words import (
    WordNgramPreprocessor,
    count_words,
    ngram_buckets,
    select_vocabulary,
)

TEXTS = ["Hola, hola.", "the cat, the dog", "cat"]


def test_counts_of_tokens(monkeypatch):
    # "Hola , hola ." + "the cat , the dog" + "cat"
    expected = {"Hola": 1, "hola": 1, ",": 2, ".": 1, "the": 2, "cat": 2, "dog": 1}
    assert count_words(TEXTS, TextConfig()) == expected
    monkeypatch.setattr(words_module, "_SENTENCES_PER_CHUNK", 2)
    assert count_words(TEXTS, TextConfig()) == expected


COUNTS = Counter({"rare": 1, "b": 2, "a": 2, "z": 5, "ñ": 2, EMPTY_TOKEN: 3})


@pytest.mark.parametrize(
    ("max_words", "min_word_count", "expected"),
    [
        (100, 1, ["z", "a", "b", "ñ", "rare"]),
        (3, 1, ["z", "a"]),
        (0, 1, []),
        (100, 2, ["z", "a", "b", "ñ"]),
        (3, 3, ["z"]),
    ],
)
def test_the_most_frequent_come_first_and_equals_by_the_alphabet(max_words, min_word_count, expected):
    config = TextConfig(max_words=max_words, min_word_count=min_word_count)
    assert select_vocabulary(COUNTS, config) == [EMPTY_TOKEN, *expected]


def test_the_ngram_table_has_a_row_for_each_bucket_in_use_and_one_for_all_others():
    # "<<empty>>": 7 three-grams and 6 four-grams. "<ab>": <ab ab> <ab>. "<abc>": <ab abc bc> <abc abc>,
    # of which "<ab" comes twice: 13 + 7 n-grams, no two in one of a million buckets.
    config = TextConfig(num_ngram_buckets=10**6, min_word_count=2)
    fitted, words = fit_text(config, {"en": iter(["ab abc"]), "es": iter(["ab abc xyz"])})
    assert words == [EMPTY_TOKEN, "ab", "abc"]
    assert dataclasses.replace(fitted, num_ngrams=0) == config
    assert fitted.num_ngrams == WordNgramPreprocessor(words, fitted).num_ngrams == 1 + 13 + 7


def test_no_two_ngrams_share_a_row_unless_they_share_a_bucket():
    # Hashed into as many buckets as are in use, 1 - 1/e of these 3,000 n-grams shared one.
    config = TextConfig(num_ngram_buckets=200_000)
    words = [f"{number:05d}" for number in range(0, 100_000, 97)]
    fitted, vocabulary = fit_text(config, {"en": [" ".join(words[i::20]) for i in range(20)]})
    buckets = ngram_buckets(tf.constant(vocabulary), config).values.numpy()
    rows = WordNgramPreprocessor(vocabulary, fitted).ngrams(tf.constant(vocabulary)).values.numpy()
    assert rows.min() == 1
    assert rows.max() == fitted.num_ngrams - 1 == len(set(buckets))
    assert len(set(zip(buckets, rows, strict=True))) == len(set(buckets))


def test_ngrams_that_no_known_word_has_share_row_0():
    config = TextConfig(num_ngram_buckets=10**6)
    fitted, vocabulary = fit_text(config, {"en": ["ab"]})
    words = tf.constant(["ab", "xyz", "abz"])
    rows = WordNgramPreprocessor(vocabulary, fitted).ngrams(words)
    # "<abz>": "<ab" is known of "<ab>".
    found = [sorted(row > 0 for row in word) for word in rows.to_list()]
    assert found == [[True] * 3, [False] * 5, [False] * 4 + [True]]
    # Models of before the rows were counted have one for each bucket.
    before = WordNgramPreprocessor(["ab"], dataclasses.replace(config, num_ngram_buckets=50))
    assert before.num_ngrams == 50
    assert before.ngrams(words).to_list() == ngram_buckets(words, before.config).to_list()


@pytest.mark.slow
def test_an_exported_encoder_spells_unknown_words_by_the_same_rows(tmp_path):
    config = dataclasses.replace(TINY.text, num_ngram_buckets=1000)
    text, vocabulary = fit_text(config, {"en": ["hola mundo", "the cat sat"]})
    assert 0 < text.num_ngrams < 1000
    model = Model.build(dataclasses.replace(TINY, text=text), vocabulary)
    sentences = tf.constant(["hola mundo", "holas gatos", "", "the xyz"])
    live = unit_length(model.encoder(model.preprocessor(sentences)))
    export(model.hub_module(), tmp_path / "model", {})
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    np.testing.assert_allclose(loaded(sentences), live, atol=1e-5)
