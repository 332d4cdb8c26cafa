"""Correlations of angles with gold scores, and the files with such scores."""

import numpy as np
import pytest
from encode_functions import constant, looked_up
from evaluation_data import write_table

from xling_tf.errors import UserError
from xling_tf.evaluators.sts import SUITE, SemanticTextualSimilarity, find_sts

HEADER = "sentence1 sentence2 score"

# Directions of 0, 10, 20, ... degrees, of any length: the similarity of "0" and "n" is -10 n
# degrees.
encode = looked_up(
    {
        str(n): [(n + 1) * np.cos(n * np.pi / 18), (n + 1) * np.sin(n * np.pi / 18)]
        for n in range(19)
    }
)


def test_correlations_derived_by_hand():
    # Similarities -30, -90, -180 (mean -100): deviations 70, 10, -80. Gold 5, 0, 1 (mean 2):
    # 3, -2, -1. Covariance 210 - 20 + 80 = 270; squares 4900 + 100 + 6400 = 11400 and 14.
    # Ranks 3, 2, 1 against 3, 1, 2: 1 - 6 * (0 + 1 + 1) / (3 * 8) = 0.5.
    rows = [("0", "3", 5), ("0", "9", 0), ("0", "18", 1)]
    scores = SemanticTextualSimilarity(rows, name="x")(encode)
    assert scores["pearson_angular"] == pytest.approx(270 / np.sqrt(11400 * 14), abs=1e-6)
    assert scores["spearman_angular"] == pytest.approx(0.5)
    assert scores["num_pairs"] == 3
    scores = SemanticTextualSimilarity(rows, name="x")(constant)
    assert scores["pearson_angular"] == scores["spearman_angular"] == 0.0
    with pytest.raises(UserError, match="two different scores, but has only 4"):
        SemanticTextualSimilarity([("0", "3", 4.0), ("0", "9", 4.0)], name="x")


def test_zero_vectors_are_similar_to_nothing(caplog):
    # 90 degrees instead of 20: above the 30 degrees of "3", in the other order.
    rows = [("0", "2", 2.0), ("0", "3", 1.0)]
    evaluator = SemanticTextualSimilarity(rows, name="x")
    assert evaluator(encode)["pearson_angular"] == pytest.approx(1.0)
    scores = evaluator(
        lambda texts: np.where([[text == "2"] for text in texts], 0.0, encode(texts))
    )
    assert scores["pearson_angular"] == pytest.approx(-1.0)
    assert "an encoder gives zero to 1 of 3 texts, first '2'" in caplog.text


def test_training_finds_the_development_sets_of_its_languages(tmp_path):
    rows = [("0", "3", "5.0"), ("0", "9", "0"), ("0", "18", "1.0")]
    for name in ("stsb.en.dev.tsv", "stsb.es.dev.tsv.gz", "stsb.en.train.tsv"):
        write_table(tmp_path / "eval/sts" / name, HEADER, *rows)
    evaluators = find_sts(tmp_path, ["es", "fr", "en"])
    assert [evaluator.name for evaluator in evaluators] == ["stsb.es.dev", "stsb.en.dev"]
    assert evaluators[0](encode)["spearman_angular"] == pytest.approx(0.5)
    assert find_sts(tmp_path / "elsewhere", ["en"]) == []


def test_the_suite_compares_languages_row_by_row(tmp_path):
    folder = tmp_path / "sts"
    write_table(folder / "stsb.en.dev.tsv", HEADER, (0, 1, 4), (0, 2, 1))
    write_table(folder / "stsb.es.dev.tsv.gz", HEADER, (3, 4, 4), (3, 5, 1))
    write_table(folder / "stsb.de.dev.tsv", HEADER, (3, 4, 4), (3, 5, 2))
    found = {item.name: item for item in SUITE.find(tmp_path, 0)}
    # The first sentences of the first language with the second ones of the other: 40 and 50 degrees
    # for 4 and 1, so r = 1; the other way round 20 and 10 degrees, so r = -1.
    there = found["stsb.en-es.dev"].load()
    assert there(encode)["pearson_angular"] == pytest.approx(1.0)
    back = found["stsb.es-en.dev"].load()
    assert back(encode)["pearson_angular"] == pytest.approx(-1.0)
    assert back.protocol["built_from"] == (
        "sentence1 of stsb.es.dev, sentence2 of the same row of stsb.en.dev"
    )
    # German has other scores: its rows are not those of the English file.
    assert "stsb.de-en.dev" not in found
    assert found["stsb.de.dev"].load()(encode)["num_pairs"] == 2
    # A faulty file keeps no other one from being evaluated.
    write_table(folder / "stsb.fr.dev.tsv", HEADER, (3, 4, 4), (3, 5, "high"))
    found = {item.name: item for item in SUITE.find(tmp_path, 0)}
    assert "stsb.fr-en.dev" not in found
    with pytest.raises(UserError, match="finite numbers in the column of scores"):
        found["stsb.fr.dev"].load()
