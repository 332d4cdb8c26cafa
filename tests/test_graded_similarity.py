"""Similarity as people grade it: the loss derived by hand, the task, its files."""

import numpy as np
import pytest
import tensorflow as tf
from testing import TINY, corpus, find_task, make_examples, task_losses, tiny_model

from xling_tf.corpora.readers import read_similarity
from xling_tf.corpora.records import SimilarityPair
from xling_tf.corpora.store import transient_store
from xling_tf.errors import UserError
from xling_tf.losses import correlation_distance
from xling_tf.settings import apply_overrides
from xling_tf.trainer.input_pipeline import task_examples

NAME = "graded_similarity_en"
CONFIG = apply_overrides(TINY, ["tasks.graded_similarity.weight=1"])


def test_the_loss_is_one_minus_the_correlation():
    # Deviations (-1, 0, 1) and (-2, 1, 1): 3 / sqrt(2 * 6). Any linear scale is the same, and none correlates
    # with equal scores.
    cosines = np.array([0.1, 0.2, 0.3], "float32")
    for scores in ([0, 3, 3], [20, 80, 80]):
        loss = correlation_distance(cosines, np.array(scores))
        assert float(loss) == pytest.approx(1 - 3 / np.sqrt(12), abs=1e-5)
    assert float(correlation_distance(cosines, np.array([7, 7, 7]))) == 1


def test_cosines_that_do_not_differ_have_a_bounded_gradient():
    # The mean square of cosines counts as (10^-4)^2 at least, so that the gradient, minus the scores'
    # deviations over their own spread, is 10^4 / 2 for each of two.
    for cosines in ([0.5, 0.5], [1.0, 1.0 - 6e-8]):
        cosines = tf.constant(cosines)
        with tf.GradientTape() as tape:
            tape.watch(cosines)
            loss = correlation_distance(cosines, np.array([0, 100]))
        assert tape.gradient(loss, cosines).numpy() == pytest.approx([5000, -5000], rel=1e-2)


def test_cosines_are_compared():
    model = tiny_model(CONFIG)
    first, second = ["a b", "hello", "c d e"], ["a b", "hola", "f"]
    # A pair of equal texts has the highest cosine: it is right that it has the highest score.
    losses, hits = task_losses(model, NAME, make_examples(first, second, labels=[90, 10, 10]))
    assert losses.tolist() == [losses[0]] * 3  # one for all
    assert hits[0] == 1
    worse, hits = task_losses(model, NAME, make_examples(first, second, labels=[10, 90, 90]))
    assert worse[0] == pytest.approx(2 - losses[0], abs=1e-5)
    assert hits[0] == 0


def test_scores_go_through_files_and_the_store(tmp_path):
    rows = [
        "sentence2 score sentence1",
        "b 1 a",
        "d 5 c",
        "f much e",
        "h nan g",
        "h -1e308 g",
        " 3 i",
        "l 2 k",
    ]
    lines = [row.replace(" ", "\t") for row in rows]
    path = tmp_path / "graded.en.tsv"
    path.write_text("".join(f"{line}\n" for line in lines))
    reading = read_similarity(path)
    pairs = [pair for pair, _ in reading]
    assert pairs == [SimilarityPair("a", "b", 0), SimilarityPair("c", "d", 100), SimilarityPair("k", "l", 25)]
    assert sum(reading.malformed.values()) == 4
    task = find_task(tiny_model(CONFIG), NAME)
    store = transient_store([corpus("similarity", pairs, split="train")])
    train = task_examples([task], store.corpora, {})[NAME].train
    assert train.labels.tolist() == [0, 100, 25]
    assert [text.decode() for text in train.texts(np.arange(3))] == ["a", "c", "k", "b", "d", "l"]


def test_a_file_must_name_its_columns(tmp_path):
    path = tmp_path / "graded.en.tsv"
    path.write_text("0.5\ta\tb\n")
    with pytest.raises(UserError, match="sentence1, sentence2 and score in its first line"):
        list(read_similarity(path))
