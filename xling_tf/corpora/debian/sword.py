"""Bibles as SWORD modules (zText): the same books, chapters and verses in every language."""

import math
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from pysword.books import BibleStructure

from xling_tf.corpora.cleaning import normalise
from xling_tf.corpora.debian.extraction import Extraction, read_each
from xling_tf.corpora.records import TranslationPair

_NOTE = re.compile(r"<(note|title|rdg)\b.*?</\1>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
# Modules leave out the space between two tagged words that have nothing else between them.
_GLUED = re.compile(r"(?<=\w)(</\w+>)(?=<\w)")
_PILCROW = re.compile(r"[¶\[\]]")
_VERSE_ENTRY = struct.Struct("<IIH")  # block, offset in it, length
_BLOCK_ENTRY = struct.Struct("<III")  # offset in the file, packed length, length

_MAX_BLOCK = 1 << 26  # bytes of a book, at most
_MAX_VERSE = 700  # characters; the glossary of a module hangs at its last verse
_MIN_VERSES = 5  # fewer say nothing about their numbering
_SHIFTS = (-3, -2, -1, 0, 1, 2, 3)

Chapter = tuple[str, int]  # book, number
Bible = dict[Chapter, dict[int, str]]


def read_bible(folder: Path, language: str) -> Bible:
    """The SWORD modules of a language in a folder.

    Args:
        folder: An unpacked package.
        language: ISO code.

    Returns:
        Plain verses by number, by chapter in the order of the book; empty for other languages.
    """
    chapters: Bible = {}
    paths = sorted(folder.rglob("mods.d/*.conf"))
    for _, found in read_each(paths, lambda path: _read_module(path, language)):
        chapters |= found
    return chapters


def _read_module(path: Path, language: str) -> Bible:
    settings = dict(re.findall(r"^(\w+)=(.*?)\s*$", path.read_text("utf-8"), re.MULTILINE))
    if settings.get("Lang") != language or settings.get("ModDrv") != "zText":
        return {}
    package = path.parent.parent
    modules = package / settings["DataPath"]
    if not modules.resolve().is_relative_to(package.resolve()):
        raise ValueError(f"its DataPath is outside: {settings['DataPath'][:80]!r}")
    versification = settings.get("Versification", "KJV").lower()
    return {
        key: verses
        for testament in ("ot", "nt")
        for key, verses in _read_testament(modules, testament, versification).items()
    }


def _read_testament(modules: Path, testament: str, versification: str) -> Bible:
    entries = next(modules.glob(f"{testament}.?zv"), None)
    if entries is None:
        return {}
    texts = list(_verse_texts(entries))
    structure = BibleStructure(versification)
    chapters: Bible = {}
    for book in structure.get_books()[testament]:
        for chapter in range(1, book.num_chapters + 1):
            places = structure.ref_to_indicies(books=[book.name], chapters=[chapter])[testament]
            chapters[book.name, chapter] = {
                number: texts[place]
                for number, place in enumerate(places, 1)
                if place < len(texts) and 0 < len(texts[place]) <= _MAX_VERSE
            }
    return chapters


def _verse_texts(entries: Path) -> Iterator[str]:
    """The text of every entry of the module's verse index."""
    letter = entries.suffix[1]  # b, c or v: whether a block is a book, a chapter or a verse
    packed = entries.with_suffix(f".{letter}zz").read_bytes()
    blocks = [
        _unpacked(packed[start : start + size])
        for start, size, _ in _BLOCK_ENTRY.iter_unpack(
            entries.with_suffix(f".{letter}zs").read_bytes()
        )
        if size
    ]
    for block, start, size in _VERSE_ENTRY.iter_unpack(entries.read_bytes()):
        osis = blocks[block][start : start + size].decode("utf-8") if size else ""
        osis = _GLUED.sub(r"\1 ", _NOTE.sub(" ", osis))
        yield normalise(_PILCROW.sub("", _TAG.sub("", osis)))


def _unpacked(block: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(block, _MAX_BLOCK)
    if not unpacker.eof:
        raise ValueError(f"a block is cut, or unpacks to more than {_MAX_BLOCK >> 20} MiB")
    return text


def numbered_alike(ours: dict[int, str], theirs: dict[int, str]) -> bool:
    """Whether two translations count the verses of a chapter alike.

    Some begin a chapter a verse or two later. Then the lengths of the verses, which go together in
    translations, agree better with the other's numbers shifted.

    Args:
        ours: Verses of a chapter by number.
        theirs: The same chapter in another translation.

    Returns:
        Whether no shift makes the lengths agree better.
    """
    costs = {shift: _disagreement(ours, theirs, shift) for shift in _SHIFTS}
    return costs[0] <= min(costs.values())


def _disagreement(ours: dict[int, str], theirs: dict[int, str], shift: int) -> float:
    ratios = [
        abs(math.log(len(text) / len(theirs[number + shift])))
        for number, text in ours.items()
        if number + shift in theirs
    ]
    return sum(ratios) / len(ratios) if len(ratios) >= _MIN_VERSES else math.inf


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
        {key: verses for folder in folders for key, verses in read_bible(folder, language).items()}
        for language in (source_language, target_language)
    )
    return Extraction(
        parallel=[
            TranslationPair(text, theirs[chapter][number])
            for chapter, verses in ours.items()
            if numbered_alike(verses, theirs.get(chapter, {}))
            for number, text in verses.items()
            if number in theirs.get(chapter, {})
        ],
        documents={
            source_language: [list(verses.values()) for verses in ours.values()],
            target_language: [list(verses.values()) for verses in theirs.values()],
        },
    )
