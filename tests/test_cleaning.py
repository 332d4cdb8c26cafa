"""Filters of sentences and pairs on cases worked out by hand, languages, and faults of corpora."""

import pytest
from raw_files import write_files

from xling_tf.corpora.cleaning import (
    bitext_fault,
    corpus_faults,
    in_another_language,
    language_of,
    lengths_agree,
    letter_share,
    normalise,
    numbers,
    pair_fault,
    repeat_key,
    require_known,
    sentence_fault,
    word_count,
)
from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.records import InferencePair, ResponsePair, SentenceTriplet, TranslationPair
from xling_tf.corpora.store import transient_store
from xling_tf.errors import UserError


def test_normalise_composes_and_joins_lines():
    # e + combining acute -> é; no-break space, line end and tab -> one space; soft hyphen goes.
    assert normalise(" cafe\u0301\u00a0\n\tne\u00adgro ") == "café negro"


def test_words_letters_and_numbers():
    assert word_count("Don't stop, 3 times!", "en") == 3
    assert word_count("你好吗。", "zh") == 2  # three letters less one
    assert letter_share("ab 12") == 0.5
    # Thousands may be parted; single digits do not count.
    assert numbers("1,250 of 7 in 1984") == numbers("1.250 de 7 en 1984") == {"1250", "1984"}


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


def test_sentence_faults():
    expected = {
        "A good sentence.": None,
        "": "empty",
        "ab " * 116 + "ab": None,  # 116 * 3 + 2 = 350
        "ab " * 116 + "abc": "too long",
        "12 + 34 = 46 ab": "few letters",
        "Press <b>here</b> now": "markup or placeholder",
        "Name . . . . . . the name": "markup or placeholder",
        "Call RATE(years; payments) for the rate": "markup or placeholder",
        "Yes": "too short",
    }
    assert {sentence: sentence_fault(sentence, "en") for sentence in expected} == expected


def test_pair_faults():
    expected = {
        ("The cat sleeps.", "El gato duerme."): None,
        ("The cat", "El gato"): "too short",
        ("Ctrl Alt Delete", "ctrl alt delete"): "same on both sides",
        ("The cat sleeps.", "El gato duerme " * 3 + "El gato duerme"): "length ratio",
        ("In 1984 we left.", "Nos fuimos en 1985."): "numbers differ",
        ("Modern paint brush tool", "Modern paint brush herramienta"): "not translated",
    }
    assert {sides: pair_fault(TranslationPair(*sides), "en", "es") for sides in expected} == expected


CHILDREN = "The children are playing outside."


def test_the_first_reason_against_a_pair():
    expected = {
        # Nobody can tell the language of short sentences, so they stay.
        ("Good morning!", "¡Buenos días!", "es"): None,
        ("12 + 34 = 46 a", "12 + 34 = 46 b", "es"): "few letters",
        # 34 characters; at most 2.2 * 9 + 12 = 31 are allowed beside "Muy bien.".
        ("This is all very good, my friends.", "Muy bien.", "es"): "length ratio",
        ("Los niños están jugando en el jardín.", CHILDREN, "es"): "en side in another language",
        (CHILDREN, "Die Kinder spielen draußen im Garten.", "es"): "es side in another language",
        # Klingon is no language of the model: whatever its side looks like, it stays.
        (CHILDREN, "tlhIngan maH taHjaj Qapla' batlh", "tlh"): None,
        (CHILDREN, "こどもたちがそとであそんでいます。", "ja"): None,
    }
    for (source, target, language), fault in expected.items():
        assert bitext_fault(TranslationPair(source, target), "en", language) == fault


def test_sides_are_not_confused_by_where_they_part():
    assert repeat_key(TranslationPair("a b", "c")) != repeat_key(TranslationPair("a", "b c"))


SENTENCES = {
    "en": "The children are playing in the garden behind the house.",
    "es": "Los niños están jugando en el jardín detrás de la casa.",
    "fr": "Les enfants jouent dans le jardin derrière la maison.",
    "de": "Die Kinder spielen im Garten hinter dem Haus.",
    "zh": "孩子们正在房子后面的花园里玩耍。",
    "pt": "O gato não quer dormir no sofá porque há muito barulho na rua.",
}


