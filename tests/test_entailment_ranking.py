"""Ranking what a premise entails: examples made of NLI pairs, the loss derived by hand, training."""

import numpy as np
import pytest
from testing import TINY, corpus, find_task, scored, tiny_model

from xling_tf.corpora.records import InferencePair
from xling_tf.corpora.store import transient_store
from xling_tf.settings import apply_overrides
from xling_tf.trainer.input_pipeline import task_examples

ENTAILMENT, NEUTRAL, CONTRADICTION = range(3)
NAME = "entailment_ranking_en"
CONFIG = apply_overrides(
    TINY,
    [
        *("tasks.entailment_ranking.weight=1", "similarity.normalize=false"),
        *("similarity.scale=1", "similarity.margin=0.5"),
    ],
)
ROWS = [
    InferencePair("a dog runs", "an animal moves", ENTAILMENT),
    InferencePair("a dog runs", "a dog runs home", NEUTRAL),
    InferencePair("a dog runs", "a dog sleeps", CONTRADICTION),
    InferencePair("a dog runs", "no dog moves", CONTRADICTION),
    InferencePair("a girl reads", "somebody reads", ENTAILMENT),
    InferencePair("a cat eats", "a cat fasts", CONTRADICTION),
]


@pytest.fixture(scope="module")
def task():
    return find_task(tiny_model(CONFIG), NAME)


def examples(task, rows):
    return task_examples([task], transient_store([corpus("nli", rows, split="train")]).corpora, {})


def test_examples_are_the_entailed_pairs_with_the_first_contradiction_of_their_premise(task):
    assert not examples(task, [row for row in ROWS if row.label != ENTAILMENT])  # no pair, no task
    train = examples(task, ROWS)[NAME].train
    texts = [text.decode() for text in train.texts(np.arange(len(train)))]
    assert train.corpora == (("x", 2),)
    # Column after column; the second premise has no contradiction: its own hypothesis stands there.
    assert texts == [
        *("a dog runs", "a girl reads"),
        *("an animal moves", "somebody reads"),
        *("a dog sleeps", "somebody reads"),
    ]


def test_entailed_and_contradicting_sentences_are_the_candidates(task):
    premises, entailed = [[1.0, 0], [0, 1]], [[2.0, 0], [0, 1]]
    texts = [1, 2], [3, 4], [5, 4]  # one contradicts the first; the second has none
    losses, hits = scored(task, [premises, entailed, [[1.0, 0], [0, 1]]], texts, [[], []])
    # Dot products of the first premise: 2 with what it entails, 0 with what the other does, 1 with its
    # contradiction. Of the second: 1, 0 and 0; its filled column does not count. The margin is that of
    # translations and is not taken off.
    expected = [np.log(np.exp([2, 0, 1]).sum()) - 2, np.log(np.exp([1, 0, 0]).sum()) - 1]
    assert losses == pytest.approx(expected, abs=1e-6)
    assert hits == [1, 1]
    # A contradiction that scores higher is a miss.
    _, hits = scored(task, [premises, entailed, [[3.0, 0], [0, 3]]], texts, [[], []])
    assert hits == [0, 1]
