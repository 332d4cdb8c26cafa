"""Filters of sentences and pairs on cases worked out by hand, languages, and faults of corpora."""

import pytest
from debian import pair_fault, sentence_fault

from xling_tf.corpora.cleaning import (
    are_shuffled,
    are_swapped,
    bitext_fault,
    corpus_faults,
    form_fault,
    language_of,
    language_of_texts,
    lengths_agree,
    normalise,
    require_known,
)
from xling_tf.corpora.records import ResponsePair, SentenceTriplet, TranslationPair
from xling_tf.errors import UserError


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
    other = "another language"
    assert sentence_fault("The size of the image is changed.", "de") == other
    assert sentence_fault("Die Größe des Bildes wird geändert.", "de") is None
    assert sentence_fault("The size of the image is changed.", "nl") == other
    assert sentence_fault("Dit huis is klein.", "nl") is None  # "is" is Dutch, too
    assert sentence_fault("After applying the filter", "zh") == other
    assert sentence_fault("The size of the image is changed.", "en_GB") is None
    for code in ("zh", "zh_TW"):
        assert sentence_fault("使用 GIMP 打开图像", code) is None
        assert lengths_agree(
            "今天天气很好我们走吧。", "Today the weather is nice, let us go.", code, "en"
        )
    # 40 English characters go with about 13 Chinese ones.
    assert lengths_agree("a" * 40, "字" * 13, "en", "zh")
    assert not lengths_agree("a" * 100, "字" * 5, "en", "zh")
    # 161 English characters go with about 72 Japanese or 80 Korean ones: 58 / .45 = 129.
    for code, length in (("ja", 58), ("ja", 40), ("ko", 70)):
        assert lengths_agree("a" * 161, "か" * length, "en", code)
    assert lengths_agree("か" * 38, "a" * 123, "ja", "en")
    # 161 is above 2.2 times 24 / .45, and 12.
    assert not lengths_agree("a" * 161, "か" * 24, "en", "ja")


def test_pair_faults():
    expected = {
        ("The cat sleeps.", "El gato duerme."): None,
        ("The cat", "El gato"): "too short",
        ("Ctrl Alt Delete", "ctrl alt delete"): "same on both sides",
        ("The cat sleeps.", "El gato duerme " * 3 + "El gato duerme"): "length ratio",
        ("In 1984 we left.", "Nos fuimos en 1985."): "numbers differ",
        # Thousands may be parted; single digits do not count.
        ("It has 1,250 pages in 7 parts.", "Tiene 1.250 páginas en siete partes."): None,
        ("Modern paint brush tool", "Modern paint brush herramienta"): "not translated",
        # One or two shared words of four: a name is the same in both languages.
        ("Madrid has many museums.", "Madrid tiene muchos museos."): None,
    }
    assert {
        sides: pair_fault(TranslationPair(*sides), "en", "es") for sides in expected
    } == expected


@pytest.mark.parametrize(
    ("language", "source", "target", "fault"),
    [
        # The digits of either script, and a country that changes no rule.
        ("ar", "There are 1,250 books in it.", "فيها ١٬٢٥٠ كتابًا قديمًا.", None),
        ("ar", "There are 1,250 books in it.", "فيها ١٬٢٥١ كتابًا قديمًا.", "numbers differ"),
        (
            "zh_TW",
            "I have to go to the railway station tomorrow morning.",
            "我明天早上要去火車站。",
            None,
        ),
        # A language that nobody recognises, and texts that are too short to tell, are no faults.
        ("tlh", "The children are playing outside.", "tlhIngan maH taHjaj Qapla' batlh", None),
        ("es", "Good morning!", "¡Buenos días!", None),
        (
            "es",
            "We play in the garden.",
            "Die Kinder spielen draußen im Garten.",
            "another language",
        ),
    ],
)
def test_faults_of_pairs_in_any_languages(language, source, target, fault):
    assert bitext_fault(TranslationPair(source, target), "en", language) == fault


def test_the_marks_of_other_scripts_are_parts_of_words():
    # Half of the characters, or more, are vowel signs and other marks.
    for text in ("မြန်မာနိုင်ငံတွင် ကျွန်ုပ်တို့ နေထိုင်ကြသည်။", "ខ្ញុំទៅផ្សារនៅព្រឹកនេះ។"):
        assert form_fault(text) is None
    assert form_fault("❤️❤️❤️ ☀️☀️") == "few letters"
    assert sentence_fault("स्टेशन", "hi") == "too short"  # one word
    assert normalise("e\u200b\u0301") == "é"
    assert normalise("می\u200cخواهم some\u200cthing\u200d") == "می\u200cخواهم something"


