"""All Unicode forms of a text have the same tokens: the graph's NFC equals `unicodedata`'s."""

import sys
import unicodedata

import pytest
import tensorflow as tf

from xling_tf.client import words
from xling_tf.tokenizers.composition import composed, readable

CHARACTERS = [
    c
    for c in map(chr, range(sys.maxunicode + 1))
    if unicodedata.category(c) not in ("Cn", "Co", "Cs")
]
MARKS = [character for character in CHARACTERS if unicodedata.combining(character)]


def nfc(texts: list[str]) -> list[str]:
    return [text.decode() for text in composed(tf.constant(texts, tf.string)).numpy()]


def expected(texts: list[str]) -> list[str]:
    return [unicodedata.normalize("NFC", text) for text in texts]


TEXTS = {
    "Vietnamese, two marks": "Tie\u0302\u0301ng Vie\u0323\u0302t, vie\u0302\u0323t",
    "Greek, three marks": "\u1f00\u0301\u0345\u03c9\u0345\u0301\u0313 \u1fbe\u0308\u0301",
    "Korean": "\u1112\u1161\u11ab\u1100\u116e\u11a8 \ud55c\u11a8 \uac00\u11a7 \u1100\u0301\u1161",
    "marks in disorder": "q\u0307\u0323 a\u0301\u0323 a\u0328\u0302\u0304 c\u0338\u0327\u0301",
    "blocked": "a\u0316\u0300 a\u0300\u0300 a\u0315\u0300 a\u034f\u0300 a\u0316\u034f\u0300",
    "in NFC": "Ma\u00f1ana \u0e1c\u0e39\u0e49 \u05d1\u05bc\u05b0 \U0010ffff \uffff",
    "a zero": "a\0n\u0303\0",
    "a leading mark of byte order": "\ufeffn\u0303",
    "none": "",
}


def test_by_hand():
    for text in TEXTS.values():
        # In company too: the marks of one text are not those of the one before.
        texts = [
            text,
            "e",
            text,
            unicodedata.normalize("NFD", text),
            unicodedata.normalize("NFC", text),
            "",
        ]
        assert nfc(texts) == expected(texts)


def test_every_character():
    forms = [form for c in CHARACTERS for form in (c, unicodedata.normalize("NFD", c))]
    assert nfc(forms) == expected(forms)
    assert nfc([f"a{mark}\u0301" for mark in MARKS]) == expected(
        [f"a{mark}\u0301" for mark in MARKS]
    )


def test_a_flood_of_marks_takes_no_time():
    flood = ["e" + "\u0301\u0316" * 250_000, "n\u0303" * 250_000]
    assert nfc(flood) == ["\u00e9" + "\u0316" * 250_000 + "\u0301" * 249_999, "\u00f1" * 250_000]


@pytest.mark.parametrize(
    "text",
    ["\u0390" * 100, "\ud55c\uad6d\uc5b4 " * 30, "x" * 79 + "\u1eb9\u0301", "\u00e9\ud800" * 50],
)
def test_the_cut_is_the_same_in_every_form_and_runtime(text):
    forms = [text, *(unicodedata.normalize(form, text) for form in ("NFC", "NFD"))]
    encoded = [form.encode("utf-8", "surrogatepass") for form in forms]
    pages = [page.decode() for page in readable(tf.constant(encoded), 2).numpy()]
    assert len(set(pages)) == 1
    assert len(pages[0].encode()) in range(
        2 * words.BYTES_PER_TOKEN - 3, 2 * words.BYTES_PER_TOKEN + 1
    )
    assert [words.readable(form, 2 * words.BYTES_PER_TOKEN) for form in forms] == pages


def test_bytes_that_are_no_characters_become_spaces():
    texts = [b"n\xcc\x83\xffa\xcc", b"\xcc\x83n\xcc\x83", b"\xed\xa0\x80e\xcc\x81"]
    out = [text.decode() for text in readable(tf.constant(texts), 2).numpy()]
    assert out[:2] == ["\u00f1 a ", "\u0303\u00f1"]
    assert out[2].strip() == "\u00e9"
