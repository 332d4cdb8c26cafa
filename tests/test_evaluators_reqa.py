import math
import sys

import numpy as np
import pytest
from encode_functions import by_meaning, constant, random_vectors

from xling_tf.errors import UserError
from xling_tf.evaluators.data import Missing
from xling_tf.evaluators.encoding import System
from xling_tf.evaluators.reqa import (
    SUITE,
    ReqaData,
    RetrievalQuestionAnswering,
    bm25,
    read_tables,
    tokens_of,
)


def numbered(count=60, size=3, language="en"):
    """Paragraphs of `size` sentences with one question each, which has the number of its answer."""
    numbers = range(count * size)
    sentences = [(f"{language} fact {n}", f"{language} paragraph {n // size}") for n in numbers]
    questions = [(f"q{n}", f"{language} ask {n}", f"{language} fact {n}") for n in numbers[::size]]
    return ReqaData(questions, sentences)


def number(text):
    return text.split()[-1]


def scores_of(data, system):
    return RetrievalQuestionAnswering({"en": data}, name="x")(system)


def measure(scores, name):
    return scores[f"{name}/precision_at_1"], scores[f"{name}/mean_reciprocal_rank"]


def test_perfect_random_and_constant_encoders():
    scores = scores_of(numbered(), by_meaning(number))
    assert measure(scores, "sentence_encoder/sentence") == (1.0, 1.0)
    assert measure(scores, "sentence_encoder/paragraph") == (1.0, 1.0)
    assert scores["num_queries"] == scores["num_paragraphs"] == 60
    assert scores["num_candidates"] == 180
    assert not any(name.startswith("qa_encoders") for name in scores)
    scores = scores_of(numbered(), constant)
    assert measure(scores, "sentence_encoder/sentence") == (0.0, pytest.approx(1 / 180))
    assert measure(scores, "sentence_encoder/paragraph") == (0.0, pytest.approx(1 / 60))


def test_ranks_derived_by_hand():
    # The question's similarities (2 / sqrt(5) = 0.89 etc. by cosine): P a 0.6, b 1.0; Q c 0.8, d 0.
    # Right is a: third of four sentences; its paragraph P is first by its other sentence b.
    sentences = [(text, "P" if text in "ab" else "Q") for text in "abcd"]
    data = ReqaData([("1", "q", "a")], sentences)
    vectors = {"q": [2, 0], "a": [3, 4], "b": [0.1, 0], "c": [4, 3], "d": [0, 9]}

    def encode(texts):
        return np.array([vectors[text] for text in texts])

    scores = scores_of(data, encode)
    assert measure(scores, "sentence_encoder/sentence") == (0.0, pytest.approx(1 / 3))
    assert measure(scores, "sentence_encoder/paragraph") == (1.0, 1.0)
    # By dot product: a 6, b 0.2, c 8, d 0: a is second, and so is P.
    scores = scores_of(data, System(name="qa", sentences=encode, questions=encode))
    assert next(iter(scores)) == "qa_encoders/sentence/precision_at_1"
    assert measure(scores, "qa_encoders/sentence") == (0.0, 0.5)
    assert measure(scores, "qa_encoders/paragraph") == (0.0, 0.5)
    assert measure(scores, "sentence_encoder/sentence") == (0.0, pytest.approx(1 / 3))


def test_every_sentence_with_the_text_of_an_answer_is_right():
    # "What colour?" is one query with three right sentences, of which two are in both paragraphs.
    sentences = [("The fox sleeps.", "FOX"), ("It is red.", "FOX")]
    sentences += [("The owl hunts.", "OWL"), ("It is red.", "OWL")]
    questions = [
        ("1", "What colour?", "It is red."),
        ("1", "What colour?", "The fox sleeps."),
        ("2", "What colour?", "It is red."),
        ("3", "Who hunts?", "The owl hunts."),
    ]
    scores = scores_of(ReqaData(questions, sentences), by_meaning(lambda text: "owl" in text))
    assert (scores["num_queries"], scores["num_candidates"]) == (2, 4)
    # None of "What colour?"'s three has another candidate that is as near; the owl is farthest.
    assert scores["sentence_encoder/sentence/precision_at_1"] == 0.5


def system_with_contexts(seen):
    """One whose response encoder notes the contexts that it is given."""

    def responses(answers, contexts):
        if answers != contexts:
            seen.update(zip(answers, contexts, strict=True))
        return by_meaning(number)(answers)

    questions = by_meaning(number)
    return System(name="qa", sentences=constant, questions=questions, responses=responses)


def test_responses_are_encoded_in_their_contexts():
    seen, data = {}, numbered(count=2)
    scores = scores_of(data, system_with_contexts(seen))
    assert measure(scores, "qa_encoders/sentence") == (1.0, 1.0)
    assert measure(scores, "sentence_encoder/sentence") == (0.0, pytest.approx(1 / 6))
    assert seen == dict(data.sentences)
    assert not any(name.startswith("qa_encoders_without_context") for name in scores)


def test_without_paragraphs_the_context_is_the_sentence_between_its_neighbours():
    seen = {}
    # "b 2" is there twice: where it is first counts.
    texts = ["a 1", "b 2", "c 3", "d 4", "e 5", "f 6", "b 2"]
    data = ReqaData([("1", "ask 2", "b 2")], [(text, "") for text in texts])
    scores = scores_of(data, system_with_contexts(seen))
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
    contexts = [f"context {n}" for n in range(4)]
    sentences = [(f"fact {n}", context) for n, context in enumerate(contexts)]
    questions = [(context, context, text) for text, context in sentences]
    same = by_meaning(str)
    system = System(
        name="qa", sentences=constant, questions=same, responses=lambda _, contexts: same(contexts)
    )
    scores = scores_of(ReqaData(questions, sentences), system)
    assert measure(scores, "qa_encoders/sentence") == (1.0, 1.0)
    precision, _ = measure(scores, "qa_encoders_without_context/sentence")
    assert precision < 0.5


