import pytest

from xling_tf.corpora.languages import is_recognisable, language_of, plain, require_known
from xling_tf.errors import UserError

SENTENCES = {
    "en": "The children are playing in the garden behind the house.",
    "es": "Los niños están jugando en el jardín detrás de la casa.",
    "fr": "Les enfants jouent dans le jardin derrière la maison.",
    "de": "Die Kinder spielen im Garten hinter dem Haus.",
    "zh": "孩子们正在房子后面的花园里玩耍。",
    "ca": "Els nens juguen al jardí que hi ha darrere de la casa.",
}


@pytest.mark.parametrize("language", ["en", "es", "fr", "de", "zh"])
def test_a_sentence_is_recognised_whatever_was_expected(language):
    assert language_of(SENTENCES[language], ["en", "pt_BR"]) == language


def test_a_rarer_language_is_recognised_where_it_is_expected():
    assert language_of(SENTENCES["ca"], ["en", "ca"]) == "ca"
    # Not among the candidates, so that no Spanish text is ever taken for it.
    assert language_of(SENTENCES["ca"], ["en", "es"]) != "ca"


@pytest.mark.parametrize(
    "text", ["", " ", "OK", "Madrid", "C++ 17.2.1", "12 34 5678 90", "🙂" * 30]
)
def test_names_numbers_and_nothing_are_of_no_language(text):
    assert language_of(text, ["en", "es"]) is None


def test_seven_characters_of_chinese_are_enough_and_six_are_not():
    assert language_of("今天天气真不错", ["en", "zh"]) == "zh"
    assert language_of("天气真不错啊", ["en", "zh"]) is None


def test_regions_are_of_no_interest():
    assert plain("pt_BR") == "pt"
    assert is_recognisable("pt_BR")
    assert (
        language_of("O gato não quer dormir no sofá porque há muito barulho na rua.", ["pt_BR"])
        == "pt"
    )


def test_a_language_without_model_cannot_be_recognised():
    assert not is_recognisable("tlh")
    assert language_of(SENTENCES["en"], ["en", "tlh"]) == "en"


# The last two have no model, and a locale.
@pytest.mark.parametrize("language", ["en", "zh", "zh_TW", "pt_BR", "yue", "nb", "mi"])
def test_codes_of_languages_are_known(language):
    require_known(language)


@pytest.mark.parametrize(
    ("language", "hint"),
    [
        ("eng", "; did you mean en?"),
        ("EN", "; did you mean en?"),
        ("zh-TW", "; did you mean zh?"),
        ("tlx", "; did you mean tlh?"),
        ("xx", ""),
        ("", ""),
    ],
)
def test_other_codes_are_told_with_a_near_one(language, hint):
    with pytest.raises(UserError) as caught:
        require_known(language, {"tlh"})
    require_known("tlh", {"tlh"})
    assert str(caught.value) == (
        "a language is expected by its code as in file names (ISO 639-1: en, es, zh_TW), got "
        f"{language!r}{hint}"
    )
