"""The probability that two sentences mean the same: fit, signature, and calibrated models."""

import dataclasses
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from encode_functions import by_last_word, by_meaning, looked_up
from testing import SENTENCES, corpus

import xling_tf
from xling_tf.client.logistic import fit_line, probabilities
from xling_tf.corpora.records import TranslationPair
from xling_tf.corpora.store import transient_store
from xling_tf.errors import UserError
from xling_tf.model import Model
from xling_tf.search.same_meaning import calibration_error, fit_pairs, translation_cosines
from xling_tf.trainer.validation import fit_same_meaning

# A logit of 0 at the cosine .5, and of log 3 at .75.
LINE = (4 * np.log(3), -2 * np.log(3))


def test_the_fit_has_the_odds_of_the_pairs():
    # Of 4,000 pairs at .25 a quarter is the same, of those at .75 three quarters are.
    cosines = np.repeat([0.25, 0.75], 4000)
    is_same = np.concatenate([np.arange(4000) % 4 == 0, np.arange(4000) % 4 != 0])
    assert fit_line(cosines, is_same) == pytest.approx(LINE, rel=2e-3)
    # Both kinds count equally: ten times as many different pairs change nothing.
    rare = np.concatenate([np.flatnonzero(is_same), np.tile(np.flatnonzero(~is_same), 10)])
    assert fit_line(cosines[rare], is_same[rare]) == pytest.approx(LINE, rel=2e-3)
    # Cosines that separate both kinds give a finite line, with its middle between them.
    slope, intercept = fit_line(
        np.array([0.2, 0.3, 0.7, 0.8]), np.array([False, False, True, True])
    )
    assert 0 < slope < 100
    assert -intercept / slope == pytest.approx(0.5)
    with pytest.raises(UserError, match="3 that mean the same, 0 that do not"):
        fit_line(np.ones(3), np.ones(3, bool))


def test_probabilities_and_their_error_derived_by_hand():
    predicted = probabilities(np.array([0.25, 0.5, 0.75]), LINE)
    assert probabilities(np.array([-1.0, 1.0]), (2000.0, -1000.0)).tolist() == [0.0, 1.0]
    assert predicted == pytest.approx([0.25, 0.5, 0.75])
    # The bin of .25 has one pair that differs, that of .75 one of each kind. Weights: 1/4 of each
    # different pair and 1/2 of the same one: |.25 / 4| + |.75 / 4 + (.75 - 1) / 2|.
    predicted, is_same = np.array([0.25, 0.75, 0.75]), np.array([False, False, True])
    assert calibration_error(predicted, is_same) == pytest.approx(0.0625 + 0.0625)
    assert calibration_error(np.array([0.0, 1.0]), np.array([False, True])) == 0


def test_the_nearest_wrong_translation_is_no_translation():
    pairs = [("yes", "sí"), ("Yes", "claro"), ("no", "no"), ("cat", "gato")]
    vectors = {text: [1, 0] for text in ("yes", "Yes", "sí")} | {"claro": [0.8, 0.6], "no": [0, 1]}
    vectors |= {text: [0.6, 0.8] for text in ("cat", "gato")}
    cosines, is_same = translation_cosines(looked_up(vectors), pairs)
    # yes and Yes: gato at .6, as both their translations are right. no: gato .8.
    # cat: claro .48 + .48.
    assert cosines == pytest.approx([1, 0.8, 1, 1, 0.6, 0.6, 0.8, 0.96])
    assert is_same.tolist() == [True] * 4 + [False] * 4


def test_pairs_between_the_same_and_different_are_left_out():
    grades = [("a", "a", 5), ("a", "b", 4), ("a", "c", 3.5), ("a", "d", 3), ("a", "d", 0)]
    graded = [dict(zip(("sentence1", "sentence2", "score"), row, strict=True)) for row in grades]
    vectors = {"a": [1, 0], "b": [0.8, 0.6], "c": [-1, 0], "d": [0, 1]}
    line = fit_line(np.array([1, 0.8, 0, 0]), np.array([True, True, False, False]))
    assert fit_pairs(looked_up(vectors), graded) == pytest.approx(line)


