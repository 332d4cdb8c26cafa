"""Retrieval of paraphrases, with its ranks and measures."""

import numpy as np
import pytest
from encode_functions import looked_up
from evaluation_data import write_table

from xling_tf.errors import UserError
from xling_tf.evaluators.ranking import average_precision, relevant_ranks
from xling_tf.evaluators.semantic_retrieval import SUITE, SemanticRetrieval, read_pairs

MAP = "mean_average_precision_at_100"


def test_ranks_and_precisions_derived_by_hand():
    # Query 1: right ones at ranks 1 and 3 of 4: AP (1/1 + 2/3) / 2. Query 2: at rank 4: AP 1/4.
    scores = np.array([[0.9, 0.1, 0.5, 0.7], [0.2, 0.8, 0.4, 0.3]])
    ranks = relevant_ranks(scores, [[0, 2], [0]])
    assert [list(query) for query in ranks] == [[1, 3], [4]]
    assert [average_precision(query, 100) for query in ranks] == pytest.approx([5 / 6, 1 / 4])
    # Of ranks 1, 3 and 4 the first two are found at 3: (1/1 + 2/3 + 0) / 3.
    assert average_precision(np.array([1, 3, 4]), 3) == pytest.approx(5 / 9)
    # Four are relevant, two can be found, and are.
    assert average_precision(np.array([1, 2, 3, 4]), 2) == 1.0
    assert average_precision(np.array([101]), 100) == 0.0


def test_the_closure_is_transitive():
    # Angles a 0, b 10, c 80, d 20 degrees; a = b and b = c, so a = c; d is a distractor.
    # a: b 10, d 20, c 80 -> (1/1 + 2/3) / 2 = 5/6
    # b: a and d are 10 degrees off, a tie that d wins, then c -> (1/2 + 2/3) / 2 = 7/12
    # c: d 60, b 70, a 80 -> (1/2 + 2/3) / 2 = 7/12
    pairs = [("a", "b", True), ("b", "c", True), ("c", "d", False)]
    angles = {"a": 0, "b": 10, "c": 80, "d": 20}
    radians = {text: np.radians(angle) for text, angle in angles.items()}
    encode = looked_up(
        {text: [3 * np.cos(angle), 3 * np.sin(angle)] for text, angle in radians.items()}
    )
    scores = SemanticRetrieval({"en": pairs}, name="x")(encode)
    assert scores[MAP] == pytest.approx((5 / 6 + 7 / 12 + 7 / 12) / 3)
    assert scores["num_queries"] == 3
    assert scores["num_candidates"] == 3


def test_each_language_is_searched_with_the_other():
    # English queries fall together, so that every one has the right one at the same place.
    pairs = {
        "en": [("a", "b", True), ("c", "c", False)],
        "de": [("A", "B", True), ("C", "C", False)],
    }
    vectors = {"a": [1, 0], "b": [1, 0], "c": [0, 1], "A": [1, 0], "B": [1, 2], "C": [2, 1]}
    scores = SemanticRetrieval(pairs, name="x")(looked_up(vectors))
    # en-de: a asks for B (C nearer: 1/2), b asks for A (first: 1).
    assert scores[f"en-de/{MAP}"] == pytest.approx(3 / 4)
    assert scores["en-de/num_candidates"] == 2
    # de-en: A asks for b (first: 1), B for a (c nearer: 1/2).
    assert scores[f"de-en/{MAP}"] == pytest.approx(3 / 4)
    # Of two translations of a question, the lexicographically first is the query.
    pairs["en"].append(("a", "c", False))
    pairs["de"].append(("Z", "C", False))
    again = SemanticRetrieval(pairs, name="x")(looked_up({**vectors, "Z": [-1, 0]}))
    assert again[f"de-en/{MAP}"] == scores[f"de-en/{MAP}"]


def test_data_that_cannot_be_evaluated():
    pairs = [("a", "b", True), ("a", "c", False)]
    for rows in ({"en": [("a", "b", False), ("a", "a", True)]}, {"en": pairs, "de": pairs[::-1]}):
        with pytest.raises(UserError, match="positive pairs"):
            SemanticRetrieval(rows, name="x")


def test_tables(tmp_path):
    path, header = tmp_path / "x.tsv", "label question1 question2"
    write_table(path, header, (1, "How so ?", "Why ?"), (0, "Why ?", "Where ?"))
    assert read_pairs(path) == [("How so ?", "Why ?", True), ("Why ?", "Where ?", False)]
    with pytest.raises(UserError, match="labels 0 and 1, but has 'yes'"):
        read_pairs(write_table(path, header, ("yes", "a", "b")))


def test_a_pair_with_a_blank_text_is_left_out_in_every_language(tmp_path):
    for code, second in (("en", "\u200b"), ("de", "b de")):
        rows = [(1, f"a {code}", second), (1, f"c {code}", f"d {code}"), (0, "", f"e {code}")]
        write_table(tmp_path / f"paraphrase/x.{code}.tsv", "label question1 question2", *rows)
    sets = {dataset.name: dataset.load() for dataset in SUITE.find(tmp_path, 0)}
    assert sets["x.de"].pairs == [("a de", "b de"), ("c de", "d de")]
    assert sets["cross-lingual.x"].pairs == [("c de", "d de"), ("c en", "d en")]
