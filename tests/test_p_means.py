"""Rücklé et al. 2018: power means, word vectors and maps between their spaces, by hand."""

import dataclasses
import gzip
import json
from collections import Counter
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from testing import DIM, LSTM, find_task, make_batch, make_examples, tiny_config, tiny_model

from xling_tf.baselines.rueckle2018 import PowerMeanConfig, word_vectors
from xling_tf.baselines.rueckle2018.p_mean import power_mean
from xling_tf.baselines.rueckle2018.word_vectors import (
    Bitext,
    Words,
    additive_gradients,
    cosine_hinge,
    fit_vectors,
    read_vectors,
)
from xling_tf.encoders.base import build_encoder, encoder_settings
from xling_tf.errors import UserError
from xling_tf.presets import get_preset
from xling_tf.settings import apply_overrides
from xling_tf.tokenizers.words import WordTokenizer
from xling_tf.trainer import experiment
from xling_tf.trainer.context import Run
from xling_tf.trainer.experiment import run_experiment

SAMPLE = Path(__file__).parents[1] / "xling_tf" / "corpora" / "sample"
INF = float("inf")
TOKENIZER = get_preset("p-mean").tokenizer
GERMAN = ["das haus", "ein hund", "das haus ist rot", "rot", "ein haus", "der hund ist rot"]
ENGLISH = ["the house", "a dog", "the house is red", "red", "a house", "the dog is red"]
BITEXT = Bitext.read({"en-de": list(zip(ENGLISH, GERMAN, strict=True))}, TOKENIZER, seed=1)


def mean_of(numbers, p):
    inputs = np.array(numbers, np.float32)[None, :, None]
    mask = np.pad(np.ones(inputs.shape[:2], bool), ((0, 0), (0, 2)))
    padded = np.pad(inputs, ((0, 0), (0, 2), (0, 0)), constant_values=99)
    return power_mean(padded, p, mask).numpy().item()


@pytest.mark.parametrize(
    ("numbers", "p", "expected"),
    [
        ([1, -2, 4], 1, 1),
        ([1, -2, 4], -INF, -2),
        ([1, 4], 0.5, 2.25),
        # (2 + i) / 2 squared is 0.75 + i.
        ([4, -1], 0.5, 0.75),
        ([3, -4], 2, np.sqrt(12.5)),
        # The mean of the cubes is -8: 8^(1/3) cos(pi / 3).
        ([-2, -2], 3, 1),
        ([1, 2, -4], -1, 3 / 1.25),
        ([2, 8], 0, 4),
        # Half of the numbers are negative: cos(pi / 2).
        ([2, -8], 0, 0),
        ([0, 5], 0, 0),
    ],
)
def test_power_means_by_hand(numbers, p, expected):
    assert mean_of(numbers, p) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("p", [-INF, -1, 0, 0.5, 3, INF])
def test_a_mean_is_finite_whatever_comes(p):
    for numbers in ([1, -1], [1e-30, -1e-30], [1e9, -1e9]):
        assert abs(mean_of(numbers, p)) <= 1e9


def test_a_sentence_has_the_means_of_each_space_of_the_words_it_knows():
    tokenizer = WordTokenizer(["one", "two"], TOKENIZER)
    config = PowerMeanConfig(p_values=("1", "inf"))
    encoder = build_encoder(encoder_settings(config, tokenizer, space_dims=[2, 1]))
    # The second space does not know the first word.
    rows = np.array([[1, 2, 0], [3, 0, 7]], np.float32)
    encoder.assign_word_vectors(rows, np.array([[True, False], [True, True]]))
    found = encoder(tokenizer(tf.constant(["one two", "one unseen", "unseen", ""]))).numpy()
    # Where a space knows no word, it is the mean of those it knows.
    assert found.tolist() == [
        [2, 1, 3, 2, 7, 7],
        [1, 2, 1, 2, 7, 7],
        [2, 1, 2, 1, 7, 7],
        [2, 1, 2, 1, 7, 7],
    ]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "en.vec").write_text("4 2\nhouse 1 0\ndog 0 1\nred 1 1\nrot 5 5\n")
    (tmp_path / "de.vec").write_text("3 2\nhaus 2 0\nhund 0 3\nrot 2 2\n")
    return tmp_path


