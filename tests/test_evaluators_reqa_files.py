import json

import pytest
from encode_functions import by_meaning, random_vectors

from xling_tf.errors import UserError
from xling_tf.evaluators.data import Dataset, Missing
from xling_tf.evaluators.ranking.reqa import SUITE, RetrievalQuestionAnswering
from xling_tf.evaluators.ranking.reqa_files import (
    Question,
    Sentence,
    read_squad,
    read_tables,
)

FOX = "The fox sleeps. It is red."
OWL = "The owl\u00a0hunts at night. It is red."


def squad(context, *entries):
    """A paragraph in SQuAD's layout; entries are (id, question, answers by their places)."""
    qas = [
        {
            "id": key,
            "question": question,
            "answers": [{"text": "-", "answer_start": start} for start in starts],
        }
        for key, question, starts in entries
    ]
    return {"context": context, "qas": qas}


def write(path, *paragraphs):
    articles = [{"title": "t", "paragraphs": [paragraph]} for paragraph in paragraphs]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": "1.1", "data": articles}), encoding="utf-8")
    return path


def test_squad_json(tmp_path):
    # Places: "It" is 16th of FOX and 25th of OWL; "hunts" is the 8th of OWL.
    path = write(
        tmp_path / "dev-v1.1.json",
        squad(FOX, ("1", "Who sleeps?", [4, 4]), ("2", " What colour? ", [16, 22, 0])),
        squad(OWL, ("3", "What colour?", [31]), ("4", "No answer?", [])),
    )
    data = read_squad(path, "en")
    hunts = OWL[:23]
    assert [sentence.text for sentence in data.sentences] == [
        *("The fox sleeps.", "It is red.", hunts, "It is red.")
    ]
    assert {sentence.context for sentence in data.sentences} == {FOX, OWL}
    assert data.questions == [
        Question("1", "Who sleeps?", frozenset(["The fox sleeps."])),
        Question("2", "What colour?", frozenset(["It is red.", "The fox sleeps."])),
        Question("3", "What colour?", frozenset(["It is red."])),
    ]
    # "What colour?" is one query with three right sentences, of which two are in both paragraphs.
    evaluator = RetrievalQuestionAnswering({"en": data}, name="x")
    scores = evaluator(by_meaning(lambda text: text in ("What colour?", "It is red.")))
    assert scores["num_queries"] == 2
    assert scores["num_candidates"] == 4


def test_squad_json_with_its_own_sentences(tmp_path):
    # As XQuAD-R has them: places in the paragraph, not always without gaps.
    paragraph = {**squad("Ab cd ef", ("1", "?", [6])), "sentence_breaks": [[0, 5], [6, 8]]}
    data = read_squad(write(tmp_path / "xquad.th.json", paragraph), "th")
    assert [sentence.text for sentence in data.sentences] == ["Ab cd", "ef"]
    assert data.questions[0].answers == {"ef"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "layout of SQuAD"),
        ('{"data": [{"paragraphs": [{"context": "A."}]}]}', "layout of SQuAD .*qas"),
        ("[]", "layout of SQuAD"),
    ],
)
def test_json_that_is_not_squad(tmp_path, content, message):
    path = tmp_path / "a.en.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read_squad(path, "en")
    with pytest.raises(UserError, match="begins at 26, outside"):
        read_squad(write(path, squad(FOX, ("1", "Who?", [26]))), "en")


def tables(folder, sentences, questions, paragraphs=None):
    folder.mkdir(parents=True, exist_ok=True)
    kinds = {"sentences": sentences, "questions": questions, "paragraphs": paragraphs}
    for kind, lines in kinds.items():
        if lines is not None:
            (folder / f"a.en.{kind}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_tables(tmp_path):
    questions = ["question_id\tquestion\tanswer_sentence_id", "7\tWho?\ts1"]
    sentences = ["sentence_id\tparagraph_id\tsentence", "s0\tp0\tHi.", "s1\tp0\tIt is me."]
    paragraphs = ["paragraph_id\ttitle\tcontext", "p0\tt\tHi. It is me."]
    data = read_tables(tables(tmp_path / "whole", sentences, questions, paragraphs), "a.en")
    context = "Hi. It is me."
    assert data.sentences == [Sentence("Hi.", context), Sentence("It is me.", context)]
    assert data.questions == [Question("7", "Who?", frozenset(["It is me."]))]
    bare = [line.replace("p0\t", "").replace("paragraph_id\t", "") for line in sentences]
    questions = ["question\tanswer_sentence_id", "Who?\ts1"]
    data = read_tables(tables(tmp_path / "bare", bare, questions), "a.en")
    assert data.sentences == [Sentence("Hi.", ""), Sentence("It is me.", "")]
    assert data.questions == [Question("Who?", "Who?", frozenset(["It is me."]))]
    with pytest.raises(UserError, match=r"must hold a.en.paragraphs.tsv"):
        read_tables(tables(tmp_path / "less", sentences, questions), "a.en")
    with pytest.raises(UserError, match="'s9' is not there"):
        read_tables(tables(tmp_path / "bad", bare, [questions[0], "Who?\ts9"]), "a.en")
    with pytest.raises(UserError, match="answer_sentence_id is not in"):
        read_tables(tables(tmp_path / "bad", bare, ["question", "Who?"]), "a.en")


def test_the_suite_finds_what_is_there(tmp_path):
    missing = {item.name for item in SUITE.find(tmp_path, 0) if isinstance(item, Missing)}
    assert missing == {"squad_dev.en", "squad_train.en", "cross-lingual.xquad"}
    folder = tmp_path / "reqa"
    paragraphs = squad(FOX, ("1", "Who?", [4])), squad(OWL, ("2", "Who else?", [4]))
    for name in ("dev-v1.1.json", "xquad.en.json", "xquad.zh.json"):
        write(folder / name, *paragraphs)
    sentences = ["sentence_id\tsentence", "s0\tHi.", "s1\tIt is me."]
    tables(folder, sentences, ["question\tanswer_sentence_id", "Who?\ts1"])
    found = {item.name: item for item in SUITE.find(tmp_path, 0)}
    assert {name for name, item in found.items() if isinstance(item, Dataset)} == {
        *("squad_dev.en", "a.en", "xquad.en", "xquad.zh", "cross-lingual.xquad"),
    }
    assert [path.name for path in found["a.en"].files] == [
        "a.en.questions.tsv",
        "a.en.sentences.tsv",
    ]
    scores = {
        name: item.load()(random_vectors())
        for name, item in found.items()
        if isinstance(item, Dataset)
    }
    assert scores["cross-lingual.xquad"]["zh-en/num_queries"] == 2
    assert scores["squad_dev.en"]["num_candidates"] == 4
    assert scores["squad_dev.en"]["bm25/paragraph/precision_at_1"] == 0.0
