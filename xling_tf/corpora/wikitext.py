"""The prose of a MediaWiki page's source: paragraphs and section names, without what is no text."""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from functools import singledispatch
from typing import NamedTuple

import mwparserfromhell
from mwparserfromhell.nodes import (
    ExternalLink,
    Heading,
    HTMLEntity,
    Node,
    Tag,
    Text,
    Wikilink,
)
from mwparserfromhell.parser import ParserError
from mwparserfromhell.wikicode import Wikicode

from xling_tf.corpora.cleaning import normalise
from xling_tf.corpora.readers import MalformedLineError
from xling_tf.corpora.sentences import paragraphs

# Tags whose content is no prose of the article.
_DROPPED_TAGS = frozenset(
    {
        *("ce", "chem", "code", "gallery", "graph", "hiero", "imagemap", "indicator", "inputbox"),
        *("mapframe", "maplink", "math", "nowiki", "poem", "pre", "ref", "references", "score"),
        *("section", "source", "style", "syntaxhighlight", "table", "templatestyles", "timeline"),
    }
)
_ITEM_TAGS = frozenset({"li", "dd", "dt", "p", "div", "blockquote", "hr"})
# Names of files and categories that dumps of no language list, or of other languages than theirs.
_NO_TEXT_LINKS = frozenset(
    {
        *("file", "image", "media", "category", "imagen", "bild", "datei", "fichier", "archivo"),
        *("图像", "圖像", "檔案", "分類"),
    }
)
_INTERLANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*")
# A template or a template's argument that has no other in it; comments, of which an open one goes to
# the end; and references, of which an open one must not swallow the next.
_INNER_TEMPLATE = re.compile(r"\{\{\{[^{}]*\}\}\}|\{\{[^{}]*\}\}")
_MAX_DEPTH = 20
_COMMENT_OR_REFERENCE = re.compile(
    r"<!--.*?(?:-->|\Z)|<ref\b[^<>]*/>|<ref\b[^<>]*>(?:(?!<ref\b).)*?</ref\s*>", re.DOTALL
)
# A "<" with no ">" before the next one is text, which the parser needs very long to find out.
_BARE_LESS = re.compile(r"<(?=[^<>]*(?:<|\Z))")
_APOSTROPHES = re.compile("'{6,}")  # five are bold and italic, and many take long
_PAIRED = re.compile(
    r"<(?P<closes>/?)(?P<name>[a-z]+)\b[^<>]*(?<!/)>|\[+|\]+|\{\{+|\{|\}\}+|\}", re.IGNORECASE
)
_SINGLE_TAGS = frozenset({"br", "hr", "li", "dd", "dt", "p", "wbr", "tr", "td", "th"})
_CLOSING = {"]": "[", "}": "{", "}}": "{{"}
# For each of what is not closed the parser reads on to the end, 100 ns a character, and for templates ten
# times as slowly.
_SLOWER = {"{{": 10}
_MAX_STEPS = 3 * 10**7
_MAGIC_WORD = re.compile(r"__[A-Z]+__")
# What a dropped template leaves of "(German: {{lang|de|...}}; 1912-1954)".
_HOLLOW = re.compile(r"\(\s*[;,:]*\s*\)|(?<=\()\s*[;,:]\s*|\s+(?=[,.;:]\s)")


class Block(NamedTuple):
    """A paragraph, or the name of a section.

    Attributes:
        level: 0 for a paragraph, 2 and more for section names, by their depth.
        text: One line.
    """

    level: int
    text: str


