"""Exports with only the pieces that some languages use."""

from functools import cache
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from testing import add_noise, tiny_config, tiny_model

from xling_tf.config import ModelInfo
from xling_tf.errors import UserError
from xling_tf.exporters import vocabulary
from xling_tf.exporters.base import OriginalModel, export, sample_texts
from xling_tf.model import Model
from xling_tf.savedmodel.saved_models import load_saved_model

SAMPLE = sample_texts(None, ("en", "es"))
PIECES = ("tokenizer.kind=sentencepiece", "tokenizer.num_pieces=600", "tokenizer.max_tokens=32")
PROMPTS = {"query": "zzzquery: ", "document": "text: "}


@pytest.fixture
def lists(monkeypatch):
    """Lists of frequent words: in English those of the sample, in Spanish a word and a rare one."""
    words = {word: 1e-3 for text in SAMPLE[::2] for word in text.casefold().split()}
    shares = {"en": words, "es": {"gato": 1e-7, "alfombra": 9e-8}}
    known = SimpleNamespace(
        available_languages=lambda: dict.fromkeys(shares),
        get_frequency_dict=cache(lambda code: shares[code]),
        get_frequency_list=cache(list),
    )
    monkeypatch.setattr(vocabulary, "library", lambda *names: known)


def test_pieces_are_used_in_words_of_any_case_in_scripts_without_spaces_and_without_letters():
    # "he" is in "the", but no word begins with it; "weiß" is "weiss" without case.
    used = ["▁the", "he", "The", "▁THE", "weiß", "1,", "▁", "我们", "▁我", "々"]
    others = ["▁he", "▁e", "the1", "ные", "▁で", "ක්"]
    pieces = [*used, *others]
    found = vocabulary._used(pieces, ["en", "zh_TW"], ["the", "weiss"])
    assert [piece for piece, is_used in zip(pieces, found, strict=True) if is_used] == used
    assert vocabulary._used(["我们", "▁で", "ที่"], ["en"], []) == [False] * 3
    assert vocabulary._used(["我们", "▁で", "ที่"], ["ja", "th"], []) == [True] * 3


def test_a_word_counts_if_it_is_one_of_ten_million(lists):
    assert vocabulary._words(["es_MX"]) == {"gato"}
    assert vocabulary._words(["th"]) == set()
    for codes, found in (([], "none"), (["es", "tlh", "xx"], "tlh, xx")):
        with pytest.raises(UserError, match=f"some of en, es, ja.*, got {found};"):
            vocabulary._words(codes)


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(1)
    settings = tiny_config(*PIECES, "encoder.bow_residual=false")
    model = tiny_model(settings, {"en": SAMPLE[::2], "es": SAMPLE[1::2]})
    add_noise(model.weights.values())
    info = ModelInfo(languages=("en", "es"), prompts=PROMPTS, default_prompt_name="query")
    model.info = info
    return model


def test_a_smaller_model_gives_the_language_that_is_kept_the_same_vectors(model, lists, tmp_path):
    folder, small = tmp_path / "model", tmp_path / "small"
    model.export(folder, {"README.md": "# A card\n"})
    export(folder, "savedmodel", small, languages="en")
    before, after = load_saved_model(folder), load_saved_model(small)
    loaded = Model.from_pretrained(small)
    assert loaded.tokenizer.num_words < model.tokenizer.num_words
    assert (loaded.info.languages, loaded.info.prompts) == (("en",), PROMPTS)
    # Every signature gives English what it gave before.
    assert {*after.signatures} == {*before.signatures}
    texts = tf.constant(SAMPLE[::2][:50])
    np.testing.assert_allclose(after(texts), before(texts), atol=1e-5)
    np.testing.assert_allclose(
        after.question_encoder(texts), before.question_encoder(texts), atol=1e-5
    )
    card = (small / "README.md").read_text("utf-8")
    assert f"{loaded.tokenizer.num_words} of {model.tokenizer.num_words} pieces" in card


def test_a_model_of_words_has_no_pieces_to_leave_out(lists, tmp_path):
    model = tiny_model(tiny_config())
    source = OriginalModel(tmp_path, model, lambda texts: model(texts).numpy(), None)
    with pytest.raises(UserError, match="needs a model of pieces"):
        vocabulary.reduced(source, "en")