def test_a_probability_that_falls_with_the_cosine_is_refused():
    vectors = {"a": [1, 0], "b": [0.8, 0.6], "d": [0, 1]}
    # Equal and similar texts have the label 0, as entailment in GLUE.
    columns = {"sentence1": ["a", "a", "a"], "sentence2": ["a", "b", "d"], "label": [0, 0, 1]}
    with pytest.raises(UserError, match="reverse the labels if 0 means the same"):
        fit_pairs(looked_up(vectors), columns)
    names = ["entailment", "entailment", "not_entailment"]
    assert fit_pairs(looked_up(vectors), {**columns, "label": names})[0] > 0
    # Each translation is farther away than the other's, cosines of 0 against 1; and scores that say
    # nothing.
    nothing = {"first": ["a", "a"], "second": ["b", "b"], "score": [0, 1]}
    for pairs in ([("a", "d"), ("d", "a")], nothing):
        with pytest.raises(UserError, match="expected higher cosines"):
            fit_pairs(looked_up(vectors), pairs)


def test_a_calibrated_model_gives_probabilities(hub_model, tmp_path):
    info = dataclasses.replace(hub_model.info, same_meaning=LINE)
    Model(hub_model.tokenizer, hub_model.encoder_settings, info).save_pretrained(tmp_path)
    module = Model.from_pretrained(tmp_path).module()
    vectors = module(SENTENCES).numpy()
    found = module.same_meaning([SENTENCES[0]] * len(SENTENCES), SENTENCES).numpy()
    # The vector of a text with itself has the cosine 1.
    assert found == pytest.approx(probabilities(vectors @ vectors[0], LINE), abs=1e-5)
    assert found[0] == pytest.approx(0.9)
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many sentences"):
        module.same_meaning(["a", "b"], ["c"])


@pytest.mark.slow
def test_calibrating_an_exported_model(headless, tmp_path):
    with pytest.raises(UserError, match=r"xling_tf\.calibrate"):
        xling_tf.load(headless).probability("a", "b")
    source = tmp_path / "source"
    shutil.copytree(headless, source)
    pairs = [(text, text) for text in dict.fromkeys(SENTENCES) if text.strip()]
    output = tmp_path / "calibrated"
    assert xling_tf.calibrate(source, pairs, output) == output
    encoder = xling_tf.load(output)
    line = fit_pairs(encoder.encode, pairs)
    assert Model.from_pretrained(tmp_path / "calibrated").info.same_meaning == pytest.approx(
        line, rel=1e-4
    )
    vectors = encoder.encode(SENTENCES)
    expected = probabilities(vectors @ vectors[0], line)
    assert encoder.probability(SENTENCES[0], SENTENCES) == pytest.approx(expected, abs=1e-4)
    assert encoder.probability("hola", "hola") == pytest.approx(expected[0], abs=1e-4)
    assert "same_meaning" in (tmp_path / "calibrated/README.md").read_text("utf-8")


def test_a_training_calibrates_on_held_out_translations():
    pairs = [TranslationPair(f"en {n}", f"es {n}") for n in range(150)]
    records = transient_store([corpus("parallel", pairs)]).corpora[0].train[:100]
    held_out = SimpleNamespace(record_type="parallel", languages="en-es", held_out=records)
    line, scores = fit_same_meaning(by_last_word, [held_out])
    # Fitted on 50 pairs of cosine 1 and 50 with others near 0, so that Platt's targets are 51/52
    # and 1/52.
    assert probabilities(np.ones(1), line) == pytest.approx(51 / 52, abs=2e-3)
    assert scores == {
        "expected_calibration_error": pytest.approx(1 / 52, abs=5e-3),
        "num_pairs": 200,
    }
    # A model for which other pairs are nearer gives no probability that falls.
    next_one = by_meaning(lambda text: int(text.split()[1]) + text.startswith("en"))
    assert fit_same_meaning(next_one, [held_out]) == ((), {})
    held_out.held_out = records[:49]
    assert fit_same_meaning(by_last_word, [held_out]) == ((), {})
