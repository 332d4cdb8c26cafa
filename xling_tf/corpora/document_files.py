"""Reads a text as sentences in order.

Plain text, subtitles, HTML, Markdown, books (EPUB) and catalogues of translations (PO, XLIFF).
"""

import re
import unicodedata
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin

from absl import logging

from xling_tf.client.texts import is_blank
from xling_tf.compressed import PACKED, unpacked
from xling_tf.corpora.cleaning import are_swapped, is_in_use, language_of_texts, normalise
from xling_tf.corpora.encodings import as_utf8
from xling_tf.corpora.line_files import LANGUAGE, Unreadable, decoded, stripped, without_country
from xling_tf.corpora.sentences import paragraphs, sentences
from xling_tf.errors import UserError, as_user_error, library

SUBTITLES = frozenset({".srt", ".vtt"})
# Three letters after a hyphen are a word, not a language: "filters-map", "filters-web".
_NAMED = re.compile(rf"(?:\.|[_-](?![a-z]{{3}}))({LANGUAGE})$")
_WHITE = re.compile(r"\s+")
_TIMES = re.compile(r"\s*((?:\d+:)?\d\d:\d\d[.,]\d{3})\s*-->\s*((?:\d+:)?\d\d:\d\d[.,]\d{3})")
# Of SubRip and WebVTT: "<i>", "<v Ana>", "{\an8}".
_CUE_MARKS = re.compile(r"</?[a-zA-Z][^<>]*>|<\d[\d:.]*>|\{\\[^{}]*\}")
_VTT_BLOCKS = re.compile(r"(?:WEBVTT|NOTE|STYLE|REGION)\b")
# Elements whose text is part of a paragraph, and those whose text is left out.
_INLINE_TAGS = frozenset(
    "a abbr acronym b bdi bdo big button cite code data del dfn em font i img ins kbd label mark "
    "nobr q ruby s samp small span strike strong sub sup time tt u var wbr".split()
)
_WITHOUT_TEXT = ("script", "style", "head", "template", "noscript", "pre", "svg", "math")
# Elements of XLIFF that hold the codes of the original format.
_XLIFF_CODES = ("ph", "bpt", "ept", "it")
_MAX_BOOK = 1 << 28  # bytes, unpacked


class Document(NamedTuple):
    """The sentences of a text, in order."""

    path: Path
    language: str  # that of the file's name, else the one that is recognised, else "und"
    texts: list[str]
    times: list[tuple[str, str]]  # beginning and end of each subtitle; else empty
    recognised: str | None  # language of most sentences


def read_document(path: Path) -> Document:
    """Reads the sentences of a file, compressed or not, in the format that its name tells.

    A plain text with empty lines has paragraphs, which are split into sentences; without empty
    lines, each line is a sentence. Each subtitle is a sentence.

    A file is read in the encoding that it declares, otherwise as UTF-8, or with a warning as
    Windows-1252 if it looks like that.

    Args:
        path: A file that ends in .srt, .vtt, .html, .htm, .xhtml, .md, .epub, .po, .xlf or .xliff,
            or a plain text.

    Returns:
        The sentences that are not blank.

    Raises:
        UserError: The file cannot be read, or has no sentence.
    """
    _, ending = stem_and_ending(path)
    named = language_of_name(path)
    times: list[tuple[str, str]] = []
    if ending in SUBTITLES:
        cues = [*_cues(_lines(path))]
        texts, times = [text for _, text in cues], [time for time, _ in cues]
        language = named or language_of_texts(texts) or "und"
    else:
        parts = _PARTS.get(ending, _plain_parts)(path)
        is_split = isinstance(parts, str)
        texts = paragraphs(parts) if isinstance(parts, str) else parts
        language = named or language_of_texts(texts) or "und"
        if is_split:
            rules = "en" if language == "und" else language
            texts = [text for part in texts for text in sentences(part, rules)]
    if not texts:
        raise UserError(f"{path} must have sentences, but has none; correct it or leave it out")
    return Document(path, language, texts, times, language_of_texts(texts, [language]))


