"""The probability of a match: fit, client, and models that are fitted on own pairs."""

import dataclasses
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from encode_functions import by_last_word, by_meaning, looked_up
from testing import SENTENCES, corpus

import xling_tf
from xling_tf.client.backends import Function
from xling_tf.client.encoder import SentenceEncoder
from xling_tf.client.match import as_lines, fit_line, probabilities
from xling_tf.corpora.records import QuestionAnswer, TranslationPair
from xling_tf.corpora.store import transient_store
from xling_tf.errors import UserError
from xling_tf.model import Model
from xling_tf.search.calibration import (
    answer_examples,
    balanced,
    calibration_error,
    fit_pairs,
    fit_sample,
    translation_examples,
)
from xling_tf.trainer.validation import fit_match

# A logit of 0 at the cosine .5, and of log 3 at .75.
LINE = (4 * np.log(3), -2 * np.log(3))


def encoder_of(vectors, truncate_dim=None, **lines):
    """An encoder of vectors of two numbers, with probabilities by the kind of match."""
    find = looked_up(vectors)
    backend = Function(lambda texts: find(texts).reshape(len(texts), 2))
    backend.match = lines
    return SentenceEncoder(backend, truncate_dim=truncate_dim)


def test_the_fit_has_the_odds_of_the_pairs():
    # Of 4,000 pairs at .25 a quarter match, of those at .75 three quarters do.
    cosines = np.repeat([0.25, 0.75], 4000)
    is_match = np.concatenate([np.arange(4000) % 4 == 0, np.arange(4000) % 4 != 0])
    examples = balanced(cosines, is_match)
    assert fit_line(*examples) == pytest.approx(LINE, rel=2e-3)
    # Among 9 candidates the log odds are log(9) / 2 less, which the intercept makes up for.
    among_nine = examples._replace(num_candidates=np.full(8000, 9))
    assert fit_line(*among_nine) == pytest.approx((LINE[0], LINE[1] + np.log(3)), rel=2e-3)
    # Both kinds count equally: ten times as many different pairs change nothing.
    rare = np.concatenate([np.flatnonzero(is_match), np.tile(np.flatnonzero(~is_match), 10)])
    assert fit_line(cosines[rare], is_match[rare]) == pytest.approx(LINE, rel=2e-3)
    # Cosines that separate both kinds give a finite line, with its middle between them.
    slope, intercept = fit_line(
        np.array([0.2, 0.3, 0.7, 0.8]), np.array([False, False, True, True])
    )
    assert 0 < slope < 100
    assert -intercept / slope == pytest.approx(0.5)
    with pytest.raises(UserError, match="3 that match, 0 that do not"):
        fit_line(np.ones(3), np.ones(3, bool))


def test_probabilities_and_their_error_derived_by_hand():
    predicted = probabilities(np.array([0.25, 0.5, 0.75]), LINE)
    assert probabilities(np.array([-1.0, 1.0]), (2000.0, -1000.0)).tolist() == [0.0, 1.0]
    assert predicted == pytest.approx([0.25, 0.5, 0.75])
    # Among 9 candidates, odds of 3 become odds of 3 / sqrt(9) = 1.
    assert probabilities([0.75], LINE, 9) == pytest.approx([0.5])
    # The bin of .25 has one pair that differs, that of .75 one of each kind. Weights: 1/4 of each
    # different pair and 1/2 of the same one: |.25 / 4| + |.75 / 4 + (.75 - 1) / 2|.
    predicted, is_match = np.array([0.25, 0.75, 0.75]), np.array([False, False, True])
    assert calibration_error(predicted, is_match) == pytest.approx(0.0625 + 0.0625)
    assert calibration_error(np.array([0.0, 1.0]), np.array([False, True])) == 0


def test_the_nearest_wrong_translation_is_no_translation():
    pairs = [("yes", "sí"), ("Yes", "claro"), ("no", "no"), ("cat", "gato")]
    vectors = {text: [1, 0] for text in ("yes", "Yes", "sí")} | {"claro": [0.8, 0.6], "no": [0, 1]}
    vectors |= {text: [0.6, 0.8] for text in ("cat", "gato")}
    examples = translation_examples(looked_up(vectors), pairs)
    # yes and Yes: gato at .6, as both their translations are right. no: gato .8.
    # cat: claro .48 + .48.
    assert examples.cosines == pytest.approx([1, 0.8, 1, 1, 0.6, 0.6, 0.8, 0.96])
    assert examples.is_match.tolist() == [True] * 4 + [False] * 4


