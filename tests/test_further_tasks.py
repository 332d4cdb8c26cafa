"""Distillation, entailment over contradiction, graded similarity: losses, examples, files."""

import numpy as np
import pytest
import tensorflow as tf
from testing import corpus, find_task, make_examples, scored, task_losses, tiny_config, tiny_model

from xling_tf.corpora.readers import read_similarity
from xling_tf.corpora.records import InferencePair, SimilarityPair
from xling_tf.corpora.store import transient_store
from xling_tf.losses import correlation_distance
from xling_tf.trainer.input_pipeline import task_examples

DISTILLED = ["tasks.distillation.weight=1", "tasks.distillation.teacher=python:a:teacher"]


def score(normalize, source, target, teacher, source_texts=None, settings=()):
    """Losses and hits of given encodings, as lists."""
    settings = [*DISTILLED, f"similarity.normalize={normalize}", *settings]
    task = find_task(tiny_model(tiny_config(*settings)), "distillation_en-es")
    names = source_texts or range(len(source))
    return scored(task, [source, target], [names, names], teacher)


@pytest.mark.parametrize("normalize", [False, True])
def test_the_loss_is_the_mean_distance_of_both_texts(normalize):
    # cos(source, teacher) = 1 and cos(target, teacher) = (4 * 6 + 3 * 8) / (5 * 10) = 0.96: the
    # mean of 0 and 0.04. In the second example, both stand at a right angle: the mean of 1 and 1.
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
    # e / (e + 1) and 1 / (e + 1), of text 2 a half each. A student that finds all alike has halves:
    # its divergence is log 2 - H(e / (e + 1)) = 0.6931 - 0.5822; one that agrees has none, at any
    # scale of it.
    teacher = [[0, 2, 0, 0], [0, 5, 0, 0], [1, 0, 0, 0]]
    alike, agreeing = np.eye(3, dtype="float32").tolist(), [[3.0, 0, 0], [9.0, 0, 0], [0, 1.0, 0]]
    one = ["tasks.distillation.score_scale=1"]
    assert score(True, agreeing, agreeing, teacher, settings=one)[0] == pytest.approx(
        [0, 0, 0], abs=1e-5
    )
    losses, hits = score(True, alike, alike, teacher, settings=one)
    assert losses == pytest.approx([0.1109, 0.1109, 0], abs=1e-4)
    assert hits == [1, 1, 1]
    # The loss is the mean of both sides.
    losses, _ = score(True, agreeing, alike, teacher, settings=one)
    assert losses == pytest.approx([0.0555, 0.0555, 0], abs=1e-4)


ENTAILMENT, NEUTRAL, CONTRADICTION = range(3)
RANKING = ("tasks.entailment_ranking.weight=1", "similarity.normalize=false")
RANKED = tiny_config(*RANKING, "similarity.scale=1", "similarity.margin=0.5")
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
    return find_task(tiny_model(RANKED), "entailment_ranking_en")


def examples(task, rows):
    return task_examples([task], transient_store([corpus("nli", rows, split="train")]).corpora, {})


def test_examples_are_the_entailed_pairs_with_the_first_contradiction_of_their_premise(task):
    assert not examples(task, [row for row in ROWS if row.label != ENTAILMENT])  # no pair, no task
    train = examples(task, ROWS)[task.name].train
    texts = [text.decode() for text in train.texts(np.arange(len(train)))]
    assert train.corpora == (("x", 2),)
    # Column after column; the second premise has no contradiction: its own hypothesis stands there.
    assert texts[:2] == ["a dog runs", "a girl reads"]
    assert texts[2:] == ["an animal moves", "somebody reads", "a dog sleeps", "somebody reads"]


