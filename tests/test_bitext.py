from collections import Counter

import pytest

from xling_tf.corpora.bitext import bitext_fault, repeat_key, without_repeats
from xling_tf.corpora.records import TranslationPair

GOOD = TranslationPair("The children are playing.", "Los niños están jugando.")


@pytest.mark.parametrize(
    ("source", "target", "fault"),
    [
        (*GOOD[:2], None),
        # Nobody can tell the language of short sentences, so they stay.
        ("Good morning!", "¡Buenos días!", None),
        ("", "Hola", "empty"),
        ("Hello", "", "empty"),
        ("word " * 71, "palabra", "too long"),  # 355 characters with the spaces; 350 are allowed
        ("12 + 34 = 46 a", "12 + 34 = 46 b", "few letters"),
        ("Open the <b>file</b> now", "Abre el archivo ahora", "markup or placeholder"),
        ("Good Morning", "good morning", "same on both sides"),
        # 34 characters; at most 2.2 * 9 + 12 = 31 are allowed beside "Muy bien.".
        ("This is all very good, my friends.", "Muy bien.", "length ratio"),
        ("There were 15 of us.", "Éramos 16 personas.", "numbers differ"),
        ("Visit the Royal Castle", "Visita the Royal Castle", "not translated"),
        (
            "Los niños están jugando en el jardín.",
            "The children are playing outside.",
            "en side in another language",
        ),
        (
            "The children are playing outside.",
            "Die Kinder spielen heute draußen im Garten.",
            "es side in another language",
        ),
    ],
)
def test_the_first_reason_against_a_pair(source, target, fault):
    assert bitext_fault(TranslationPair(source.strip(), target), "en", "es") == fault


def test_a_language_that_cannot_be_recognised_is_not_doubted():
    # Klingon is no language of the model: whatever its side looks like, it stays.
    pair = TranslationPair("The children are playing outside.", "tlhIngan maH taHjaj Qapla' batlh")
    assert bitext_fault(pair, "en", "tlh") is None


def test_a_japanese_side_is_not_asked_for_chinese_letters():
    pair = TranslationPair(
        "The children are playing outside.", "こどもたちがそとであそんでいます。"
    )
    assert bitext_fault(pair, "en", "ja") is None


def test_repeats_are_told_by_what_differs():
    other = TranslationPair("Good morning.", "Buenos días.")
    in_capitals = TranslationPair(GOOD.source.upper(), GOOD.target)
    dropped = Counter()
    kept = list(without_repeats([GOOD, other, in_capitals, GOOD, other], dropped))
    assert kept == [GOOD, other]
    assert dropped == {"near-duplicate": 1, "duplicate": 2}


def test_sides_are_not_confused_by_where_they_part():
    assert repeat_key(TranslationPair("a b", "c")) != repeat_key(TranslationPair("a", "b c"))
