"""Question answering: answers with their contexts are ranked for questions."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from testing import (
    DIM,
    TINY,
    dense,
    encoded,
    find_task,
    make_examples,
    numpy_ranking,
    task_losses,
    tiny_model,
)

from xling_tf.config import apply_overrides
from xling_tf.corpora.records import QuestionAnswer
from xling_tf.model import Model
from xling_tf.text.preprocessor import fit_text

QUESTIONS = ["a b", "hello", "c d e", "f g", "hello world"]
ANSWERS = ["hola", "mundo a", "b b b", "i j", "hola mundo"]
CONTEXTS = ["hola . a a", "mundo a", "b b b c d e f g h i j world", "unknown i j", "d hola mundo"]
NAME = "question_answering_en"
ON = ("tasks.question_answering.weight=1", "tasks.question_answering.examples_per_batch=8")
BEST = [f"tasks.similarity.{option}" for option in ("normalize=true", "scale=20", "margin=0.1")]


def make_model(*overrides):
    keras.utils.set_random_seed(1)
    return tiny_model(apply_overrides(TINY, [*ON, *overrides]))


def examples(contexts=CONTEXTS):
    return make_examples(QUESTIONS, ANSWERS, contexts, num_contexts=1)


def averaged(model, texts):
    """The mean of what the encoder embeds each word of a text as, word by word."""

    def embedded(word):
        return model.encoder.embed_words(model.preprocessor.word_features(tf.constant([word])))[0]

    means = np.array([np.mean([embedded(word) for word in text.split()], axis=0) for text in texts])
    if model.config.tasks.similarity.normalize:
        means /= np.sqrt(np.mean(means**2, axis=1, keepdims=True))
    return means


def expected_losses(model, contexts=CONTEXTS):
    task = find_task(model, NAME)
    parts = [encoded(model, ANSWERS)]
    if task.context_encoder is not None:
        parts.append(dense(averaged(model, contexts), task.context_encoder))
    return numpy_ranking(
        model,
        dense(encoded(model, QUESTIONS), task.question_tower),
        dense(np.concatenate(parts, axis=1), task.answer_tower),
    )


@pytest.mark.parametrize("similarity", [[], BEST], ids=["paper", "best"])
def test_answers_and_the_averages_of_their_contexts_are_ranked_for_questions(similarity):
    model = make_model(*similarity)
    task = find_task(model, NAME)
    # 320 and 512 in the paper, here 5 and 8; the answer's tower sees both parts joined.
    shapes = [[w.shape for w in head.get_weights()[::2]] for head in task.heads]
    assert shapes == [[(DIM, 5), (5, DIM)], [(2 * DIM, 5), (5, DIM)], [(DIM, 5), (5, DIM)]]
    found = task_losses(model, NAME, examples())[0]
    assert found == pytest.approx(expected_losses(model), rel=1e-4, abs=1e-5)


def test_without_contexts_the_tower_is_over_the_answer_alone():
    model = make_model("tasks.question_answering.with_context=false")
    task = find_task(model, NAME)
    assert task.columns == ("question", "answer")
    assert len(task.heads) == 2
    found = task_losses(model, NAME, make_examples(QUESTIONS, ANSWERS))[0]
    assert found == pytest.approx(expected_losses(model), rel=1e-4, abs=1e-5)
    assert task.texts(QuestionAnswer("q", "a", "c")) == ("q", "a")


def test_a_teacher_adds_how_far_the_shares_of_the_answers_are_from_its_own():
    teacher = ["tasks.question_answering.teacher=e5", "tasks.question_answering.teacher_weight=2"]
    model = make_model(*BEST, *teacher, "tasks.question_answering.with_context=false")
    task = find_task(model, NAME)

    def shares(questions, answers, scale):
        questions, answers = (rows / np.linalg.norm(rows, axis=1)[:, None] for rows in (questions, answers))
        exponentials = np.exp(scale * questions @ answers.T)
        return exponentials / exponentials.sum(axis=1, keepdims=True)

    vectors = np.random.default_rng(1).normal(size=(5, 6)).astype(np.float32)
    questions = dense(encoded(model, QUESTIONS), task.question_tower)
    responses = dense(encoded(model, ANSWERS), task.answer_tower)
    # The first half of what a teacher gives is of the question; it is as sharp as in its own training.
    wanted = shares(vectors[:, :3].astype(float), vectors[:, 3:].astype(float), 100)
    found = shares(questions, responses, 20)
    divergences = np.sum(wanted * np.log(np.maximum(wanted, 1e-7) / found), axis=1)
    given = dataclasses.replace(make_examples(QUESTIONS, ANSWERS), vectors=vectors)
    ranking = numpy_ranking(model, questions, responses)
    np.testing.assert_allclose(task_losses(model, NAME, given)[0], ranking + 2 * divergences, rtol=1e-3)


def test_contexts_are_cut_and_not_encoded_as_sentences_are(monkeypatch):
    model = make_model("text.max_tokens=3", "text.max_context_tokens=5")
    contexts = ["a b c d e f g h i j"] * 5
    shapes = []
    encode_tokens = model.encoder.encode_tokens

    def watched(inputs, lengths):
        shapes.append(inputs.shape[:2])
        return encode_tokens(inputs, lengths)

    monkeypatch.setattr(model.encoder, "encode_tokens", watched)
    found = task_losses(model, NAME, examples(contexts))[0]
    # Five questions and five answers, of three tokens at most.
    assert shapes == [(10, 3)]
    expected = expected_losses(model, ["a b c d e"] * 5)
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_the_convolutions_of_pieces_are_not_in_the_way():
    pieces = ("encoder.kind=cnn", "text.tokenizer=sentencepiece", "text.sentencepiece_size=40")
    config = apply_overrides(TINY, [*ON, *pieces])
    text, vocabulary = fit_text(config.text, {"en": [*QUESTIONS, *ANSWERS, *CONTEXTS]})
    model = Model.build(dataclasses.replace(config, text=text), vocabulary)
    # The averages have the token's own vector and what enters each of three branches.
    width = 6 + 3 * config.encoder.num_filters
    assert find_task(model, NAME).context_encoder.get_weights()[0].shape == (width, 5)
    assert np.isfinite(task_losses(model, NAME, examples())[0]).all()
