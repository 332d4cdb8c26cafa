"""Translated text inside unpacked Debian packages: gettext catalogues, manuals, two games.

An extractor takes the folders of a source's packages, the source language (English, the language of
gettext's messages) and the target language, and returns an `Extraction`.
"""

import html
import json
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import lxml.html
import polib
from absl import logging
from lxml.etree import LxmlError

from xling_tf.corpora.cleaning import lengths_agree, normalise
from xling_tf.corpora.records import ResponsePair, TranslationPair
from xling_tf.corpora.sentences import paragraphs

# The names a translation goes by in locale folders, the preferred one first.
LOCALES = {
    "en": ("en", "en-US", "en_US", "C"),
    "es": ("es", "es_ES"),
    "fr": ("fr", "fr_FR"),
    "de": ("de", "de_DE"),
    "zh": ("zh_CN", "zh-CN", "zh_Hans"),
}
# What readers raise for a file that is not as its program writes it.
_UNREADABLE = (
    *(AttributeError, LookupError, OSError, OverflowError, RecursionError, TypeError, ValueError),
    *(LxmlError, struct.error, zlib.error),
)

Document = list[str]
Translate = Callable[[str], str | None]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Extraction:
    """The text of one source before it is split into sentences and cleaned.

    Attributes:
        parallel: A paragraph or message and its translation.
        documents: Documents by language; each is a list of paragraphs in order.
        conversations: Message and reply, by language.
    """

    parallel: list[TranslationPair] = field(default_factory=list)
    documents: dict[str, list[Document]] = field(default_factory=dict)
    conversations: dict[str, list[ResponsePair]] = field(default_factory=dict)


Extractor = Callable[[Sequence[Path], str, str], Extraction]


def read_each(paths: Iterable[Path], read: Callable[[Path], T]) -> Iterator[tuple[Path, T]]:
    """Reads files of packages; one that cannot be read is left out with a warning."""
    for path in paths:
        try:
            found = read(path)
        except _UNREADABLE as error:
            logging.warning("%s is left out, since it cannot be read: %s", path, str(error)[:200])
            continue
        yield path, found


# ---- Messages of programs

_TAG = re.compile(r"</?([a-zA-Z][\w.:-]*)((?:[\s=/][^<>]*)?)>")
_BREAK = re.compile(r"<(?:br|p|/p|li|ul|/ul|ol|/ol|h\d|/h\d|tr|div|/div)\s*/?>", re.IGNORECASE)
_INLINE = re.compile(
    r"(?:a|b|big|bold|code|color\w*|em|emphasis|filename|font|format|guilabel|guimenu|header|html|i|img"
    r"|info|good|bad|italic|kbd|link|neutral|note|nobr|numid|p|s|small|span|strong|sub|sup|title|tt|u"
    r"|br|li|ul|ol|h\d|tr|td|table|div|body|head|center|interface|qt|para|c_\w+|warning)",
    re.IGNORECASE,
)
_GAP = re.compile(
    r"%(?:\d+\$)?[-+0#]*\d*(?:\.\d+)?(?:hh|h|ll|l|z|j|t)?[diouxXeEfFgGcsSp](?![a-z])"  # printf
    r"|%(?:[LQ]?\d|\(\w+\)|n\b|[A-Za-z]\b|\*|%)|%\w+%"  # Qt, Python, strftime
    r"|\{[^{}]*\}|\[\[|\]\]"  # braces, wiki links
    r"|[$@][A-Za-z_{(]\w*|\$\d|\w+@\w+|@\w*@"  # shell, WML, help macros
    r"|\\[a-z]|\b\w+=['\"]|[<>]|\|\w"  # escapes, attributes, what is left of tags
)
_CONTEXT = re.compile(r"^(?:[\w ()/'-]{1,60}\^|\?[\w -]{1,30}:|[A-Z][\w -]{0,30}\|(?=\S))")
_CJK_ACCELERATOR = re.compile(r"\s*[(（][_&~]\w[)）]")
_ACCELERATOR = re.compile(r"(?<!\w)[_&~](?=\w)")
# "E_xit"; in texts longer than a menu's, it is an identifier.
_MIDDLE_ACCELERATOR = re.compile(r"(?<=[^\W_])[_&](?=[^\W_])")
_MAX_LABEL = 40


