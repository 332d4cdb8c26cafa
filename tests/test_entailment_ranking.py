"""Ranking what a premise entails: the examples made of NLI pairs, the loss by hand, training."""

import numpy as np
import pytest
import tensorflow as tf
from testing import TINY, find_task, tiny_model

from xling_tf.config import apply_overrides
from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.store import transient_store
from xling_tf.tasks.base import Batch
from xling_tf.trainer.input_pipeline import task_examples

NAME = "entailment_ranking_en"
CONFIG = apply_overrides(
    TINY,
    [
        *("tasks.entailment_ranking.weight=1", "tasks.similarity.normalize=false"),
        *("tasks.similarity.scale=1", "tasks.similarity.margin=0.5"),
    ],
)
ROWS = [
    ("entailment", "a dog runs", "an animal moves"),
    ("neutral", "a dog runs", "a dog runs home"),
    ("contradiction", "a dog runs", "a dog sleeps"),
    ("contradiction", "a dog runs", "no dog moves"),
    ("entailment", "a girl reads", "somebody reads"),
    ("contradiction", "a cat eats", "a cat fasts"),
]


@pytest.fixture(scope="module")
def task():
    return find_task(tiny_model(CONFIG), NAME)


def examples(task, folder, rows):
    (folder / "parallel").mkdir()
    (folder / "parallel" / "x.en-es.tsv").write_text("one\tuno\n")
    (folder / "nli").mkdir()
    lines = ("\t".join(row) + "\n" for row in rows)
    (folder / "nli" / "x.en.train.tsv").write_text("".join(lines))
    corpora = transient_store(load_folder(folder, source="en", targets=["es"])).corpora
    return task_examples([task], corpora)


def test_examples_are_the_entailed_pairs_with_the_first_contradiction_of_their_premise(task, tmp_path):
    train = examples(task, tmp_path, ROWS)[NAME].train
    texts = [text.decode() for text in train.texts(np.arange(len(train)))]
    assert train.corpora == (("x", 2),)
    # Column after column; the second premise has no contradiction: its own hypothesis stands there.
    assert texts == [
        *("a dog runs", "a girl reads"),
        *("an animal moves", "somebody reads"),
        *("a dog sleeps", "somebody reads"),
    ]


def test_without_an_entailed_pair_there_is_no_task(task, tmp_path):
    assert not examples(task, tmp_path, [row for row in ROWS if row[0] != "entailment"])


def test_entailed_and_contradicting_sentences_are_the_candidates(task):
    columns = [
        tf.constant([[1.0, 0], [0, 1]]),  # premises
        tf.constant([[2.0, 0], [0, 1]]),  # entailed
        tf.constant([[1.0, 0], [0, 1]]),  # contradicting the first; the second has none
    ]
    batch = Batch(
        features=None,
        fingerprints=tf.constant([[1, 2], [3, 4], [5, 4]], tf.int64),
        labels=tf.zeros([2], tf.int32),
        vectors=tf.zeros([2, 0]),
    )
    losses, hits = task.score(columns, batch)
    # Dot products of the first premise: 2 with what it entails, 0 with what the other does, 1 with its
    # contradiction. Of the second: 1, 0 and 0; its filled column does not count. The margin is that of
    # translations and is not taken off.
    expected = [np.log(np.exp([2, 0, 1]).sum()) - 2, np.log(np.exp([1, 0, 0]).sum()) - 1]
    assert losses.numpy() == pytest.approx(expected, abs=1e-6)
    assert hits.numpy().tolist() == [1, 1]


def test_a_contradiction_that_scores_higher_is_a_miss(task):
    premise = tf.constant([[1.0, 0]])
    batch = Batch(
        features=None,
        fingerprints=tf.constant([[1], [2], [3]], tf.int64),
        labels=tf.zeros([1], tf.int32),
        vectors=tf.zeros([1, 0]),
    )
    _, hits = task.score([premise, premise, 2 * premise], batch)
    assert hits.numpy().tolist() == [0]
