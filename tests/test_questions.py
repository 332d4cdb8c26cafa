"""Corpora of questions with answers: tables, JSON of SQuAD's layout, and where they lie."""

import json
from typing import Any

import pytest
from raw_files import write_files

from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.questions import (
    SquadQuestion,
    read_paragraphs,
    read_questions,
    read_squad,
    sentence_spans,
)
from xling_tf.corpora.records import QuestionAnswer
from xling_tf.corpora.sentences import surroundings
from xling_tf.errors import UserError

FOX = "The fox sleeps. It is red.\nCafe\u0301s are closed."


def squad(*entries: tuple[str, list[int]], context: str = FOX, **more: Any) -> str:
    """JSON of one paragraph, of questions and the places of their answers."""
    qas = [
        {"id": str(number), "question": question, "answers": [{"answer_start": s} for s in starts], **more}
        for number, (question, starts) in enumerate(entries)
    ]
    return json.dumps({"data": [{"paragraphs": [{"context": context, "qas": qas}]}]})


SQUAD = squad(("Why?", [3]), context="It rains. We stay.")
RAIN = QuestionAnswer("Why?", "It rains.", "It rains. We stay.")


@pytest.fixture
def reading(tmp_path):
    """Reads a file of this content, of SQuAD's layout."""

    def read(content: str | bytes):
        write_files(tmp_path, {"x.en.json": content})
        return read_squad(tmp_path / "x.en.json", language="en")

    return read


def questions_of(folder, files):
    write_files(folder, {"parallel/x.en-es.tsv": "Hello\tHola\n", **files})
    corpora = load_folder(folder, source="en", targets=["es"])
    return [corpus for corpus in corpora if corpus.kind == "questions"]


def test_tables_have_a_context_or_not_and_rows_without_an_answer_are_counted(tmp_path):
    rows = "Who? \tAda did.\nWhere?\tHere.\t We sit. Here. \nHow?\tSo.\t\n"
    rows += "Who?\t\nWho?\t \tAda came.\n\tAda.\nWho?\na\tb\tc\td\n"
    reading = read_questions(write_files(tmp_path, {"x.en.tsv": rows}) / "x.en.tsv")
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


def test_the_folder_has_tables_shards_and_json(tmp_path, caplog):
    files = {
        "questions/a.en.tsv": "Who?\tAda.\n",
        "questions/b.es-00000-of-00002.tsv": "Quien?\tAda.\n",
        "questions/b.es-00001-of-00002.tsv": "Donde?\tEn casa.\n",
        "questions/c.fr.tsv": "Qui?\tAda.\n",
        "questions/d.es.json": SQUAD,
        "questions/dev-v1.1.json": SQUAD,
        "questions/e.en.tsv": "Who?\t\nWhy?\t\n",
        "train-v1.1.json": SQUAD,
    }
    corpora = {corpus.title: corpus for corpus in questions_of(tmp_path, files)}
    titles = ["a.en", "b.es", "d.es", "e.en", "squad_train.en"]
    assert sorted(corpora) == [f"questions/{title}" for title in titles]
    assert [record.question for record, _ in corpora["questions/b.es"]] == ["Quien?", "Donde?"]
    for title in ("questions/d.es", "questions/squad_train.en"):
        assert [record for record, _ in corpora[title]] == [RAIN]
    # Data for evaluation is never trained on.
    (warning,) = caplog.messages
    assert "dev-v1.1.json" in warning
    with pytest.raises(UserError, match="2 question without an answer"):
        list(corpora["questions/e.en"])


def test_spans_are_the_places_of_the_sentences():
    text = "J.\u00a0R. Smith left.\u2003Why?\n\n\U0001d11e is a clef. Bye"
    spans = sentence_spans(text, "en")
    assert "".join(text[start:end] for start, end in spans) == text
    assert text[spans[-2][0] : spans[-2][1]] == "\U0001d11e is a clef. "
    assert sentence_spans("北京。上海！", "zh") == [(0, 3), (3, 6)]


def test_answers_are_the_distinct_sentences_in_which_they_begin(tmp_path):
    # "It" is the 17th character of the text, "fox" the fifth and "Cafés" the 28th.
    content = squad(("Who?", [4, 4]), (" What? ", [16, 4]), ("Which? ", [27]))
    path = write_files(tmp_path, {"x.json": content}) / "x.json"
    (paragraph,) = read_paragraphs(path, "en")
    assert paragraph.sentences == ["The fox sleeps.", "It is red.", "Cafe\u0301s are closed."]
    assert paragraph.questions == [
        SquadQuestion("0", "Who?", ("The fox sleeps.",)),
        SquadQuestion("1", "What?", ("It is red.", "The fox sleeps.")),
        SquadQuestion("2", "Which?", ("Cafe\u0301s are closed.",)),
    ]
    # Records are sentences with their paragraphs.
    context = "The fox sleeps. It is red. Caf\u00e9s are closed."
    assert [record for record, _ in read_squad(path, language="en")] == [
        QuestionAnswer("Who?", "The fox sleeps.", context),
        QuestionAnswer("What?", "It is red.", context),
        QuestionAnswer("What?", "The fox sleeps.", context),
        QuestionAnswer("Which?", "Caf\u00e9s are closed.", context),
    ]


def test_questions_without_an_answer_are_counted_by_their_numbers(reading):
    # As SQuAD v2 has them; what only looks like an answer is none.
    looks = {"is_impossible": True, "plausible_answers": [{"answer_start": 4}]}
    found = reading(squad(("Who?", [4]), ("Why?", []), (" ", [4]), ("How?", []), **looks))
    assert len(list(found)) == 1
    assert found.summary().endswith(
        "1 records; questions left out: 2 question without an answer (first questions: 2, 4); "
        "1 answer without a question (first questions: 3)"
    )
    none = reading(squad(("Why?", [])))
    assert list(none) == []
    message = r"must hold questions with answers .* 1 question without an answer .*question 1 is 'Why\?'"
    with pytest.raises(UserError, match=message):
        raise none.nothing_usable()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"x\.en\.json must be JSON in the layout of SQuAD v1\.1"),
        ('{"data": [{"paragraphs": [{"context": "A."}]}]}', "layout of SQuAD"),
        (b"\xff", "layout of SQuAD"),
        (squad(("Who?", [99])), "begins at 99, outside"),
    ],
)
def test_json_of_another_layout(reading, content, message):
    with pytest.raises(UserError, match=message):
        list(reading(content))


def test_a_sentence_stands_between_its_neighbours():
    around = {"A.": "A. B.", "B.": "A. B. C.", "C.": "B. C. D.", "D.": "C. D."}
    assert surroundings(["A.", "B.", "C.", "D."], 1) == around
    assert surroundings(["A.", "B.", "A."], 5) == {"A.": "A. B. A.", "B.": "A. B. A."}
    # No space follows a wide full stop.
    around = {"下雨。": "下雨。OK.", "OK.": "下雨。OK. 好", "好": "OK. 好"}
    assert surroundings(["下雨。", "OK.", "好"], 1) == around
