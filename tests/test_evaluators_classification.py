import numpy as np
import pytest
from encode_functions import by_meaning, constant, random_vectors

from xling_tf.errors import UserError
from xling_tf.evaluators.classification import classifiers
from xling_tf.evaluators.classification.cross_lingual import CrossLingualClassification, _part
from xling_tf.evaluators.classification.sentiment_files import SUITE, find, read_reviews
from xling_tf.evaluators.classification.transfer import Example
from xling_tf.evaluators.data import Dataset, Missing

LABELS = ("good", "bad")
REVIEWS = """<?xml version="1.0" encoding="UTF-8"?>
<items>
<item><category>books</category><rating>5.0</rating><summary>Très bon</summary><text>Lu &amp;
relu {many}</text></item>
<item><category>books</category><rating>3.0</rating><summary>Bof</summary><text>Moyen</text></item>
<item><category>books</category><rating>1.0</rating><text>Ennuyeux</text></item>
</items>
"""


@pytest.fixture(autouse=True)
def _narrow(monkeypatch):
    """Layers of 512 are for real vectors."""
    monkeypatch.setattr(classifiers, "_TANH_HIDDEN", (32, 32))


def examples(language, number, start=0):
    return [
        Example((f"{LABELS[n % 2]} {language} {n}",), LABELS[n % 2])
        for n in range(start, start + number)
    ]


def sets(number=100, languages=("en", "fr")):
    train = {language: examples(language, number) for language in languages}
    test = {language: examples(language, number, number) for language in languages}
    return train, test


def shuffled(rows_of):
    rng = np.random.default_rng(1)
    return {
        language: [rows_of[language][place] for place in rng.permutation(len(rows_of[language]))]
        for language in reversed(rows_of)
    }


def test_labels_that_mean_the_same_everywhere_are_transferred():
    scores = CrossLingualClassification(*sets(), name="x")(by_meaning(lambda text: text.split()[0]))
    assert set(scores) == {
        *(
            f"zero_shot/{language}/{metric}"
            for language in ("en", "fr")
            for metric in ("accuracy", "macro_f1")
        ),
        *(f"few_shot/fr/{percent}/accuracy" for percent in (10, 20, 40, 80, 100)),
        *(f"monolingual/fr/{percent}/accuracy" for percent in (10, 20, 40, 80, 100)),
    }
    assert {name: score for name, score in scores.items() if score < 1} == {}


def test_labels_that_mean_the_opposite_are_learnt_by_the_target_alone():
    def meaning(text):
        label, language, _ = text.split()
        return (label == "good") == (language == "en")

    scores = CrossLingualClassification(*sets(), name="x")(by_meaning(meaning))
    assert scores["zero_shot/en/accuracy"] == 1.0
    assert scores["zero_shot/fr/accuracy"] == 0.0
    assert scores["monolingual/fr/100/accuracy"] == 1.0
    # 100 rows in English outweigh 10 in French.
    assert scores["few_shot/fr/10/accuracy"] == 0.0


def test_vectors_of_chance_score_chance():
    scores = CrossLingualClassification(*sets(200), name="x")(random_vectors(8))
    # The error of 200 coin tosses is 0.035; of the dozen scores one is out by twice that.
    assert list(scores.values()) == pytest.approx([0.5] * len(scores), abs=0.15)


def test_the_order_of_lines_makes_no_difference_nor_does_a_second_call():
    train, test = sets(40)
    evaluator = CrossLingualClassification(train, test, name="x", seed=1)
    scores = evaluator(random_vectors(8))
    assert evaluator(random_vectors(8)) == scores
    other = CrossLingualClassification(shuffled(train), shuffled(test), name="x", seed=1)
    assert other(random_vectors(8)) == scores


def test_macro_f1_derived_by_hand():
    # All are told the commoner label: of 4 rows 2 rightly; F1 2/3 for it, 0 for the other.
    train = {
        "en": [*examples("en", 20), *(Example((f"good more {n}",), "good") for n in range(20))]
    }
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


def test_labels_that_were_not_trained():
    train, test = sets(4)
    test["de"] = [Example(("weder noch",), "neither")]
    with pytest.raises(UserError, match="'weder noch' in its test set in de is labelled 'neither'"):
        CrossLingualClassification(train, test, name="x")
    with pytest.raises(UserError, match="labelled nothing"):
        CrossLingualClassification({"fr": train["fr"]}, {"de": examples("de", 2)}, name="x")


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def test_tables_are_found(tmp_path):
    table = "label\ttext\n1\tfine\n0\tdull\n"
    for name in ("a.b.en.train", "a.b.en.test", "a.b.fr.test", "a.b.fr.dev", "lone.fr.train"):
        write(tmp_path / "sentiment" / f"{name}.tsv", table)
    dataset, missing = find(tmp_path, 0)
    assert isinstance(dataset, Dataset)
    assert isinstance(missing, Missing)
    assert (dataset.name, missing.name, SUITE.name) == ("a.b", "cls", "classification")
    assert [path.name for path in dataset.files] == [
        "a.b.en.train.tsv",
        "a.b.en.test.tsv",
        "a.b.fr.test.tsv",
    ]
    protocol = dataset.load().protocol
    assert (protocol["num_train"], protocol["num_test"]) == ({"en": 2}, {"en": 2, "fr": 2})


def test_amazon_reviews(tmp_path):
    text = REVIEWS.format(many="encore " * 80)
    folder = tmp_path / "sentiment" / "cls-acl10-unprocessed"
    for language in ("en", "jp"):
        for category in ("books", "dvd"):
            for split in ("train", "test", "unlabeled"):
                write(folder / language / category / f"{split}.review", text)
    (dataset,) = find(tmp_path, 0)
    evaluator = dataset.load()
    assert (dataset.name, len(dataset.files)) == ("cls", 8)
    assert evaluator.protocol["num_train"] == {"en": 4, "ja": 4}
    first, second = read_reviews(dataset.files[0])
    # 64 words: five and 59 times "encore".
    assert first == ((" ".join(["Très bon Lu & relu", *["encore"] * 59]),), "positive")
    assert second == (("Ennuyeux",), "negative")


@pytest.mark.parametrize("content", ["no XML", "<items><item><text>no stars</text></item></items>"])
def test_reviews_of_another_kind(tmp_path, content):
    write(tmp_path / "train.review", content)
    with pytest.raises(UserError, match="XML whose items have a rating"):
        read_reviews(tmp_path / "train.review")
