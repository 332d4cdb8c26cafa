"""Readers of question answering corpora: tables, and JSON of SQuAD's layout."""

from collections.abc import Iterator
from pathlib import Path

from xling_tf.corpora.cleaning import normalise
from xling_tf.corpora.readers import MalformedLineError, Reading, read_records
from xling_tf.corpora.records import QuestionAnswer
from xling_tf.corpora.squad import read_paragraphs

_NO_ANSWER = "question without an answer"
_NO_QUESTION = "answer without a question"


def read_questions(path: Path) -> Reading[QuestionAnswer]:
    """Reads `question TAB answer` lines, with or without a third column: the answer's context.

    Args:
        path: Text or, by its name, gzip.
    """
    return read_records(path, "lines of question TAB answer, or with TAB context", parse_question)


def parse_question(line: str) -> QuestionAnswer:
    r"""Makes a record of a line.

    Raises:
        MalformedLineError: It has another number of columns, or no answer or question.

    Example:
        >>> parse_question("Who wrote it?\tAda did.")
        QuestionAnswer(question='Who wrote it?', answer='Ada did.', context='Ada did.')
    """
    columns = [column.strip() for column in line.split("\t")]
    if len(columns) not in (2, 3):
        raise MalformedLineError("not 2 or 3 columns")
    question, answer, context = (*columns, "")[:3]
    if fault := _fault(question, answer):
        raise MalformedLineError(fault)
    return QuestionAnswer(question, answer, context or answer)


def read_squad(path: Path, *, language: str) -> Reading[QuestionAnswer]:
    """Reads JSON of SQuAD's layout: the answer is the sentence in which an annotated one begins.

    The context is the whole paragraph (Yang et al. 2019, footnote 4 and sec. 5.3). A question that is
    annotated with several sentences gives a record for each. Questions that the paragraph does not
    answer, of which SQuAD v2 has many, are left out and counted.

    Args:
        path: The file.
        language: ISO code; decides which abbreviations do not end a sentence.
    """

    def rows(reading: Reading[QuestionAnswer]) -> Iterator[tuple[QuestionAnswer, None]]:
        number = 0
        for paragraph in read_paragraphs(path, language):
            context = normalise(paragraph.context)
            for _, text, answers in paragraph.questions:
                number += 1
                question = normalise(text)
                if fault := _fault(question, "".join(answers)):
                    reading.leave_out(fault, number, question)
                    continue
                for answer in answers:
                    yield QuestionAnswer(question, normalise(answer), context), None

    return Reading(path, "questions with answers in SQuAD's layout", rows, unit="question")


def _fault(question: str, answer: str) -> str | None:
    if not answer:
        return _NO_ANSWER
    return None if question else _NO_QUESTION
