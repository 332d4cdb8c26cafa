"""Pairs of texts in whatever form users have them: what their columns are, and what is refused."""

import csv
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf

from xling_tf.corpora.pairs import Pair, read_pairs
from xling_tf.corpora.records import SimilarityPair, TranslationPair
from xling_tf.errors import UserError

COUNT = 12
TEXTS = [(f"one text {number}", f"another text {number}") for number in range(COUNT)]
SCORES = [number / 4 for number in range(COUNT)]
WRONG = [f"a wrong text {number % 7}" for number in range(COUNT)]
SCORED = [Pair(*pair, score) for pair, score in zip(TEXTS, SCORES, strict=True)]
TRIPLETS = [Pair(*pair, None, (text,)) for pair, text in zip(TEXTS, WRONG, strict=True)]


def rows(column, at=2):
    """The texts with another column."""
    return [(*pair[:at], value, *pair[at:]) for pair, value in zip(TEXTS, column, strict=True)]


@pytest.mark.parametrize(
    "column",
    [
        SCORES,
        [str(score) for score in SCORES],
        [f" {score} " for score in SCORES],
        [str(score).replace(".", ",") for score in SCORES],
        [f"{score * 100} %" for score in SCORES],
        [f"{score:e}" for score in SCORES],
        np.array(SCORES, np.float32),
        np.array(SCORES).astype(str),
        [Decimal(score) for score in SCORES],
        [np.array(score) for score in SCORES],
        [*tf.constant(SCORES)],
        pd.Series(SCORES),
        pa.array(SCORES),
        # Some are numbers, others are written as text.
        [str(score) if score < 1 else score for score in SCORES],
    ],
)
def test_scores_may_be_written_in_any_way(column):
    assert read_pairs(rows(column)) == SCORED
    assert read_pairs(pd.DataFrame(rows(column))) == SCORED


