"""Question answering: answers with their contexts are ranked for questions."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from testing import (
    DIM,
    dense,
    encoded,
    find_task,
    make_examples,
    numpy_ranking,
    task_losses,
    tiny_config,
    tiny_model,
)

from xling_tf.errors import UserError
from xling_tf.tokenizers import base

QUESTIONS = ["a b", "hello", "c d e", "f g", "hello world"]
ANSWERS = ["hola", "mundo a", "b b b", "i j", "hola mundo"]
CONTEXTS = ["hola . a a", "mundo a", "b b b c d e f g h i j world", "unknown i j", "d hola mundo"]
NAME = "question_answering_en"
ON = ("tasks.question_answering.weight=1", "tasks.question_answering.examples_per_batch=8")
BEST = [f"similarity.{option}" for option in ("normalize=true", "scale=20", "margin=0.1")]


def make_model(*overrides):
    keras.utils.set_random_seed(1)
    return tiny_model(tiny_config(*ON, *overrides))


def examples(contexts=CONTEXTS):
    return make_examples(QUESTIONS, ANSWERS, contexts, num_contexts=1)


def averaged(model, texts):
    """The mean over the words of a text of the encoder's average of each word alone."""
    words = [word for text in texts for word in text.split()]
    vectors = model.encoder.embed_words(model.tokenizer.word_features(tf.constant(words)))
    alone = model.encoder.average(
        vectors, tf.ragged.constant([[place] for place in range(len(words))])
    )
    ends = np.cumsum([len(text.split()) for text in texts])[:-1]
    means = np.array([part.mean(axis=0) for part in np.split(alone.numpy(), ends)])
    if model.experiment.similarity.normalize:
        means /= np.sqrt(np.mean(means**2, axis=1, keepdims=True))
    return means


def expected_losses(model, contexts=CONTEXTS):
    task = find_task(model, NAME)
    parts = [encoded(model, ANSWERS)]
    if "context_encoder" in task.heads:
        parts.append(dense(averaged(model, contexts), task.heads["context_encoder"]))
    return numpy_ranking(
        model,
        dense(encoded(model, QUESTIONS), task.heads["question_tower"]),
        dense(np.concatenate(parts, axis=1), task.heads["answer_tower"]),
    )


@pytest.mark.parametrize("similarity", [[], BEST], ids=["paper", "best"])
def test_answers_and_the_averages_of_their_contexts_are_ranked_for_questions(similarity):
    model = make_model(*similarity)
    task = find_task(model, NAME)
    # 320 and 512 in the paper, here 5 and 8; the answer's tower sees both parts joined.
    shapes = {name: [w.shape for w in head.get_weights()[::2]] for name, head in task.heads.items()}
    assert shapes == {
        "question_tower": [(DIM, 5), (5, DIM)],
        "answer_tower": [(2 * DIM, 5), (5, DIM)],
        "context_encoder": [(DIM, 5), (5, DIM)],
    }
    losses = task_losses(model, NAME, examples())[0]
    assert losses == pytest.approx(expected_losses(model), rel=1e-4, abs=1e-5)
    # Without contexts, the tower is over the answer alone.
    model = make_model(*similarity, "tasks.question_answering.with_context=false")
    assert find_task(model, NAME).heads["answer_tower"].get_weights()[0].shape == (DIM, 5)
    losses = task_losses(model, NAME, make_examples(QUESTIONS, ANSWERS))[0]
    assert losses == pytest.approx(expected_losses(model), rel=1e-4, abs=1e-5)


def test_without_towers_the_vectors_of_the_encoder_are_ranked():
    off = [f"tasks.question_answering.with_{part}=false" for part in ("towers", "context")]
    model = make_model(*BEST, *off)
    assert find_task(model, NAME).heads == {}
    losses = task_losses(model, NAME, make_examples(QUESTIONS, ANSWERS))[0]
    expected = numpy_ranking(model, encoded(model, QUESTIONS), encoded(model, ANSWERS))
    assert losses == pytest.approx(expected, rel=1e-4, abs=1e-5)
    questions, answers = (
        getattr(model.module(), f"{side}_encoder") for side in ("question", "response")
    )
    assert questions(QUESTIONS).numpy() == pytest.approx(answers(QUESTIONS).numpy())
    with pytest.raises(UserError, match="with_context"):
        make_model(off[0])


def test_mined_wrong_answers_are_ranked_with_the_others():
    settings = (
        f"tasks.question_answering.{setting}" for setting in ("with_context=false", "miner=any")
    )
    model = make_model(*BEST, *settings)
    # The right answer stands for a missing wrong one: the first and the last count for all
    # questions.
    wrong = ["i j k", *ANSWERS[1:4], "c d"]
    losses = task_losses(model, NAME, make_examples(QUESTIONS, ANSWERS, wrong))[0]
    heads = find_task(model, NAME).heads
    answers = dense(encoded(model, [*ANSWERS, wrong[0], wrong[-1]]), heads["answer_tower"])
    expected = numpy_ranking(
        model, dense(encoded(model, QUESTIONS), heads["question_tower"]), answers
    )
    assert losses == pytest.approx(expected, rel=1e-4, abs=1e-5)
    with pytest.raises(UserError, match="empty with contexts"):
        make_model("tasks.question_answering.miner=any")


def test_contexts_are_cut_at_a_length_of_their_own(monkeypatch):
    monkeypatch.setattr(base, "_MAX_CONTEXT_TOKENS", 5)
    model = make_model("tokenizer.max_tokens=3")
    losses = task_losses(model, NAME, examples(["a b c d e f g h i j"] * 5))[0]
    expected = expected_losses(model, ["a b c d e"] * 5)
    assert losses == pytest.approx(expected, rel=1e-4, abs=1e-5)
