"""Labels learnt in one language and predicted in another, by encoders whose scores are known."""

import pytest
from encode_functions import by_meaning

from xling_tf.evaluators.classification import CrossLingualClassification

LABELS = ("good", "bad")

pytestmark = pytest.mark.usefixtures("small_classifiers")


def sets(number=100, languages=("en", "fr")):
    def rows(language, start):
        return [(LABELS[n % 2], f"{LABELS[n % 2]} {language} {n}") for n in range(start, start + number)]

    return {language: {"train": rows(language, 0), "test": rows(language, number)} for language in languages}


def test_a_tenth_of_the_source_language_is_for_development():
    # Chidambaram et al. 2019, sec. 4.2: "6,000 training reviews in English, which we split into 90% for
    # training and 10% for development".
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
