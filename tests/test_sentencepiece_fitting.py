"""What SentencePiece learns from texts of several languages, and what is said of it."""

import dataclasses
import importlib

import pytest
from test_sentencepiece import BY_LANGUAGE, CONFIG, TEXTS, rows

from xling_tf.errors import UserError
from xling_tf.text import sentencepiece
from xling_tf.text.sentencepiece import SentencePiecePreprocessor, draw_balanced, fit_pieces


def processor(model):
    return importlib.import_module("sentencepiece").SentencePieceProcessor(model_proto=model)


def pieces(model):
    found = processor(model)
    return {found.id_to_piece(i) for i in range(found.get_piece_size())}


def test_languages_are_drawn_alike_as_far_as_they_go():
    numbers = {"en": map(str, range(1000)), "es": map(str, range(100)), "zh": ["a", "b"]}
    drawn = draw_balanced(numbers, 60)
    assert [len(texts) for texts in drawn.values()] == [20, 20, 2]
    assert len({*drawn["en"]}) == 20
    assert draw_balanced({"en": map(str, range(1000))}, 20)["en"] == drawn["en"]


def test_what_is_drawn_lies_evenly_over_the_texts():
    # Of 0..9999, 1,000 have a mean of 4999.5, give or take 10000 / sqrt(12 * 1000) = 91.
    drawn = [int(text) for text in draw_balanced({"en": map(str, range(10_000))}, 1000)["en"]]
    assert abs(sum(drawn) / 1000 - 4999.5) < 4 * 91


def test_the_same_texts_give_the_same_model():
    fitted = fit_pieces(CONFIG, BY_LANGUAGE)
    assert fitted[0] == CONFIG
    assert fit_pieces(CONFIG, {name: iter(texts) for name, texts in BY_LANGUAGE.items()}) == fitted


def test_a_language_with_few_texts_weighs_as_much_as_the_bound_lets_it(monkeypatch):
    # 20 of each language: of the 2,000 Chinese ones, 2 held aside of 20, 18 characters are learnt.
    monkeypatch.setattr(sentencepiece, "_SAMPLED_TEXTS", 40)
    monkeypatch.setattr(sentencepiece, "_CHARACTER_COVERAGE", 1.0)
    characters = [chr(0x4E00 + i) for i in range(2000)]
    _, model = fit_pieces(CONFIG, {"zh": iter(characters), "en": ["tea"] * 15})
    kept = [place for place, text in enumerate(characters) if text in pieces(model)]
    assert len(kept) == 18
    assert kept[0] < 500 < 1500 < kept[-1]
    assert {*"tea"} <= pieces(model)


def test_an_error_in_the_texts_is_told_as_it_is():
    def texts():
        yield "hello"
        raise UserError("the third line is damaged")

    with pytest.raises(UserError, match=r"^the third line is damaged$"):
        fit_pieces(CONFIG, {"en": texts()})


def test_few_texts_have_few_pieces_and_this_is_said(caplog):
    # "a", "▁a", "▁", and the three that every model has; what is unknown has a row too.
    with caplog.at_level("WARNING", logger="absl"):
        _, model = fit_pieces(CONFIG, {"en": ["a a a"]})
    preprocess = SentencePiecePreprocessor(model, CONFIG)
    assert preprocess.num_words <= 6
    assert rows(preprocess, "zz")[0][-1] == 0
    size, coverage = caplog.messages
    assert "size=200 asks for more pieces than the texts have" in size
    assert "en: of 0 held-out texts" in coverage


@pytest.mark.parametrize(
    "texts", [{}, {"en": []}, {"en": ["", " "]}], ids=["none", "no text", "empty"]
)
def test_no_text_is_told(texts):
    with pytest.raises(UserError, match=r"expects texts to learn the pieces from") as caught:
        fit_pieces(CONFIG, texts)
    assert "\n" not in str(caught.value)


def test_fewer_pieces_than_characters_are_told_with_both_numbers():
    # The characters that have pieces, and those that every model has.
    config = dataclasses.replace(CONFIG, sentencepiece_size=5)
    with pytest.raises(
        UserError, match=r"=5 expects .* need, \d\d; set .* more than \d\d$"
    ) as caught:
        fit_pieces(config, BY_LANGUAGE)
    needed = int(str(caught.value).rsplit(" ", 1)[1])
    fit_pieces(dataclasses.replace(CONFIG, sentencepiece_size=needed + 1), BY_LANGUAGE)


@pytest.mark.parametrize("missing", ["tensorflow_text", "sentencepiece"])
def test_a_missing_library_is_named_with_the_extra(missing, monkeypatch):
    monkeypatch.setitem(importlib.import_module("sys").modules, missing, None)
    match = rf"sentencepiece needs {missing.replace('_', '-')}, .*xling_tf\[sentencepiece\]"
    with pytest.raises(UserError, match=match):
        fit_pieces(CONFIG, BY_LANGUAGE)


def test_coverage_of_other_texts_is_said_for_each_language(caplog):
    with caplog.at_level("INFO", logger="absl"):
        fit_pieces(CONFIG, BY_LANGUAGE)
    size, english, spanish = caplog.messages
    assert size == "200 pieces of 360 texts"  # of 400, a tenth of each language is held out
    assert english.startswith(
        "en: of 20 held-out texts the pieces spell 100.000% of the characters"
    )
    assert spanish.startswith("es: of 20 held-out texts")


def test_much_that_is_unknown_is_warned_of(caplog):
    # Each text has a character of its own, so the 4 texts held aside of 40 have 4 unknown characters of
    # 4 * 9: 88.889% are known.
    texts = [f"abcdabcd{chr(0x4E00 + i)}" for i in range(40)]
    with caplog.at_level("WARNING", logger="absl"):
        fit_pieces(CONFIG, {"zh": texts, "en": TEXTS[::2]})
    (warning,) = caplog.messages
    assert warning.startswith("zh: of 4 held-out texts the pieces spell 88.889% of the characters")
    assert "give more texts" in warning
