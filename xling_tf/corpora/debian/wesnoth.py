"""The Battle for Wesnoth: its scenarios are dialogues in WML, translated message by message."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from xling_tf.corpora.debian.extraction import Document, Extraction, read_each
from xling_tf.corpora.debian.gettext import plain_pairs, read_catalogues
from xling_tf.corpora.debian.markup import plain_text
from xling_tf.corpora.debian.sentences import paragraphs
from xling_tf.corpora.records import ResponsePair

_TOKEN = re.compile(
    r"""^[ \t]*(?:
    (?P<otherwise>\#else)
    |\#[^\n]*
    |\[(?P<closes>/?)\+?(?P<tag>\w+)\]
    |(?P<key>\w+)[ \t]*=[ \t]*(?:(?P<text>_?[ \t]*"(?:[^"]|"")*")|(?P<word>[^"\n]*)))""",
    re.VERBOSE | re.MULTILINE,
)
# What is inside these happens instead of, not after, what is before them.
_BRANCHES = frozenset({"event", "then", "else", "elseif", "case", "option", "command", "part"})
_NARRATORS = frozenset({"narrator", ""})


Translate = Callable[[str], str | None]


class Line(NamedTuple):
    """One message of a scenario: who says it (`narrator` for nobody) and its text."""

    speaker: str
    text: str


def read_scenes(wml: str) -> Iterator[list[Line]]:
    """The runs of messages and story parts of a scenario that follow one another.

    Args:
        wml: A .cfg file of the game.

    Yields:
        Lines in order; a new list where the thread breaks.
    """
    scene: list[Line] = []
    values: dict[str, str] = {}
    for token in _TOKEN.finditer(wml):
        tag = token["tag"]
        if token["key"] and token["key"] not in values:
            values[token["key"]] = _value(token)
        elif tag == "message" and not token["closes"]:
            values = {}
        elif tag == "message" and "message" in values:
            speaker = values.get("speaker", values.get("id", "")).lower()
            scene.append(Line(speaker, values["message"]))
            values = {}
        elif tag == "part" and not token["closes"]:
            values = {}
        elif tag == "part" and "story" in values:
            scene.append(Line("narrator", values["story"]))
            values = {}
        elif (tag in _BRANCHES or tag == "story" or token["otherwise"]) and scene:
            yield scene
            scene = []
    if scene:
        yield scene


def _value(token: re.Match[str]) -> str:
    if not token["text"]:
        return token["word"].strip()
    return token["text"].lstrip("_ \t\n")[1:-1].replace('""', '"')


def replies(scene: Sequence[Line], translate: Translate) -> Iterator[ResponsePair]:
    """Successive lines of different speakers, as message and reply.

    Args:
        scene: Lines in order.
        translate: Gives a line's text in the wanted language, or None.

    Yields:
        One pair for each change of speaker, the narrator left out.
    """
    for line, answer in pairwise(scene):
        if line.speaker == answer.speaker or {line.speaker, answer.speaker} & _NARRATORS:
            continue
        message, response = translate(line.text), translate(answer.text)
        if message and response:
            yield ResponsePair(message, response)


def narrative(scene: Sequence[Line], translate: Translate) -> Iterator[Document]:
    """The scene's text as documents; a line without translation parts it.

    Args:
        scene: Lines in order.
        translate: Gives a line's text in the wanted language, or None.

    Yields:
        Paragraphs in order.
    """
    document: Document = []
    for line in scene:
        text = translate(line.text)
        if text:
            document += paragraphs(text)
        elif document:
            yield document
            document = []
    if document:
        yield document


def _read_file(path: Path) -> list[list[Line]]:
    return list(read_scenes(path.read_text(encoding="utf-8", errors="replace")))


def extract_wesnoth(
    folders: Sequence[Path], source_language: str, target_language: str
) -> Extraction:
    """Messages with translations, dialogues, and scenes and descriptions as documents.

    Args:
        folders: Unpacked packages of the game.
        source_language: Must be English.
        target_language: ISO code of the translation.

    Returns:
        Parallel text, and conversations and documents of both languages.
    """
    catalogue = read_catalogues(folders, target_language)
    paths = [path for folder in folders for path in sorted(folder.rglob("*.cfg"))]
    scenes = [scene for _, found in read_each(paths, _read_file) for scene in found]
    pairs = list(plain_pairs(catalogue))
    into: dict[str, Translate] = {
        source_language: plain_text,
        target_language: lambda text: plain_text(catalogue.get(text, "")),
    }
    messages: dict[str, Iterable[str]] = {
        source_language: [pair.source for pair in pairs],
        target_language: [pair.target for pair in pairs],
    }
    return Extraction(
        parallel=pairs,
        conversations={
            language: [pair for scene in scenes for pair in replies(scene, translate)]
            for language, translate in into.items()
        },
        documents={
            language: [document for scene in scenes for document in narrative(scene, translate)]
            + [paragraphs(message) for message in messages[language]]
            for language, translate in into.items()
        },
    )