def test_questions_in_one_language_find_answers_in_another():
    english = numbered(language="en")
    data = {
        "de": numbered(language="de"),
        "en": ReqaData(english.questions[:50], english.sentences),
    }
    scores = RetrievalQuestionAnswering(data, name="x")(by_meaning(number))
    for way in ("de-en", "en-de"):
        assert measure(scores, f"{way}/sentence_encoder/sentence") == (1.0, 1.0)
        assert scores[f"{way}/num_queries"] == 50
    assert not any("bm25" in name for name in scores)
    others = [(text, text, answer) for _, text, answer in data["de"].questions]
    data["fr"] = data["de"]._replace(questions=others)
    with pytest.raises(UserError, match="with the same ids"):
        RetrievalQuestionAnswering(data, name="x")


def test_data_and_vectors_that_cannot_be_evaluated(monkeypatch):
    with pytest.raises(UserError, match="questions with an answer"):
        scores_of(ReqaData([], [("a", "")]), constant)
    with pytest.raises(UserError, match="finite"):
        scores_of(numbered(), lambda texts: np.full((len(texts), 2), np.nan))
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(UserError, match=r"xling_tf\[evaluation\]"):
        scores_of(numbered(), constant)


def test_bm25_is_its_formula():
    # Three documents of 1, 2 and 3 tokens, on average 2; "fox" is in two: idf log(1 + 1.5 / 2.5).
    # Once in two tokens: 1 / (1 + 1.2 (0.25 + 0.75)) = 1 / 2.2; twice in three:
    # 2 / (2 + 1.2 (0.25 + 0.75 * 1.5)) = 2 / 3.65.
    scores = np.concatenate(list(bm25(["Fox!", "whale"], ["owl", "a fox", "fox fox den"])))
    idf = math.log(1 + 1.5 / 2.5)
    np.testing.assert_allclose(scores, [[0, idf / 2.2, 2 * idf / 3.65], [0, 0, 0]], rtol=1e-6)


def test_tokens():
    assert tokens_of("It's Ötzi, 42 km.") == ["it", "s", "ötzi", "42", "km"]
    assert tokens_of("NBA在北京。") == ["nba", "在", "北", "京"]
    assert tokens_of("नमस्ते दुनिया।") == ["नमस्ते", "दुनिया"]


def tables(folder, sentences, questions, paragraphs=None, stem="a.en"):
    folder.mkdir(parents=True, exist_ok=True)
    kinds = {"sentences": sentences, "questions": questions, "paragraphs": paragraphs}
    paths = {kind: folder / f"{stem}.{kind}.tsv" for kind, lines in kinds.items() if lines}
    for kind, path in paths.items():
        path.write_text("\n".join(kinds[kind]) + "\n", encoding="utf-8")
    return paths


def test_tables(tmp_path):
    questions = ["question_id\tquestion\tanswer_sentence_id", "7\tWho?\ts1"]
    sentences = ["sentence_id\tparagraph_id\tsentence", "s0\tp0\tHi.", "s1\tp0\tIt is me."]
    paragraphs = ["paragraph_id\ttitle\tcontext", "p0\tt\tHi. It is me."]
    data = read_tables(tables(tmp_path, sentences, questions, paragraphs))
    context = "Hi. It is me."
    assert data.sentences == [("Hi.", context), ("It is me.", context)]
    assert data.questions == [("7", "Who?", "It is me.")]
    bare = [line.replace("p0\t", "").replace("paragraph_id\t", "") for line in sentences]
    without_ids = ["question\tanswer_sentence_id", "Who?\ts1"]
    data = read_tables(tables(tmp_path, bare, without_ids))
    assert data.sentences == [("Hi.", ""), ("It is me.", "")]
    assert data.questions == [("Who?", "Who?", "It is me.")]
    for others, what in (
        ((sentences, questions), "'paragraphs'"),
        ((None, questions), "'sentences'"),
        ((bare, [without_ids[0], "Who?\ts9"]), "'s9'"),
        ((sentences, questions, [paragraphs[0]]), "'p0'"),
    ):
        with pytest.raises(UserError, match=f"{what} is not there"):
            read_tables(tables(tmp_path, *others))
    with pytest.raises(UserError, match="answer_sentence_id is not in"):
        read_tables(tables(tmp_path, bare, ["question", "Who?"]))


def test_the_suite_finds_what_is_there(tmp_path):
    (missing,) = SUITE.find(tmp_path, 0)
    assert isinstance(missing, Missing)
    questions = ["question_id\tquestion\tanswer_sentence_id", "7\tWho?\ts1"]
    sentences = ["sentence_id\tsentence", "s0\tHi.", "s1\tIt is me."]
    for stem in ("squad_dev.en", "xquad.en", "xquad.zh"):
        tables(tmp_path / "reqa", sentences, questions, stem=stem)
    found = {item.name: item for item in SUITE.find(tmp_path, 0)}
    assert set(found) == {"squad_dev.en", "xquad.en", "xquad.zh", "cross-lingual.xquad"}
    assert len(found["cross-lingual.xquad"].files) == 4
    scores = found["cross-lingual.xquad"].load()(random_vectors())
    assert scores["zh-en/num_queries"] == 1
