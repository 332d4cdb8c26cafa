"""What `evaluation/report.py` draws, of systems whose pictures are known."""

import importlib.util
import json
import random

import numpy as np
import pytest
from encode_functions import by_meaning, constant, random_vectors
from programs import ROOT

from xling_tf.errors import UserError
from xling_tf.evaluators.data import Missing
from xling_tf.evaluators.encoding import NotApplicableError

_SPEC = importlib.util.spec_from_file_location("illustrations", ROOT / "evaluation" / "illustrations.py")
program = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(program)

ROWS = [(f"word {n}", f"Wort {n}") for n in range(20)]
PERFECT = by_meaning(lambda text: text.split()[1])


def write(folder, rows, name="words.en-de"):
    path = folder / "bitext" / f"{name}.tsv"
    path.parent.mkdir(exist_ok=True)
    header = name.partition(".")[2].replace("-", "\t")
    path.write_text("\n".join([header, *map("\t".join, rows)]) + "\n", encoding="utf-8")


@pytest.fixture
def drawn(tmp_path):
    def draw(suite, encode, rows=ROWS):
        write(tmp_path, rows)
        (found,) = program.SUITES[suite].find(tmp_path, 0)
        return found.load()(encode)

    return draw


@pytest.mark.parametrize("suite", program.SUITES)
def test_the_order_of_rows_makes_no_difference(suite, drawn):
    made = drawn(suite, random_vectors())
    assert made == drawn(suite, random_vectors(), random.Random(0).sample(ROWS, len(ROWS)))
    assert made["languages"] == ["en", "de"]
    json.dumps(made)  # numbers of Python, not of NumPy


@pytest.mark.parametrize("suite", program.SUITES)
def test_what_cannot_be_drawn_is_told(suite, drawn, tmp_path):
    (missing,) = program.SUITES[suite].find(tmp_path, 0)
    assert isinstance(missing, Missing)
    with pytest.raises(UserError, match="NaN"):
        drawn(suite, lambda texts: np.full((len(texts), 3), np.nan))
    with pytest.raises(UserError, match="two different rows"):
        drawn(suite, PERFECT, ROWS[:1] * 5)


def test_translations_of_a_perfect_system_lie_together_on_the_map(drawn):
    rows = [*ROWS, ("word 20 " + "long " * 100, "Wort 20")]
    points = drawn("sentence_map", PERFECT, rows)["points"]
    places = np.array([[of["x"], of["y"]] for of in points.values()])  # [languages, 2, rows]
    assert places.min() >= 0
    assert places.max() <= 1
    distances = np.linalg.norm(places[0][:, :, np.newaxis] - places[1][:, np.newaxis, :], axis=0)
    assert (np.argmin(distances, axis=1) == np.arange(21)).all()
    assert max(len(text) for text in points["en"]["texts"]) == 200
    with pytest.raises(NotApplicableError):
        drawn("sentence_map", constant)


def test_a_perfect_system_makes_no_errors_and_chance_nearly_only(drawn):
    heat_map = drawn("heat_map", PERFECT)
    assert np.diag(heat_map["similarities"]) == pytest.approx(1)
    assert [len(texts) for texts in heat_map["texts"]] == [12, 12]
    assert drawn("retrieval_errors", PERFECT)["errors"] == []
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
    made = drawn("retrieval_errors", lambda texts: np.array([vectors[t] for t in texts]), rows)
    assert made["num_errors"] == 0


def test_a_bitext_in_languages_of_a_larger_table_is_not_drawn_again(tmp_path):
    write(tmp_path, ROWS)
    table = ["en\tde\tfr", *(f"{en}\t{de}\tmot {n}" for n, (en, de) in enumerate(ROWS))]
    (tmp_path / "similarity_search").mkdir()
    (tmp_path / "similarity_search/all.tsv").write_text("\n".join(table) + "\n", encoding="utf-8")
    (found,) = program.SUITES["sentence_map"].find(tmp_path, 0)
    assert found.load()(PERFECT)["languages"] == ["en", "de", "fr"]
    assert len(list(program.SUITES["heat_map"].find(tmp_path, 0))) == 1