def plain_text(message: str) -> str | None:
    """Strips a gettext message of context prefix, tags, entities and keyboard accelerators.

    Returns:
        Plain text, or None where the message has gaps that a program fills in, or unknown markup.

    Example:
        >>> plain_text("female^The <b>_witch</b> &amp; her cat")
        'The witch & her cat'
        >>> plain_text("%s has been slain") is None
        True
    """
    text = _CONTEXT.sub("", message)
    if "<" in text:
        text = _BREAK.sub("\n\n", text)
        if any(not _INLINE.fullmatch(tag[1]) for tag in _TAG.finditer(text)):
            return None
        text = _TAG.sub("", text)
    try:
        text = html.unescape(text) if "&" in text else text
    except ValueError:  # from `int`, of a number of thousands of digits
        return None
    if _GAP.search(text):
        return None
    text = _CJK_ACCELERATOR.sub("", text)
    if len(text) <= _MAX_LABEL:
        text = _MIDDLE_ACCELERATOR.sub("", text)
    return _ACCELERATOR.sub("", text).strip()


def read_catalogues(folders: Sequence[Path], language: str) -> dict[str, str]:
    """Reads the compiled catalogues (.mo) of a language: translation by message, the first one of each.

    Of a catalogue that a folder has in several spellings of the language, the first in `LOCALES` counts.
    """
    paths: dict[tuple[Path, str], Path] = {}
    for folder in folders:
        for locale in LOCALES[language]:
            for path in sorted(folder.rglob(f"{locale}/LC_MESSAGES/*.mo")):
                paths.setdefault((folder, path.name), path)
    messages: dict[str, str] = {}
    for _, entries in read_each(sorted(paths.values()), lambda path: list(polib.mofile(str(path)))):
        for entry in entries:
            if entry.msgid and entry.msgstr and not entry.msgid_plural:
                messages.setdefault(entry.msgid, entry.msgstr)
    return messages


def _plain_pairs(messages: Mapping[str, str]) -> list[TranslationPair]:
    # Without a space: single words, and the keys of catalogues without English text.
    texts = [(plain_text(m), plain_text(t)) for m, t in messages.items() if " " in m.strip()]
    return [TranslationPair(source, target) for source, target in texts if source and target]


def _translations(
    catalogue: Mapping[str, str], source_language: str, target_language: str
) -> dict[str, Translate]:
    """Functions that give a message's plain text in each of the languages."""
    return {
        source_language: plain_text,
        target_language: lambda text: plain_text(catalogue.get(text, "")),
    }


def extract_gettext(folders: Sequence[Path], source: str, target: str) -> Extraction:
    """Messages with their translations; each long message is a document as well."""
    pairs = _plain_pairs(read_catalogues(folders, target))
    return Extraction(
        parallel=pairs,
        documents={
            source: [paragraphs(pair.source) for pair in pairs],
            target: [paragraphs(pair.target) for pair in pairs],
        },
    )


# ---- Manuals: a translated HTML page has the blocks of the English one, in the same order

_BLOCK = re.compile("h[1-6]|p|li|dt|dd|td|th|caption")
_SKIPPED = frozenset({"script", "style", "head", "nav", "header", "footer", "aside", "pre", "code"})
_MIN_AGREEING = 0.8
_PROSE = frozenset({"p", "li", "dd"})
_CHROME_CLASSES = frozenset({"navheader", "navfooter", "toc", "breadcrumbs", "bug-reporting"})


class Block(NamedTuple):
    """A paragraph, heading, cell or list item: its tag, id (or empty) and text."""

    tag: str
    identity: str
    text: str


def read_blocks(page: bytes) -> list[Block]:
    """Reads the blocks of a UTF-8 HTML page in order, without navigation, code and hidden text."""
    tree = lxml.html.fromstring(page, parser=lxml.html.HTMLParser(encoding="utf-8"))
    return list(_blocks(tree.find("body") if tree.tag == "html" else tree))


def _blocks(element: Any) -> Iterator[Block]:
    for child in element:
        if (
            not isinstance(child.tag, str)
            or child.tag in _SKIPPED
            or not _CHROME_CLASSES.isdisjoint((child.get("class") or "").split())
        ):
            continue
        if _is_block(child) and not any(map(_is_block, child.iterdescendants())):
            text = normalise("".join(_text(child)))
            if text:
                yield Block(child.tag, child.get("id", ""), text)
        else:
            yield from _blocks(child)


def _is_block(element: Any) -> bool:
    return isinstance(element.tag, str) and bool(_BLOCK.fullmatch(element.tag))


def _text(element: Any) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        # LibreOffice's pages have the keys of both systems, those of the Mac hidden.
        hidden = isinstance(child.tag, str) and child.get("hidden")
        if isinstance(child.tag, str) and not (hidden and "MAC" in (child.get("class") or "")):
            yield " " if child.tag == "br" else ""
            yield from _text(child)
        yield child.tail or ""


