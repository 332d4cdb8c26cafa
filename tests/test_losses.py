import math

import numpy as np
import pytest
from keras import ops

from xling_tf.losses import in_batch_softmax, score_divergence

EYE = np.eye(2, dtype=np.float32)


def rank(queries, candidates, positives=None, excluded=False, scale=1.0, **kwargs):
    queries, candidates = np.asarray(queries, np.float32), np.asarray(candidates, np.float32)
    positives = np.arange(len(queries)) if positives is None else np.array(positives)
    losses, hits = in_batch_softmax(scale * queries @ candidates.T, positives, excluded, **kwargs)
    return ops.convert_to_numpy(losses), ops.convert_to_numpy(hits)


def test_the_margin_is_taken_off_the_right_score():
    # Dots 1 (right) and 0 (wrong): -log(e^1 / (e^1 + e^0)) = log(e + 1) - 1; the right one is never
    # excluded.
    for excluded in (False, np.eye(2, dtype=bool)):
        losses, hits = rank(EYE, EYE, excluded=excluded)
        assert losses == pytest.approx([math.log(math.e + 1) - 1] * 2, abs=1e-6)
        assert hits.tolist() == [1, 1]
    # Scores 2 - 0.8 = 1.2 and 0: log(e^1.2 + 1) - 1.2.
    losses, hits = rank(EYE, EYE, scale=2.0, margin=0.8)
    assert losses == pytest.approx([math.log(math.e**1.2 + 1) - 1.2] * 2, abs=1e-6)
    # The margin makes training harder, not the question whether the right one was found.
    _, hits = rank(EYE, EYE, margin=5.0)
    assert hits.tolist() == [1, 1]


def test_positives_say_where_the_right_candidate_stands():
    # Three candidates, the query [1, 0] with dots 0, 2, 1; right is number 2 (dot 1):
    # log(e^0 + e^2 + e^1) - 1 and no hit; right is number 1: log(...) - 2 and a hit.
    candidates = [[0, 1], [2, 0], [1, 5]]
    total = math.log(1 + math.e**2 + math.e)
    losses, hits = rank([[1, 0], [1, 0]], candidates, positives=[2, 1])
    assert losses == pytest.approx([total - 1, total - 2], abs=1e-6)
    assert hits.tolist() == [0, 1]


def test_excluded_candidates_only_leave_the_denominator():
    # Dots 1 (right), 3 (excluded), 0: log(e + 1) - 1 as if the second were not there.
    candidates = [[1], [3], [0]]
    losses, hits = rank([[1]], candidates, excluded=np.array([[False, True, False]]))
    assert losses == pytest.approx([math.log(math.e + 1) - 1], abs=1e-6)
    assert hits.tolist() == [1]
    assert rank([[1]], candidates)[1].tolist() == [0]


def test_ties_are_no_hits():
    # An encoder that gives every text one vector has learnt nothing.
    constant = np.full((23, 7), 0.3, np.float32)
    assert rank(constant, constant)[1].tolist() == [0] * 23


def test_huge_scores_stay_finite():
    # exp(400) overflows float32: scores 400 and 0 give 0, 0 and 400 give 400.
    losses, _ = rank([[20.0], [20.0]], [[20.0], [0.0]], positives=[0, 1])
    assert losses == pytest.approx([0, 400])


def test_the_scale_sharpens_the_scores_of_the_student_and_of_the_teacher():
    # For the teacher texts 0 and 1 are the same, and 2 is unlike both: with a scale of 2, the
    # shares of the others are p = e^2 / (e^2 + 1) = 0.8808 and 1 - p for texts 0 and 1, and a half
    # each for text 2.
    teacher, alike = np.array([[1, 0], [1, 0], [0, 1]], np.float32), np.eye(3, dtype=np.float32)
    p = math.e**2 / (math.e**2 + 1)
    # A student that finds all texts equally far has halves:
    # log 2 + p log p + (1 - p) log (1 - p) = 0.3278.
    expected = math.log(2) + p * math.log(p) + (1 - p) * math.log(1 - p)
    assert expected == pytest.approx(0.3278, abs=1e-4)
    divergences = score_divergence(alike, alike, teacher, teacher, np.arange(3), scale=2.0)
    assert ops.convert_to_numpy(divergences) == pytest.approx([expected, expected, 0], abs=1e-5)
    # The other way round, log p and log (1 - p) are the student's:
    # log(1/2) - (log p + log (1 - p)) / 2.
    swapped = score_divergence(teacher, teacher, alike, alike, np.arange(3), scale=2.0)
    expected = math.log(0.5) - (math.log(p) + math.log(1 - p)) / 2
    assert ops.convert_to_numpy(swapped) == pytest.approx([expected, expected, 0], abs=1e-5)
