import math
import random
import sys

import numpy as np
import pytest
from encode_functions import by_meaning, constant, random_vectors

from xling_tf.errors import UserError
from xling_tf.evaluators.encoding import System
from xling_tf.evaluators.ranking.lexical import bm25, tokens_of
from xling_tf.evaluators.ranking.reqa import RetrievalQuestionAnswering
from xling_tf.evaluators.ranking.reqa_files import (
    Question,
    ReqaData,
    Sentence,
)


def numbered(count=60, size=3, language="en"):
    """Paragraphs of `size` sentences with one question each, which has the number of its answer."""
    numbers = range(count * size)
    contexts = [f"{language} paragraph {n // size}" for n in numbers]
    sentences = [
        Sentence(f"{language} fact {n}", context)
        for n, context in zip(numbers, contexts, strict=True)
    ]
    questions = [
        Question(f"q{n}", f"{language} ask {n}", frozenset([f"{language} fact {n}"]))
        for n in range(0, count * size, size)
    ]
    return ReqaData(questions, sentences)


def number(text):
    return text.split()[-1]


def measure(scores, name):
    return scores[f"{name}/precision_at_1"], scores[f"{name}/mean_reciprocal_rank"]


def test_a_perfect_encoder_finds_all():
    scores = RetrievalQuestionAnswering({"en": numbered()}, name="x")(by_meaning(number))
    assert measure(scores, "sentence_encoder/sentence") == (1.0, 1.0)
    assert measure(scores, "sentence_encoder/paragraph") == (1.0, 1.0)
    assert scores["num_queries"] == scores["num_paragraphs"] == 60
    assert scores["num_candidates"] == 180
    assert not any(name.startswith("qa_encoders") for name in scores)


def test_a_random_encoder_has_chance():
    # One of 180 sentences, one of 60 paragraphs: P@1 0.006 and 0.017, MRR H(180) / 180 = 0.032 and
    # H(60) / 60 = 0.078; the standard errors over 60 questions are 0.010, 0.017, 0.011 and 0.018.
    scores = RetrievalQuestionAnswering({"en": numbered()}, name="x")(random_vectors())
    bands = {"sentence": (0.05, 0.01, 0.07), "paragraph": (0.09, 0.03, 0.14)}
    for unit, (highest_precision, lowest, highest) in bands.items():
        precision, reciprocal_rank = measure(scores, f"sentence_encoder/{unit}")
        assert precision < highest_precision
        assert lowest < reciprocal_rank < highest


def test_a_constant_encoder_comes_last():
    scores = RetrievalQuestionAnswering({"en": numbered()}, name="x")(constant)
    assert measure(scores, "sentence_encoder/sentence") == (0.0, pytest.approx(1 / 180))
    assert measure(scores, "sentence_encoder/paragraph") == (0.0, pytest.approx(1 / 60))


def test_neither_the_order_of_lines_nor_a_second_call_makes_a_difference():
    data = numbered()
    shuffled = ReqaData(
        *(random.Random(0).sample(part, len(part)) for part in (data.questions, data.sentences))
    )
    first = RetrievalQuestionAnswering({"en": data}, name="x")
    second = RetrievalQuestionAnswering({"en": shuffled}, name="x")
    scores = first(random_vectors())
    assert scores == first(random_vectors()) == second(random_vectors())


def test_hand_derived_ranks():
    # The question's similarities (2 / sqrt(5) = 0.89 etc. by cosine): P a 0.6, b 1.0; Q c 0.8, d 0.
    # Right is a: third of four sentences; its paragraph P is first by its other sentence b.
    sentences = [Sentence(text, "P" if text in "ab" else "Q") for text in "abcd"]
    data = ReqaData([Question("1", "q", frozenset("a"))], sentences)
    vectors = {"q": [2, 0], "a": [3, 4], "b": [0.1, 0], "c": [4, 3], "d": [0, 9]}

    def encode(texts):
        return np.array([vectors[text] for text in texts])

    scores = RetrievalQuestionAnswering({"en": data}, name="x")(encode)
    assert measure(scores, "sentence_encoder/sentence") == (0.0, pytest.approx(1 / 3))
    assert measure(scores, "sentence_encoder/paragraph") == (1.0, 1.0)
    # By dot product: a 6, b 0.2, c 8, d 0: a is second, and so is P.
    system = System(name="qa", sentences=encode, questions=encode)
    scores = RetrievalQuestionAnswering({"en": data}, name="x")(system)
    assert next(iter(scores)) == "qa_encoders/sentence/precision_at_1"
    assert measure(scores, "qa_encoders/sentence") == (0.0, 0.5)
    assert measure(scores, "qa_encoders/paragraph") == (0.0, 0.5)
    assert measure(scores, "sentence_encoder/sentence") == (0.0, pytest.approx(1 / 3))


