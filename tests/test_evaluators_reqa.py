"""Retrieval of answers among all sentences and paragraphs, with contexts, and by BM25."""

import math

import numpy as np
import pytest
from encode_functions import by_last_word, by_meaning, constant, looked_up, random_vectors
from evaluation_data import write_table

from xling_tf.corpora.sentences import surroundings
from xling_tf.errors import UserError
from xling_tf.evaluators.encoding import Embedder
from xling_tf.evaluators.reqa import (
    SUITE,
    ReqaData,
    RetrievalQuestionAnswering,
    Unit,
    bm25,
    read_tables,
    tokens_of,
)


def scores_of(data, system):
    return RetrievalQuestionAnswering({"en": data}, name="x")(system)


def measure(scores, name):
    return scores[f"{name}/precision_at_1"], scores[f"{name}/mean_reciprocal_rank"]


def test_ranks_derived_by_hand():
    # The question's similarities (2 / sqrt(5) = 0.89 etc. by cosine): P a 0.6, b 1.0; Q c 0.8, d 0.
    # Right is a: third of four sentences; its paragraph P is first by its other sentence b.
    sentences = [(text, "P" if text in "ab" else "Q") for text in "abcd"]
    data = ReqaData([("1", "q", "a")], sentences)
    encode = looked_up({"q": [2, 0], "a": [3, 4], "b": [0.1, 0], "c": [4, 3], "d": [0, 9]})
    scores = scores_of(data, encode)
    assert measure(scores, "sentence_encoder/sentence") == (0.0, pytest.approx(1 / 3))
    assert measure(scores, "sentence_encoder/paragraph") == (1.0, 1.0)
    assert (scores["num_queries"], scores["num_sentences"], scores["num_paragraphs"]) == (1, 4, 2)
    assert not any(name.startswith("qa_encoders") for name in scores)
    # A tie counts against the system.
    scores = scores_of(data, constant)
    assert measure(scores, "sentence_encoder/sentence") == (0.0, pytest.approx(1 / 4))
    assert measure(scores, "sentence_encoder/paragraph") == (0.0, pytest.approx(1 / 2))
    # By dot product: a 6, b 0.2, c 8, d 0: a is second, and so is P.
    scores = scores_of(data, Embedder(name="qa", sentences=encode, questions=encode))
    assert next(iter(scores)) == "qa_encoders/sentence/precision_at_1"
    assert measure(scores, "qa_encoders/sentence") == (0.0, 0.5)
    assert measure(scores, "qa_encoders/paragraph") == (0.0, 0.5)
    assert measure(scores, "sentence_encoder/sentence") == (0.0, pytest.approx(1 / 3))


def test_a_paragraph_is_as_good_as_its_best_sentence():
    # The question's similarities: P a 1.0, b 0.0; Q c 0.8, d 0.7, e 0.0. The best sentence is P's,
    # though Q's have 1.5 together and a mean of 0.5, which is P's too.
    sentences = [(text, "P" if text in "ab" else "Q") for text in "abcde"]
    data = ReqaData([("1", "q", "a")], sentences)
    vectors = {"a": [5, 0], "b": [0, 2], "c": [4, 3], "d": [7, 51**0.5], "e": [0, 1]}
    scores = scores_of(data, looked_up({"q": [1, 0], **vectors}))
    assert measure(scores, "sentence_encoder/paragraph") == (1.0, 1.0)


def test_every_sentence_with_the_text_of_an_answer_is_right():
    # "What colour?" is one query with three right sentences, of which two are in both paragraphs.
    sentences = [
        ("The fox sleeps.", "FOX"),
        ("It is red.", "FOX"),
        ("The owl hunts.", "OWL"),
        ("It is red.", "OWL"),
    ]
    answers = ["It is red.", "The fox sleeps.", "It is red."]
    questions = [(key, "What colour?", answer) for key, answer in zip("112", answers, strict=True)]
    data = ReqaData([*questions, ("3", "Who hunts?", "The owl hunts.")], sentences)
    scores = scores_of(data, by_meaning(lambda text: "owl" in text))
    assert (scores["num_queries"], scores["num_sentences"]) == (2, 4)
    # None of "What colour?"'s three has another candidate that is as near; the owl is farthest.
    assert scores["sentence_encoder/sentence/precision_at_1"] == 0.5


def test_without_paragraphs_the_context_is_the_sentence_between_its_neighbours():
    # Only the contexts tell answers apart; the question has the text of one.
    same = by_meaning(str)
    texts = ["a 1", "b 2", "c 3", "d 4", "e 5", "f 6", "b 2"]
    contexts = surroundings(texts, 2)
    data = ReqaData([("1", contexts["d 4"], "d 4")], [(text, "") for text in texts])
    functions = {"questions": same, "responses": lambda _, contexts: same(contexts)}
    scores = scores_of(data, Embedder(name="qa", sentences=constant, **functions))
    assert measure(scores, "qa_encoders/sentence") == (1.0, 1.0)
    assert not any("paragraph" in name for name in scores)