def test_answers_that_are_found_and_the_best_of_the_wrong():
    pairs = [("who", "ana"), ("when", "noon")]
    vectors = {"who": [1, 0], "ana": [0.8, 0.6], "when": [0, 1], "noon": [1, 0], "tea": [0.6, 0.8]}
    examples = answer_examples(SentenceEncoder(looked_up(vectors)), pairs, ["tea"])
    # who: the answer .8 is behind noon at 1, and is not found. when: the answer is at 0, behind ana
    # at .6. The only document about something else is at .6 and .8.
    assert not examples.is_match.any()
    assert examples.cosines == pytest.approx([1, 0.6, 0.6, 0.8])
    assert examples.weights == pytest.approx([0.125] * 4)
    vectors["noon"] = [0, 1]
    examples = answer_examples(SentenceEncoder(looked_up(vectors)), pairs, ["tea"])
    # Now who has .8 before 0, and when 1 before .6.
    assert examples.cosines[examples.is_match] == pytest.approx([0.8, 1])
    assert examples.weights.sum() == pytest.approx(1)
    # Sizes are powers of 4, at most the number of documents.
    many = [(f"q{n} {n}", f"a{n} {n}") for n in range(20)]
    examples = answer_examples(SentenceEncoder(by_last_word), many, [f"f x{n}" for n in range(9)])
    assert sorted({*examples.num_candidates.tolist()}) == [4, 16]
    assert examples.is_match.sum() == 2 * 20
    assert examples.weights[examples.is_match].sum() == pytest.approx(0.5)


def test_pairs_between_the_same_and_different_are_left_out():
    grades = [("a", "a", 5), ("a", "b", 4), ("a", "c", 3.5), ("a", "d", 3), ("a", "d", 0)]
    graded = [dict(zip(("sentence1", "sentence2", "score"), row, strict=True)) for row in grades]
    vectors = {"a": [1, 0], "b": [0.8, 0.6], "c": [-1, 0], "d": [0, 1]}
    line = fit_line(np.array([1, 0.8, 0, 0]), np.array([True, True, False, False]))
    encoder = SentenceEncoder(looked_up(vectors))
    for kind in ("same_meaning", "answer"):
        assert fit_pairs(encoder, kind, graded, ()) == pytest.approx(line)


def test_a_probability_that_falls_with_the_cosine_is_refused():
    encoder = SentenceEncoder(looked_up({"a": [1, 0], "b": [0.8, 0.6], "d": [0, 1]}))
    # Equal and similar texts have the label 0, as entailment in GLUE.
    columns = {"sentence1": ["a", "a", "a"], "sentence2": ["a", "b", "d"], "label": [0, 0, 1]}
    with pytest.raises(UserError, match="reverse the labels if 0 means a match"):
        fit_pairs(encoder, "same_meaning", columns, ())
    names = ["entailment", "entailment", "not_entailment"]
    assert fit_pairs(encoder, "same_meaning", {**columns, "label": names}, ())[0] > 0
    # Each translation is farther away than the other's, cosines of 0 against 1; and scores that say
    # nothing.
    nothing = {"first": ["a", "a"], "second": ["b", "b"], "score": [0, 1]}
    for pairs in ([("a", "d"), ("d", "a")], nothing):
        with pytest.raises(UserError, match="expected higher cosines"):
            fit_pairs(encoder, "same_meaning", pairs, ())
    with pytest.raises(UserError, match="answer"):
        fit_pairs(encoder, "answers", columns, ())


