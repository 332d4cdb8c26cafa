"""Corpora of questions with answers: tables, where they lie, and how they are divided."""

import json

import pytest
from absl import logging

from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.questions import read_questions
from xling_tf.corpora.records import QuestionAnswer
from xling_tf.errors import UserError

ASKED = {"id": "1", "question": "Why?", "answers": [{"answer_start": 3}]}
SQUAD = {"data": [{"paragraphs": [{"context": "It rains. We stay.", "qas": [ASKED]}]}]}
RAIN = QuestionAnswer("Why?", "It rains.", "It rains. We stay.")


@pytest.fixture
def warnings(monkeypatch):
    caught = []
    monkeypatch.setattr(logging, "warning", lambda text, *args: caught.append(text % args))
    return caught


def folder_of(tmp_path, files):
    for name, content in {"parallel/x.en-es.tsv": "Hello\tHola\n", **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    return tmp_path


def questions_of(folder):
    corpora = load_folder(folder, source="en", targets=["es"])
    return [corpus for corpus in corpora if corpus.kind == "questions"]


def test_tables_have_a_context_or_not_and_rows_without_an_answer_are_counted(tmp_path):
    path = tmp_path / "x.en.tsv"
    rows = "Who? \tAda did.\nWhere?\tHere.\t We sit. Here. \nHow?\tSo.\t\n"
    path.write_text(rows + "Who?\t\nWho?\t \tAda came.\n\tAda.\nWho?\na\tb\tc\td\n")
    reading = read_questions(path)
    assert [record for record, _ in reading] == [
        QuestionAnswer("Who?", "Ada did.", "Ada did."),
        QuestionAnswer("Where?", "Here.", "We sit. Here."),
        QuestionAnswer("How?", "So.", "So."),
    ]
    assert reading.first_lines == {
        "question without an answer": (4, 5),
        "answer without a question": (6,),
        "not 2 or 3 columns": (7, 8),
    }


def test_the_folder_has_tables_shards_and_json(tmp_path, warnings):
    files = {
        "questions/a.en.tsv": "Who?\tAda.\n",
        "questions/b.es-00000-of-00002.tsv": "Quien?\tAda.\n",
        "questions/b.es-00001-of-00002.tsv": "Donde?\tEn casa.\n",
        "questions/c.fr.tsv": "Qui?\tAda.\n",
        "questions/d.es.json": json.dumps(SQUAD),
        "questions/dev-v1.1.json": json.dumps(SQUAD),
    }
    corpora = questions_of(folder_of(tmp_path, files))
    titles = [corpus.title for corpus in corpora]
    assert titles == ["questions/a.en", "questions/b.es", "questions/d.es"]
    assert [record.question for record, _ in corpora[1]] == ["Quien?", "Donde?"]
    assert [record for record, _ in corpora[2]] == [RAIN]
    # Data for evaluation is never trained on.
    (warning,) = warnings
    assert "dev-v1.1.json is not read" in warning


@pytest.mark.parametrize("place", [".", "questions"])
def test_squad_as_published_is_found_in_its_places(tmp_path, place, warnings):
    folder = folder_of(tmp_path, {f"{place}/train-v1.1.json": json.dumps(SQUAD)})
    (corpus,) = questions_of(folder)
    assert (corpus.title, [record for record, _ in corpus]) == ("questions/squad_train.en", [RAIN])
    assert warnings == []


def test_a_corpus_without_answers_is_an_error_when_it_is_read(tmp_path):
    (corpus,) = questions_of(folder_of(tmp_path, {"questions/x.en.tsv": "Who?\t\nWhy?\t\n"}))
    with pytest.raises(UserError, match="2 question without an answer"):
        list(corpus)
