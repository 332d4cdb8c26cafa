"""Readers of question answering data as retrieval: sentences, their paragraphs, and questions."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

from xling_tf.corpora.squad import SQUAD_FILES, read_paragraphs
from xling_tf.errors import UserError
from xling_tf.evaluators.data import find_file, header_of, read_table, stem_of

_JSON_NAME = re.compile(r"(?P<name>[^.]+)\.(?P<language>[a-z-]+)\.json")
_TABLE_NAME = re.compile(r"(?P<name>[^.]+)\.(?P<language>[a-z-]+)\.questions")
_KINDS = ("questions", "sentences", "paragraphs")

V = TypeVar("V")


class Sentence(NamedTuple):
    """A candidate: a sentence and the paragraph it stands in; "" where that is not known."""

    text: str
    context: str


class Question(NamedTuple):
    """A question and the texts of the sentences that hold an answer to it."""

    key: str
    text: str
    answers: frozenset[str]


class ReqaData(NamedTuple):
    """A data set in one language."""

    questions: list[Question]
    sentences: list[Sentence]


class Source(NamedTuple):
    """Where a data set in one language is."""

    files: tuple[Path, ...]
    read: Callable[[], ReqaData]


def find_sources(folder: Path) -> dict[str, dict[str, Source]]:
    """Finds data sets.

    Args:
        folder: Has SQuAD as published, other JSON of its layout as `<name>.<language>.json` and
            tables as `<name>.<language>.questions.tsv` and so on.

    Returns:
        By name and language, in alphabetical order.
    """
    found: dict[tuple[str, str], Source] = {}
    for path in folder.glob("*.json"):
        match = _JSON_NAME.fullmatch(path.name)
        if path.name in SQUAD_FILES:
            found[SQUAD_FILES[path.name], "en"] = _json_source(path, "en")
        elif match:
            found[match["name"], match["language"]] = _json_source(path, match["language"])
    for path in folder.glob("*.questions.tsv*"):
        if match := _TABLE_NAME.fullmatch(stem_of(path)):
            found[match["name"], match["language"]] = _table_source(folder, match)
    sources: defaultdict[str, dict[str, Source]] = defaultdict(dict)
    for (name, language), source in sorted(found.items(), key=itemgetter(0)):
        sources[name][language] = source
    return sources


def _json_source(path: Path, language: str) -> Source:
    return Source((path,), lambda: read_squad(path, language))


def _table_source(folder: Path, match: re.Match[str]) -> Source:
    stem = f"{match['name']}.{match['language']}"
    paths = (find_file(folder, f"{stem}.{kind}.tsv") for kind in _KINDS)
    return Source(tuple(path for path in paths if path), lambda: read_tables(folder, stem))


def read_squad(path: Path, language: str) -> ReqaData:
    """Reads JSON of SQuAD v1.1's layout, as XQuAD, MLQA, PIAF and CMRC 2018 have it.

    Sentences and answers are those of `corpora.squad`. Questions without an answer are left out.

    Args:
        path: The file.
        language: ISO code; decides which abbreviations do not end a sentence.

    Raises:
        UserError: The file has another layout, or an answer begins outside its paragraph.
    """
    questions: list[Question] = []
    sentences: list[Sentence] = []
    for paragraph in read_paragraphs(path, language):
        sentences += (Sentence(text, paragraph.context) for text in paragraph.sentences)
        questions += (
            Question(key, text, frozenset(answers))
            for key, text, answers in paragraph.questions
            if answers
        )
    return ReqaData(questions, sentences)


def read_tables(folder: Path, stem: str) -> ReqaData:
    """Reads the tables of a data set: `<stem>.questions.tsv`, `<stem>.sentences.tsv`, plain or .gz.

    The first has the columns `question`, `answer_sentence_id` and perhaps `question_id`, the second
    `sentence_id`, `sentence` and perhaps `paragraph_id`, by which `<stem>.paragraphs.tsv` has the
    `context`.

    Raises:
        UserError: A column is missing, or an id is not there.
    """
    paths = {kind: _table_path(folder, stem, kind) for kind in ("questions", "sentences")}
    contexts = {"": ""}
    columns = ["sentence_id", "sentence"]
    if "paragraph_id" in header_of(paths["sentences"]):
        columns.append("paragraph_id")
        paragraphs = _table_path(folder, stem, "paragraphs")
        for key, context in read_table(paragraphs, ("paragraph_id", "context")):
            contexts[key] = context
    rows = [(*row, "")[:3] for row in read_table(paths["sentences"], columns)]
    sentences = {
        key: Sentence(text, _look_up(contexts, paragraph, paths["sentences"]))
        for key, text, paragraph in rows
    }
    key_column = "question_id" if "question_id" in header_of(paths["questions"]) else "question"
    entries = read_table(paths["questions"], (key_column, "question", "answer_sentence_id"))
    questions = [
        Question(key, text, frozenset([_look_up(sentences, answer, paths["questions"]).text]))
        for key, text, answer in entries
    ]
    return ReqaData(questions, list(sentences.values()))


def _table_path(folder: Path, stem: str, kind: str) -> Path:
    name = f"{stem}.{kind}.tsv"
    path = find_file(folder, name)
    if path is None:
        raise UserError(
            f"{folder} must hold {name} (or {name}.gz) beside the other tables of {stem}, but does "
            "not; add it"
        )
    return path


def _look_up(values: Mapping[str, V], key: str, path: Path) -> V:
    if key not in values:
        raise UserError(
            f"{path} must have ids that are in the other tables, but {key[:80]!r} is not there; "
            "correct the data"
        )
    return values[key]
