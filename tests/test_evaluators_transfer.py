"""SentEval's tasks, with encoders whose scores are known, and their tables."""

import numpy as np
import pytest
from encode_functions import constant

from xling_tf.errors import UserError
from xling_tf.evaluators.encoding import Embedder
from xling_tf.evaluators.transfer import TransferClassification, TransferRelatedness

pytestmark = pytest.mark.usefixtures("small_classifiers")


def sentences(number, labels=("good", "bad"), start=0):
    return [(labels[n % len(labels)], f"{labels[n % len(labels)]} {n}") for n in range(start, start + number)]


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
    evaluator = TransferRelatedness(scored(100), (), scored(60, 360), name="x")
    assert (evaluator.protocol["num_train"], evaluator.protocol["num_dev"]) == (80, 20)
    assert evaluator(place)["pearson"] > 0.95


def test_relatedness_of_constant_vectors_is_none():
    sets = scored(50), scored(50, 300), scored(50, 400)
    scores = TransferRelatedness(*sets, name="x")(constant)
    assert (scores["pearson"], scores["spearman"]) == (0.0, 0.0)


def test_classifiers_see_the_encoders_own_lengths_and_the_network_has_the_units_asked_for(monkeypatch):
    seen = []

    def fit(x, y, **settings):
        seen.append((np.linalg.norm(x, axis=1).round(3).tolist(), settings.get("hidden")))
        return lambda x: np.array(["good"] * len(x))

    for name in ("fit_logistic", "fit_network"):
        monkeypatch.setattr(f"xling_tf.evaluators.classifiers.{name}", fit)

    def raw(texts):
        return 7 * np.ones((len(texts), 1))

    embedder = Embedder(name="x", sentences=lambda texts: np.ones((len(texts), 1)), raw=raw)
    evaluator = TransferClassification(sentences(2), test=sentences(2), name="x", hidden=128)
    assert evaluator.protocol["hidden"] == 128
    assert evaluator(embedder) == {"logistic/accuracy": 0.5, "network/accuracy": 0.5}
    assert sorted(seen, key=str) == [([7, 7], 128), ([7, 7], None)]


@pytest.mark.parametrize("wrong", ["1.0", "high"])
def test_invalid_labels_and_scores_are_reported(wrong):
    with pytest.raises(UserError, match="'ugly 0' is labelled 'ugly'"):
        TransferClassification(sentences(4), test=sentences(1, ("ugly",)), name="x")
    with pytest.raises(UserError, match="numbers as scores, two different ones"):
        TransferRelatedness(scored(9), (), [("1.0", "a", "b"), (wrong, "c", "d")], name="x")
