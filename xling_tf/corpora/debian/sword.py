"""Bibles as SWORD modules (zText): the same books, chapters and verses in every language."""

import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from pysword.books import BibleStructure

from xling_tf.corpora.cleaning import normalise
from xling_tf.corpora.debian.extraction import Document, Extraction
from xling_tf.corpora.records import TranslationPair

_NOTE = re.compile(r"<(note|title|rdg)\b.*?</\1>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_PILCROW = re.compile(r"[¶\[\]]")
_VERSE_ENTRY = struct.Struct("<IIH")  # block, offset in it, length
_BLOCK_ENTRY = struct.Struct("<III")  # offset in the file, packed length, length

Verse = tuple[str, int, int]  # book, chapter, number


def read_bible(folder: Path, language: str) -> dict[Verse, str]:
    """The verses of the SWORD module of a language, if the folder has one.

    Args:
        folder: An unpacked package.
        language: ISO code.

    Returns:
        Plain text by book, chapter and verse in the order of the book; empty for other languages.
    """
    verses: dict[Verse, str] = {}
    for path in sorted(folder.rglob("mods.d/*.conf")):
        settings = dict(re.findall(r"^(\w+)=(.*?)\s*$", path.read_text("utf-8"), re.MULTILINE))
        if settings.get("Lang") == language and settings.get("ModDrv") == "zText":
            modules = path.parent.parent / settings["DataPath"]
            versification = settings.get("Versification", "KJV").lower()
            for testament in ("ot", "nt"):
                verses |= _read_testament(modules, testament, versification)
    return verses


def _read_testament(modules: Path, testament: str, versification: str) -> dict[Verse, str]:
    entries = next(modules.glob(f"{testament}.?zv"), None)
    if entries is None:
        return {}
    texts = list(_verse_texts(entries))
    structure = BibleStructure(versification)
    verses: dict[Verse, str] = {}
    for book in structure.get_books()[testament]:
        for chapter, length in enumerate(book.chapter_lengths, 1):
            numbers = range(1, length + 1)
            places = structure.ref_to_indicies(books=[book.name], chapters=[chapter])[testament]
            for number, place in zip(numbers, places, strict=True):
                if place < len(texts) and texts[place]:
                    verses[book.name, chapter, number] = texts[place]
    return verses


def _verse_texts(entries: Path) -> Iterator[str]:
    """The text of every entry of the module's verse index."""
    letter = entries.suffix[1]  # b, c or v: whether a block is a book, a chapter or a verse
    packed = entries.with_suffix(f".{letter}zz").read_bytes()
    blocks = [
        zlib.decompress(packed[start : start + size])
        for start, size, _ in _BLOCK_ENTRY.iter_unpack(
            entries.with_suffix(f".{letter}zs").read_bytes()
        )
        if size
    ]
    for block, start, size in _VERSE_ENTRY.iter_unpack(entries.read_bytes()):
        osis = blocks[block][start : start + size].decode("utf-8") if size else ""
        yield normalise(_PILCROW.sub("", _TAG.sub("", _NOTE.sub(" ", osis))))


def extract_bibles(
    folders: Sequence[Path], source_language: str, target_language: str
) -> Extraction:
    """Verses paired by book, chapter and number; a chapter is a document.

    Args:
        folders: Unpacked packages, one for each language.
        source_language: ISO code.
        target_language: ISO code.

    Returns:
        Parallel text, and documents of both languages.
    """
    ours, theirs = (
        {key: text for folder in folders for key, text in read_bible(folder, language).items()}
        for language in (source_language, target_language)
    )
    return Extraction(
        parallel=[TranslationPair(ours[key], theirs[key]) for key in ours if key in theirs],
        documents={source_language: _chapters(ours), target_language: _chapters(theirs)},
    )


def _chapters(verses: dict[Verse, str]) -> list[Document]:
    chapters: dict[tuple[str, int], Document] = {}
    for (book, chapter, _), text in verses.items():
        chapters.setdefault((book, chapter), []).append(text)
    return list(chapters.values())
