"""Readers of the data of semantic retrieval: pairs of questions that ask the same, or not."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from xling_tf.corpora.line_files import read_every_line
from xling_tf.errors import UserError
from xling_tf.evaluators.data import header_of, read_table

_TEXT_COLUMNS = (("question1", "question2"), ("sentence1", "sentence2"))
_QUORA_COLUMNS = ("question1", "question2", "is_duplicate")


class Pair(NamedTuple):
    """Two texts and whether they mean the same."""

    first: str
    second: str
    duplicate: bool


def read_pairs(path: Path) -> list[Pair]:
    """Reads a table of pairs.

    Args:
        path: Columns `label` (1: the same, 0: not) and `question1`, `question2` or `sentence1`,
            `sentence2`, as in PAWS-X.

    Raises:
        UserError: A column is missing, or a label is something else.
    """
    header = header_of(path)
    texts = next((c for c in _TEXT_COLUMNS if set(c) <= set(header)), _TEXT_COLUMNS[0])
    rows = read_table(path, (*texts, "label"))
    return [_pair(path, number, *row) for number, row in enumerate(rows, start=2)]


def read_quora(path: Path) -> list[Pair]:
    """Reads Quora's question pairs as published: `quora_duplicate_questions.tsv`.

    It is tab-separated with quotes where a question has a line break in it. A few pairs lack a
    question; they stay, since the other one is a candidate.

    Raises:
        UserError: The first line does not name the columns, or a line has other fields or labels.
    """
    rows = _quoted_rows(path)
    _, header = next(rows, (1, []))
    if not set(_QUORA_COLUMNS) <= set(header):
        raise UserError(
            f"{path} must name the columns id, qid1, qid2, question1, question2 and is_duplicate in "
            f"its first line, but has {'|'.join(header)[:80]!r}; give the file as published"
        )
    places = [header.index(column) for column in _QUORA_COLUMNS]
    pairs = []
    for number, row in rows:
        if len(row) != len(header):
            raise UserError(
                f"{path} must have {len(header)} fields in every line, but line {number} has "
                f"{len(row)}; give the file as published"
            )
        first, second, label = (row[place].strip() for place in places)
        # A question that lacks its partner is paired with itself: a candidate, no duplicate.
        pairs.append(_pair(path, number, first or second, second or first, label))
    return pairs


def read_askubuntu(corpus: Path, annotations: Path) -> tuple[list[Pair], list[str]]:
    """Reads AskUbuntu's questions (Lei et al. 2016), of which the titles only.

    Args:
        corpus: `text_tokenized.txt`, plain or .gz: id TAB title TAB body.
        annotations: `dev.txt` or `test.txt`: id TAB ids of similar questions TAB ids of all that
            were judged TAB their BM25 scores. Queries without a similar question give no pair.

    Returns:
        Each query's pairs with its similar questions, and the titles of all questions.

    Raises:
        UserError: A line has other fields, or an id is not in the corpus.
    """
    titles = dict(_fields(corpus, "id TAB title TAB body"))
    expected = "id TAB similar ids TAB candidate ids TAB scores"
    similar = [
        (query, other)
        for query, others in _fields(annotations, expected)
        for other in others.split()
    ]
    missing = next((i for pair in similar for i in pair if i not in titles), None)
    if missing is not None:
        raise UserError(
            f"{annotations} must hold ids of questions in {corpus}, but {missing[:80]!r} is not "
            "there; give both files of the same edition"
        )
    pairs = [Pair(titles[query], titles[other], True) for query, other in similar]
    return pairs, list(titles.values())


def _fields(path: Path, expected: str) -> Iterator[tuple[str, str]]:
    """The first two fields of each line."""
    for number, line in read_every_line(path):
        fields = line.split("\t")
        if len(fields) < 2:
            raise UserError(
                f"{path} must hold {expected}, but line {number} is {line[:80]!r}; correct that line"
            )
        yield fields[0].strip(), fields[1].strip()


def _quoted_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The fields of each row, and the line it ends in."""
    rows = csv.reader((f"{line}\n" for _, line in read_every_line(path)), delimiter="\t")
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        raise UserError(
            f"{path} must have quotes that close, but line {rows.line_num + 1} is in none that does "
            f"({error}); give the file as published"
        ) from error


def _pair(path: Path, number: int, first: str, second: str, label: str) -> Pair:
    if label not in ("0", "1"):
        raise UserError(
            f"{path} must have the label 1 for texts that mean the same and 0 for others, but line "
            f"{number} has {label[:80]!r}; correct that line"
        )
    return Pair(first, second, label == "1")