SENTENCES = {
    "en": "The children are playing in the garden behind the house.",
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


def test_many_texts_together_are_recognised_in_any_language():
    basque = ["Aukeratu gertaerak egutegian erakusteko.", "Ezarri aukera hau leihoa ixteko."]
    assert language_of_texts(basque * 10) == "eu"
    # Norwegian is one of three languages to py3langid, unless it is expected.
    norwegian = ["Barna leker bak skolen hver ettermiddag.", "I morgen skal vi gå på fjellet."] * 4
    assert language_of_texts(norwegian, ["no"]) == "no"
    # Chinese says as much with a third of the letters.
    assert language_of_texts(["孩子们每天下午都在学校后面玩。"] * 7) == "zh"
    # Too little to say, and no language at all.
    assert language_of_texts(["孩子们每天下午都在学校后面玩。"] * 2) is None
    assert language_of_texts(basque) is None
    assert language_of_texts(["1 2 3", "..."] * 100) is None
    assert language_of_texts([]) is None


def test_sides_are_swapped_if_each_is_in_the_language_of_the_other():
    assert are_swapped(["en", "zh_TW"], ["zh", "en"])
    assert not are_swapped(["en", "zh_TW"], ["en", "zh"])
    # Two texts of one language have no order, and an unknown language says nothing.
    assert not are_swapped(["en", "en"], ["en", "en"])
    assert not are_swapped(["en", "fr"], ["fr", None])
    assert not are_swapped([None, "fr"], ["fr", None])


def test_codes_of_languages_are_known_and_others_are_errors():
    for known in ("en", "zh_TW", "yue", "nb", "mi"):  # the last two have no model, and a locale
        require_known(known)
    require_known("tlh", {"tlh"})
    for language in ("zh-TW", "tlx"):
        with pytest.raises(UserError, match=f"got '{language}'"):
            require_known(language, {"tlh"})


# No two of them are equal.
ENGLISH = [f"My neighbour's old dog number {i} often sleeps near the big house" for i in range(48)]
SPANISH = [
    f"Cuando llueve, el perro número {i} de los vecinos duerme junto a su casa" for i in range(48)
]
FRENCH = [f"Le chien numéro {i} dort toujours devant la maison de mes parents" for i in range(48)]


def pairs(sources, targets):
    return [TranslationPair(*sides) for sides in zip(sources, targets, strict=True)]


@pytest.mark.parametrize(
    ("languages", "records", "faults"),
    [
        ("en-es", pairs(ENGLISH, SPANISH), []),
        # 12 of 48 are a quarter; equal sides are told as well.
        (
            "en-es",
            pairs(ENGLISH, ENGLISH[:12] + SPANISH[12:]),
            ["25% of the es side look like en", "25% of the pairs are the same text on both sides"],
        ),
        # 24 English, 23 French and 1 Spanish.
        (
            "de",
            [ResponsePair(text, "") for text in ENGLISH[:24] + FRENCH[:23] + SPANISH[:1]],
            ["100% of the de side look like en or fr"],
        ),
        (
            "en-es",
            pairs(SPANISH, ENGLISH),
            ["the sides seem to be swapped: the first is in es, the second in en"],
        ),
        # 30 texts whose language can be told are needed.
        ("en-es", pairs(SPANISH[:29], SPANISH[19:48]), []),
        ("en-es", pairs(ENGLISH[:8], SPANISH[:8]) * 3, ["only 8 of a sample of 24 records differ"]),
    ],
)
def test_faults_of_a_corpus(languages, records, faults):
    assert list(corpus_faults(languages, records)) == faults


def test_lines_in_no_order_are_told_from_documents():
    # Sentences of a document name the same farm; in a shuffled file, neighbours name others.
    ordered = [
        [f"Cows of farm{n} sleep", f"The old farm{n}", f"At farm{n}, it rains"] for n in range(200)
    ]
    shuffled = [
        [before, ordered[n - 7][1], ordered[n - 19][2]] for n, (before, *_) in enumerate(ordered)
    ]
    # Of fewer than 150 sentences, nothing is said.
    for documents, is_found in ((ordered, False), (shuffled, True), (shuffled[:149], False)):
        assert are_shuffled([SentenceTriplet(*each) for each in documents]) == is_found
