"""Contexts for the answers of a corpus that has lost its paragraphs: the answers around them."""

import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from absl import logging

from xling_tf.corpora.corpus_files import language_in
from xling_tf.corpora.line_files import write_lines
from xling_tf.corpora.questions import read_questions
from xling_tf.corpora.records import QuestionAnswer
from xling_tf.errors import UserError
from xling_tf.files import require_writable_folder


def add_contexts(pairs: Path, output: Path, num_neighbours: int) -> dict[str, int]:
    """Writes questions and their answers with the answers around them as contexts.

    Args:
        pairs: Lines of question TAB answer in the order of their documents. A warning is logged for
            lines that are no such pair, which are left out.
        output: `NAME.LANGUAGE.tsv` or `.tsv.gz`, of lines of question TAB answer TAB context.
        num_neighbours: As `with_neighbours` takes it.

    Returns:
        The numbers of questions, of distinct answers and of distinct contexts.

    Raises:
        UserError: The name of `output` says no language, its folder cannot be written, or `pairs` cannot
            be read or holds contexts.
    """
    if language_in(output.name) is None:
        raise UserError(
            f"--output expects a name that says the language, as squad.en.tsv.gz, got {output.name!r}"
        )
    require_writable_folder(output.parent, "give another with --output")
    records = list(with_neighbours(_read_pairs(pairs), num_neighbours))
    write_lines(output, map("\t".join, records))
    return {
        "questions": len(records),
        "answers": len({record.answer for record in records}),
        "contexts": len({record.context for record in records}),
    }


def with_neighbours(
    pairs: Sequence[tuple[str, str]], num_neighbours: int
) -> Iterator[QuestionAnswer]:
    """Gives answers in the order of their documents a context: the answers around each of them.

    Args:
        pairs: Questions and their answers.
        num_neighbours: How many of the distinct answers before an answer, and how many of those after
            it, are its context, in order and with itself among them.

    Yields:
        A record for each pair, in order. An answer that comes again has its first context.

    Example:
        >>> pairs = [("1?", "One."), ("one?", "One."), ("2?", "Two."), ("3?", "Three.")]
        >>> [record.context for record in with_neighbours(pairs, 1)]
        ['One. Two.', 'One. Two.', 'One. Two. Three.', 'Two. Three.']
    """
    around = surroundings(list(dict.fromkeys(answer for _, answer in pairs)), num_neighbours)
    for question, answer in pairs:
        yield QuestionAnswer(question, answer, around[answer])


def surroundings(sentences: Sequence[str], num_neighbours: int) -> dict[str, str]:
    """Each sentence of a text between its neighbours, which stand for its paragraph.

    Args:
        sentences: In the order of the text.
        num_neighbours: How many there are on either side, but at the ends.

    Returns:
        To each distinct sentence itself and its neighbours where it comes first, as one string.

    Example:
        >>> surroundings(["One.", "Two.", "Three."], 1)["Three."]
        'Two. Three.'
    """
    around: dict[str, str] = {}
    for place, sentence in enumerate(sentences):
        if sentence not in around:
            near = sentences[max(0, place - num_neighbours) : place + num_neighbours + 1]
            around[sentence] = "".join(map(_with_space, near)).strip()
    return around


def _with_space(sentence: str) -> str:
    # None follows the wide full stop of Chinese.
    is_wide = unicodedata.east_asian_width(sentence[-1:] or " ") in "WF"
    return sentence if is_wide else f"{sentence} "


def _read_pairs(path: Path) -> list[tuple[str, str]]:
    reading = read_questions(path)
    pairs = []
    for (question, answer, context), _ in reading:
        if context != answer:
            raise UserError(
                f"{path} must hold lines of question TAB answer, but that of {question[:80]!r} has a "
                "context already; train on the file as it is"
            )
        pairs.append((question, answer))
    if not pairs:
        raise reading.nothing_usable()
    if reading.malformed:
        logging.warning("%s", reading.summary())
    return pairs
