"""Cataclysm: Dark Days Ahead: the people in it talk along a graph of topics kept in JSON."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from xling_tf.corpora.debian.extraction import Extraction, read_each
from xling_tf.corpora.debian.gettext import extract_gettext, read_catalogues
from xling_tf.corpora.debian.markup import plain_text
from xling_tf.corpora.debian.sentences import paragraphs
from xling_tf.corpora.records import ResponsePair

# A topic may have a dozen lines by mood and circumstance and a dozen answers; all of them crossed
# would drown the rest.
_MAX_REPLIES = 3
_TEST_TOPICS = "TALK_TEST"
_SPOKEN_KEYS = ("yes", "no", "str", "gendered_line", "concatenate", "and")


def read_topics(json_texts: Sequence[str]) -> dict[str, list[Mapping[str, Any]]]:
    """The talk topics of some JSON files.

    Args:
        json_texts: Contents of the game's data files.

    Returns:
        The objects of each topic, by its id (a topic may be spread over several).
    """
    topics: dict[str, list[Mapping[str, Any]]] = {}
    for text in json_texts:
        content = json.loads(text)
        for item in content if isinstance(content, list) else [content]:
            if isinstance(item, dict) and item.get("type") == "talk_topic":
                for response in item.get("responses", ()):
                    if not isinstance(response.get("topic", ""), str):
                        raise TypeError("a topic is no name")
                ids = item["id"] if isinstance(item["id"], list) else [item["id"]]
                for name in ids:
                    if not name.startswith(_TEST_TOPICS):
                        topics.setdefault(name, []).append(item)
    return topics


def spoken_lines(line: object) -> Iterator[str]:
    """All the wordings of a `dynamic_line`, whatever their conditions.

    Args:
        line: A string, a list of alternatives, or an object of conditions and their lines.

    Yields:
        Texts in the order of the file.
    """
    if isinstance(line, str):
        if not line.startswith("&"):  # narration
            yield line
    elif isinstance(line, list):
        for alternative in line:
            yield from spoken_lines(alternative)
    elif isinstance(line, dict):
        for key in _SPOKEN_KEYS:
            if isinstance(line.get(key), (str, list, dict)):
                yield from spoken_lines(line[key])


def exchanges(topics: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[ResponsePair]:
    """Line and answer, and answer and the next topic's line.

    Args:
        topics: As `read_topics` gives them.

    Yields:
        Message and reply, as they stand in the files.
    """
    lines = {
        name: [text for item in items for text in spoken_lines(item.get("dynamic_line"))]
        for name, items in topics.items()
    }
    for name, items in topics.items():
        answers = [answer for item in items for answer in item.get("responses", ())]
        texts = [next(spoken_lines(answer.get("text")), "") for answer in answers]
        for line in lines[name]:
            yield from (ResponsePair(line, text) for text in texts[:_MAX_REPLIES])
        for answer, text in zip(answers, texts, strict=True):
            for line in lines.get(answer.get("topic", ""), ())[:_MAX_REPLIES]:
                yield ResponsePair(text, line)


def extract_cataclysm(
    folders: Sequence[Path], source_language: str, target_language: str
) -> Extraction:
    """Messages with translations, talk, and long descriptions as documents.

    Args:
        folders: The unpacked package.
        source_language: Must be English.
        target_language: ISO code of the translation.

    Returns:
        Parallel text, and conversations and documents of both languages.
    """
    messages = extract_gettext(folders, source_language, target_language)
    catalogue = read_catalogues(folders, target_language)
    files = [path for folder in folders for path in sorted(folder.rglob("npcs/**/*.json"))]
    topics: dict[str, list[Mapping[str, Any]]] = {}
    for _, found in read_each(files, lambda path: read_topics([path.read_text(encoding="utf-8")])):
        for name, items in found.items():
            topics.setdefault(name, []).extend(items)
    talk = list(exchanges(topics))
    into: dict[str, Callable[[str], str | None]] = {
        source_language: plain_text,
        target_language: lambda text: plain_text(catalogue.get(text, "")),
    }
    return Extraction(
        parallel=messages.parallel,
        documents=messages.documents,
        conversations={
            language: [
                ResponsePair(message, response)
                for pair in talk
                if (message := _one_line(translate(pair.message)))
                and (response := _one_line(translate(pair.response)))
            ]
            for language, translate in into.items()
        },
    )


def _one_line(text: str | None) -> str:
    return " ".join(paragraphs(text or ""))
