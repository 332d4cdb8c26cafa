"""Each filter on sentences worked out by hand."""

import pytest

from xling_tf.corpora.cleaning import (
    MAX_CHARACTERS,
    PairCleaner,
    in_another_language,
    lengths_agree,
    letter_share,
    normalise,
    numbers,
    pair_fault,
    sentence_fault,
    word_count,
)
from xling_tf.corpora.records import TranslationPair


def test_normalise_composes_and_joins_lines():
    # e + combining acute -> é; no-break space, line end and tab -> one space; soft hyphen goes.
    assert normalise(" cafe\u0301\u00a0\n\tne\u00adgro ") == "café negro"


def test_words_of_spaced_and_unspaced_languages():
    assert word_count("Don't stop, 3 times!", "en") == 3
    assert word_count("你好吗。", "zh") == 2  # three letters less one


def test_letter_share_leaves_spaces_out():
    assert letter_share("ab 12") == 0.5
    assert letter_share("") == 0.0


def test_numbers_ignore_thousands_separators_and_single_digits():
    assert numbers("1,250 of 7 in 1984") == {"1250", "1984"}
    assert numbers("1.250 de 7 en 1984") == {"1250", "1984"}


def test_length_agreement():
    # 10 <= 2.2 * 2 + 12 but 30 > 2.2 * 2 + 12
    assert lengths_agree("ab", "a" * 10, "en", "es")
    assert not lengths_agree("ab", "a" * 30, "en", "es")
    # 40 English characters go with about 13 Chinese ones.
    assert lengths_agree("a" * 40, "字" * 13, "en", "zh")
    assert not lengths_agree("a" * 100, "字" * 5, "en", "zh")


def test_english_among_german_is_found_and_german_is_not():
    assert in_another_language("The size of the image is changed.", "de")
    assert not in_another_language("Die Größe des Bildes wird geändert.", "de")
    assert not in_another_language("The size of the image is changed.", "en")
    assert in_another_language("After applying the filter", "zh")
    assert not in_another_language("使用 GIMP 打开图像", "zh")


@pytest.mark.parametrize(
    ("sentence", "reason"),
    [
        ("A good sentence.", None),
        ("", "empty"),
        ("word " * 71, "too long"),  # 355 characters
        ("12 + 34 = 46 ab", "few letters"),
        ("Press <b>here</b> now", "markup or placeholder"),
        ("Hello there $name", "markup or placeholder"),
        ("Name . . . . . . the name", "markup or placeholder"),
        ("Yes", "too short"),
        ("=VALUE(x) returns a number", "markup or placeholder"),
        ("Call RATE(years; payments) for the rate", "markup or placeholder"),
    ],
)
def test_sentence_faults(sentence, reason):
    assert sentence_fault(sentence, "en") == reason


def test_the_longest_sentence_allowed():
    assert sentence_fault("ab " * 116 + "ab", "en") is None  # 116 * 3 + 2 = 350
    assert MAX_CHARACTERS == 350


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("The cat sleeps.", "El gato duerme.", None),
        ("The cat", "El gato", "too short"),
        ("Ctrl Alt Delete", "ctrl alt delete", "same on both sides"),
        ("The cat sleeps.", "El gato duerme " * 4, "length ratio"),
        ("In 1984 we left.", "Nos fuimos en 1985.", "numbers differ"),
        ("Modern paint brush tool", "Modern paint brush herramienta", "not translated"),
    ],
)
def test_pair_faults(source, target, reason):
    assert pair_fault(TranslationPair(source, target.strip()), "en", "es") == reason


def test_cleaner_counts_duplicates_and_templates():
    cleaner = PairCleaner("en", "es")
    pairs = [
        TranslationPair(f"Gate {i} is now open", f"La puerta {i} ya está abierta") for i in range(5)
    ]
    # Three of a template are kept; the sixth is an exact copy of the first.
    assert [cleaner.keeps(pair) for pair in [*pairs, pairs[0]]] == [True] * 3 + [False] * 3
    assert cleaner.dropped == {"near-duplicate": 2, "duplicate": 1}
