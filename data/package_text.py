"""Readers of Debian's packages: gettext catalogues, two games' dialogues, and manuals as HTML."""

import html
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, wraps
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import polib
from absl import logging
from lxml import html as lxml_html
from lxml.etree import LxmlError

from xling_tf.corpora.cleaning import lengths_agree, normalise
from xling_tf.corpora.records import ResponsePair, TranslationPair
from xling_tf.corpora.sentences import paragraphs
from xling_tf.files import read_json

# The names of a language in locale folders, the better one first.
LOCALES = {
    "en": ("en", "en-US", "en_US", "C"),
    **{
        code: (code, f"{code}_{code.upper()}")
        for code in ("es", "fr", "de", "it", "nl", "pl", "ru", "tr")
    },
    "th": ("th",),
    "ar": ("ar",),
    "ja": ("ja", "ja_JP"),
    "ko": ("ko", "ko_KR"),
    "pt": ("pt_BR", "pt-BR", "pt", "pt_PT"),
    "zh": ("zh_CN", "zh-CN", "zh_Hans", "zh-Hans"),
    "zh_TW": ("zh_TW", "zh-TW", "zh_Hant", "zh-Hant"),
}

_DAMAGED = (AttributeError, LookupError, OSError, TypeError, ValueError, LxmlError, struct.error)
Document = list[str]  # texts in order
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Extraction:
    """The text of one source: paragraphs before cleaning, sentences after it."""

    parallel: list[TranslationPair] = field(default_factory=list)
    documents: dict[str, list[Document]] = field(default_factory=dict)  # by language
    conversations: dict[str, list[ResponsePair]] = field(default_factory=dict)  # by language


def remembered_in_english(function: Callable[[Any, str], T]) -> Callable[[Any, str], T]:
    """Remembers a function's results for English, which one process reads for several pairs."""
    remembered = cache(function)

    @wraps(function)
    def call(item: Any, language: str) -> T:
        return remembered(item, language) if language == "en" else function(item, language)

    return call


def _read_each(paths: Iterable[Path], read: Callable[[Path], T]) -> Iterator[tuple[Path, T]]:
    """Reads files; warns of those that cannot be read and leaves them out."""
    for path in paths:
        try:
            content = read(path)
        except _DAMAGED as error:
            logging.warning("%s is left out, because it cannot be read: %s", path, str(error)[:200])
            continue
        yield path, content


