"""The sentences of an article in a dump of Wikipedia (Chidambaram et al. 2018, appendix A.1)."""

import html
import re
from collections.abc import Collection
from itertools import chain
from typing import NamedTuple
from xml.etree import ElementTree

from xling_tf.corpora.cleaning import normalise
from xling_tf.corpora.readers import MalformedLineError
from xling_tf.corpora.sentences import paragraphs, sentences

_NO_TEXT_NAMESPACES = ("-2", "6", "14")  # media, files, categories

# Elements that are not prose. An open comment extends to the end; an open tag must not swallow the
# next of its kind.
_DROPPED_TAGS = (
    "ce|chem|code|gallery|graph|hiero|imagemap|indicator|inputbox|mapframe|maplink|math|nowiki|poem"
    "|pre|ref|references|score|section|source|style|syntaxhighlight|table|templatestyles|timeline"
)
_DROPPED = re.compile(
    rf"<!--.*?(?:-->|\Z)|<(?:{_DROPPED_TAGS})\b[^<>]*/>"
    rf"|<(?P<tag>{_DROPPED_TAGS})\b[^<>]*>(?:(?!<(?P=tag)\b).)*?</(?P=tag)\s*>",
    re.DOTALL | re.IGNORECASE,
)
_BRACES = re.compile(r"(?P<opens>\{\{+)|\}\}+")  # of templates and their arguments
_TABLE = re.compile(r"^[ \t:]*(?P<opens>\{)\||^[ \t]*\|\}", re.MULTILINE)
_LINK = re.compile(r"\[\[([^\[\]|]*)(?:\|([^\[\]]*))?\]\]")
_MAX_DEPTH = 5  # of links in captions
# Prefixes of files and categories that dumps do not list, or of other languages than the dump.
_NO_TEXT_LINKS = frozenset(
    "file image media category imagen bild datei fichier archivo 图像 圖像 檔案 分類".split()
)
_INTERLANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*")
_EXTERNAL = re.compile(r"\[(?:[a-z]+:)?//[^\s\[\]]*\s*([^\[\]]*)\]|\bhttps?://[^\s<>\[\]]+")
_ITEM = re.compile(r"^[*#:;]+|</?(?:li|dd|dt|p|div|blockquote|hr)\b[^<>]*>", re.M | re.I)
_BREAK = re.compile(r"<br\b[^<>]*>", re.IGNORECASE)
# The rest of a reference stays, so that its sentence is dropped later.
_MARK = re.compile(r"'{2,}|__[A-Z]+__|</?(?!ref\b)[a-z][^<>]*>", re.IGNORECASE)
_HEADING = re.compile(r"^(={1,6})[ \t]*([^\n=](?:[^\n]*[^\n=])?)[ \t]*\1[ \t]*$", re.MULTILINE)
# The rest of "(German: {{lang|de|...}}; 1912-1954)" without the template.
_HOLLOW = re.compile(r"\(\s*[;,:]*\s*\)|(?<=\()\s*[;,:]\s*|\s+(?=[,.;:]\s)")


class Page(NamedTuple):
    """A page of a dump: title, last revision's source, and why it is no article (None: it is)."""

    title: str
    text: str
    fault: str | None


class Block(NamedTuple):
    """A paragraph (level 0), or the name of a section (level 2 and more), on one line."""

    level: int
    text: str


def parse_page(xml: bytes) -> Page:
    """Reads a page of a dump, from "<page>" to "</page>", or raises a `MalformedLineError`."""
    try:
        # Bytes that are not UTF-8 become U+FFFD, so that their sentence is dropped later.
        page = ElementTree.fromstring(xml.decode("utf-8", "replace"))
        title, namespace = page.findtext("title", ""), int(page.findtext("ns", "none"))
    except (ElementTree.ParseError, ValueError):
        raise MalformedLineError("not a page in MediaWiki's XML") from None
    revisions = page.findall("revision")
    text = (revisions[-1].findtext("text") or "") if revisions else ""
    fault = None
    if page.find("redirect") is not None:
        fault = "redirect"
    elif namespace != 0:
        fault = "not an article, by its namespace"
    elif not text or revisions[-1].findtext("model", "wikitext") != "wikitext":
        fault = "no wikitext"
    return Page(title, text, fault)