def test_a_search_gives_nothing_for_a_question_about_nothing():
    vectors = {"who": [1, 0], "ana": [0.8, 0.6], "tea": [0.6, 0.8], "what": [-1, 0]}
    encoder = encoder_of(vectors, answer=(10.0, -5.0))
    # The odds of log odds 8 - 5 and 6 - 5 are divided by the square root of 3 documents.
    odds = np.exp([3, 1]) / np.sqrt(3)
    hits, nothing, blank = encoder.semantic_search(
        ["who", "what", ""], ["tea", " ", "ana"], min_probability=0.5
    )
    assert [hit["corpus_id"] for hit in hits] == [2, 0]
    assert [hit["probability"] for hit in hits] == pytest.approx(odds / (1 + odds), abs=1e-6)
    assert (nothing, blank) == ([], [])
    # At 0, all but blank texts are hits; without a probability they are as before.
    (every,) = encoder.semantic_search(["what"], ["tea", " ", "ana"], min_probability=0)
    assert len(every) == 2
    assert "probability" not in encoder.semantic_search(["who"], ["ana"])[0][0]
    # Vectors, also quantized ones, give the same as texts.
    corpus_vectors = encoder.encode_document(["tea", " ", "ana"])
    assert encoder.semantic_search(["who"], corpus_vectors, min_probability=0.5) == [hits]
    empty = np.zeros((0, 2), np.int8)
    assert encoder.semantic_search(["who"], empty, min_probability=0.5) == [[]]
    for wrong in (-0.1, 1.1, "0.5", True, float("nan")):
        with pytest.raises(UserError, match="min_probability"):
            encoder.semantic_search(["who"], ["ana"], min_probability=wrong)


def test_the_probability_of_pairs_needs_whole_vectors_and_a_fitted_model():
    vectors = {"who": [1, 0], "ana": [0.8, 0.6], "tea": [0.6, 0.8]}
    encoder = encoder_of(vectors, same_meaning=(10.0, -8.0), answer=(10.0, -6.0))
    assert encoder.probability("who", "ana") == pytest.approx(0.5)
    # Odds of e^2, and among 16 candidates a quarter of that.
    assert encoder.probability("who", "ana", kind="answer", num_candidates=16) == pytest.approx(
        np.exp(2) / (4 + np.exp(2))
    )
    several = encoder.probability("who", ["ana", "", "who"])
    assert several == pytest.approx([0.5, 0, np.exp(2) / (1 + np.exp(2))])
    assert encoder.probability([0.0, 2.0], [[0.0, 1.0]]) == pytest.approx([several[2]])
    assert encoder.probability([], []).shape == (0,)
    with pytest.raises(UserError, match="equal shapes"):
        encoder.probability(["who", "ana"], ["tea"])
    with pytest.raises(UserError, match="kind"):
        encoder.probability("who", "ana", kind="question")
    with pytest.raises(UserError, match="numbers of the model's vectors"):
        encoder.probability([1.0], [1.0])
    with pytest.raises(UserError, match=r"xling_tf\.calibrate"):
        encoder_of(vectors).semantic_search("who", ["ana"], min_probability=0.5)
    cut = encoder_of(vectors, truncate_dim=1, answer=(1.0, 0.0))
    with pytest.raises(UserError, match="truncate_dim"):
        cut.semantic_search("who", ["ana"], min_probability=0.5)


def test_lines_that_are_no_two_numbers_are_not_read():
    good = {"same_meaning": [1.0, -2.0]}
    assert as_lines(good | {"answer": [1.0]}) == {"same_meaning": (1.0, -2.0)}
    assert as_lines(good | {"other": [1.0, 2.0], "answer": None}) == as_lines(good)
    assert as_lines(None) == as_lines([1.0]) == {}


def test_the_sample_fits_what_it_has_texts_for():
    # A perfect encoder would need meanings; random vectors separate nothing.
    lines = fit_sample(SentenceEncoder(lambda texts: np.eye(len(texts), 4)), ["xx"])
    assert lines == {}
    # Vectors of letters find many questions' answers.
    encoder = SentenceEncoder(letters)
    lines = fit_sample(encoder, ["en"])
    assert lines.keys() == {"answer"}
    assert lines["answer"][0] > 0
    assert fit_sample(encoder, []) == lines