def prose(wikitext: str, file_prefixes: Collection[str] = ()) -> list[Block]:
    r"""The paragraphs and section names of a page, in order.

    Templates, tables, references, formulas, comments, files, categories and sections without text
    are left out; of links their text stays.

    Args:
        wikitext: A page's source.
        file_prefixes: What links to files and categories begin with in the page's language, in
            lower case, besides the English and some other names.

    Raises:
        MalformedLineError: Its markup cannot be parsed, or not in seconds.

    Example:
        >>> for block in prose("'''Ada''' wrote [[x|programs]].{{cn}}\n== Life ==\n* Born."):
        ...     print(block)
        Block(level=0, text='Ada wrote programs.')
        Block(level=2, text='Life')
        Block(level=0, text='Born.')
    """
    text = _APOSTROPHES.sub("'''''", _without_templates(wikitext))
    text = _BARE_LESS.sub("&lt;", text)
    if len(text) * _num_unclosed(text) > _MAX_STEPS:
        raise MalformedLineError("markup that is never closed")
    try:
        code = mwparserfromhell.parse(text)
    except ParserError:
        raise MalformedLineError("markup that cannot be parsed") from None
    blocks = list(_blocks(code, _NO_TEXT_LINKS.union(file_prefixes)))
    return [block for i, block in enumerate(blocks) if not block.level or _has_text(blocks, i)]


def _without_templates(wikitext: str) -> str:
    # Most of a page's source is no prose, and slow to parse. What is left here is left to the parser.
    text = _COMMENT_OR_REFERENCE.sub("", wikitext)
    for _ in range(_MAX_DEPTH):
        text, num_found = _INNER_TEMPLATE.subn("", text)
        if not num_found:
            break
    return text


def _num_unclosed(text: str) -> int:
    depths: Counter[str] = Counter()
    for match in _PAIRED.finditer(text):
        # However many brackets there are in a row, they are one place to read on from.
        name = (match["name"] or match[0][:2].replace("[[", "[").replace("]]", "]")).lower()
        opened = _CLOSING.get(name, name)
        if opened not in _SINGLE_TAGS:
            closes = match["closes"] or name in _CLOSING
            depths[opened] = max(0, depths[opened] + (-1 if closes else 1))
    return sum(depth * _SLOWER.get(name, 1) for name, depth in depths.items())


def _blocks(code: Wikicode, prefixes: Collection[str]) -> Iterator[Block]:
    pieces: list[str] = []
    # The end of the page is one more heading, without a name.
    for node in (*code.nodes, None):
        if node is not None and not isinstance(node, Heading):
            pieces.append(_plain(node, prefixes))
            continue
        text = _MAGIC_WORD.sub("", "".join(pieces))
        yield from (Block(0, _HOLLOW.sub("", paragraph)) for paragraph in paragraphs(text))
        pieces = []
        if node is not None and (name := normalise(_plain_code(node.title, prefixes))):
            yield Block(node.level, name)


def _has_text(blocks: list[Block], index: int) -> bool:
    level = blocks[index].level
    # What comes first: a paragraph of this section, or the next section that is not part of it?
    following = (block.level for block in blocks[index + 1 :])
    return next((found == 0 for found in following if found <= level), False)


def _plain_code(code: Wikicode | None, prefixes: Collection[str]) -> str:
    return "".join(_plain(node, prefixes) for node in code.nodes) if code else ""


@singledispatch
def _plain(node: Node, prefixes: Collection[str]) -> str:
    del node, prefixes  # templates, their arguments, comments
    return ""


@_plain.register
def _(node: Text, prefixes: Collection[str]) -> str:
    del prefixes
    return str(node.value)


@_plain.register
def _(node: HTMLEntity, prefixes: Collection[str]) -> str:
    del prefixes
    return str(node.normalize())


@_plain.register
def _(node: Wikilink, prefixes: Collection[str]) -> str:
    title = str(node.title).strip()
    prefix, colon, _rest = title.partition(":")
    prefix = prefix.strip()
    if colon and (prefix.lower() in prefixes or _INTERLANGUAGE.fullmatch(prefix)):
        return ""
    return _plain_code(node.text, prefixes) if node.text else title.removeprefix(":")


@_plain.register
def _(node: ExternalLink, prefixes: Collection[str]) -> str:
    return _plain_code(node.title, prefixes)


@_plain.register
def _(node: Tag, prefixes: Collection[str]) -> str:
    name = str(node.tag).strip().lower()
    if name in _DROPPED_TAGS:
        return ""
    if name == "br":
        return " "
    content = _plain_code(node.contents, prefixes)
    if name not in _ITEM_TAGS:
        return content
    # "* item" is a tag without content, which the text follows.
    return f"\n\n{content}\n\n" if content else "\n\n"