def pair_blocks(
    source: Sequence[Block], target: Sequence[Block], languages: tuple[str, str]
) -> Iterator[TranslationPair]:
    """Pairs the blocks of a page and of its translation.

    By id where most blocks have one, otherwise by position, if both pages are made of the same
    tags and their blocks are about as long: some pages were written anew, not translated.
    """
    if 2 * sum(bool(block.identity) for block in source) > len(source):
        theirs = {block.identity: block.text for block in target if block.identity}
        for block in source:
            if block.identity in theirs:
                yield TranslationPair(block.text, theirs[block.identity])
    elif [block.tag for block in source] == [block.tag for block in target]:
        pairs = [TranslationPair(a.text, b.text) for a, b in zip(source, target, strict=True)]
        agree = sum(lengths_agree(pair.source, pair.target, *languages) for pair in pairs)
        if agree >= _MIN_AGREEING * len(pairs):
            yield from pairs


def manual_extractor(pattern: str) -> Extractor:
    """Makes an extractor for manuals with one folder a language and the same file names in each.

    Args:
        pattern: A language's folder inside a package; `{locale}` stands for the language.
    """

    def extract(folders: Sequence[Path], source: str, target: str) -> Extraction:
        ours, theirs = (_pages(folders, pattern, language) for language in (source, target))
        english = {block.text for blocks in ours.values() for block in blocks}
        return Extraction(
            parallel=[
                pair
                for name, blocks in ours.items()
                for pair in pair_blocks(blocks, theirs.get(name, ()), (source, target))
            ],
            documents={
                source: [_prose(blocks, set()) for blocks in ours.values()],
                target: [_prose(blocks, english) for blocks in theirs.values()],
            },
        )

    return extract


def _prose(blocks: Sequence[Block], untranslated: set[str]) -> Document:
    return [b.text for b in blocks if b.tag in _PROSE and b.text not in untranslated]


def _pages(folders: Sequence[Path], pattern: str, language: str) -> dict[str, list[Block]]:
    pages: dict[str, list[Block]] = {}
    for locale in LOCALES[language]:
        for folder in folders:
            for top in sorted(folder.glob(pattern.format(locale=locale))):
                names = {path: path.relative_to(top).as_posix() for path in top.rglob("*.html")}
                paths = sorted(path for path, name in names.items() if name not in pages)
                for path, blocks in read_each(paths, lambda path: read_blocks(path.read_bytes())):
                    pages[names[path]] = blocks
    return pages


# ---- The Battle for Wesnoth: its scenarios are dialogues in WML, translated message by message

_TOKEN = re.compile(
    r"""^[ \t]*(?:
    (?P<otherwise>\#else)
    |\#[^\n]*
    |\[(?P<closes>/?)\+?(?P<tag>\w+)\]
    |(?P<key>\w+)[ \t]*=[ \t]*(?:(?P<text>_?[ \t]*"(?:[^"]|"")*")|(?P<word>[^"\n]*)))""",
    re.VERBOSE | re.MULTILINE,
)
# What is inside these happens instead of, not after, what is before them.
_BRANCHES = frozenset(
    {"event", "then", "else", "elseif", "case", "option", "command", "part", "story"}
)
_NARRATORS = frozenset({"narrator", ""})


class Line(NamedTuple):
    """One message of a scenario: who says it (`narrator` for nobody) and its text."""

    speaker: str
    text: str


def read_scenes(wml: str) -> Iterator[list[Line]]:
    """Reads the messages and story parts of a scenario; a new list begins where the thread breaks."""
    scene: list[Line] = []
    values: dict[str, str] = {}
    for token in _TOKEN.finditer(wml):
        tag, closes = token["tag"], token["closes"]
        if token["key"]:
            values.setdefault(token["key"], _value(token))
        elif tag == "message" and closes and "message" in values:
            speaker = values.get("speaker", values.get("id", "")).lower()
            scene.append(Line(speaker, values["message"]))
            values = {}
        elif tag == "part" and closes and "story" in values:
            scene.append(Line("narrator", values["story"]))
            values = {}
        elif tag in ("message", "part") and not closes:
            values = {}
        elif (tag in _BRANCHES or token["otherwise"]) and scene:
            yield scene
            scene = []
    if scene:
        yield scene


def _value(token: re.Match[str]) -> str:
    if not token["text"]:
        return token["word"].strip()
    return token["text"].lstrip("_ \t\n")[1:-1].replace('""', '"')


