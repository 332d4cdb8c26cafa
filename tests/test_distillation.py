"""The task that learns a teacher's vectors: losses derived by hand, and replicas."""

import numpy as np
import pytest
from testing import TINY, scored, tiny_model

from xling_tf.settings import apply_overrides

OTHERS = ("translation_ranking", "response_prediction", "quick_thought", "inference")
ON = ["tasks.distillation.weight=1", "tasks.distillation.teacher=python:a:teacher"]
ALONE = apply_overrides(TINY, [*ON, *(f"tasks.{kind}.weight=0" for kind in OTHERS)])


def score(normalize, source, target, teacher, source_texts=None, settings=()):
    """Losses and hits of given encodings, as lists."""
    settings = [f"similarity.normalize={normalize}", *settings]
    (task,) = tiny_model(apply_overrides(ALONE, settings)).tasks
    names = source_texts or range(len(source))
    return scored(task, [source, target], [names, names], teacher)


@pytest.mark.parametrize("normalize", [False, True])
def test_the_loss_is_the_mean_distance_of_both_texts(normalize):
    # cos(source, teacher) = 1 and cos(target, teacher) = (4 * 6 + 3 * 8) / (5 * 10) = 0.96: the mean of
    # 0 and 0.04. In the second example, both stand at a right angle: the mean of 1 and 1.
    source, target = [[3.0, 4.0], [0.0, 2.0]], [[4.0, 3.0], [0.0, -1.0]]
    losses, _ = score(normalize, source, target, [[6, 8], [1, 0]])
    assert losses == pytest.approx([0.02, 1.0], abs=1e-5)


def test_a_hit_is_a_target_nearest_to_its_own_sources_vector():
    teacher = [[1, 0], [0, 100], [1, 0], [1, 1]]
    # By the cosine: the first is nearest to its own; the second to (1, 1), however long its own is;
    # the third's own equals the first's, since the source is the same text; the last is right.
    target = [[2.0, 0.5], [2.0, 2.1], [1.0, 0.0], [3.0, 2.9]]
    _, hits = score(False, target, target, teacher, source_texts=[7, 8, 7, 9])
    assert hits == [1, 0, 1, 1]


def test_similarities_are_learnt_from_a_teacher_of_another_width():
    # Teacher: texts 0 and 1 are the same, 2 is unlike both. Of texts 0 and 1 the others' shares are
    # e / (e + 1) and 1 / (e + 1), of text 2 a half each. A student that finds all alike has halves: its
    # divergence is log 2 - H(e / (e + 1)) = 0.6931 - 0.5822; one that agrees has none, at any scale of it.
    teacher = [[0, 2, 0, 0], [0, 5, 0, 0], [1, 0, 0, 0]]
    alike, agreeing = np.eye(3, dtype="float32").tolist(), [[3.0, 0, 0], [9.0, 0, 0], [0, 1.0, 0]]
    one = ["tasks.distillation.score_scale=1"]
    assert score(True, agreeing, agreeing, teacher, settings=one)[0] == pytest.approx([0, 0, 0], abs=1e-5)
    losses, hits = score(True, alike, alike, teacher, settings=one)
    assert losses == pytest.approx([0.1109, 0.1109, 0], abs=1e-4)
    assert hits == [1, 1, 1]
    # The loss is the mean of both sides.
    losses, _ = score(True, agreeing, alike, teacher, settings=one)
    assert losses == pytest.approx([0.0555, 0.0555, 0], abs=1e-4)