def test_questions_in_one_language_find_answers_in_another():
    def numbered(language, count):
        questions = [(f"q{n}", f"{language} ask {n}", f"{language} fact {n}") for n in range(count)]
        return ReqaData(questions, [(f"{language} fact {n}", "") for n in range(180)])

    data = {"de": numbered("de", 60), "en": numbered("en", 50)}
    scores = RetrievalQuestionAnswering(data, name="x")(by_last_word)
    for way in ("de-en", "en-de"):
        assert measure(scores, f"{way}/sentence_encoder/sentence") == (1.0, 1.0)
        assert scores[f"{way}/num_queries"] == 50
    assert not any("bm25" in name for name in scores)
    others = [(text, text, answer) for _, text, answer in data["de"].questions]
    data["fr"] = data["de"]._replace(questions=others)
    with pytest.raises(UserError, match="and the same ids"):
        RetrievalQuestionAnswering(data, name="x")
    with pytest.raises(UserError, match="must have questions with answers"):
        scores_of(ReqaData([], [("a", "")]), constant)


def test_bm25_is_its_formula():
    # Three documents of 1, 2 and 3 tokens, on average 2; "fox" is in two: idf log(1 + 1.5 / 2.5).
    # Once in two tokens: 1 / (1 + 1.2 (0.25 + 0.75)) = 1 / 2.2; twice in three:
    # 2 / (2 + 1.2 (0.25 + 0.75 * 1.5)) = 2 / 3.65.
    unit = Unit(["owl", "a fox", "fox fox den"], *[np.arange(3)] * 2)
    scores = list(bm25(["Fox!", "whale"], unit))
    idf = math.log(1 + 1.5 / 2.5)
    np.testing.assert_allclose(scores, [[0, idf / 2.2, 2 * idf / 3.65], [0, 0, 0]], rtol=1e-6)
    # In the paper's, a word of two of three documents counts against them: idf log(1.5 / 2.5).
    idf = math.log(1.5 / 2.5)
    scores = list(bm25(["Fox!"], unit, negative_weights=True))
    np.testing.assert_allclose(scores, [[0, idf / 2.2, 2 * idf / 3.65]], rtol=1e-6)


def test_an_encoder_and_bm25_together_find_more_than_each():
    # By cosine 1, 0.9, 0; by BM25, as above, 0, 3.65 / 4.4 and 1 of the most: (2 + 0) / 3 = 0.67,
    # (1.8 + 0.83) / 3 = 0.88 and (0 + 1) / 3 = 0.33.
    data = ReqaData(
        [("1", "Fox!", "a fox")], [(text, "P") for text in ("owl", "a fox", "fox fox den")]
    )
    vectors = {
        "Fox!": [1, 0],
        "owl": [1, 0],
        "a fox": [0.9, math.sqrt(0.19)],
        "fox fox den": [0, 1],
    }
    scores = scores_of(data, looked_up(vectors))
    assert measure(scores, "sentence_encoder/sentence") == (0.0, 0.5)
    assert measure(scores, "bm25/sentence") == (0.0, 0.5)
    assert measure(scores, "sentence_encoder_and_bm25/sentence") == (1.0, 1.0)


def test_tokens():
    assert tokens_of("It's Ötzi, 42 km.") == ["it", "s", "ötzi", "42", "km"]
    assert tokens_of("O\u0308tzi") == ["ötzi"]
    assert tokens_of("NBA在北京。") == ["nba", "在", "北", "京"]
    assert tokens_of("नमस्ते दुनिया।") == ["नमस्ते", "दुनिया"]


def test_the_suite_finds_its_tables(tmp_path):
    for stem in ("squad_dev.en", "xquad.en", "xquad.zh"):
        header = "question_id question answer_sentence_id"
        write_table(tmp_path / f"reqa/{stem}.questions.tsv", header, (7, "Who?", "s1"))
        header = "sentence_id sentence"
        write_table(
            tmp_path / f"reqa/{stem}.sentences.tsv", header, ("s0", "Hi."), ("s1", "It is me.")
        )
    found = {item.name: item for item in SUITE.find(tmp_path, 0)}
    assert set(found) == {"squad_dev.en", "xquad.en", "xquad.zh", "cross-lingual.xquad"}
    assert len(found["cross-lingual.xquad"].files) == 4
    scores = found["cross-lingual.xquad"].load()(random_vectors())
    assert scores["zh-en/num_queries"] == 1


def test_blank_questions_and_sentences_are_left_out_and_ids_stay_right(tmp_path):
    rows = {
        "questions": (
            "question_id question answer_sentence_id",
            ("1", "key1?", "a"),
            ("2", "\u200b", "b"),
            ("3", "key3?", "blank"),
            ("4", "key4?", "d"),
        ),
        "sentences": (
            "sentence_id sentence paragraph_id",
            *(("a", "key1.", "P"), ("blank", " ", "P"), ("b", "key2.", "P"), ("d", "key4.", "Q")),
        ),
        "paragraphs": ("paragraph_id context", ("P", "key1. key2."), ("Q", "key4.")),
    }
    tables = {
        name: write_table(tmp_path / f"reqa/toy.en.{name}.tsv", *table)
        for name, table in rows.items()
    }
    assert read_tables(tables) == ReqaData(
        [("1", "key1?", "key1."), ("4", "key4?", "key4.")],
        [("key1.", "key1. key2."), ("key2.", "key1. key2."), ("key4.", "key4.")],
    )
