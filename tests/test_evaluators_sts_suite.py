import numpy as np
import pytest
from encode_functions import random_vectors

from xling_tf.evaluators.data import Missing
from xling_tf.evaluators.similarity.sts_files import ScoredPairs
from xling_tf.evaluators.similarity.sts_suite import SUITE, SimilarityOfSubsets

# Directions of 0, 10, 20, ... degrees: the similarity of "0" and "n" is -10 n degrees.
DIRECTIONS = {str(n): [np.cos(n * np.pi / 18), np.sin(n * np.pi / 18)] for n in range(10)}


def encode(texts):
    return np.array([DIRECTIONS[text] for text in texts])


def scored(*gold):
    """Pairs of 0, 10, 20, ... degrees with these scores."""
    return ScoredPairs([("0", str(n)) for n in range(len(gold))], list(gold))


def test_means_derived_by_hand():
    # "falls" has three pairs and r = 1, "rises" five pairs and r = -1. Mean 0, weighted mean
    # (3 - 5) / 8 = -0.25. Together: angles 0 1 2 0 1 2 3 4 (mean 13/8, sum of squares 35 - 169/8 =
    # 111/8), similarities their negatives; gold 2 1 0 0 1 2 3 4 (the same mean and sum of squares).
    # Products of angle and gold: 0 + 1 + 0 + 0 + 1 + 4 + 9 + 16 = 31, less 169/8: 79/8; r = -79/111.
    subsets = {"falls": scored(2, 1, 0), "rises": scored(0, 1, 2, 3, 4)}
    evaluator = SimilarityOfSubsets(subsets, name="sts2012", missing=["MSRvid"])
    scores = evaluator(encode)
    expected = {
        "mean/pearson_angular": 0.0,
        "weighted_mean/pearson_angular": -0.25,
        "all/pearson_angular": -79 / 111,
        "falls/pearson_angular": 1.0,
        "rises/spearman_angular": -1.0,
    }
    assert {key: scores[key] for key in expected} == pytest.approx(expected, abs=1e-9)
    assert len(scores) == 10
    assert next(iter(scores)) == "mean/pearson_angular"
    assert evaluator.protocol["subsets_missing"] == ["MSRvid"]
    assert evaluator.protocol["num_pairs"] == {"falls": 3, "rises": 5}


def test_the_order_of_pairs_and_subsets_makes_no_difference():
    def scores(order):
        subsets = {
            name: ScoredPairs([(f"{name} {n}", f"b {n}") for n in order], [n / 3 for n in order])
            for name in ("one", "two")[:: 1 if order[0] == 0 else -1]
        }
        return SimilarityOfSubsets(subsets, name="x")(random_vectors())

    assert scores(range(30)) == scores(range(29, -1, -1)) == scores(range(30))


def table(folder, name, *rows):
    lines = ["sentence1\tsentence2\tscore", *("\t".join(row) for row in rows)]
    (folder / name).write_text("\n".join(lines))


def test_the_suite_compares_languages_row_by_row(tmp_path):
    folder = tmp_path / "sts"
    folder.mkdir()
    table(folder, "stsb.en.dev.tsv", ("0", "1", "4"), ("0", "2", "1"))
    table(folder, "stsb.es.dev.tsv", ("3", "4", "4"), ("3", "5", "1"))
    table(folder, "stsb.de.dev.tsv", ("3", "4", "4"), ("3", "5", "2"))
    found = {item.name: item for item in SUITE.find(tmp_path, 0)}
    assert list(found)[:7] == [
        *("stsb.de.dev", "stsb.en.dev", "stsb.es.dev"),
        *("stsb.en-de.dev", "stsb.de-en.dev", "stsb.en-es.dev", "stsb.es-en.dev"),
    ]
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
    assert isinstance(found["stsb.de-en.dev"], Missing)
    assert found["stsb.de.dev"].load()(encode)["num_pairs"] == 2


def test_the_suite_says_what_is_missing(tmp_path):
    missing = {item.name: item.expected for item in SUITE.find(tmp_path, 0)}
    assert list(missing) == [
        *("stsb.en.dev", "stsb.en.test", "sts2017"),
        *(f"sts{year}" for year in range(2012, 2017)),
        "sick.test",
    ]
    assert "sts/sts2014.en.<name>.test.tsv" in missing["sts2014"]
    assert "STS/STS14-en-test/STS.input.<name>.txt" in missing["sts2014"]


def test_the_suite_tells_which_sets_of_a_year_are_missing(tmp_path):
    folder = tmp_path / "STS" / "STS13-en-test"
    folder.mkdir(parents=True)
    (folder / "STS.input.OnWN.txt").write_text("0\t1\n0\t2\n")
    (folder / "STS.gs.OnWN.txt").write_text("5\n1\n")
    (year,) = (item for item in SUITE.find(tmp_path, 0) if item.name == "sts2013")
    evaluator = year.load()
    assert len(year.files) == 2
    assert evaluator.protocol["subsets_missing"] == ["FNWN", "headlines"]
    assert evaluator(encode)["OnWN/spearman_angular"] == pytest.approx(1.0)
