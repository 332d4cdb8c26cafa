"""What an extractor hands back, and the languages by Debian's names."""

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from absl import logging
from lxml.etree import LxmlError

from xling_tf.corpora.records import ResponsePair, TranslationPair

# The names a translation goes by in locale folders, the better one first.
LOCALES = {
    "en": ("en", "en-US", "en_US", "C"),
    "es": ("es", "es_ES"),
    "fr": ("fr", "fr_FR"),
    "de": ("de", "de_DE"),
    "zh": ("zh_CN", "zh-CN", "zh_Hans"),
}

# What readers raise of a file that is not as its program writes it.
_UNREADABLE = (
    *(AttributeError, LookupError, OSError, OverflowError, RecursionError, TypeError, ValueError),
    *(LxmlError, struct.error, zlib.error),
)

Document = list[str]
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


# (folders of the unpacked packages, source language, target language) -> text
Extractor = Callable[[Sequence[Path], str, str], Extraction]


def read_each(paths: Iterable[Path], read: Callable[[Path], T]) -> Iterator[tuple[Path, T]]:
    """Reads files of packages; of one that cannot be read a warning is logged, and it is left out.

    Args:
        paths: The files.
        read: (path) to all that is in it.

    Yields:
        Each file that can be read, and what is in it.
    """
    for path in paths:
        try:
            found = read(path)
        except _UNREADABLE as error:
            logging.warning("%s is left out, since it cannot be read: %s", path, str(error)[:200])
            continue
        yield path, found
