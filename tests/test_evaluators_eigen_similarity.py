"""Eigen-similarity: spectra derived by hand, and invariances."""

import numpy as np
import pytest
from encode_functions import Counting, constant, looked_up
from evaluation_data import write_table

from xling_tf.errors import UserError
from xling_tf.evaluators.eigen_similarity import SUITE, EigenSimilarity

PAIRS = [(f"en {number}", f"es {number}") for number in range(200)]


def scores_of(source: np.ndarray, target: np.ndarray, **options: int) -> dict[str, float]:
    sides = {"en": source, "es": target}
    vectors = {
        f"{code} {row}": vector for code, side in sides.items() for row, vector in enumerate(side)
    }
    return EigenSimilarity(PAIRS[: len(source)], name="x", **options)(looked_up(vectors))


def test_a_triangle():
    # A quarter turn apart, (1,0), (0,1), (-1,0) have edges sqrt(2), sqrt(2) and 2. Of a triangle
    # with edges a, b, c the spectrum is 0 and a + b + c +- sqrt(a^2 + b^2 + c^2 - ab - bc - ca),
    # here 2 sqrt(2) + 2 +- (2 - sqrt(2)): 3 sqrt(2) and 4 + sqrt(2).
    # Three equal edges 1 have 0, 3 and 3.
    # Psi = (3 sqrt(2) - 3)^2 + (1 + sqrt(2))^2 = 30 - 16 sqrt(2).
    angles = np.radians([0, 90, 180])
    source = np.stack([np.cos(angles), np.sin(angles), 0 * angles, 0 * angles], axis=1)
    target = (np.eye(4)[1:] + np.eye(4)[0]) / np.sqrt(2)
    scores = scores_of(3 * source, 5 * target, pairs_a_sample=3, num_samples=7)
    # Lengths of vectors do not count, and every sample gives the same.
    assert scores["eigen_similarity"] == pytest.approx(30 - 16 * np.sqrt(2))
    assert scores["num_pairs"] == 3


def test_files_of_a_pair_of_languages_are_one_data_set(tmp_path):
    for name in ("a.en-de", "b.de-en", "c.fr-de"):
        first, second = name[2:].split("-")
        rows = [(f"{first} {name}{number}", f"{second} {name}{number}") for number in range(6)]
        write_table(tmp_path / f"bitext/{name}.tsv", f"{first} {second}", *rows)
    datasets = [*SUITE.find(tmp_path, 3)]
    assert [dataset.name for dataset in datasets] == ["de-fr", "en-de"]
    assert [len(dataset.files) for dataset in datasets] == [1, 2]
    evaluator = datasets[1].load()
    assert evaluator.protocol | {"num_pairs": 12, "seed": 3} == evaluator.protocol
    encode = Counting(constant)
    evaluator(encode)
    assert [{text[:2] for text in side} for side in encode.batches] == [{"en"}, {"de"}]
    with pytest.raises(UserError, match="de-fr needs 10 unrelated pairs"):
        datasets[0].load()
