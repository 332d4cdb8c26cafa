"""Classifiers on frozen vectors, folds, and labels learnt in one language, predicted in another."""

import numpy as np
import pytest
from encode_functions import by_meaning

from xling_tf.evaluators.classification import CrossLingualClassification
from xling_tf.evaluators.classifiers import (
    Job,
    fit_logistic,
    fit_network,
    fit_tanh_network,
    mean_accuracies,
    stratified_splits,
)

pytestmark = pytest.mark.usefixtures("small_classifiers")


def clusters(rows=60, labels=("a", "b", "c"), noise=0.1, seed=0):
    """Vectors around a corner for each label."""
    rng = np.random.default_rng(seed)
    y = np.array(labels)[np.arange(rows) % len(labels)]
    corners = np.eye(len(labels), 8)[np.arange(rows) % len(labels)]
    return corners + noise * rng.standard_normal((rows, 8)), y


@pytest.mark.parametrize("fit", [fit_logistic, fit_network, fit_tanh_network])
def test_clusters_are_separated_and_equal_vectors_get_the_commonest_label(fit):
    for labels in (("a", "b", "c"), (3, 7)):
        test_x, test_y = clusters(30, labels, seed=1)
        predicted = fit(*clusters(300, labels), seed=3)(test_x)
        assert np.mean(predicted == test_y) > 0.95
    y = np.array(["many"] * 30 + ["few"] * 10)
    assert set(fit(np.ones((40, 3)), y)(np.ones((2, 3)))) == {"many"}


def test_folds_have_the_labels_in_their_proportions():
    x, y = np.arange(25.0)[:, np.newaxis], np.array(["a", "b", "b", "b", "b"] * 5)
    # Each fold has one "a" among five rows, which a constant "b" gets wrong: 4 of 5.
    jobs = [
        Job(lambda x, y: lambda rows: np.full(len(rows), "b"), train, None, {"b": test})
        for train, test in stratified_splits(x, y, 5, seed=0)
    ]
    assert mean_accuracies(jobs) == {"b": pytest.approx(0.8)}


LABELS = ("good", "bad")


def sets(number=100, languages=("en", "fr")):
    def rows(language, start):
        return [
            (LABELS[n % 2], f"{LABELS[n % 2]} {language} {n}") for n in range(start, start + number)
        ]

    return {
        language: {"train": rows(language, 0), "test": rows(language, number)}
        for language in languages
    }


def test_a_tenth_of_the_source_language_is_for_development():
    # Chidambaram et al. 2019, sec. 4.2: "6,000 training reviews in English, which we split into 90%
    # for training and 10% for development".
    rows = sets(100)
    evaluator = CrossLingualClassification(rows, name="x")
    assert evaluator.protocol["num_train"] == {"en": 90, "fr": 100}
    # Where the data has a development set, all of the training set is for training.
    rows["en"]["dev"] = rows["en"]["test"]
    assert CrossLingualClassification(rows, name="x").protocol["num_train"]["en"] == 100


def test_labels_with_opposite_meanings_are_learnt_from_the_target_language():
    def meaning(text):
        label, language, _ = text.split()
        return (label == "good") == (language == "en")

    scores = CrossLingualClassification(sets(), name="x")(by_meaning(meaning))
    assert scores["zero_shot/en/accuracy"] == 1.0
    assert scores["zero_shot/fr/accuracy"] == 0.0
    assert scores["monolingual/fr/100/accuracy"] == 1.0
    # 90 rows in English outweigh 10 in French.
    assert scores["few_shot/fr/10/accuracy"] == 0.0
