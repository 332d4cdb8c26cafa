"""Graded similarity: the loss by hand, examples of scored pairs, and training."""

import numpy as np
import pytest
from testing import TINY, corpus, find_task, scored, tiny_model

from xling_tf.config import apply_overrides
from xling_tf.corpora.records import ScoredPair
from xling_tf.corpora.store import transient_store
from xling_tf.losses import ordering_loss
from xling_tf.trainer.input_pipeline import task_examples

NAME = "graded_similarity_en"


@pytest.fixture(scope="module")
def task():
    return find_task(tiny_model(apply_overrides(TINY, ["tasks.graded_similarity.weight=1"])), NAME)


def test_pairs_with_lower_labels_should_have_lower_scores():
    # The first is above both others, by 1 and by -2; the third above the second, by 3.
    scores, labels = np.array([1, 0, 3], "float32"), np.array([9, 2, 4])
    losses, shares = ordering_loss(scores, scores, labels, labels)
    expected = [np.log(1 + np.exp(-1) + np.exp(2)), 0, np.log(1 + np.exp(-3))]
    assert losses.numpy() == pytest.approx(expected, rel=1e-5)
    assert shares.numpy().tolist() == [0.5, 1, 1]


def test_pairs_are_scored_by_20_times_their_cosine(task):
    # Cosines 0.6 and 0.8, whatever the lengths; people find the first pair more similar.
    first, second = [[1.0, 0], [2.0, 0]], [[3.0, 4.0], [0.8, 0.6]]
    losses, shares = scored(task, [first, second], ([1, 2], [3, 4]), [[], []], labels=[80, 40])
    assert losses == pytest.approx([np.log(1 + np.exp(20 * 0.2)), 0], rel=1e-5)
    assert shares == [0, 1]


def test_examples_have_the_labels_of_their_pairs(task):
    rows = [ScoredPair("a dog runs", "an animal moves", 76), ScoredPair("a girl reads", "a cat eats", 0)]
    train = task_examples([task], transient_store([corpus("similarity", rows, split="train")]).corpora)[
        NAME
    ].train
    assert sorted(train.labels.tolist()) == [0, 76]
