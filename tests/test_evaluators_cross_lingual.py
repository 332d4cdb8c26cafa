"""Labels learnt in one language and told in another, by systems whose scores are known."""

import numpy as np
import pytest
from encode_functions import by_meaning, constant

from xling_tf.errors import UserError
from xling_tf.evaluators import classifiers, cross_lingual
from xling_tf.evaluators.cross_lingual import (
    ARGUMENT,
    CrossLingualClassification,
    SubsampleValidation,
    _part,
)
from xling_tf.evaluators.data import Dataset

LABELS = ("good", "bad")


@pytest.fixture(autouse=True)
def _narrow(monkeypatch):
    """Layers of 512 and five shares of the rows are for real vectors."""
    monkeypatch.setitem(classifiers.TANH, "hidden", (32, 32))
    monkeypatch.setattr(cross_lingual, "_PERCENTAGES", (10, 100))


def examples(language, number, start=0):
    return [(LABELS[n % 2], f"{LABELS[n % 2]} {language} {n}") for n in range(start, start + number)]


def sets(number=100, languages=("en", "fr")):
    train = {language: examples(language, number) for language in languages}
    test = {language: examples(language, number, number) for language in languages}
    return train, test


def test_labels_that_mean_the_same_everywhere_are_transferred():
    scores = CrossLingualClassification(*sets(), name="x")(by_meaning(lambda text: text.split()[0]))
    names = [f"zero_shot/{place}/accuracy" for place in ("en", "fr", "dev")]
    names += [f"zero_shot/{language}/macro_f1" for language in ("en", "fr")]
    for percent in (10, 100):
        names += [f"few_shot/fr/{percent}/accuracy", f"monolingual/fr/{percent}/accuracy"]
    assert scores == dict.fromkeys(names, 1.0)


def test_a_tenth_of_the_source_language_is_for_development():
    # Chidambaram et al. 2019, sec. 4.2: "6,000 training reviews in English, which we split into 90% for
    # training and 10% for development".
    train, test = sets(100)
    evaluator = CrossLingualClassification(train, test, name="x")
    assert evaluator.protocol["num_train"] == {"en": 90, "fr": 100}
    assert evaluator.protocol["num_dev"] == 10
    seen, dev = evaluator._train["en"], evaluator._dev
    assert sorted([*seen, *dev]) == sorted(train["en"])
    assert [label for label, _ in dev].count("good") == 5
    # Where the data has a development set, all of the training set is for training.
    own = CrossLingualClassification(train, test, examples("en", 20, 500), name="x")
    assert own.protocol["num_train"]["en"] == 100
    assert own.protocol["num_dev"] == 20


def test_labels_that_mean_the_opposite_are_learnt_by_the_target_alone():
    def meaning(text):
        label, language, _ = text.split()
        return (label == "good") == (language == "en")

    scores = CrossLingualClassification(*sets(), name="x")(by_meaning(meaning))
    assert scores["zero_shot/en/accuracy"] == 1.0
    assert scores["zero_shot/fr/accuracy"] == 0.0
    assert scores["monolingual/fr/100/accuracy"] == 1.0
    # 90 rows in English outweigh 10 in French.
    assert scores["few_shot/fr/10/accuracy"] == 0.0


def test_macro_f1_derived_by_hand():
    # All get the commoner label: of 4 rows 2 rightly; F1 2/3 for it, 0 for the other.
    train = {"en": [*examples("en", 20), *(("good", f"good more {n}") for n in range(20))]}
    scores = CrossLingualClassification(train, {"fr": examples("fr", 4)}, name="x")(constant)
    assert scores["zero_shot/fr/accuracy"] == 0.5
    assert scores["zero_shot/fr/macro_f1"] == pytest.approx(1 / 3)


def test_without_the_source_language_each_is_for_itself():
    evaluator = CrossLingualClassification(*sets(60, ("fr", "zh")), name="x")
    assert evaluator.protocol["percentages"] == (100,)
    scores = evaluator(by_meaning(lambda text: text.split()[0]))
    assert scores == {"monolingual/fr/100/accuracy": 1.0, "monolingual/zh/100/accuracy": 1.0}


def test_parts_contain_smaller_ones_and_share_every_label():
    y = np.array(["a"] * 50 + ["b"] * 10 + ["c"])
    parts = [set(_part(y, percent, 0).tolist()) for percent in (10, 20, 100)]
    assert parts[0] < parts[1] < parts[2]
    assert [len(part) for part in parts] == [5 + 1 + 1, 10 + 2 + 1, 61]


# Random subsample validation

ROWS = {
    language: [(label, f"{language} {n} {label}") for n, label in enumerate(["Claim", "Premise"] * 60)]
    for language in ("en", "de")
}


def subsamples(rows=ROWS, **options):
    return SubsampleValidation(rows, name="AM", **{"aligned": True, "num_runs": 6, **options})


def test_translations_of_training_sentences_are_not_tested_on():
    # An encoder that knows which row a text is, but nothing of its label, profits from translations
    # alone: had the test rows of German been trained on in English, it would score 1.
    scores = subsamples()(by_meaning(lambda text: text.split()[1]))
    assert scores["en-de/macro_f1"] < 0.7
    assert scores["en-de/macro_f1"] == scores["en/macro_f1"] == scores["de/macro_f1"]


def test_macro_f1_of_subsamples_by_hand():
    # Vectors tell Claim from the rest, of which all are called Premise. In a test part with p premises
    # and n of None, F1 is 1, 2p / (2p + n) and 0; p is 12 and n 8: (1 + 24 / 32 + 0) / 3 = 0.583. Their
    # number in a part varies by chance, the mean of 20 runs by about 0.005.
    labels = ["Claim"] * 60 + ["Premise"] * 60 + ["None"] * 40
    rows = {"en": [(label, f"{number} {label}") for number, label in enumerate(labels)]}
    evaluator = subsamples(rows, num_runs=20)
    scores = evaluator(lambda texts: np.array([["Claim" in text, 1.0] for text in texts]))
    assert scores["en/macro_f1"] == pytest.approx(0.583, abs=0.02)
    # Claims and premises are found, 120 of 160 rows, within three standard errors.
    assert scores["en/accuracy"] == pytest.approx(0.75, abs=0.045)


def test_labels_that_were_not_trained_and_rows_that_cannot_be_cut_are_refused():
    train, test = sets(4)
    test["de"] = [("neither", "weder noch")]
    with pytest.raises(UserError, match="'weder noch' is labelled 'neither'"):
        CrossLingualClassification(train, test, name="x")
    with pytest.raises(UserError, match="those in en, de differ"):
        subsamples(ROWS | {"de": ROWS["de"][1:]})
    with pytest.raises(UserError, match="two labels in each fifth of its rows"):
        subsamples({"en": ROWS["en"][:6]})


def test_any_translated_set_is_found(tmp_path):
    (tmp_path / "argument").mkdir()
    for language, rows in ROWS.items():
        lines = ["label\ttext", *("\t".join(row) for row in rows)]
        (tmp_path / "argument" / f"CR.{language}.tsv").write_text("\n".join(lines))
    (found,) = (item for item in ARGUMENT.find(tmp_path, 0) if isinstance(item, Dataset))
    assert (found.name, found.load().protocol["aligned"]) == ("CR", True)