def test_vectors_are_read_and_a_word_is_its_languages(folder):
    with gzip.open(folder / "glove.txt.gz", "wt") as file:
        file.write("red 4\nen:x 2\n")
    # Words of the third have tags of their languages.
    (folder / "both.txt").write_text("en:red 1\nde_rot 2\nde:red 3\n")
    names = [f"{folder}/{name}" for name in ("{}.vec", "glove.txt.gz", "both.txt")]
    fitted = fit_vectors(names, BITEXT, TOKENIZER, seed=1)
    of = dict(zip(fitted.words, fitted.rows.tolist(), strict=True))
    assert fitted.dims == (2, 1, 1)
    assert of["rot"] == [2, 2, 0, 2]  # German: "rot" is not among the English translations' words
    assert of["red"] == [1, 1, 4, 1]
    assert of["the"] == [0, 0, 0, 0]
    is_known = dict(zip(fitted.words, fitted.is_known.tolist(), strict=True))
    assert is_known["the"] == [False] * 3
    assert is_known["house"] == [True, False, False]
    assert fitted.words.index("house") < fitted.words.index("dog") < fitted.words.index("en:x")


BINARY = b"2 2\na %b" % np.array([1, 2], np.float32).tobytes()


def vectors_in(path):
    words = read_vectors(path)
    return {word: words.rows[place].tolist() for word, place in words.places.items()}


def test_files_of_vectors_as_they_are_published(tmp_path):
    content = b"the 1 2\n. . . 3 4\nthe 5 6\n\xff 7 8\n\xfe 9 9\n\n"
    for name, lines in (
        ("glove.txt", content),
        ("fast.vec", b"5 2\r\n" + content.replace(b"\n", b" \r\n")),
    ):
        (tmp_path / name).write_bytes(lines)
        assert vectors_in(tmp_path / name) == {"the": [1, 2], ". . .": [3, 4], "\ufffd": [7, 8]}
    for content in (b"1" + BINARY[1:], BINARY + BINARY[4:]):  # once, and twice
        (tmp_path / "x.bin").write_bytes(content)
        assert vectors_in(tmp_path / "x.bin") == {"a": [1, 2]}
    # Words are found in any form of Unicode.
    (tmp_path / "x.vec").write_text("n\u0303u 1 2\nn\u0303o 3 4\n\u00f1o 5 6\n")
    assert vectors_in(tmp_path / "x.vec") == {"\u00f1u": [1, 2], "\u00f1o": [5, 6]}