def test_a_sentence_is_recognised_whatever_was_expected_and_a_rarer_language_only_where_it_was():
    for language, sentence in SENTENCES.items():
        assert language_of(sentence, ["en", "pt_BR", "tlh"]) == language
    catalan = "Els nens juguen al jardí que hi ha darrere de la casa."
    assert language_of(catalan, ["en", "ca"]) == "ca"
    assert language_of(catalan, ["en", "es"]) != "ca"
    # Short texts, names and numbers are of none.
    for text in ("", "Madrid", "12 34 5678 90", "🙂" * 30, "天气真不错啊"):
        assert language_of(text, ["en", "es", "zh"]) is None


def test_codes_of_languages_are_known_and_others_told_with_a_near_one():
    for known in ("en", "zh_TW", "yue", "nb", "mi"):  # the last two have no model, and a locale
        require_known(known)
    require_known("tlh", {"tlh"})
    for language, hint in (("zh-TW", "mean zh"), ("tlx", "mean tlh")):
        with pytest.raises(UserError, match=rf"'{language}'.* {hint}\?$"):
            require_known(language, {"tlh"})


# 48 sentences of 5 or more words in each language, no two of them equal.
ENGLISH = [f"My neighbour's old dog number {i} often sleeps near the big house" for i in range(48)]
SPANISH = [f"Cuando llueve, el perro número {i} de los vecinos duerme junto a su casa" for i in range(48)]
FRENCH = [f"Le chien numéro {i} dort toujours devant la maison de mes parents" for i in range(48)]


def pairs(sources, targets):
    return [TranslationPair(*sides) for sides in zip(sources, targets, strict=True)]


@pytest.mark.parametrize(
    ("languages", "records", "faults"),
    [
        ("en-es", pairs(ENGLISH, SPANISH), []),
        ("en", [SentenceTriplet(*ENGLISH[i : i + 3]) for i in range(46)], []),
        # 12 of 48 are a quarter; equal sides are told as well.
        (
            "en-es",
            pairs(ENGLISH, ENGLISH[:12] + SPANISH[12:]),
            ["25% of the es side look like en", "25% of the pairs are the same text on both sides"],
        ),
        # 4 of 48 are 8%.
        ("en-es", pairs(ENGLISH, ENGLISH[:4] + SPANISH[4:]), []),
        # 24 English, 23 French and 1 Spanish.
        (
            "de",
            [ResponsePair(text, "") for text in ENGLISH[:24] + FRENCH[:23] + SPANISH[:1]],
            ["100% of the de side look like en or fr"],
        ),
        ("en", [InferencePair(t, t, 0) for t in SPANISH], ["100% of the en side look like es"]),
        # 30 texts whose language can be told are needed.
        ("en-es", pairs(SPANISH[:29], SPANISH[19:48]), []),
        ("en-tlh", pairs(ENGLISH, SPANISH), []),
        ("en-es", pairs(ENGLISH[:8], SPANISH[:8]) * 3, ["only 8 of 24 records looked at differ"]),
        ("en-es", [], []),
    ],
)
def test_faults_of_a_corpus(languages, records, faults):
    assert list(corpus_faults(languages, records)) == faults


def test_a_swapped_corpus_is_warned_of_when_it_is_read(tmp_path, caplog):
    # More records than are looked at.
    sides = zip(SPANISH * 50, ENGLISH * 50, strict=True)
    lines = [f"{i} {spanish}\t{i} {english}" for i, (spanish, english) in enumerate(sides)]
    write_files(tmp_path, {"parallel/x.en-es.tsv": "\n".join(lines)})
    with caplog.at_level("WARNING"):
        transient_store(load_folder(tmp_path, source="en", targets=["es"]))
    assert [line.partition(";")[0] for line in caplog.messages] == [
        "parallel/x.en-es: 100% of the en side look like es",
        "parallel/x.en-es: 100% of the es side look like en",
    ]
