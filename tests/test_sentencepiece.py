"""SentencePiece's pieces: learnt from texts, cut in the graph, kept for the restart."""

import dataclasses
import importlib
import time

import numpy as np
import pytest
import tensorflow as tf
from testing import TINY, make_batches, make_examples

from xling_tf.config import ExperimentConfig, TextConfig
from xling_tf.corpora.sample import SAMPLE_FOLDER
from xling_tf.errors import UserError
from xling_tf.model import Model, fit_text
from xling_tf.model_card import model_card
from xling_tf.overrides import apply_overrides
from xling_tf.run_folder import RunFolder
from xling_tf.text import sentencepiece
from xling_tf.text.sentencepiece import SentencePiecePreprocessor, fit_pieces

CONFIG = TextConfig(
    tokenizer="sentencepiece", sentencepiece_size=200, max_tokens=12, lowercase=True
)
TEXTS = [
    text
    for line in (SAMPLE_FOLDER / "parallel" / "everyday.en-es.tsv").read_text("utf-8").splitlines()
    for text in line.split("\t")
][:400]


@pytest.fixture(scope="module")
def model():
    return fit_pieces(CONFIG, iter(TEXTS))[1]


@pytest.fixture(scope="module")
def preprocess(model):
    return SentencePiecePreprocessor(model, CONFIG)


def library():
    return importlib.import_module("sentencepiece")


def rows(preprocess, *texts):
    return preprocess.tokenize(tf.constant(texts)).to_list()


def test_the_library_gives_the_same_pieces(model, preprocess):
    processor = library().SentencePieceProcessor(model_proto=model)
    for text in TEXTS[:50]:
        assert rows(preprocess, text) == [processor.encode(text)[:12]]


def test_pieces_spell_the_text(model, preprocess):
    processor = library().SentencePieceProcessor(model_proto=model)
    assert processor.decode(rows(preprocess, "She had tea")[0]) == "she had tea"
    assert preprocess.num_words == processor.get_piece_size() == 200
    assert preprocess.num_ngrams == 0


def test_the_rule_for_the_case_of_letters_is_the_models():
    def fit(*, lowercase):
        config = dataclasses.replace(CONFIG, lowercase=lowercase)
        return SentencePiecePreprocessor(fit_text(config, TEXTS)[1], config)

    one, other = rows(fit(lowercase=True), "THE ÁRBOL", "the árbol")
    assert one == other
    one, other = rows(fit(lowercase=False), "THE ÁRBOL", "the árbol")
    assert one != other


def test_the_same_texts_give_the_same_model(model):
    assert fit_pieces(CONFIG, TEXTS) == (CONFIG, model)


def test_no_more_texts_are_learnt_from_than_the_bound(monkeypatch):
    # Of 2,000 texts of one character each, 50 are kept, drawn from all of them.
    monkeypatch.setattr(sentencepiece, "_SAMPLED_TEXTS", 50)
    monkeypatch.setattr(sentencepiece, "_CHARACTER_COVERAGE", 1.0)
    texts = [chr(0x4E00 + i) for i in range(2000)]
    _, model = fit_pieces(CONFIG, iter(texts))
    processor = library().SentencePieceProcessor(model_proto=model)
    pieces = {c for i in range(processor.get_piece_size()) for c in processor.id_to_piece(i)}
    kept = [place for place, text in enumerate(texts) if text in pieces]
    assert len(kept) == 50
    assert kept[0] < 300 < 1700 < kept[-1]
    assert fit_pieces(CONFIG, iter(texts))[1] == model


def test_an_error_in_the_texts_is_told_as_it_is():
    def texts():
        yield "hello"
        raise UserError("the third line is damaged")

    with pytest.raises(UserError, match=r"^the third line is damaged$"):
        fit_pieces(CONFIG, texts())


def test_few_texts_have_few_pieces():
    # "a", "▁a", "▁", and the three that every model has; what is unknown has a row too.
    _, model = fit_pieces(CONFIG, ["a a a"])
    preprocess = SentencePiecePreprocessor(model, CONFIG)
    assert preprocess.num_words <= 6
    assert rows(preprocess, "zz")[0][-1] == 0


@pytest.mark.parametrize(
    ("texts", "config"),
    [([], CONFIG), (["", " "], CONFIG), (TEXTS, dataclasses.replace(CONFIG, sentencepiece_size=5))],
    ids=["none", "empty ones", "fewer pieces than characters"],
)
def test_what_cannot_be_learnt_is_told(texts, config):
    with pytest.raises(UserError, match=r"text\.sentencepiece_size .* different") as caught:
        fit_pieces(config, texts)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", ["tensorflow_text", "sentencepiece"])
def test_a_missing_library_is_named_with_the_extra(missing, monkeypatch):
    monkeypatch.setitem(importlib.import_module("sys").modules, missing, None)
    with pytest.raises(
        UserError, match=r"sentencepiece needs .*xling_tf\[sentencepiece\]"
    ) as caught:
        fit_pieces(CONFIG, TEXTS)
    assert missing.replace("_", "-") in str(caught.value)


