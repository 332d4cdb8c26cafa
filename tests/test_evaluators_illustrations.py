"""The drawings for `evaluation/report.py`, with known encoders."""

import json
import random

import numpy as np
import pytest
from encode_functions import by_last_word, constant, random_vectors
from evaluation_data import write_table
from illustrations import SUITES

from xling_tf.errors import UserError
from xling_tf.evaluators.encoding import NotApplicableError

ROWS = [(f"word {n}", f"Wort {n}") for n in range(20)]


@pytest.fixture
def drawn(tmp_path):
    def draw(suite, encode, rows=ROWS):
        write_table(tmp_path / "bitext/words.en-de.tsv", "en de", *rows)
        (found,) = SUITES[suite].find(tmp_path, 0)
        return found.load()(encode)

    return draw


@pytest.mark.parametrize("suite", ["sentence_map", "heat_map", "retrieval_errors"])
def test_the_order_of_rows_does_not_matter_and_invalid_data_are_reported(suite, drawn, tmp_path):
    assert not [*SUITES[suite].find(tmp_path, 0)]
    made = drawn(suite, random_vectors())
    assert made == drawn(suite, random_vectors(), random.Random(0).sample(ROWS, len(ROWS)))
    json.dumps(made)  # numbers of Python, not of NumPy
    with pytest.raises(UserError, match="finite"):
        drawn(suite, lambda texts: np.full((len(texts), 3), np.nan))
    with pytest.raises(UserError, match="two different rows"):
        drawn(suite, by_last_word, ROWS[:1] * 5)


def test_translations_of_a_perfect_system_lie_together_on_the_map(drawn):
    rows = [*ROWS, ("long " * 100 + "word 20", "Wort 20")]
    points = drawn("sentence_map", by_last_word, rows)["points"]
    places = np.array([[of["x"], of["y"]] for of in points.values()])  # [languages, 2, rows]
    assert places.min() >= 0
    assert places.max() <= 1
    distances = np.linalg.norm(places[0][:, :, np.newaxis] - places[1][:, np.newaxis, :], axis=0)
    assert (np.argmin(distances, axis=1) == np.arange(21)).all()
    assert max(len(text) for text in points["en"]["texts"]) == 200
    with pytest.raises(NotApplicableError):
        drawn("sentence_map", constant)


def test_documents_of_a_class_lie_together_on_the_map(tmp_path):
    documents = [(label, f"A {label}. Number {n}.") for n in range(15) for label in ("dog", "cat")]
    write_table(tmp_path / "documents/pets.en.test.tsv", "label text", *documents)
    (found,) = SUITES["document_map"].find(tmp_path, 0)
    random = np.random.default_rng(0)

    def encode(texts):
        return np.array([["dog" in t, "cat" in t, 1] for t in texts]) + 0.01 * random.random((len(texts), 3))

    made = found.load()(encode)
    assert {label: len(of["texts"]) for label, of in made["points"].items()} == {"cat": 15, "dog": 15}
    cats, dogs = (np.array([of["x"], of["y"]]) for of in made["points"].values())
    between = np.linalg.norm(cats.mean(axis=1) - dogs.mean(axis=1))
    assert between > 2 * max(np.linalg.norm(np.std(places, axis=1)) for places in (cats, dogs))
    json.dumps(made)


def test_a_perfect_system_makes_no_errors_and_chance_nearly_only(drawn):
    heat_map = drawn("heat_map", by_last_word)
    assert np.diag(heat_map["similarities"]) == pytest.approx(1)
    assert [len(texts) for texts in heat_map["texts"]] == [12, 12]
    assert drawn("retrieval_errors", by_last_word)["errors"] == []
    made = drawn("retrieval_errors", random_vectors())
    # 1 of 20 is right by chance: 4 or fewer are with a probability of 0.997 (binomial).
    assert 16 <= made["num_errors"] <= 20
    assert len(made["errors"]) == 12
    leads = [error["found_score"] - error["right_score"] for error in made["errors"]]
    assert leads == pytest.approx(sorted(leads, reverse=True), abs=2e-3)


def test_the_nearest_three_of_a_query_are_shown_right_or_wrong(drawn):
    # The first words' numbers are the angles in degrees: 0 is nearest to 1, then 4 (its translation), then 9.
    rows = [("0 a", "4 A"), ("90 b", "1 B"), ("180 c", "9 C"), ("270 d", "200 D")]

    def by_angle(texts):
        angles = np.radians([float(text.split()[0]) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)

    found = {item["query"]: item["found"] for item in drawn("retrieval_errors", by_angle, rows)["nearest"]}
    assert found["0 a"] == [("1 B", 1.0, False), ("4 A", 0.998, True), ("9 C", 0.988, False)]