@pytest.mark.parametrize(
    ("labels", "scores"),
    [
        (["0", "1"], [0.0, 1.0]),
        ([0, 1], [0.0, 1.0]),
        ([False, True], [0.0, 1.0]),
        (np.array([False, True]), [0.0, 1.0]),
        ([0, 1, 2, 3, 4, 5], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
        (["-1", "1"], [-1.0, 1.0]),
    ],
)
def test_labels_that_are_numbers_are_scores(labels, scores):
    column = [*labels] * (COUNT // len(labels))
    assert [pair.score for pair in read_pairs(rows(column))] == scores * (COUNT // len(scores))


def test_csv_gives_what_was_written(tmp_path):
    path = tmp_path / "pairs.csv"
    pd.DataFrame(rows(SCORES), columns=["sentence1", "sentence2", "score"]).to_csv(path, index=False)
    with path.open() as file, pytest.raises(UserError, match="names of columns"):
        read_pairs(csv.reader(file))
    with path.open() as file:
        assert read_pairs(csv.DictReader(file)) == SCORED
    with path.open() as file:
        next(file)
        assert read_pairs(csv.reader(file)) == SCORED
    assert read_pairs(pd.read_csv(path)) == SCORED
    with path.open() as file, pytest.raises(UserError, match=r"pair 1 .*sentence1,sentence2,score"):
        read_pairs(file)


def table(*names):
    """A table of first texts, second texts and scores, with names for them."""
    return pd.DataFrame(rows(SCORES), columns=[*names])


@pytest.mark.parametrize(
    "frame",
    [
        table("sentence1", "sentence2", "score"),
        table("sentence1", "sentence2", "score")[["score", "sentence2", "sentence1"]],
        table("Text 1", "text_2", "Label")[["Label", "Text 1", "text_2"]],
        table("en", "es", "similarity_score")[["similarity_score", "en", "es"]],
        table("here", "there", "points"),
        table("text", "text.1", "score"),
        table("sentence", "sentence1", "label"),
        table("query", "whatever", "score")[["whatever", "score", "query"]],
        table("anchor", "positive", "score").set_index(np.arange(COUNT)[::-1]),
    ],
)
def test_names_of_columns_say_what_they_are(frame):
    records = frame.to_dict("records")
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    for pairs in (frame, records, iter(records), frame.to_dict("list"), arrow, arrow.to_batches()[0]):
        assert read_pairs(pairs) == SCORED
    assert read_pairs(pa.array(records)) == SCORED
    assert read_pairs(frame.astype({frame.columns[0]: "category"}).to_records(index=False)) == SCORED


@pytest.mark.parametrize(
    "pairs",
    [
        rows(WRONG),
        np.array(rows(WRONG)),
        np.array(rows(WRONG), object),
        tf.constant(rows(WRONG)),
        [*map(list, rows(WRONG))],
        np.char.encode(np.array(rows(WRONG))),
        [(a.encode(), b, wrong) for a, b, wrong in rows(WRONG)],
        pd.Series(rows(WRONG)),
        zip(*zip(*rows(WRONG), strict=True), strict=True),
        tf.data.Dataset.from_tensor_slices(tuple(map(list, zip(*rows(WRONG), strict=True)))),
        [TranslationPair(*pair, (wrong,)) for *pair, wrong in rows(WRONG)],
        [{"query": a, "answer": b, "negatives": [wrong]} for a, b, wrong in rows(WRONG)],
        [{"negative_1": None, "hard_neg": wrong, "pos": b, "question": a} for a, b, wrong in rows(WRONG)],
        # Some have fewer wrong texts.
        pd.DataFrame([(*row, None) for row in rows(WRONG)], columns=["anchor", "positive", "neg1", "neg2"]),
    ],
)
def test_wrong_texts_in_any_form(pairs):
    assert read_pairs(pairs) == TRIPLETS


def test_what_is_missing_is_no_wrong_text_and_no_score():
    column = [None, *WRONG[1:6], float("nan"), " ", *WRONG[8:]]
    wrong = [() if number in (0, 6, 7) else (text,) for number, text in enumerate(WRONG)]
    for pairs in (rows(column), pd.DataFrame(rows(column)), pd.DataFrame(rows(column), dtype="string")):
        assert [pair.wrong for pair in read_pairs(pairs)] == wrong
    for missing in (None, float("nan"), "", "NaN", "inf", pd.NA):
        column = [*SCORES[:6], missing, *SCORES[7:]]
        with pytest.raises(UserError, match=r"pair 7 is expected .*finite number"):
            read_pairs(pd.DataFrame(rows(column), columns=["sentence1", "sentence2", "score"]))
        with pytest.raises(UserError, match=r"pair 7 is expected .*finite number"):
            read_pairs(rows([*map(str, SCORES[:6]), missing, *map(str, SCORES[7:])]))
    with pytest.raises(UserError, match="pair 1 is expected"):
        read_pairs(rows([None] * COUNT))


IDS = [f"pair-{number:04}" for number in range(COUNT)]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (rows(["entailment", "contradiction", "neutral"] * 4), "column 3 has only 3 different values"),
        (rows(["True", "False"] * 6), "column 3 has only 2"),
        (rows(["Yes, it is.", "No, it is not."] * 6), "column 3 has only 2"),
        (rows(["entailment", "neutral"] * 6, at=0), "column 1 has only 2"),
        (rows(["entailment", "neutral"] * 6, at=1), "column 2 has only 2"),
        (rows(["spam", "ham"] * 6)[:8], "column 3 has only 2"),
        (rows(["1.0"] * 8 + ["unknown"] * 4), "column 3 has numbers"),
        (rows(["1,000", "2,500"] * 6), "finite number"),
        (rows(IDS, at=0), "column 1 has identifiers"),
        (rows(IDS), "column 3 has identifiers"),
        (rows([f"doc_{letter}" for letter in "abcdefghijkl"], at=0), "column 1 has identifiers"),
        (rows(["1_0", "2_0"] * 6), "column 3 has identifiers"),
        (rows([10**400, 1] * 6), "finite number"),
        (
            [("English", "Spanish", "Score"), *rows(map(str, SCORES))],
            "column 3 has numbers in it, and 'Score'",
        ),
        (rows(map(str, range(COUNT)), at=0), "column 1 has numbers"),
        (rows(range(COUNT), at=0), "pair 1 is expected"),
        ([(*row, "1") for row in rows(WRONG)], "column 4 has numbers"),
        ([(*row, 0.5) for row in rows(["neutral", "other"] * 6)], "column 3 has only 2"),
        ([(f"{number}", text) for number, (text, _) in enumerate(TEXTS)], "column 1 has numbers"),
        ([(text, str(number % 3)) for number, (text, _) in enumerate(TEXTS)], "column 2 has numbers"),
        (rows(map(str, range(COUNT))), "column 3 has whole numbers"),
        (rows(range(1, COUNT + 1)), "column 3 has whole numbers"),
        (rows([number * 7919 % 1009 for number in range(COUNT)]), "column 3 has whole numbers"),
        (pd.DataFrame(rows(IDS, at=0), columns=["id", "sentence1", "sentence2"]), "id, sentence1"),
        (pd.DataFrame(rows(IDS, at=0), columns=["id", "en", "es"]), "column 1 has identifiers"),
        (pd.DataFrame(rows(SCORES), columns=["query", "question", "score"]), "query, question"),
        (table("text", "label", "other"), "pair 1 is expected"),
        (table("text", "label", "score"), "text, label, score"),
        (
            pd.DataFrame(rows([0, 1, 2] * 4), columns=["sentence1", "sentence2", "label"]),
            "classes of inference",
        ),
        (
            pd.DataFrame(rows([0, 1] * 6), columns=["premise", "hypothesis", "label"]),
            "classes of inference",
        ),
        (pd.DataFrame(rows(["good", "bad"] * 6), columns=["text1", "text2", "label"]), "pair 1 is expected"),
        (
            table("question1", "question2", "is_duplicate").assign(id=1),
            "question1, question2, is_duplicate, id; choose",
        ),
    ],
)
def test_what_may_be_no_text_and_no_score_is_refused(pairs, message):
    with pytest.raises(UserError, match=message):
        read_pairs(pairs)


def test_columns_with_names_are_taken_as_they_are():
    classes = ["entailment", "neutral"] * 6
    named = pd.DataFrame(rows(classes), columns=["anchor", "positive", "negative"])
    assert [pair.wrong[0] for pair in read_pairs(named)] == classes
    named = pd.DataFrame(rows(IDS, at=0), columns=["anchor", "positive", "negative"])
    assert [pair.first for pair in read_pairs(named)] == IDS
    named = pd.DataFrame(rows([0, 1, 2] * 4), columns=["sentence1", "sentence2", "score"])
    assert [pair.score for pair in read_pairs(named)] == [0.0, 1.0, 2.0] * 4
    assert read_pairs([SimilarityPair("a", "b", 30)]) == [Pair("a", "b", 30.0)]


def test_texts_that_look_odd_in_some_rows_are_texts():
    # A third of few right and wrong texts, some numbers, and words with digits on all sides.
    reviews = [(first, *("good", "bad")[:: number % 2 * 2 - 1]) for number, (first, _) in enumerate(TEXTS)]
    assert read_pairs(reviews)[0].wrong == ("good",)
    answers = rows([*WRONG[:10], "42", "1969"])
    assert read_pairs(answers)[-1].wrong == ("1969",)
    codes = [(f"q{number}", f"a{number}", f"n{number}") for number in range(COUNT)]
    assert read_pairs(codes)[0] == Pair("q0", "a0", None, ("n0",))
    # Many right answers of few questions, and the wrong ones of each.
    few = [(f"Which is it, {n % 3}?", f"right answer {n}", f"wrong answer {n % 5}") for n in range(40)]
    assert len(read_pairs(few)) == 40
    assert read_pairs([("1", "uno"), ("2", "dos")])[1].second == "dos"


@pytest.mark.parametrize(
    "pairs",
    [
        [(text, str(1900 + number)) for number, (text, _) in enumerate(TEXTS)],
        [(text, code) for (text, _), code in zip(TEXTS, IDS, strict=True)],
        [(code, text) for (text, _), code in zip(TEXTS, IDS, strict=True)],
        [(text, code, f"SKU-{code}") for (text, _), code in zip(TEXTS, IDS, strict=True)],
        # Classes have few words, and are no texts of other pairs.
        rows(["It is raining in the mountains."] * COUNT),
        rows([TEXTS[0][1], TEXTS[1][1]] * 6),
        dict(TEXTS).items(),
    ],
)
def test_answers_may_be_numbers_and_codes_and_wrong_texts_the_same_in_all_rows(pairs):
    expected = [Pair(*row[:2], None, tuple(row[2:])) for row in pairs]
    assert read_pairs(pairs) == expected


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        iter([]),
        {},
        pd.DataFrame(columns=["query", "answer"]),
        "a file.csv",
        b"bytes",
        None,
        7,
        {"hello": "hola"},
        {("a", "b")},
        {"train": table("anchor", "positive", "score")},
        {"anchor": ["a"], "positive": ["b", "c"]},
        ["ab"],
        [None],
        [("a", "b"), None],
        [("a", None)],
        [("a", b"\xff")],
        [("a",)],
        [{"anchor": "a", "positive": "b"}, ("a", "b")],
        [{"translation": {"en": "a", "es": "b"}}],
        [("a", "b", {"c": 1})],
    ],
)
def test_what_is_no_pairs_is_refused(pairs):
    with pytest.raises(UserError, match=r"pair|expected"):
        read_pairs(pairs)


def test_columns_may_be_chosen():
    frame = table("left", "right", "score").assign(genre="x")
    assert read_pairs(frame, ("right", "left"))[0] == Pair("another text 0", "one text 0")
    with pytest.raises(UserError, match=r"'middle' is expected, .* left, right"):
        read_pairs(frame, ("left", "middle"))
    with pytest.raises(UserError, match="without names"):
        read_pairs(TEXTS, ("left", "right"))