def file_prefixes(header: bytes) -> list[str]:
    """Returns, from a dump's start, lower-case names of the namespaces whose links show no text."""
    try:
        dump = ElementTree.fromstring(header + b"</mediawiki>")
    except (ElementTree.ParseError, ValueError):
        raise MalformedLineError("not a MediaWiki dump: siteinfo cannot be read") from None
    spaces = (element for element in dump.iter() if element.tag.endswith("namespace"))
    return [(s.text or "").lower() for s in spaces if s.get("key") in _NO_TEXT_NAMESPACES]


def article_sentences(page: Page, language: str, file_prefixes: Collection[str] = ()) -> list[str]:
    """Returns an article's sentences, with its title and section names, in order and unfiltered."""
    lines = [normalise(page.title)]
    for block in prose(page.text, file_prefixes):
        lines += [block.text] if block.level else sentences(block.text, language)
    return lines


def prose(wikitext: str, file_prefixes: Collection[str] = ()) -> list[Block]:
    r"""Extracts the paragraphs and section names of a page, in order.

    Templates, tables, references, formulas, comments, files, categories and sections without text
    are removed; links become their text. The time is linear in the length, whatever the source
    holds.

    Examples:
        >>> for block in prose("'''Ada''' wrote [[x|programs]].{{cn}}\n== Life ==\n* Born."):
        ...     print(block)
        Block(level=0, text='Ada wrote programs.')
        Block(level=2, text='Life')
        Block(level=0, text='Born.')
    """
    text = _DROPPED.sub("", wikitext)
    text = _without_pairs(_TABLE, _without_pairs(_BRACES, text))
    prefixes = _NO_TEXT_LINKS.union(file_prefixes)
    for _ in range(_MAX_DEPTH):
        text, num_links = _LINK.subn(lambda link: _link_text(link, prefixes), text)
        if not num_links:
            break
    # The name of a section becomes a paragraph with a mark that no text holds.
    text = _HEADING.sub(lambda name: f"\n\n\0{len(name[1])}{name[2]}\n\n", text.replace("\0", " "))
    text = _ITEM.sub("\n\n", _EXTERNAL.sub(lambda link: link[1] or "", text))
    text = html.unescape(_MARK.sub("", _BREAK.sub(" ", text)))
    blocks = []
    for part in re.split(r"\n\s*\n", text):
        if part.lstrip().startswith("\0"):
            blocks.append(Block(int(part.lstrip()[1]), normalise(part.lstrip()[2:])))
        else:
            blocks += [Block(0, _HOLLOW.sub("", paragraph)) for paragraph in paragraphs(part)]
    with_text = [block for i, block in enumerate(blocks) if not block.level or _has_text(blocks, i)]
    return [block for block in with_text if block.text]


def _without_pairs(pattern: re.Pattern[str], text: str) -> str:
    """Removes paired marks with everything between them; pairs may be nested."""
    opened: list[int] = []
    spans: list[tuple[int, int]] = []
    for mark in pattern.finditer(text):
        if mark["opens"]:
            opened += [mark.start() + place for place in range(len(mark["opens"]))]
            continue
        num_closed = len(mark[0]) if pattern is _BRACES else 1
        if opened:
            first = opened[-min(num_closed, len(opened))]
            del opened[-num_closed:]
            while spans and spans[-1][0] >= first:
                spans.pop()
            spans.append((first, mark.end()))
    edges = [0, *chain.from_iterable(spans), len(text)]
    return "".join(text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True))


def _link_text(link: re.Match[str], prefixes: Collection[str]) -> str:
    title = link[1].strip()
    prefix, colon, _ = title.partition(":")
    if colon and (prefix.strip().lower() in prefixes or _INTERLANGUAGE.fullmatch(prefix)):
        return ""
    return link[2] or title.removeprefix(":")


def _has_text(blocks: list[Block], index: int) -> bool:
    level = blocks[index].level
    # A paragraph of this section must come before the next section outside of it.
    following = (block.level for block in blocks[index + 1 :])
    return next((other == 0 for other in following if other <= level), False)
