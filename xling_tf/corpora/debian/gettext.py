"""Reads compiled gettext catalogues (.mo), the way most programs carry their translations."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polib

from xling_tf.corpora.debian.extraction import LOCALES, Extraction, read_each
from xling_tf.corpora.debian.markup import plain_text
from xling_tf.corpora.debian.sentences import paragraphs
from xling_tf.corpora.records import TranslationPair


def catalogue_files(folders: Sequence[Path], language: str) -> list[Path]:
    """The .mo files of a language below some folders.

    Args:
        folders: Unpacked packages.
        language: ISO code; of its spellings (`es`, `es_ES`) the first in `LOCALES` counts.

    Returns:
        Sorted paths, each domain of a folder once.
    """
    found: dict[tuple[Path, str], Path] = {}
    for folder in folders:
        for locale in LOCALES[language]:
            for path in sorted(folder.rglob(f"{locale}/LC_MESSAGES/*.mo")):
                found.setdefault((folder, path.name), path)
    return sorted(found.values())


def read_catalogues(folders: Sequence[Path], language: str) -> dict[str, str]:
    """All messages and their translations, as they stand in the catalogues.

    Args:
        folders: Unpacked packages.
        language: ISO code of the translation.

    Returns:
        Translation by message; of two translations the first one.
    """
    messages: dict[str, str] = {}
    paths = catalogue_files(folders, language)
    for _, entries in read_each(paths, lambda path: list(polib.mofile(str(path)))):
        for entry in entries:
            if entry.msgid and entry.msgstr and not entry.msgid_plural:
                messages.setdefault(entry.msgid, entry.msgstr)
    return messages


def plain_pairs(messages: Mapping[str, str]) -> Iterator[TranslationPair]:
    """The messages that are plain text on both sides."""
    for message, translation in messages.items():
        if " " not in message.strip():
            continue  # single words and the keys of catalogues without English text
        source, target = plain_text(message), plain_text(translation)
        if source and target:
            yield TranslationPair(source, target)


def extract_gettext(
    folders: Sequence[Path], source_language: str, target_language: str
) -> Extraction:
    """Messages with their translations; each long message is a document as well.

    Args:
        folders: Unpacked packages.
        source_language: Must be English, the language of the messages.
        target_language: ISO code of the translation.

    Returns:
        Parallel text, and documents of both languages.
    """
    pairs = list(plain_pairs(read_catalogues(folders, target_language)))
    return Extraction(
        parallel=pairs,
        documents={
            source_language: [paragraphs(pair.source) for pair in pairs],
            target_language: [paragraphs(pair.target) for pair in pairs],
        },
    )
