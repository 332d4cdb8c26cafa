import json
import random

import numpy as np
import pytest
from encode_functions import by_meaning, constant, random_vectors

from xling_tf.errors import UserError
from xling_tf.evaluators.data import Dataset, Missing
from xling_tf.evaluators.encoding import NotApplicableError
from xling_tf.evaluators.pictures.illustrations import SUITES, HeatMap, RetrievalErrors
from xling_tf.evaluators.pictures.sentence_map import SentenceMap

ROWS = [(f"word {n}", f"Wort {n}", f"mot {n}") for n in range(20)]
LANGUAGES = ("en", "de", "fr")
KINDS = (SentenceMap, HeatMap, RetrievalErrors)
PERFECT = by_meaning(lambda text: text.split()[1])


def make(kind, rows=ROWS, **more):
    return kind(rows, LANGUAGES, name="words", **more)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_rows_makes_no_difference_and_a_second_call_none(kind):
    shuffled = random.Random(0).sample(ROWS, len(ROWS))
    evaluator = make(kind)
    drawn = evaluator(random_vectors())
    assert drawn == make(kind, shuffled)(random_vectors()) == evaluator(random_vectors())
    json.dumps(drawn)  # numbers of Python, not of NumPy


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_that_cannot_be_drawn_are_told(kind):
    with pytest.raises(UserError, match="NaN"):
        make(kind)(lambda texts: np.full((len(texts), 3), np.nan))
    with pytest.raises(UserError, match="zero only"):
        make(kind)(lambda texts: np.zeros((len(texts), 3)))


@pytest.mark.parametrize("kind", KINDS)
def test_one_row_is_too_few(kind):
    with pytest.raises(UserError, match="two different rows"):
        make(kind, ROWS[:1] * 5)


def test_translations_of_a_perfect_system_lie_together_on_the_map():
    points = make(SentenceMap)(PERFECT)["points"]
    places = np.array([[of["x"], of["y"]] for of in points.values()])  # [languages, 2, rows]
    assert places.min() >= 0
    assert places.max() <= 1
    distances = np.linalg.norm(places[0][:, :, np.newaxis] - places[1][:, np.newaxis, :], axis=0)
    assert (np.argmin(distances, axis=1) == np.arange(20)).all()


def test_rows_of_the_map_are_translations_and_long_texts_are_cut():
    rows = [*ROWS, ("word 20 " + "long " * 100, "Wort 20", "mot 20")]
    points = make(SentenceMap, rows)(random_vectors())["points"]
    numbers = [[text.split()[1] for text in of["texts"]] for of in points.values()]
    assert numbers[0] == numbers[1] == numbers[2]
    assert max(len(text) for text in points["en"]["texts"]) == 200


def test_one_vector_for_all_has_no_map():
    with pytest.raises(NotApplicableError):
        make(SentenceMap)(constant)


def test_the_heat_map_of_a_perfect_system_is_one_on_the_diagonal():
    drawn = make(HeatMap)(PERFECT)
    assert np.diag(drawn["similarities"]) == pytest.approx(1)
    assert drawn["languages"] == ["en", "de"]
    assert [len(texts) for texts in drawn["texts"]] == [12, 12]


def test_a_perfect_system_makes_no_errors_and_chance_nearly_only():
    assert make(RetrievalErrors)(PERFECT)["errors"] == []
    drawn = make(RetrievalErrors)(random_vectors())
    # 1 of 20 is right by chance: 4 or fewer are with a probability of 0.997 (binomial).
    assert 16 <= drawn["num_errors"] <= 20
    assert len(drawn["errors"]) == 12
    leads = [error["found_score"] - error["right_score"] for error in drawn["errors"]]
    assert leads == pytest.approx(sorted(leads, reverse=True), abs=2e-3)


def test_a_second_translation_is_no_error():
    # "one" finds "una", its other translation: only the best of the right ones counts.
    vectors = {"one": [1, 0], "una": [1, 0], "uno": [0, 1], "two": [1, 1], "dos": [1, 1]}
    rows = [("one", "uno"), ("one", "una"), ("two", "dos")]
    evaluator = RetrievalErrors(rows, ("en", "es"), name="numbers")
    assert evaluator(lambda texts: np.array([vectors[text] for text in texts]))["num_errors"] == 0


def write(folder, name, rows):
    path = folder / "bitext" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join("\t".join(row) for row in rows) + "\n", encoding="utf-8")


@pytest.mark.parametrize("suite", SUITES)
def test_bitexts_are_found_one_for_each_pair_of_languages(tmp_path, suite):
    for name in ("first", "second"):
        write(tmp_path, f"{name}.en-de.tsv", [("en", "de"), *(row[:2] for row in ROWS)])
    (found,) = suite.find(tmp_path, 0)
    assert isinstance(found, Dataset)
    assert found.name == "first.en-de"
    assert suite.illustrates
    assert found.load()(PERFECT)["languages"] == ["en", "de"]


@pytest.mark.parametrize("suite", SUITES)
def test_what_is_not_there_is_named(tmp_path, suite):
    (missing,) = suite.find(tmp_path, 0)
    assert isinstance(missing, Missing)
    assert "bitext/<name>" in missing.expected


def test_bitexts_with_the_same_english_become_one_map(tmp_path):
    write(tmp_path, "all.en-de.tsv", [("en", "de"), *(row[:2] for row in ROWS)])
    write(tmp_path, "all.en-fr.tsv", [("en", "fr"), *((row[0], row[2]) for row in ROWS)])
    (found,) = SUITES[0].find(tmp_path, 0)
    assert found.load()(PERFECT)["languages"] == ["en", "de", "fr"]
    assert len(list(SUITES[1].find(tmp_path, 0))) == 2