DAMAGED = {
    "count.vec": b"3 2\na 1 2\nb 3 4\n",
    "width.vec": b"2 2\na 1 2\nb 3\n",
    "long.vec": b"a 1 2\n" + b"b" * (1 << 21) + b" 3 4\n",
    "nan.vec": b"1 2\na 1 nan\n",
    "words.vec": b"1 2\na x y\n",
    "cut.bin": BINARY[:-1],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_vectors_are_refused(tmp_path, name):
    (tmp_path / name).write_bytes(DAMAGED[name])
    with pytest.raises(UserError, match=name):
        read_vectors(tmp_path / name)


@pytest.mark.parametrize(
    "name",
    [
        "bivcd",
        "cvm:0",
        "cca:bivcd:9",
        "cca:fr.vec",
        "cca@no_file.tsv:{}.vec",
        # A dictionary without single words, a mapping that takes none, and vectors of other words
        # alone.
        "cca@phrases.tsv:{}.vec",
        "sif@phrases.tsv:{}.vec",
        "other.vec",
    ],
)
def test_what_makes_no_space_is_refused(folder, name, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "phrases.tsv").write_text("the house\tdas haus\n")
    (folder / "other.vec").write_text("perro 1 2\ngato 3 4\n")
    with pytest.raises(UserError):
        fit_vectors([name], BITEXT, dataclasses.replace(TOKENIZER, max_words=5), seed=1)


def test_hinges_by_hand():
    a, b, n = (np.array([x], np.float32) for x in ([1, 0], [1, 1], [0, 1]))
    # cos(a, b) = 0.7071, cos(a, n) = 0.
    assert float(cosine_hinge(a, b, n, 1.0)[0]) == pytest.approx(1 - 0.5**0.5)
    assert float(cosine_hinge(a, n, b, 0.5)[0]) == pytest.approx(0.5 + 0.5**0.5)


# |a - b|^2 of the pairs is 1, 5 and 1; the translations after them are at 2 and 5, 8 and 2,
# 5 and 4. So two hinges are above 0 with a margin of 2.5, all with 9, and none with -9.
@pytest.mark.parametrize("margin", [2.5, 9.0, -9.0])
def test_the_gradients_of_sums_are_those_of_each_pair_and_the_sentences_after_it(margin):
    a, b = (
        np.array(rows, np.float32) for rows in ([[1, 0], [2, 0], [0, 3]], [[1, 1], [0, 1], [0, 2]])
    )
    both = tf.Variable(np.concatenate([a, b]))
    with tf.GradientTape() as tape:
        loss = 0.0
        for row in range(3):
            near = tf.reduce_sum((both[row] - both[3 + row]) ** 2)
            for shift in (1, 2):
                far = tf.reduce_sum((both[row] - both[3 + (row + shift) % 3]) ** 2)
                loss += tf.maximum(0.0, margin + near - far)
    expected = tape.gradient(loss, both).numpy()
    assert additive_gradients(a, b, margin=margin, noise=2) == pytest.approx(expected, abs=1e-5)


def test_the_regularizer_of_sums_by_hand():
    # With a single pair, its translation is the only noise sentence, and the hinge has no gradient.
    # That of the regularizer is the vector itself, also of a word that occurs twice.
    bitext = Bitext(
        {("en", "de"): ([["a", "a"]], [["x"]])}, {"en": Counter("aa"), "de": Counter("x")}
    )
    fitted = fit_vectors(["cvm:3"], bitext, TOKENIZER, seed=1)
    rows = np.random.default_rng(1).normal(0, 0.1, (2, 3))
    squares = 0.1
    for _ in range(5):
        squares = squares + rows**2
        rows = rows - 0.05 * rows / np.sqrt(squares)
    assert fitted.rows[[fitted.words.index(word) for word in "ax"]] == pytest.approx(rows, abs=1e-6)


def test_sif_weighs_words_and_takes_the_first_direction_out(folder):
    fitted = fit_vectors([f"sif:{folder}/{{}}.vec"], BITEXT, TOKENIZER, seed=1)
    of = dict(zip(fitted.words, fitted.rows, strict=True))
    plain = {language: read_vectors(folder / f"{language}.vec") for language in ("en", "de")}
    weighted = {}
    for language, words in plain.items():
        counts = BITEXT.counts[language]
        for word, place in words.places.items():
            weighted[language, word] = (
                words.rows[place] * 1e-3 / (1e-3 + counts[word] / counts.total())
            )
    averages = []
    for language, texts in (("en", ENGLISH), ("de", GERMAN)):
        for text in texts:
            known = [weighted[language, w] for w in text.split() if (language, w) in weighted]
            averages.append(np.mean(known, axis=0))
    direction = np.linalg.svd(np.array(averages))[2][0]
    for word, language in (("house", "en"), ("hund", "de")):
        row = weighted[language, word]
        assert of[word] == pytest.approx(row - (row @ direction) * direction, abs=1e-6)


@pytest.mark.parametrize("name", ["cvm:8", "project:{}"])
def test_words_come_near_their_translations(tmp_path, name):
    random = np.random.default_rng(0)
    languages = ("en", "de", "fr")  # English learns from both pairs
    for language in languages:
        rows = [f"{language}{i} {' '.join(map(str, random.normal(size=12)))}" for i in range(12)]
        (tmp_path / f"{language}.vec").write_text("\n".join(rows))
    sentences = random.integers(12, size=(3000, 4)).tolist()

    def pairs(target):
        return [
            [" ".join(f"{lang}{i}" for i in words) for lang in ("en", target)]
            for words in sentences
        ]

    bitext = Bitext.read({f"en-{target}": pairs(target) for target in languages[1:]}, TOKENIZER, 1)
    with mock.patch.dict(word_vectors._PROJECTION, epochs=10):
        fitted = fit_vectors([name.format(f"{tmp_path}/{{}}.vec")], bitext, TOKENIZER, 1)
    rows = fitted.rows / np.maximum(np.linalg.norm(fitted.rows, axis=1, keepdims=True), 1e-9)
    english, *others = (
        rows[[fitted.words.index(f"{lang}{i}") for i in range(12)]] for lang in languages
    )
    for other in others:
        assert np.mean(np.argmax(english @ other.T, axis=1) == np.arange(12)) > 0.5


def test_canonical_correlations_by_hand():
    # German has English's second column, tripled, and its first with as much of a third, unrelated
    # one: the correlations are 1 and 1 / sqrt(2).
    first, second, third = np.array([[1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]], np.float32)
    sides = {
        "en": np.stack([first, second], axis=1),
        "de": np.stack([first + third, 3 * second], axis=1),
    }
    space = {c: Words({f"{c}{i}": i for i in range(4)}, rows + 5) for c, rows in sides.items()}
    bitext = Bitext(
        {("en", "de"): tuple([[f"{c}{i}"] for i in range(4)] for c in sides)}, BITEXT.counts
    )
    english, german = (words.rows for words in word_vectors._cca(space, bitext, seed=1).values())
    for rows in (english, german):
        assert np.cov(rows.T) == pytest.approx(np.eye(2), abs=1e-5)
    assert english.T @ german / 3 == pytest.approx(np.diag([1, 0.5**0.5]), abs=1e-5)


def test_cca_of_a_dictionary_undoes_a_rotation(tmp_path):
    random = np.random.default_rng(0)
    english = random.normal(size=(60, 4))
    rotation = np.linalg.qr(random.normal(size=(4, 4)))[0]
    for language, rows in (("en", english), ("de", english @ rotation)):
        lines = [f"{language}{i} {' '.join(map(str, row))}" for i, row in enumerate(rows)]
        (tmp_path / f"{language}.vec").write_text("\n".join(lines))
    # Half of the words are in the dictionary; the translations, and entries of several words, are
    # wrong.
    entries = [f"en{i}\tde{i}" for i in range(30)] + [f"en{i} en1\tde{59 - i}" for i in range(60)]
    (tmp_path / "words.tsv").write_text("\n".join([*entries, "unknown\tunbekannt"]))
    wrong = [[f"en{i}", f"de{59 - i}"] for i in range(60)]
    bitext = Bitext.read({"en-de": wrong}, TOKENIZER, 1)
    name = f"cca@{tmp_path}/words.tsv:{tmp_path}/{{}}.vec"
    fitted = fit_vectors([name], bitext, TOKENIZER, 1)
    of = dict(zip(fitted.words, fitted.rows, strict=True))
    for i in range(60):
        np.testing.assert_allclose(of[f"en{i}"], of[f"de{i}"], atol=1e-3)


def test_infersents_vector_is_the_maximum_of_the_states():
    infersent = (
        "encoder.pooling=max",
        f"encoder.intermediate_dim={DIM // 2}",
        "encoder.num_layers=1",
    )
    model = tiny_model(tiny_config(*LSTM, *infersent))
    batch = make_batch(model, make_examples(["a b c", "d"], ["b", "hello e"]))
    forward, backward = model.encoder.forward, model.encoder.backward
    words = model.encoder.embed_words(batch.features.words).numpy()[batch.features.tokens.numpy()]
    lengths = batch.features.lengths.numpy()
    states = np.concatenate([read(words, lengths) for read in (forward, backward)], axis=-1)
    vectors = np.stack(
        [rows[:length].max(axis=0) for rows, length in zip(states, lengths, strict=True)]
    )
    assert model.encoder(batch.features).numpy() == pytest.approx(vectors, abs=1e-6)


def test_inference_and_detection_share_a_classifier_of_five_classes():
    model = tiny_model(tiny_config("tasks.inference_and_detection.weight=1"))
    detection, inference, spanish = (
        find_task(model, f"inference_and_detection{languages}")
        for languages in ("_en-es", "", "_es")
    )
    assert detection.heads == inference.heads == spanish.heads
    assert detection.trace_key != inference.trace_key == spanish.trace_key
    # Classes have a bias alone: e^0 to e^2 for inference, e^3 for unrelated sentences, e^4 for
    # translations.
    classifier = inference.heads["classifier"]
    classifier.logits.set_weights([np.zeros((7, 5)), np.arange(5.0)])
    total = np.log(np.exp(np.arange(5.0)).sum())
    batch = make_batch(model, make_examples(["a b c", "d"], ["b", "hello e"]))
    assert detection.losses(model.encoder, batch)[0].numpy() == pytest.approx(
        [total - 3.5] * 2, abs=1e-5
    )
    labelled = make_batch(model, make_examples(["a", "b"], ["c", "d"], labels=[0, 2]))
    assert inference.losses(model.encoder, labelled)[0].numpy() == pytest.approx(
        [total, total - 2], abs=1e-5
    )
    # What is exported is inference: the probabilities of its three classes.
    shares = np.exp(np.arange(3.0)) / np.exp(np.arange(3.0)).sum()
    served = model.module().signatures["inference"]
    assert served(tf.constant(["a"]), tf.constant(["b"])).numpy()[0] == pytest.approx(
        shares, abs=1e-5
    )


@pytest.mark.slow
def test_the_preset_is_fitted_exported_and_scored(tmp_path, monkeypatch):
    settings = ["data.targets=es", "initial.vectors=bivcd:8", "encoder.p_values=-inf,1,3,inf"]
    config = apply_overrides(get_preset("p-mean"), settings)
    places = {"data": SAMPLE, "run_dir": tmp_path / "run", "output": tmp_path / "model"}
    texts = ["a man", "un hombre", ""]
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "evaluate", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run_experiment(Run(name="p-mean", config=config, **places))
    # The model does not wait for its scores. Started again, the run takes the vectors that it has
    # kept.
    exported = tf.saved_model.load(str(tmp_path / "model"))(texts).numpy()
    results = run_experiment(Run(name="p-mean", config=config, **places))
    assert results["steps"] == 0
    assert "retrieval/en-es/all" in (tmp_path / "model" / "README.md").read_text()
    assert results["scores"]["retrieval/en-es/all"]["en-es/precision_at_1"] > 0.05
    encoder = json.loads((tmp_path / "model" / "config.json").read_text())["encoder"]
    assert (encoder["p_values"], encoder["space_dims"]) == (["-inf", "1", "3", "inf"], [8])
    vectors = tf.saved_model.load(str(tmp_path / "model"))(texts).numpy()
    assert vectors.shape == (3, 32)
    assert np.linalg.norm(vectors, axis=1)[:2] == pytest.approx(1, abs=1e-5)
    np.testing.assert_array_equal(exported, vectors)