def test_responses_are_encoded_in_their_contexts():
    seen = {}

    def responses(answers, contexts):
        if answers != contexts:
            seen.update(zip(answers, contexts, strict=True))
        return by_meaning(number)(answers)

    system = System(
        name="qa", sentences=constant, questions=by_meaning(number), responses=responses
    )
    data = numbered(count=2)
    scores = RetrievalQuestionAnswering({"en": data}, name="x")(system)
    assert measure(scores, "qa_encoders/sentence") == (1.0, 1.0)
    assert measure(scores, "sentence_encoder/sentence") == (0.0, pytest.approx(1 / 6))
    assert seen == dict(data.sentences)
    assert not any(name.startswith("qa_encoders_without_context") for name in scores)


def test_without_paragraphs_the_context_is_the_sentence_between_its_neighbours():
    seen = {}

    def responses(answers, contexts):
        if answers != contexts:
            seen.update(zip(answers, contexts, strict=True))
        return by_meaning(number)(answers)

    questions = [Question("1", "ask 2", frozenset(["b 2"]))]
    # "b 2" is there twice: where it is first counts.
    texts = ["a 1", "b 2", "c 3", "d 4", "e 5", "f 6", "b 2"]
    data = ReqaData(questions, [Sentence(text, "") for text in texts])
    system = System(name="qa", sentences=by_meaning(number), responses=responses)
    evaluator = RetrievalQuestionAnswering({"en": data}, name="x")
    assert "2 neighbours on either side" in evaluator.protocol["qa_encoders"]
    scores = evaluator(system)
    assert seen == {
        "a 1": "a 1 b 2 c 3",
        "b 2": "a 1 b 2 c 3 d 4",
        "c 3": "a 1 b 2 c 3 d 4 e 5",
        "d 4": "b 2 c 3 d 4 e 5 f 6",
        "e 5": "c 3 d 4 e 5 f 6 b 2",
        "f 6": "d 4 e 5 f 6 b 2",
    }
    assert not any("paragraph" in name for name in scores)


def test_what_the_context_gives():
    # Answers are told by their contexts alone, which are what the questions ask for.
    def responses(answers, contexts):
        return by_meaning(str)(contexts)

    contexts = [f"context {n}" for n in range(4)]
    sentences = [Sentence(f"fact {n}", context) for n, context in enumerate(contexts)]
    questions = [Question(context, context, frozenset([text])) for text, context in sentences]
    system = System(name="qa", sentences=constant, questions=by_meaning(str), responses=responses)
    evaluator = RetrievalQuestionAnswering({"en": ReqaData(questions, sentences)}, name="x")
    scores = evaluator(system)
    assert measure(scores, "qa_encoders/sentence") == (1.0, 1.0)
    precision, _ = measure(scores, "qa_encoders_without_context/sentence")
    assert precision < 0.5


def test_questions_in_one_language_find_answers_in_another():
    data = {"de": numbered(language="de"), "en": numbered(language="en", size=2)}
    data["en"] = ReqaData(numbered(language="en").questions[:50], numbered(language="en").sentences)
    scores = RetrievalQuestionAnswering(data, name="x")(by_meaning(number))
    for way in ("de-en", "en-de"):
        assert measure(scores, f"{way}/sentence_encoder/sentence") == (1.0, 1.0)
        assert scores[f"{way}/num_queries"] == 50
    assert not any("bm25" in name for name in scores)
    others = [question._replace(key=question.text) for question in data["de"].questions]
    data["fr"] = data["de"]._replace(questions=others)
    with pytest.raises(UserError, match="with the same ids"):
        RetrievalQuestionAnswering(data, name="x")


def test_data_and_vectors_that_cannot_be_evaluated():
    with pytest.raises(UserError, match="questions with an answer"):
        RetrievalQuestionAnswering({"en": ReqaData([], [Sentence("a", "")])}, name="x")
    evaluator = RetrievalQuestionAnswering({"en": numbered()}, name="x")
    with pytest.raises(UserError, match="finite"):
        evaluator(lambda texts: np.full((len(texts), 2), np.nan))


def test_bm25_is_its_formula():
    # Three documents of 1, 2 and 3 tokens, on average 2; "fox" is in two: idf log(1 + 1.5 / 2.5).
    # Once in two tokens: 1 / (1 + 1.2 (0.25 + 0.75)) = 1 / 2.2; twice in three:
    # 2 / (2 + 1.2 (0.25 + 0.75 * 1.5)) = 2 / 3.65.
    scores = next(bm25(["Fox!", "whale"], ["owl", "a fox", "fox fox den"]))
    idf = math.log(1 + 1.5 / 2.5)
    np.testing.assert_allclose(scores, [[0, idf / 2.2, 2 * idf / 3.65], [0, 0, 0]], rtol=1e-6)


def test_tokens():
    assert tokens_of("It's Ötzi, 42 km.") == ["it", "s", "ötzi", "42", "km"]
    assert tokens_of("NBA在北京。") == ["nba", "在", "北", "京"]
    assert tokens_of("नमस्ते दुनिया।") == ["नमस्ते", "दुनिया"]


def test_bm25_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(UserError, match=r"xling_tf\[evaluation\]"):
        RetrievalQuestionAnswering({"en": numbered()}, name="x")