def stem_and_ending(path: Path) -> tuple[str, str]:
    """Returns the name without its ending and compression, and the ending in lower case.

    Example:
        >>> stem_and_ending(Path("texts/novel.de.TXT.gz"))
        ('novel.de', '.txt')
    """
    name = re.sub(f"(?<=.){PACKED}$", "", path.name)
    stem, dot, ending = name.rpartition(".")
    # "novel.de" has no ending; three letters, as in .txt and .srt, are one.
    is_ending = stem and (len(ending) > 2 or f".{ending.lower()}" in _PARTS)
    return (stem, f"{dot}{ending.lower()}") if is_ending else (name, "")


def language_of_name(path: Path) -> str | None:
    """Returns the language in a file's name, as in novel.de.txt or de.txt, or that of its folder.

    What follows a hyphen may be a word: the folder decides that "fr/export-as.html" is French. Many
    folders have short names: "tmp/novel.txt" is in no language.

    Example:
        >>> language_of_name(Path("novel.de.txt")), language_of_name(Path("fr/novel.txt"))
        ('de', 'fr')
    """
    stem, folder = stem_and_ending(path)[0], path.absolute().parent.name
    match = _NAMED.search(stem)
    if match and match[0].startswith("."):
        return match[1]
    for name in (stem, folder):
        if re.fullmatch(LANGUAGE, name) and is_in_use(name):
            return name
    return match[1] if match else None


def name_of_text(path: Path) -> str:
    """Returns the name of a file without its language and ending, which its translation shares.

    Example:
        >>> name_of_text(Path("novel.de.txt.gz")), name_of_text(Path("fr/novel.srt"))
        ('novel', 'novel')
    """
    return _NAMED.sub("", stem_and_ending(path)[0])


def warn_of_languages(paths: Sequence[Path], recognised: Sequence[str | None]) -> None:
    """Warns of two texts that are swapped, in another language than named, or in the same one.

    Args:
        paths: The files or folders of the texts.
        recognised: The result of `language_of_texts` for each.
    """
    named = [language_of_name(path) for path in paths]
    if are_swapped(named, recognised):
        logging.warning(
            "%s and %s seem to be swapped: the first is in %s, the second in %s",
            *(*paths, *recognised),
        )
        return
    for path, code, language in zip(paths, named, recognised, strict=True):
        if code and language not in (None, without_country(code)):
            logging.warning("%s seems to be in %s", path, language)
    if recognised[0] and recognised[0] == recognised[1]:
        logging.warning("%s and %s are both in %s", *paths, recognised[0])


def _lines(path: Path) -> list[str]:
    return [stripped(line) for line in _text(path).split("\n")]


def _text(path: Path) -> str:
    text = decoded(_content(path))
    if isinstance(text, Unreadable):
        raise UserError(
            f"{path} must be a text, but is {text}; convert it with `iconv -f ENCODING -t UTF-8`"
        )
    return unicodedata.normalize("NFC", text)


def _plain_parts(path: Path) -> str | list[str]:
    """Returns the text if it has paragraphs; else its lines."""
    lines = _lines(path)
    text = "\n".join(lines).strip("\n")
    return text if "\n\n" in text else [line for line in lines if not is_blank(line)]


def _cues(lines: Iterable[str]) -> Iterator[tuple[tuple[str, str], str]]:
    """Yields the times and the text of each subtitle of SubRip or WebVTT."""
    block: list[str] = []
    for line in (*lines, ""):
        if not is_blank(line):
            block.append(line)
            continue
        place = next((n for n, line in enumerate(block[:2]) if _TIMES.match(line)), None)
        if (
            place is not None
            and not _VTT_BLOCKS.match(block[0])
            and (times := _TIMES.match(block[place]))
        ):
            text = normalise(_CUE_MARKS.sub("", " ".join(block[place + 1 :])))
            if not is_blank(text):
                yield (times[1].replace(",", "."), times[2].replace(",", ".")), text
        block = []


def _html_parts(path: Path) -> str:
    return _text_of_html(path, _content(path))


def _markdown_parts(path: Path) -> str:
    markdown = library("markdown", "Markdown, for .md files,", "align")
    body = markdown.markdown("\n".join(_lines(path)), extensions=["tables", "fenced_code"])
    return _text_of_html(path, body.encode())