def replies(scene: Sequence[Line], translate: Translate) -> Iterator[ResponsePair]:
    """Pairs successive lines of different speakers, the narrator left out."""
    for line, answer in pairwise(scene):
        if line.speaker == answer.speaker or {line.speaker, answer.speaker} & _NARRATORS:
            continue
        message, response = translate(line.text), translate(answer.text)
        if message and response:
            yield ResponsePair(message, response)


def narrative(scene: Sequence[Line], translate: Translate) -> Iterator[Document]:
    """Makes documents of a scene's text; a line without translation ends one."""
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


def extract_wesnoth(folders: Sequence[Path], source: str, target: str) -> Extraction:
    """Messages with translations, dialogues, and scenes and descriptions as documents."""
    catalogue = read_catalogues(folders, target)
    paths = [path for folder in folders for path in sorted(folder.rglob("*.cfg"))]
    files = read_each(paths, lambda path: path.read_text(encoding="utf-8", errors="replace"))
    scenes = [scene for _, text in files for scene in read_scenes(text)]
    pairs = _plain_pairs(catalogue)
    into = _translations(catalogue, source, target)
    messages = {source: [p.source for p in pairs], target: [p.target for p in pairs]}
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


# ---- Cataclysm: Dark Days Ahead: its people talk along a graph of topics kept in JSON

# A topic may have a dozen lines by mood and circumstance and a dozen answers; all of them crossed
# would drown the rest.
_MAX_REPLIES = 3
_TEST_TOPICS = "TALK_TEST"
_SPOKEN_KEYS = ("yes", "no", "str", "gendered_line", "concatenate", "and")
Topics = dict[str, list[Mapping[str, Any]]]


def read_topics(text: str) -> Topics:
    """Reads the talk topics of a JSON file: the objects of each by its id, of which there may be several."""
    topics: Topics = {}
    content = json.loads(text)
    for item in content if isinstance(content, list) else [content]:
        if not isinstance(item, dict) or item.get("type") != "talk_topic":
            continue
        if not all(isinstance(each.get("topic", ""), str) for each in item.get("responses", ())):
            raise TypeError("the topic of a response is not a name")
        for name in item["id"] if isinstance(item["id"], list) else [item["id"]]:
            if not name.startswith(_TEST_TOPICS):
                topics.setdefault(name, []).append(item)
    return topics


def _spoken_lines(line: object) -> Iterator[str]:
    """All wordings of a `dynamic_line`: a text, a list of alternatives, or conditions and their lines."""
    if isinstance(line, str):
        if not line.startswith("&"):  # narration
            yield line
    elif isinstance(line, list):
        for alternative in line:
            yield from _spoken_lines(alternative)
    elif isinstance(line, dict):
        for key in _SPOKEN_KEYS:
            if isinstance(line.get(key), (str, list, dict)):
                yield from _spoken_lines(line[key])


def exchanges(topics: Topics) -> Iterator[ResponsePair]:
    """Pairs each line of a topic with its answers, and each answer with the next topic's lines."""
    lines = {
        name: [text for item in items for text in _spoken_lines(item.get("dynamic_line"))]
        for name, items in topics.items()
    }
    for name, items in topics.items():
        answers = [answer for item in items for answer in item.get("responses", ())]
        texts = [next(_spoken_lines(answer.get("text")), "") for answer in answers]
        for line in lines[name]:
            yield from (ResponsePair(line, text) for text in texts[:_MAX_REPLIES])
        for answer, text in zip(answers, texts, strict=True):
            for line in lines.get(answer.get("topic", ""), ())[:_MAX_REPLIES]:
                yield ResponsePair(text, line)


def extract_cataclysm(folders: Sequence[Path], source: str, target: str) -> Extraction:
    """Messages with translations, talk, and long descriptions as documents."""
    messages = extract_gettext(folders, source, target)
    files = [path for folder in folders for path in sorted(folder.rglob("npcs/**/*.json"))]
    topics: Topics = {}
    for _, found in read_each(files, lambda path: read_topics(path.read_text(encoding="utf-8"))):
        for name, items in found.items():
            topics.setdefault(name, []).extend(items)
    talk = list(exchanges(topics))
    conversations: dict[str, list[ResponsePair]] = {}
    into = _translations(read_catalogues(folders, target), source, target)
    for language, translate in into.items():
        sides = [[" ".join(paragraphs(translate(text) or "")) for text in pair] for pair in talk]
        conversations[language] = [ResponsePair(*pair) for pair in sides if all(pair)]
    return Extraction(
        parallel=messages.parallel, documents=messages.documents, conversations=conversations
    )
