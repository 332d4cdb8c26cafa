"""JSON of SQuAD's layout: paragraphs, their sentences, and the questions that they answer.

Rajpurkar et al. 2016, "SQuAD: 100,000+ questions for machine comprehension of text" (licence CC BY-SA
4.0); XQuAD, MLQA, PIAF, DRCD and CMRC 2018 are published in the same layout.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import sentencex

from xling_tf.errors import UserError
from xling_tf.files import read_json

# The names under which SQuAD is published, and what we call the files.
SQUAD_FILES: Mapping[str, str] = {
    "dev-v1.1.json": "squad_dev",
    "train-v1.1.json": "squad_train",
}

# sentencex breaks on a no-break space behind an initial.
_SPACE = re.compile(r"[^\S\n]")


class SquadQuestion(NamedTuple):
    """A question to a paragraph.

    Attributes:
        key: Its id in the file.
        text: The question.
        answers: The distinct sentences in which an annotated answer begins; none of a question that
            the paragraph does not answer, as SQuAD v2 has some.
    """

    key: str
    text: str
    answers: tuple[str, ...]


class Paragraph(NamedTuple):
    """A paragraph, its sentences in order and the questions to it."""

    context: str
    sentences: list[str]
    questions: list[SquadQuestion]


def read_paragraphs(path: Path, language: str) -> list[Paragraph]:
    """Reads JSON of SQuAD v1.1's layout.

    A paragraph's sentences are told by its `sentence_breaks` where it has them (XQuAD-R), else by
    sentencex. The answer of a question is the sentence in which an annotated answer begins, as in
    the ReQA evaluation suite (Yang et al. 2019, sec. 5.3); several annotations may give several.

    Args:
        path: The file.
        language: ISO code; decides which abbreviations do not end a sentence.

    Returns:
        The paragraphs of all articles, in order.

    Raises:
        UserError: The file cannot be read, has another layout, or an answer begins outside its
            paragraph.
    """
    found: list[Paragraph] = []
    try:
        for article in read_json(path)["data"]:
            found += (_paragraph(paragraph, language) for paragraph in article["paragraphs"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path} must be JSON in the layout of SQuAD v1.1 (data, paragraphs, context, qas, id, "
            f"question, answers, answer_start), but is not: {repr(error)[:200]} at paragraph "
            f"{len(found) + 1}; give the file as published"
        ) from error
    except OSError as error:
        raise UserError(
            f"{path} must be a readable file, but is not ({error.strerror}); correct the path"
        ) from error
    return found


def sentence_spans(paragraph: str, language: str) -> list[tuple[int, int]]:
    """The places of a paragraph's sentences, without gaps.

    Example:
        >>> sentence_spans("Dr. Smith left. Why?", "en")
        [(0, 16), (16, 20)]
    """
    boundaries = sentencex.get_sentence_boundaries(language, _SPACE.sub(" ", paragraph))
    return [(boundary["start_index"], boundary["end_index"]) for boundary in boundaries]


def _paragraph(paragraph: Mapping[str, Any], language: str) -> Paragraph:
    context = _text(paragraph["context"])
    spans = paragraph.get("sentence_breaks") or sentence_spans(context, language)
    parts = [(end, text) for start, end in spans if (text := context[start:end].strip())]
    questions = list(_questions(paragraph["qas"], parts))
    return Paragraph(context.strip(), [text for _, text in parts], questions)


def _questions(
    entries: list[Mapping[str, Any]], parts: list[tuple[int, str]]
) -> Iterator[SquadQuestion]:
    for entry in entries:
        starts = (answer["answer_start"] for answer in entry["answers"])
        answers = dict.fromkeys(_sentence_at(parts, start) for start in starts)
        yield SquadQuestion(str(entry["id"]), _text(entry["question"]).strip(), tuple(answers))


def _text(value: str) -> str:
    value.encode()  # which half a surrogate pair, as JSON can spell it, refuses
    return value


def _sentence_at(parts: list[tuple[int, str]], offset: int) -> str:
    for end, text in parts:
        if 0 <= offset < end:
            return text
    raise ValueError(f"an answer begins at {offset}, outside its paragraph")