def letters(texts):
    """The counts of three letters in each text, by their remainders."""
    rows = np.zeros((len(texts), 512), np.float32)
    for row, text in zip(rows, texts, strict=True):
        for start in range(max(1, len(text) - 2)):
            row[sum(map(ord, text[start : start + 3].lower())) % 512] += 1
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1)


def test_a_models_probabilities_are_in_its_folder(hub_model, tmp_path):
    info = dataclasses.replace(hub_model.info, match={"same_meaning": LINE})
    Model(hub_model.tokenizer, hub_model.encoder_settings, info).save_pretrained(tmp_path)
    model = Model.from_pretrained(tmp_path)
    encoder = xling_tf.load(model)
    vectors = encoder.encode(SENTENCES)
    found = encoder.probability(SENTENCES[0], SENTENCES)
    # The vector of a text with itself has the cosine 1.
    has_text = vectors.any(axis=1)
    expected = np.where(has_text, probabilities(vectors @ vectors[0], LINE), 0)
    assert found == pytest.approx(expected, abs=1e-5)
    assert found[0] == pytest.approx(0.9)


@pytest.mark.slow
def test_fitting_an_exported_model_on_own_pairs(headless, tmp_path):
    with pytest.raises(UserError, match=r"xling_tf\.calibrate"):
        xling_tf.load(headless).probability("a", "b")
    source = tmp_path / "source"
    shutil.copytree(headless, source)
    pairs = [(text, text) for text in dict.fromkeys(SENTENCES) if text.strip()]
    output = tmp_path / "calibrated"
    assert xling_tf.calibrate(source, pairs, output) == output
    encoder = xling_tf.load(output)
    line = fit_pairs(encoder, "same_meaning", pairs, ())
    match = Model.from_pretrained(output).info.match
    assert match["same_meaning"] == pytest.approx(line, rel=1e-4)
    vectors = encoder.encode(SENTENCES)
    expected = np.where(vectors.any(axis=1), probabilities(vectors @ vectors[0], line), 0)
    assert encoder.probability(SENTENCES[0], SENTENCES) == pytest.approx(expected, abs=1e-4)
    # The other kind is added to the first; both are in the exports for other runtimes.
    both = tmp_path / "both"
    xling_tf.calibrate(output, pairs, both, kind="answer")
    runtime = xling_tf.export(both, "onnx", tmp_path / "onnx")
    lines = xling_tf.load(runtime).match
    assert lines["same_meaning"] == pytest.approx(line, rel=1e-4)
    assert lines.keys() == {"same_meaning", "answer"}
    assert "Probabilities" in (both / "README.md").read_text("utf-8")


def test_a_training_fits_on_held_out_translations_and_questions():
    pairs = [TranslationPair(f"en {n}", f"es {n}") for n in range(150)]
    records = transient_store([corpus("parallel", pairs)]).corpora[0].train[:100]
    held_out = SimpleNamespace(record_type="parallel", languages="en-es", held_out=records)
    encoder = SentenceEncoder(by_last_word)
    lines, scores = fit_match(encoder, by_last_word, [held_out], "en")
    # Fitted on 50 pairs of cosine 1 and 50 with others near 0, so that Platt's targets are 51/52
    # and 1/52.
    assert probabilities(np.ones(1), lines["same_meaning"]) == pytest.approx(51 / 52, abs=2e-3)
    assert scores == {
        "expected_calibration_error": pytest.approx(1 / 52, abs=5e-3),
        "num_pairs": 200,
    }
    rows = [QuestionAnswer(f"q {n}", f"a {n}", f"c {n}") for n in range(150)]
    questions = transient_store([corpus("questions", rows)]).corpora[0].train[:100]
    asked = SimpleNamespace(record_type="questions", languages="en", held_out=questions)
    lines, _ = fit_match(encoder, by_last_word, [held_out, asked], "en")
    # An answer at the cosine 1 is likely, and a wrong one, near 0, is not.
    assert probabilities([1, 0.1], lines["answer"], 64) == pytest.approx([1, 0], abs=0.1)
    # A model for which other pairs are nearer gives no probability that falls.
    next_one = by_meaning(lambda text: int(text.split()[1]) + text.startswith("en"))
    assert "same_meaning" not in fit_match(encoder, next_one, [held_out], "xx")[0]