def test_the_model_outlives_tensorflows_caches(preprocess):
    graph = tf.function(lambda texts: preprocess.tokenize(texts).to_tensor())
    before = graph(tf.constant(["the cat"])).numpy().tolist()
    tf.random.set_seed(1)  # clears them
    assert graph(tf.constant(["the cat"])).numpy().tolist() == before
    assert rows(preprocess, "the cat") == before


ODD = {
    "empty": b"",
    "whitespace": " \t\n\u00a0\u3000".encode(),
    "NUL": b"\0",
    "emoji": "👩‍👩‍👧‍👦🏽".encode(),
    "invalid UTF-8": b"\xff\xfe",
    "a character cut in half": "é".encode()[:1],
    "a control piece in words": b"</s><s><unk>",
}


@pytest.mark.parametrize("name", ODD)
def test_any_string_has_a_piece(name, preprocess):
    (alone,) = rows(preprocess, ODD[name])
    assert 1 <= len(alone) <= 12
    assert all(0 <= piece < preprocess.num_words for piece in alone)
    assert rows(preprocess, b"hello", ODD[name], b"the cat")[1] == alone


def test_a_sentence_without_pieces_has_one_that_no_text_has(preprocess):
    assert rows(preprocess, "", " ", "</s>")[:2] == [[2], [2]]
    assert 2 not in rows(preprocess, "</s>")[0]


def test_nul_and_invalid_bytes_hide_nothing_behind_them(preprocess):
    (expected,) = rows(preprocess, "the cat")
    assert rows(preprocess, b"the\xff\xfe cat") == [expected]
    assert rows(preprocess, b"a\0the cat")[0][-1] == expected[-1]


@pytest.mark.parametrize("unit", ["word ", "我", "x", " "])
def test_a_megabyte_costs_what_a_page_costs(unit, preprocess):
    text = tf.constant([unit * (2**20 // len(unit.encode()))])
    preprocess.tokenize(text)
    begin = time.perf_counter()
    (row,) = preprocess.tokenize(text).to_list()
    assert time.perf_counter() - begin < 0.5
    assert 1 <= len(row) <= 12


def test_features_hold_each_piece_once_and_no_ngrams(preprocess):
    features = preprocess(tf.constant(["the cat the cat", ""]))
    (first, second) = rows(preprocess, "the cat the cat", "")
    ids, places = features.word_ids.numpy(), features.tokens.numpy()
    assert sorted(ids.tolist()) == sorted({*first, *second})
    assert ids[places[0]].tolist() == first
    assert ids[places[1, :1]].tolist() == second
    assert features.lengths.numpy().tolist() == [len(first), 1]
    assert len(features.ngram_ids) == len(features.ngram_words) == 0
    assert all(tensor.dtype == tf.int32 for tensor in features)


EXPERIMENT = dataclasses.replace(TINY, text=CONFIG)


def test_a_task_learns_on_pieces(model):
    trained = Model.build(EXPERIMENT, model)
    examples = make_examples(TEXTS[0:16:2], TEXTS[1:16:2])
    (batch,) = make_batches(trained, examples, [range(8)])
    task = trained.tasks[0]
    variables = [v.value for v in trained.encoder.trainable_variables]
    with tf.GradientTape() as tape:
        losses, _ = task.losses(trained.encoder, batch)
    assert losses.shape == (8,)
    for variable, gradient in zip(variables, tape.gradient(losses, variables), strict=True):
        assert np.isfinite(tf.convert_to_tensor(gradient)).all(), variable.name
    assert [table.shape for table in trained.encoder.table_variables] == [(200, 6)]


def test_the_run_folder_keeps_the_model_for_the_restart(model, tmp_path):
    run = RunFolder(tmp_path)
    # A start with words that was killed before its end does not count.
    run.write("vocabulary.txt", "left\nover\n")
    run.start(EXPERIMENT, EXPERIMENT, model, {})
    assert run.resolved(EXPERIMENT) == (EXPERIMENT, model)
    assert library().SentencePieceProcessor(str(tmp_path / "sentencepiece.model")).encode("the")


def test_the_tokenizer_is_chosen_by_name():
    config = apply_overrides(
        ExperimentConfig(), ["text.tokenizer=sentencepiece", "text.sentencepiece_size=200"]
    )
    fitted, vocabulary = fit_text(config.text, iter(TEXTS))
    assert fitted == config.text
    assert isinstance(vocabulary, bytes)


def test_the_page_of_a_model_of_pieces_says_what_it_needs():
    results = {"scores": {}, "versions": {"xling_tf": "1"}, "steps": 1, "minutes": 1, "corpora": {}}
    card = model_card("en-es", EXPERIMENT, results)
    assert "import tensorflow_text" in card
    assert "nothing else" not in card
    assert "nothing else" in model_card("en-es", TINY, results)