def test_entailed_and_contradicting_sentences_are_the_candidates(task):
    premises, entailed = [[1.0, 0], [0, 1]], [[2.0, 0], [0, 1]]
    texts = [1, 2], [3, 4], [5, 4]  # one contradicts the first; the second has none
    losses, hits = scored(task, [premises, entailed, [[1.0, 0], [0, 1]]], texts, [[], []])
    # Dot products of the first premise: 2 with what it entails, 0 with what the other does, 1 with
    # its contradiction. Of the second: 1, 0 and 0; its filled column does not count. There is no
    # margin, unless the task has its own.
    expected = [np.log(np.exp([2, 0, 1]).sum()) - 2, np.log(np.exp([1, 0, 0]).sum()) - 1]
    assert losses == pytest.approx(expected, abs=1e-6)
    assert hits == [1, 1]
    own = find_task(
        tiny_model(tiny_config(*RANKING, "tasks.entailment_ranking.margin=2")), task.name
    )
    losses, _ = scored(own, [premises, entailed, [[1.0, 0], [0, 1]]], texts, [[], []])
    expected = [np.log(np.exp([0, 0, 1]).sum()), np.log(np.exp([-1, 0, 0]).sum()) + 1]
    assert losses == pytest.approx(expected, abs=1e-6)
    # A contradiction that scores higher is a miss.
    _, hits = scored(task, [premises, entailed, [[3.0, 0], [0, 3]]], texts, [[], []])
    assert hits == [0, 1]


GRADED = tiny_config("tasks.graded_similarity.weight=1")


def test_the_loss_is_one_minus_the_correlation():
    # Deviations (-1, 0, 1) and (-2, 1, 1): 3 / sqrt(2 * 6). Any linear scale is the same, and none
    # correlates with equal scores.
    cosines = np.array([0.1, 0.2, 0.3], "float32")
    for scores in ([0, 3, 3], [20, 80, 80]):
        loss = correlation_distance(cosines, np.array(scores))
        assert float(loss) == pytest.approx(1 - 3 / np.sqrt(12), abs=1e-5)
    assert float(correlation_distance(cosines, np.array([7, 7, 7]))) == 1


def test_cosines_that_do_not_differ_have_a_bounded_gradient():
    # The mean square of cosines counts as (10^-4)^2 at least, so that the gradient, minus the
    # scores' deviations over their own spread, is 10^4 / 2 for each of two.
    for cosines in ([0.5, 0.5], [1.0, 1.0 - 6e-8]):
        cosines = tf.constant(cosines)
        with tf.GradientTape() as tape:
            tape.watch(cosines)
            loss = correlation_distance(cosines, np.array([0, 100]))
        assert tape.gradient(loss, cosines).numpy() == pytest.approx([5000, -5000], rel=1e-2)


def test_cosines_are_compared():
    model = tiny_model(GRADED)
    first, second = ["a b", "hello", "c d e"], ["a b", "hola", "f"]
    # A pair of equal texts has the highest cosine: it is right that it has the highest score.
    for labels, hit in (([90, 10, 10], 1), ([10, 90, 90], 0)):
        examples = make_examples(first, second, labels=labels)
        losses, hits = task_losses(model, "graded_similarity_en", examples)
        assert losses.tolist() == [losses[0]] * 3  # one for all
        assert (losses[0] < 1, hits[0]) == (hit, hit)


def test_scores_go_through_files_and_the_store(tmp_path):
    rows = "sentence2 score sentence1\nb 1 a\nd 5 c\nf much e\nh nan g\nh -1e308 g\n 3 i\nl 2 k\n"
    path = tmp_path / "graded.en.tsv"
    path.write_text(rows.replace(" ", "\t"))
    reading = read_similarity(path)
    pairs = [pair for pair, _ in reading]
    assert pairs == [
        SimilarityPair("a", "b", 0),
        SimilarityPair("c", "d", 100),
        SimilarityPair("k", "l", 25),
    ]
    assert sum(reading.malformed.values()) == 4
    task = find_task(tiny_model(GRADED), "graded_similarity_en")
    store = transient_store([corpus("similarity", pairs, split="train")])
    train = task_examples([task], store.corpora, {})[task.name].train
    assert train.labels.tolist() == [0, 100, 25]
    assert [text.decode() for text in train.texts(np.arange(3))] == ["a", "c", "k", "b", "d", "l"]
