"""How well tokenizers know texts."""

import pytest

from xling_tf.config import WordPieceConfig, WordsConfig
from xling_tf.tokenizers.coverage import Coverage, coverage, warn_of_unknown
from xling_tf.tokenizers.treebank import EMPTY_TOKEN
from xling_tf.tokenizers.wordpiece import WordPieceTokenizer
from xling_tf.tokenizers.words import WordTokenizer


def test_marks_do_not_count_and_blank_texts_neither():
    tokenizer = WordPieceTokenizer(
        ["[UNK]", "[CLS]", "[SEP]", "walk", "##ing"], WordPieceConfig(max_tokens=5)
    )
    # walk | walk ##ing [UNK] | [UNK] [UNK] walk walk ##ing: 3 of 9 tokens in 1 + 2 + 4 words; the
    # last, of 5 tokens and 2 marks, is cut at 5.
    texts = ["walk", "walking ეზო", " ", "x y walk walking", ""]
    assert coverage(tokenizer, texts) == Coverage(3 / 9, 9 / 7, 1 / 3)
    assert coverage(tokenizer, []) == Coverage(0, 0, 0)


@pytest.mark.parametrize(
    ("sizes", "unknown"),
    # Words alone: all but "walking". With n-grams of three letters, "walks" has "wal" and "alk".
    [((), 2 / 3), ((3,), 1 / 3)],
)
def test_words_are_unknown_if_they_have_no_known_ngram_either(sizes, unknown):
    config = WordsConfig(ngram_sizes=sizes, num_oov_buckets=1, num_ngram_buckets=1 << 20)
    tokenizer = WordTokenizer([EMPTY_TOKEN, "walking"], config)
    assert coverage(tokenizer, ["walking walks", "ეზო"]) == Coverage(unknown, 1, 0)


def test_words_of_a_script_without_a_known_letter_are_unknown_although_they_share_buckets():
    config = WordsConfig(ngram_sizes=(3,), num_oov_buckets=1, num_ngram_buckets=1)
    tokenizer = WordTokenizer([EMPTY_TOKEN, "walking"], config)
    assert coverage(tokenizer, ["walking walks", "ეზო"]) == Coverage(1 / 3, 1, 0)


def test_a_sign_of_a_language_without_spaces_is_a_word():
    tokenizer = WordPieceTokenizer(["[UNK]", "车", "站"], WordPieceConfig(sentence_marks=False))
    # Two signs, and a word of Latin letters that is unknown.
    assert coverage(tokenizer, ["车站 bus"]) == Coverage(1 / 3, 1, 0)


def test_many_unknown_pieces_are_told(caplog):
    vocabulary = ["[UNK]", "[CLS]", "[SEP]", "walk"]
    tokenizer = WordPieceTokenizer(vocabulary, WordPieceConfig(max_tokens=5))
    # One of 50 is as many as may be unknown; one of 49 is more.
    assert warn_of_unknown(tokenizer, ["walk"] * 49 + ["ეზო"], "a text") == pytest.approx(0.02)
    assert not caplog.messages
    warn_of_unknown(tokenizer, ["walk"] * 48 + ["ეზო"], "a text")
    assert ["2% of the pieces of a text are unknown" in line for line in caplog.messages] == [True]
