"""SentEval's tasks, with encoders whose scores are known, and their tables."""

import numpy as np
import pytest
from evaluation_data import write_table

from xling_tf.errors import UserError
from xling_tf.evaluators.transfer import SUITE, CrossLingualTransfer, TransferClassification

pytestmark = pytest.mark.usefixtures("small_classifiers")


def sentences(number, labels=("good", "bad"), start=0):
    return [
        (labels[n % len(labels)], f"{labels[n % len(labels)]} {n}")
        for n in range(start, start + number)
    ]


def test_a_label_must_have_enough_rows_for_folds_within_folds():
    def make(many, few, **parts):
        rows = [("many", f"good {n}") for n in range(many)] + [
            ("few", f"bad {n}") for n in range(few)
        ]
        return TransferClassification(rows, name="x", **parts)

    assert make(12, 12)(signs)["network/accuracy"] > 0.7
    # With a test set, only the network's ten folds, of which it trains on nine, and with `dev`
    # none.
    test = [("many", "good x"), ("few", "bad x")]
    assert make(10, 10, test=test)(signs)["logistic/accuracy"] == 1.0
    assert make(2, 1, dev=test, test=test)(signs)["logistic/accuracy"] == 1.0
    for numbers, parts in (((12, 11), {}), ((10, 9), {"test": test}), ((2, 0), {})):
        with pytest.raises(
            UserError, match=f"rows of each of two labels, but has {numbers[0]} of 'many'"
        ):
            make(*numbers, **parts)


def signs(texts):
    """1 for "good" and -1 for "bad"; texts of "wrong" the other way round."""
    return np.array(
        [[(1 if "good" in t else -1) * (-1 if "wrong" in t else 1), 0.5] for t in texts]
    )


def wrong(rows, every=1):
    return [
        (label, f"{text} wrong" if n % every == 0 else f"{text} de")
        for n, (label, text) in enumerate(rows)
    ]


def test_given_parts_are_learnt_in_english_and_in_the_language_itself():
    # What English teaches is the wrong way round in German, which itself can be learnt.
    parts = {
        "train": sentences(40),
        "dev": sentences(20, start=40),
        "test": sentences(20, start=60),
    }
    german = {part: wrong(rows) for part, rows in parts.items()}
    evaluator = CrossLingualTransfer({"de": german, "en": parts}, name="x")
    expected = {
        "logistic/en/accuracy": 1.0,
        "logistic/en-de/accuracy": 0.0,
        "logistic/de/accuracy": 1.0,
    }
    assert evaluator(signs) == expected
    assert evaluator.protocol["num_rows"] == {"en": 80, "de": 80}


def test_rows_that_do_not_fit_one_another_are_refused():
    rows = sentences(40)
    with pytest.raises(UserError, match="'ugly 0' is labelled 'ugly'"):
        TransferClassification(rows, test=sentences(1, ("ugly",)), name="x")
    with pytest.raises(UserError, match="equal labels in every language"):
        CrossLingualTransfer({"en": {"": rows}, "de": {"": rows[::-1]}}, name="x")
    with pytest.raises(UserError, match="parts train and test in each language"):
        CrossLingualTransfer({"en": {"": rows}, "de": {"train": rows, "test": rows}}, name="x")


def test_tasks_and_sentiment_of_several_languages_are_found(tmp_path):
    rows = sentences(40)
    write_table(tmp_path / "senteval/CR.tsv", "label text", *rows)
    write_table(tmp_path / "senteval/CR.de.tsv", "label text", *wrong(rows, every=8))
    for code in ("en", "fr"):
        for part in ("train", "test"):
            write_table(tmp_path / f"sentiment/tweets.{code}.{part}.tsv", "label text", *rows)
    write_table(tmp_path / "sentiment/reviews.zh.train.tsv", "label text", *rows)
    found = {dataset.name: dataset.load() for dataset in SUITE.find(tmp_path, 0)}
    assert [*found] == ["CR", "cross-lingual.CR", "cross-lingual.tweets"]
    # Ten folds of the 40 rows, the same in both, test each row once; one in eight is the wrong way
    # round.
    scores = found["cross-lingual.CR"](signs)
    assert scores["logistic/en/accuracy"] == 1.0
    assert scores["logistic/en-de/accuracy"] == pytest.approx(35 / 40)
    assert found["cross-lingual.tweets"].protocol["num_rows"] == {"en": 80, "fr": 80}
