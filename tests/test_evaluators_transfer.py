"""SentEval's tasks: what classifiers find in vectors whose meaning is known, and the tables."""

import numpy as np
import pytest
from encode_functions import by_meaning, constant
from evaluation_data import write_table

from xling_tf.errors import UserError
from xling_tf.evaluators import classifiers
from xling_tf.evaluators.data import Missing
from xling_tf.evaluators.transfer import SUITE, TransferClassification, TransferRelatedness


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """The papers' network takes its steps on thousands of rows."""
    monkeypatch.setitem(classifiers.NETWORK, "rate", 0.02)
    monkeypatch.setitem(classifiers.NETWORK, "weight_decay", (1e-5,))


def sentences(number, labels=("good", "bad"), start=0):
    return [(labels[n % len(labels)], f"{labels[n % len(labels)]} {n}") for n in range(start, start + number)]


def pairs(number, start=0):
    """Every second pair says the same thing twice."""
    return [
        (str(n % 2), f"{n}", f"{n} again" if n % 2 else f"{n + 1} else") for n in range(start, start + number)
    ]


by_first_word = by_meaning(lambda text: text.split()[0])


def test_perfect_vectors_score_one():
    evaluator = TransferClassification(pairs(300), test=pairs(100, 300), name="x", positive="1")
    assert set(evaluator(by_first_word).values()) == {1.0}
    labels = ("good", "bad", "middling")
    sets = [sentences(300, labels), sentences(30, labels, 300), sentences(30, labels, 330)]
    perfect = {"logistic/accuracy": 1.0, "network/accuracy": 1.0}
    assert TransferClassification(sentences(60), name="folds")(by_first_word) == perfect
    assert TransferClassification(*sets, name="sets", hidden=128)(by_first_word) == perfect


def test_f1_derived_by_hand():
    # All are called "1": precision 1/2 and recall 1 give 2 * 0.5 * 1 / 1.5.
    train = [*pairs(40), *(("1", f"more {n}", "x") for n in range(10))]
    evaluator = TransferClassification(train, test=pairs(20, 100), name="x", positive="1")
    scores = evaluator(constant)
    assert scores["logistic/accuracy"] == 0.5
    assert scores["logistic/f1"] == pytest.approx(2 / 3)


def scored(number, start=0):
    """Pairs of numbers whose score is 5 less their distance."""
    distances = np.random.default_rng(start).uniform(0, 4, number)
    return [
        (f"{5 - distance:.1f}", f"0 {start + n}", f"{distance:.3f} {start + n}")
        for n, distance in enumerate(distances)
    ]


def place(texts):
    """A point on a half-circle for each number."""
    angles = np.array([float(text.split()[0]) for text in texts]) * np.pi / 4
    return 3 * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def test_relatedness_is_learnt_with_and_without_a_development_set():
    scores = TransferRelatedness(scored(300), scored(60, 300), scored(60, 360), name="x")(place)
    assert scores["pearson"] > 0.97
    assert scores["spearman"] > 0.97
    assert scores["mean_squared_error"] < 0.2
    evaluator = TransferRelatedness(scored(100), (), scored(60, 360), name="x")
    assert (evaluator.protocol["num_train"], evaluator.protocol["num_dev"]) == (80, 20)
    assert evaluator(place)["pearson"] > 0.95


def test_relatedness_of_constant_vectors_is_none():
    sets = scored(50), scored(50, 300), scored(50, 400)
    scores = TransferRelatedness(*sets, name="x")(constant)
    assert (scores["pearson"], scores["spearman"]) == (0.0, 0.0)
    # Everything is predicted to be the training mean.
    gold, mean = [float(row[0]) for row in sets[2]], np.mean([float(row[0]) for row in sets[0]])
    expected = np.mean(np.square(np.array(gold) - mean))
    assert scores["mean_squared_error"] == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("wrong", ["1.0", "high"])
def test_labels_and_scores_that_teach_nothing_are_errors(wrong):
    with pytest.raises(UserError, match="'ugly 0' is labelled 'ugly'"):
        TransferClassification(sentences(4), test=sentences(1, ("ugly",)), name="x")
    with pytest.raises(UserError, match="numbers, two different ones in each set"):
        TransferRelatedness(scored(9), (), [("1.0", "a", "b"), (wrong, "c", "d")], name="x")


def test_a_table_without_examples(tmp_path):
    write_table(tmp_path / "senteval/MR.tsv", "label text")
    found = {item.name: item for item in SUITE.find(tmp_path, 0)}
    assert isinstance(found["CR"], Missing)
    assert found["CR"].expected.startswith("senteval/CR.tsv (label TAB text")
    with pytest.raises(UserError, match=r"MR\.tsv has no examples"):
        found["MR"].load()
