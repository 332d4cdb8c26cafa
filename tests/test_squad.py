"""JSON of SQuAD's layout: the paragraphs, their sentences, and which of them answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from xling_tf.corpora.questions import SquadQuestion, read_paragraphs, read_squad, sentence_spans
from xling_tf.corpora.records import QuestionAnswer
from xling_tf.errors import UserError

FOX = "The fox sleeps. It is red.\nCafe\u0301s are closed."


def squad(path: Path, *entries: tuple[str, list[int]], **more: Any) -> Path:
    """Writes a file with one paragraph, of questions and the places of their answers."""
    qas = [
        {"id": str(number), "question": question, "answers": [{"answer_start": s} for s in starts]}
        for number, (question, starts) in enumerate(entries)
    ]
    paragraph = {"context": FOX, "qas": qas, **more}
    path.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}), encoding="utf-8")
    return path


def test_spans_are_the_places_of_the_sentences():
    text = "J.\u00a0R. Smith left.\u2003Why?\n\n\U0001d11e is a clef. Bye"
    spans = sentence_spans(text, "en")
    assert "".join(text[start:end] for start, end in spans) == text
    assert text[spans[-2][0] : spans[-2][1]] == "\U0001d11e is a clef. "
    assert sentence_spans("北京。上海！", "zh") == [(0, 3), (3, 6)]


def test_answers_are_the_distinct_sentences_in_which_they_begin(tmp_path):
    # "It" is the 17th character of the text, and "fox" the fifth.
    path = squad(tmp_path / "x.json", ("Who?", [4, 4]), (" What? ", [16, 4]), ("None?", []))
    (paragraph,) = read_paragraphs(path, "en")
    assert paragraph.sentences == ["The fox sleeps.", "It is red.", "Cafe\u0301s are closed."]
    assert paragraph.questions == [
        SquadQuestion("0", "Who?", ("The fox sleeps.",)),
        SquadQuestion("1", "What?", ("It is red.", "The fox sleeps.")),
        SquadQuestion("2", "None?", ()),
    ]


def test_records_are_sentences_with_their_paragraphs(tmp_path):
    path = squad(tmp_path / "x.json", ("Who?", [4]), ("Which? ", [27, 16]))
    reading = read_squad(path, language="en")
    context = "The fox sleeps. It is red. Caf\u00e9s are closed."
    assert [record for record, _ in reading] == [
        QuestionAnswer("Who?", "The fox sleeps.", context),
        QuestionAnswer("Which?", "Caf\u00e9s are closed.", context),
        QuestionAnswer("Which?", "It is red.", context),
    ]
    assert reading.malformed == {}


def test_questions_without_an_answer_are_counted_by_their_numbers(tmp_path):
    # As SQuAD v2 has them; what only looks like an answer is none.
    path = squad(tmp_path / "x.json", ("Who?", [4]), ("Why?", []), (" ", [4]), ("How?", []))
    content = json.loads(path.read_text())
    impossible = content["data"][0]["paragraphs"][0]["qas"][1]
    impossible.update(is_impossible=True, plausible_answers=[{"answer_start": 4}])
    path.write_text(json.dumps(content))
    reading = read_squad(path, language="en")
    assert len(list(reading)) == 1
    assert reading.summary() == (
        f"{path}: 1 records; questions left out: 2 question without an answer (first questions: 2, 4); "
        "1 answer without a question (first questions: 3)"
    )


def test_a_file_without_any_answer_is_an_error_that_says_so(tmp_path):
    path = squad(tmp_path / "x.json", ("Why?", []))
    reading = read_squad(path, language="en")
    assert list(reading) == []
    message = r"must hold questions with answers .* 1 question without an answer .*question 1 is 'Why\?'"
    with pytest.raises(UserError, match=message):
        raise reading.nothing_usable()


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b'{"data": 3}', b'{"data": [{"paragraphs": [{"context": "A."}]}]}', b"\xff"],
)
def test_json_of_another_layout(tmp_path, content):
    path = tmp_path / "x.en.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"x\.en\.json must be JSON in the layout of SQuAD v1\.1"):
        list(read_squad(path, language="en"))


def test_an_answer_outside_its_paragraph_and_a_missing_file(tmp_path):
    with pytest.raises(UserError, match="begins at 99, outside"):
        list(read_squad(squad(tmp_path / "x.json", ("Who?", [99])), language="en"))
    with pytest.raises(UserError, match="No such file"):
        list(read_squad(tmp_path / "none.json", language="en"))