def _epub_parts(path: Path) -> str:
    """Returns the text of a book in reading order: that of the spine (EPUB 3.3, sec. 5.7)."""
    etree = library("lxml.etree", "lxml, for EPUB,", "align")
    message = f"{path} cannot be read as EPUB: {{error}}; correct it"
    errors = OSError, zipfile.BadZipFile, KeyError, ValueError, SyntaxError, RuntimeError
    with as_user_error(message, *errors), zipfile.ZipFile(path) as book:
        if sum(file.file_size for file in book.infolist()) > _MAX_BOOK:
            raise ValueError("it is larger than 256 MiB")
        container = etree.fromstring(book.read("META-INF/container.xml"))
        place = next(container.iter("{*}rootfile")).attrib["full-path"]
        package = etree.fromstring(book.read(place))
        items = {item.attrib["id"]: item.attrib["href"] for item in package.iter("{*}item")}
        chapters = [items[item.attrib["idref"]] for item in package.iter("{*}itemref")]
        pages = [book.read(unquote(urljoin(place, chapter))) for chapter in chapters]
    return "\n\n".join(_text_of_html(path, b"".join(as_utf8([page], path))) for page in pages)


def _catalogue_parts(path: Path) -> str:
    """Returns the translations of a gettext catalogue, or its messages if it has none."""
    polib = library("polib", "polib, for .po files,", "align")
    with as_user_error(f"{path} cannot be read as PO: {{error}}; correct it", OSError, ValueError):
        entries = [entry for entry in polib.pofile(_text(path)) if not entry.obsolete]
    messages = [entry.msgid for entry in entries]
    translations = [entry.msgstr or entry.msgstr_plural.get(0, "") for entry in entries]
    return "\n\n".join(filter(None, translations) if any(translations) else messages)


def _xliff_parts(path: Path) -> str:
    """Returns the translations of XLIFF 1.2 or 2, or its sources if it has none."""
    etree = library("lxml.etree", "lxml, for XLIFF,", "align")
    parser = etree.XMLParser(encoding="utf-8", resolve_entities=False)
    with as_user_error(f"{path} cannot be read as XLIFF: {{error}}; correct it", SyntaxError):
        root = etree.fromstring(_content(path), parser)
    etree.strip_elements(root, *(f"{{*}}{code}" for code in _XLIFF_CODES), with_tail=False)
    units = [*root.iter("{*}trans-unit", "{*}segment")]
    sides = (
        ["".join(text.itertext()) for unit in units for text in unit.findall(f"{{*}}{side}")]
        for side in ("target", "source")
    )
    return "\n\n".join(next((texts for texts in sides if any(texts)), []))


def _content(path: Path) -> bytes:
    """Returns a file's content, unpacked, in UTF-8 if it is a text."""
    message = f"{path} cannot be read: {{error}}; correct the path"
    with as_user_error(message, OSError), path.open("rb") as file:
        return b"".join(as_utf8([b"".join(unpacked(file, path))], path))


def _text_of_html(path: Path, content: bytes) -> str:
    """Returns the paragraphs of a page, with empty lines between them."""
    html: Any = library("lxml.html", "lxml, for HTML and Markdown,", "align")
    etree = library("lxml.etree", "lxml, for HTML and Markdown,", "align")
    message = f"{path} cannot be read as HTML: {{error}}; correct it"
    with as_user_error(message, ValueError, SyntaxError):
        try:
            # As XML where it is XML, where <title/> has no text.
            page = etree.fromstring(content, html.XHTMLParser(encoding="utf-8"))
            html.xhtml_to_html(page)
        except SyntaxError:
            parser = html.HTMLParser(encoding="utf-8")
            page = html.document_fromstring(content or b"<p>", parser=parser)
    for element in [*page.iter(*_WITHOUT_TEXT)]:
        if element.getparent() is not None:
            element.drop_tree()
    pieces: list[str] = []
    for event, element in etree.iterwalk(page, events=("start", "end", "comment", "pi")):
        is_element = event in ("start", "end")
        border = "\n\n" if is_element and element.tag not in _INLINE_TAGS else ""
        # The tail is the text between the end of an element, or a comment, and the next one.
        text = element.text if event == "start" else element.tail
        pieces += [border, _WHITE.sub(" ", text or "")]
    return "".join(pieces)


_PARTS: dict[str, Callable[[Path], str | list[str]]] = {
    ".html": _html_parts,
    ".htm": _html_parts,
    ".xhtml": _html_parts,
    ".md": _markdown_parts,
    ".epub": _epub_parts,
    ".po": _catalogue_parts,
    ".xlf": _xliff_parts,
    ".xliff": _xliff_parts,
}
