"""Manuals as HTML: the translated page has the blocks of the English one, in the same order."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lxml import html

from xling_tf.corpora.cleaning import lengths_agree, normalise
from xling_tf.corpora.debian.extraction import LOCALES, Document, Extraction, read_each
from xling_tf.corpora.records import TranslationPair

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
    """The blocks of an HTML page in order.

    Args:
        page: UTF-8 HTML.

    Returns:
        Blocks with text, without navigation, program text and what the page hides.
    """
    tree = html.fromstring(page, parser=html.HTMLParser(encoding="utf-8"))
    return list(_blocks(tree.find("body") if tree.tag == "html" else tree))


def _blocks(element: Any) -> Iterator[Block]:
    for child in element:
        if _is_chrome(child):
            continue
        if _is_block(child) and not any(map(_is_block, child.iterdescendants())):
            text = normalise("".join(_text(child)))
            if text:
                yield Block(child.tag, child.get("id", ""), text)
        else:
            yield from _blocks(child)


def _is_block(element: Any) -> bool:
    return isinstance(element.tag, str) and bool(_BLOCK.fullmatch(element.tag))


def _is_chrome(element: Any) -> bool:
    return (
        not isinstance(element.tag, str)
        or element.tag in _SKIPPED
        or not _CHROME_CLASSES.isdisjoint((element.get("class") or "").split())
    )


def _text(element: Any) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        if isinstance(child.tag, str) and not child.get("hidden"):
            yield " " if child.tag == "br" else ""
            yield from _text(child)
        elif isinstance(child.tag, str) and "MAC" not in (child.get("class") or ""):
            yield from _text(child)
        yield child.tail or ""


def pair_blocks(
    source: Sequence[Block], target: Sequence[Block], languages: tuple[str, str]
) -> Iterator[TranslationPair]:
    """Pairs the blocks of a page and of its translation.

    By id where most blocks have one, otherwise by position, if both pages are made of the same
    tags and their blocks are about as long: some pages were written anew, not translated.

    Args:
        source: Blocks of the English page.
        target: Blocks of the translated page.
        languages: ISO codes of both.

    Yields:
        Paired texts.
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


def manual_extractor(pattern: str) -> Callable[[Sequence[Path], str, str], Extraction]:
    """An extractor for manuals with one folder a language and the same file names in each.

    Args:
        pattern: A language's folder inside a package; `{locale}` stands for the language.

    Returns:
        The extractor.
    """

    def extract(folders: Sequence[Path], source_language: str, target_language: str) -> Extraction:
        languages = source_language, target_language
        ours = _pages(folders, pattern, source_language)
        theirs = _pages(folders, pattern, target_language)
        english = {block.text for blocks in ours.values() for block in blocks}
        return Extraction(
            parallel=[
                pair
                for name, blocks in ours.items()
                for pair in pair_blocks(blocks, theirs.get(name, ()), languages)
            ],
            documents={
                source_language: [_prose(blocks, set()) for blocks in ours.values()],
                target_language: [_prose(blocks, english) for blocks in theirs.values()],
            },
        )

    return extract


def _prose(blocks: Sequence[Block], untranslated: set[str]) -> Document:
    return [
        block.text for block in blocks if block.tag in _PROSE and block.text not in untranslated
    ]


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