# Messages of programs and games: plain text, or templates with gaps to fill.
_TAG = re.compile(r"</?([a-zA-Z][\w.:-]*)((?:[\s=/][^<>]*)?)>")
_BREAK = re.compile(r"<(?:br|p|/p|li|ul|/ul|ol|/ol|h\d|/h\d|tr|div|/div)\s*/?>", re.IGNORECASE)
_INLINE = re.compile(
    r"(?:a|b|big|bold|code|color\w*|em|emphasis|filename|font|format|guilabel|guimenu|header|html|i"
    r"|img|info|good|bad|italic|kbd|link|neutral|note|nobr|numid|p|s|small|span|strong|sub|sup"
    r"|title|tt|u|br|li|ul|ol|h\d|tr|td|table|div|body|head|center|interface|qt|para"
    r"|c_\w+|warning)",
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
# "E_xit"; in texts longer than a label, the mark belongs to an identifier.
_MIDDLE_ACCELERATOR = re.compile(r"(?<=[^\W_])[_&](?=[^\W_])")
_MAX_LABEL = 40


def plain_text(message: str) -> str | None:
    """Removes context, tags, entities and accelerators; None for placeholders or unknown markup.

    Examples:
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
    text = html.unescape(text)
    if _GAP.search(text):
        return None
    text = _CJK_ACCELERATOR.sub("", text)
    if len(text) <= _MAX_LABEL:
        text = _MIDDLE_ACCELERATOR.sub("", text)
    return _ACCELERATOR.sub("", text).strip()


def read_catalogues(folders: Sequence[Path], language: str) -> dict[str, str]:
    """Returns the first translation of each message in the catalogues (.mo) of unpacked packages.

    Each package is searched for the first name of the language in `LOCALES` that it has.
    """
    paths: dict[tuple[Path, str], Path] = {}
    for folder in folders:
        for locale in LOCALES[language]:
            for path in sorted(folder.rglob(f"{locale}/LC_MESSAGES/*.mo")):
                paths.setdefault((folder, path.name), path)
    messages: dict[str, str] = {}
    ordered = sorted(paths.values())
    for _, entries in _read_each(ordered, lambda path: list(polib.mofile(str(path)))):
        for entry in entries:
            if entry.msgid and entry.msgstr and not entry.msgid_plural:
                messages.setdefault(entry.msgid, entry.msgstr)
    return messages


# Maps a message to its text in a language.
Translate = Callable[[str], str | None]


def extract_gettext(folders: Sequence[Path], source: str, target: str) -> Extraction:
    """Extracts messages with their translations; each long message is a document as well."""
    return _messages(folders, source, target)[0]


def extract_json(pattern: str, folders: Sequence[Path], source: str, target: str) -> Extraction:
    """Extracts the messages of JSON files that have the same keys in all languages.

    The pattern is that of the files of a `{locale}` in a package.
    """
    sides = [read_json_messages(folders, pattern, language) for language in (source, target)]
    catalogue = {text: sides[1][key] for key, text in sides[0].items() if key in sides[1]}
    return Extraction(parallel=_plain_pairs(catalogue))


def read_json_messages(
    folders: Sequence[Path], pattern: str, language: str
) -> dict[tuple[str, ...], str]:
    """Returns the messages of a language, by file and keys; the better locale wins."""
    messages: dict[tuple[str, ...], str] = {}
    for locale in LOCALES[language]:
        for folder in folders:
            paths = sorted(folder.glob(pattern.format(locale=locale)))
            for path, content in _read_each(paths, read_json):
                parts = [part for part in path.parts if part.removesuffix(".json") != locale]
                for keys, text in _strings(content):
                    messages.setdefault((*parts, *keys), text)
    return messages


def _strings(content: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields the texts of nested objects with their keys."""
    if isinstance(content, str):
        yield (), content
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from (((key, *keys), text) for keys, text in _strings(value))


def _messages(
    folders: Sequence[Path], source: str, target: str
) -> tuple[Extraction, dict[str, Translate]]:
    """Returns the messages of plain text on both sides, and a translator into each language."""
    catalogue = read_catalogues(folders, target)
    pairs = _plain_pairs(catalogue)
    sides = {source: (pair.source for pair in pairs), target: (pair.target for pair in pairs)}
    documents = {language: list(map(paragraphs, texts)) for language, texts in sides.items()}
    translate = {source: plain_text, target: lambda message: plain_text(catalogue.get(message, ""))}
    return Extraction(parallel=pairs, documents=documents), translate


def _plain_pairs(catalogue: Mapping[str, str]) -> list[TranslationPair]:
    """Returns the messages that are plain text, with their translations."""
    return [
        TranslationPair(text, translation)
        for message, translated in catalogue.items()
        # Without a space, messages are single words, or keys of catalogues without English.
        if " " in message.strip()
        and (text := plain_text(message))
        and (translation := plain_text(translated))
    ]


# The Battle for Wesnoth: scenarios are dialogues in WML, translated message by message.
_WML = re.compile(
    r"""^[ \t]*(?:
    (?P<otherwise>\#else)
    |\#[^\n]*
    |\[(?P<closes>/?)\+?(?P<tag>\w+)\]
    |(?P<key>\w+)[ \t]*=[ \t]*(?:(?P<text>_?[ \t]*"(?:[^"]|"")*")|(?P<word>[^"\n]*)))""",
    re.VERBOSE | re.MULTILINE,
)
# The content of these tags is an alternative to the content before them, not its continuation.
_BRANCHES = frozenset(
    {"event", "then", "else", "elseif", "case", "option", "command", "part", "story"}
)
_NARRATORS = frozenset({"narrator", ""})


class Line(NamedTuple):
    """A message of a scenario: the speaker (`narrator` for nobody) and the text."""

    speaker: str
    text: str


def read_scenes(wml: str) -> list[list[Line]]:
    """Returns the runs of consecutive messages and story parts of a scenario."""
    scenes: list[list[Line]] = [[]]
    values: dict[str, str] = {}
    for token in _WML.finditer(wml):
        tag = token["tag"]
        content = {"message": "message", "part": "story"}.get(tag or "")
        if token["key"]:
            text = (token["text"] or "").lstrip("_ \t\n")[1:-1].replace('""', '"')
            values.setdefault(token["key"], text if token["text"] else token["word"].strip())
        elif content and not token["closes"]:
            values = {}
        elif content and content in values:
            speaker = values.get("speaker", values.get("id", "")).lower()
            scenes[-1].append(Line("narrator" if tag == "part" else speaker, values[content]))
            values = {}
        elif tag in _BRANCHES or token["otherwise"]:
            scenes.append([])
    return [scene for scene in scenes if scene]


@cache
def _scenes_of_file(path: Path) -> list[list[Line]]:
    return read_scenes(path.read_text("utf-8", "replace"))


def replies(scene: Sequence[Line], translate: Translate) -> Iterator[ResponsePair]:
    """Yields successive lines of different speakers as message and reply, without the narrator."""
    for line, answer in pairwise(scene):
        if line.speaker == answer.speaker or {line.speaker, answer.speaker} & _NARRATORS:
            continue
        message, response = translate(line.text), translate(answer.text)
        if message and response:
            yield ResponsePair(message, response)


def narrative(scene: Sequence[Line], translate: Translate) -> list[Document]:
    """Returns the text of a scene as documents; a line without translation splits it."""
    documents: list[Document] = [[]]
    for line in scene:
        if text := translate(line.text):
            documents[-1] += paragraphs(text)
        else:
            documents.append([])
    return [document for document in documents if document]


def extract_wesnoth(folders: Sequence[Path], source: str, target: str) -> Extraction:
    """Extracts messages with translations, dialogues, and scenes and descriptions as documents."""
    text, translations = _messages(folders, source, target)
    paths = [path for folder in folders for path in sorted(folder.rglob("*.cfg"))]
    read = _read_each(paths, _scenes_of_file)
    scenes = [scene for _, scenes_of_file in read for scene in scenes_of_file]
    for language, translate in translations.items():
        text.conversations[language] = [p for scene in scenes for p in replies(scene, translate)]
        narratives = [document for scene in scenes for document in narrative(scene, translate)]
        text.documents[language] = narratives + text.documents[language]
    return text


# Cataclysm: Dark Days Ahead: characters talk along a graph of topics in JSON. A topic may have a
# dozen lines and a dozen answers; all their combinations would outnumber the rest of the corpus.
_MAX_REPLIES = 3
_SPOKEN_KEYS = ("yes", "no", "str", "gendered_line", "concatenate", "and")


@cache
def read_topics(path: Path) -> dict[str, list[Mapping[str, Any]]]:
    """Returns the objects of each talk topic of a JSON file, by the name of the topic."""
    topics: dict[str, list[Mapping[str, Any]]] = {}
    content = read_json(path)
    for item in content if isinstance(content, list) else [content]:
        if isinstance(item, dict) and item.get("type") == "talk_topic":
            for name in item["id"] if isinstance(item["id"], list) else [item["id"]]:
                if not name.startswith("TALK_TEST"):
                    topics.setdefault(name, []).append(item)
    return topics


def _spoken(line: object) -> Iterator[str]:
    """Yields all wordings of a line, list of alternatives, or object of conditions and lines."""
    if isinstance(line, str) and not line.startswith("&"):  # narration
        yield line
    elif isinstance(line, list):
        for alternative in line:
            yield from _spoken(alternative)
    elif isinstance(line, dict):
        for key in _SPOKEN_KEYS:
            yield from _spoken(line.get(key))


def exchanges(topics: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[ResponsePair]:
    """Yields pairs of line and answer, and of answer and line of the next topic, unchanged."""
    lines = {
        name: [text for item in items for text in _spoken(item.get("dynamic_line"))]
        for name, items in topics.items()
    }
    for name, items in topics.items():
        answers = [answer for item in items for answer in item.get("responses", ())]
        texts = [next(_spoken(answer.get("text")), "") for answer in answers]
        for line in lines[name]:
            yield from (ResponsePair(line, text) for text in texts[:_MAX_REPLIES])
        for answer, text in zip(answers, texts, strict=True):
            for line in lines.get(answer.get("topic", ""), ())[:_MAX_REPLIES]:
                yield ResponsePair(text, line)


def extract_cataclysm(folders: Sequence[Path], source: str, target: str) -> Extraction:
    """Extracts messages with translations, conversations, and long descriptions as documents."""
    text, translations = _messages(folders, source, target)
    files = [path for folder in folders for path in sorted(folder.rglob("npcs/**/*.json"))]
    topics: dict[str, list[Mapping[str, Any]]] = {}
    for _, topics_of_file in _read_each(files, read_topics):
        for name, items in topics_of_file.items():
            topics.setdefault(name, []).extend(items)
    talk = list(exchanges(topics))
    for language, translate in translations.items():
        pairs = ([paragraphs(translate(line) or "") for line in pair] for pair in talk)
        text.conversations[language] = [
            ResponsePair(" ".join(message), " ".join(response))
            for message, response in pairs
            if message and response
        ]
    return text


# HTML manuals: a translated page has the blocks of the English page, in the same order.
_BLOCK = re.compile("h[1-6]|p|li|dt|dd|td|th|caption")
_SKIPPED = frozenset({"script", "style", "head", "nav", "header", "footer", "aside", "pre", "code"})
_CHROME_CLASSES = frozenset({"navheader", "navfooter", "toc", "breadcrumbs", "bug-reporting"})
_PROSE = frozenset({"p", "li", "dd"})
_MIN_AGREEING = 0.8


class Block(NamedTuple):
    """A paragraph, heading, cell or list item: tag, id (or "") and text."""

    tag: str
    identity: str
    text: str


def read_blocks(page: bytes) -> list[Block]:
    """Returns the blocks of an HTML page with text, without navigation, code and hidden parts."""
    tree = lxml_html.fromstring(page, parser=lxml_html.HTMLParser(encoding="utf-8"))
    return list(_blocks(tree.find("body") if tree.tag == "html" else tree))


def _blocks(element: Any) -> Iterator[Block]:
    for child in element:
        classes = (child.get("class") or "").split() if isinstance(child.tag, str) else ()
        if (
            not isinstance(child.tag, str)
            or child.tag in _SKIPPED
            or not _CHROME_CLASSES.isdisjoint(classes)
        ):
            continue
        if _is_block(child) and not any(map(_is_block, child.iterdescendants())):
            if text := normalise("".join(_text(child))):
                yield Block(child.tag, child.get("id", ""), text)
        else:
            yield from _blocks(child)


def _is_block(element: Any) -> bool:
    return isinstance(element.tag, str) and bool(_BLOCK.fullmatch(element.tag))


def _text(element: Any) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        # A script chooses between two variants; the one for macOS is left out.
        if isinstance(child.tag, str) and not (
            child.get("hidden") and "MAC" in (child.get("class") or "")
        ):
            yield " " if child.tag == "br" else ""
            yield from _text(child)
        yield child.tail or ""


def pair_blocks(
    source: Sequence[Block], target: Sequence[Block], languages: tuple[str, str]
) -> list[TranslationPair]:
    """Pairs the blocks of a page with its translation's; none if the pages do not correspond.

    If most blocks have an id, blocks with the same id are paired; otherwise by position, if both
    pages have the same tags and blocks of similar length: some pages were rewritten, not
    translated.
    """
    if 2 * sum(bool(block.identity) for block in source) > len(source):
        translations = {block.identity: block.text for block in target if block.identity}
        return [
            TranslationPair(block.text, translations[block.identity])
            for block in source
            if block.identity in translations
        ]
    if [block.tag for block in source] != [block.tag for block in target]:
        return []
    pairs = [TranslationPair(a.text, b.text) for a, b in zip(source, target, strict=True)]
    agree = sum(lengths_agree(pair.source, pair.target, *languages) for pair in pairs)
    return pairs if agree >= _MIN_AGREEING * len(pairs) else []


def extract_manual(pattern: str, folders: Sequence[Path], source: str, target: str) -> Extraction:
    """Extracts the blocks of a manual's pages with translations, and the prose as documents.

    The pattern is that of the folder of a `{locale}` in a package; all languages have the same file
    names.
    """
    sources, targets = (_pages(folders, pattern, language) for language in (source, target))
    untranslated = {block.text for blocks in sources.values() for block in blocks}

    def prose(blocks: Sequence[Block]) -> Document:
        return [block.text for block in blocks if block.tag in _PROSE]

    pairs = [
        pair
        for name, blocks in sources.items()
        for pair in pair_blocks(blocks, targets.get(name, ()), (source, target))
    ]
    translated = [
        [text for text in prose(blocks) if text not in untranslated] for blocks in targets.values()
    ]
    documents = {source: list(map(prose, sources.values())), target: translated}
    return Extraction(parallel=pairs, documents=documents)


@remembered_in_english
def _read_page(path: Path, language: str) -> list[Block]:
    return read_blocks(path.read_bytes())


def _pages(folders: Sequence[Path], pattern: str, language: str) -> dict[str, list[Block]]:
    pages: dict[str, list[Block]] = {}
    for locale in LOCALES[language]:
        for folder in folders:
            for top in sorted(folder.glob(pattern.format(locale=locale))):
                names = {path: path.relative_to(top).as_posix() for path in top.rglob("*.html")}
                paths = sorted(path for path, name in names.items() if name not in pages)
                for path, blocks in _read_each(paths, lambda path: _read_page(path, language)):
                    pages[names[path]] = blocks
    return pages
