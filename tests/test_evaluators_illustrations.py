"""What `evaluation/report.py` draws, of systems whose pictures are known."""

import json
import random

import numpy as np
import pytest
from encode_functions import by_last_word, constant, looked_up, random_vectors
from evaluation_data import write_table
from illustrations import SUITES

from xling_tf.errors import UserError
from xling_tf.evaluators.data import Missing
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
def test_the_order_of_rows_makes_no_difference_and_what_cannot_be_drawn_is_told(suite, drawn, tmp_path):
    (missing,) = SUITES[suite].find(tmp_path, 0)
    assert isinstance(missing, Missing)
    made = drawn(suite, random_vectors())
    assert made == drawn(suite, random_vectors(), random.Random(0).sample(ROWS, len(ROWS)))
    assert made["languages"] == ["en", "de"]
    json.dumps(made)  # numbers of Python, not of NumPy
    with pytest.raises(UserError, match="NaN"):
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
    (missing,) = SUITES["document_map"].find(tmp_path, 0)
    assert isinstance(missing, Missing)
    documents = [(label, f"A {label}. Number {n}.") for n in range(15) for label in ("dog", "cat")]
    write_table(tmp_path / "documents/pets.en.test.tsv", "label text", *documents)
    (found,) = SUITES["document_map"].find(tmp_path, 0)
    random = np.random.default_rng(0)
    made = found.load()(
        lambda texts: (
            np.array([["dog" in t, "cat" in t, 1] for t in texts]) + 0.01 * random.random((len(texts), 3))
        )
    )
    assert {label: len(of["texts"]) for label, of in made["points"].items()} == {"cat": 15, "dog": 15}
    cats, dogs = (np.array([of["x"], of["y"]]) for of in made["points"].values())
    between = np.linalg.norm(cats.mean(axis=1) - dogs.mean(axis=1))
    assert between > 2 * max(np.linalg.norm(np.std(places, axis=1)) for places in (cats, dogs))
    json.dumps(made)
    with pytest.raises(NotApplicableError):
        found.load()(constant)
    write_table(tmp_path / "documents/pets.en.test.tsv", "label text", ("dog", "A dog."))
    with pytest.raises(UserError, match="two different documents"):
        found.load()


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


def test_a_second_translation_is_no_error(drawn):
    # "one" finds "una", its other translation: only the best of the right ones counts.
    vectors = {"one": [1, 0], "una": [1, 0], "uno": [0, 1], "two": [1, 1], "dos": [1, 1]}
    rows = [("one", "uno"), ("one", "una"), ("two", "dos")]
    made = drawn("retrieval_errors", looked_up(vectors), rows)
    assert made["num_errors"] == 0


def test_a_bitext_in_languages_of_a_larger_table_is_not_drawn_again(tmp_path):
    write_table(tmp_path / "bitext/words.en-de.tsv", "en de", *ROWS)
    rows = [(en, de, f"mot {n}") for n, (en, de) in enumerate(ROWS)]
    write_table(tmp_path / "similarity_search/all.tsv", "en de fr", *rows)
    (found,) = SUITES["sentence_map"].find(tmp_path, 0)
    assert found.load()(by_last_word)["languages"] == ["en", "de", "fr"]
    assert len(list(SUITES["heat_map"].find(tmp_path, 0))) == 1
