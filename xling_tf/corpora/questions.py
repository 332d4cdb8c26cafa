"""Question answering corpora: tables, and JSON of SQuAD's layout (Rajpurkar et al. 2016)."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from xling_tf.client.texts import is_blank
from xling_tf.corpora.cleaning import normalise
from xling_tf.corpora.readers import NO_ANSWER, Reading, read_records
from xling_tf.corpora.records import QuestionAnswer
from xling_tf.corpora.sentences import sentence_spans, surroundings
from xling_tf.errors import UserError
from xling_tf.files import read_json

_NEIGHBOURS = 2


class SquadQuestion(NamedTuple):
    """A question to a paragraph, and the distinct sentences where annotated answers begin."""

    key: str
    text: str
    answers: tuple[str, ...]


class Paragraph(NamedTuple):
    """A paragraph, its sentences in order, and the questions to it."""

    context: str
    sentences: list[str]
    questions: list[SquadQuestion]


def read_questions(path: Path) -> Reading[QuestionAnswer]:
    """Reads question, answer and an optional context, by default the answer."""

    def make(question: str, answer: str, context: str) -> QuestionAnswer:
        return QuestionAnswer(question, answer, answer if is_blank(context) else context)

    return read_records(path, ("question", "answer", "context"), make, optional=1)


def read_question_sentences(path: Path) -> Reading[QuestionAnswer]:
    """Reads questions with sentences that answer them, in the order of their unknown paragraphs.

    The context of an answer is its first occurrence with the two answers on each side.
    """

    def with_neighbours(pairs: list[QuestionAnswer]) -> list[QuestionAnswer]:
        around = surroundings(list(dict.fromkeys(pair.answer for pair in pairs)), _NEIGHBOURS)
        return [pair._replace(context=around[pair.answer]) for pair in pairs]

    return read_questions(path).converted(with_neighbours)


def read_squad(path: Path, languages: Sequence[str]) -> Reading[QuestionAnswer]:
    """Reads JSON of SQuAD's layout; see `read_paragraphs`.

    The context is the whole paragraph (Yang et al. 2019, footnote 4 and sec. 5.3). A question with
    annotations in several sentences gives a record for each. Questions without an answer, of which
    SQuAD v2 has many, are left out and counted.
    """

    def rows(reading: Reading[QuestionAnswer]) -> Iterator[tuple[QuestionAnswer, None]]:
        number = 0
        for paragraph in read_paragraphs(path, languages[0]):
            context = normalise(paragraph.context)
            for _, text, answers in paragraph.questions:
                number += 1
                question = normalise(text)
                if is_blank("".join(answers)) or is_blank(question):
                    reading.malformed.add(NO_ANSWER, number)
                    continue
                for answer in answers:
                    yield QuestionAnswer(question, normalise(answer), context), None

    return Reading(path, "questions with answers in SQuAD's layout", rows)


def read_paragraphs(path: Path, language: str) -> list[Paragraph]:
    """Reads the paragraphs of JSON of SQuAD v1.1's layout.

    The answer of a question is the sentence in which an annotated answer begins, as in the ReQA
    evaluation suite (Yang et al. 2019, sec. 5.3); several annotations may give several sentences.
    Paragraphs without `sentence_breaks` (XQuAD-R) are split by the rules of the language.
    """
    paragraphs: list[Paragraph] = []
    try:
        for article in read_json(path)["data"]:
            paragraphs += (_paragraph(paragraph, language) for paragraph in article["paragraphs"])
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        raise UserError(
            f"{path} must be JSON in the layout of SQuAD v1.1, but is not: {repr(error)[:200]} at "
            f"paragraph {len(paragraphs) + 1}; give the file as published"
        ) from error
    return paragraphs


def _paragraph(paragraph: Mapping[str, Any], language: str) -> Paragraph:
    context = _text(paragraph["context"])
    spans = paragraph.get("sentence_breaks") or sentence_spans(context, language)
    parts = [(end, text) for start, end in spans if (text := context[start:end].strip())]
    questions = []
    for entry in paragraph["qas"]:
        starts = (answer["answer_start"] for answer in entry["answers"])
        answers = dict.fromkeys(_sentence_at(parts, start) for start in starts)
        text = _text(entry["question"]).strip()
        questions.append(SquadQuestion(str(entry["id"]), text, tuple(answers)))
    return Paragraph(context.strip(), [text for _, text in parts], questions)


def _text(value: str) -> str:
    value.encode()  # raises an error for half a surrogate pair, which JSON can spell
    return value


def _sentence_at(parts: list[tuple[int, str]], offset: int) -> str:
    for end, text in parts:
        if 0 <= offset < end:
            return text
    raise ValueError(f"an answer begins at {offset}, outside its paragraph")
