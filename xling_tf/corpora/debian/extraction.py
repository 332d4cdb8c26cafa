"""What an extractor hands back, and the languages by Debian's names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xling_tf.corpora.records import ResponsePair, TranslationPair

# The names a translation goes by in locale folders, the better one first.
LOCALES = {
    "en": ("en", "en-US", "en_US", "C"),
    "es": ("es", "es_ES"),
    "fr": ("fr", "fr_FR"),
    "de": ("de", "de_DE"),
    "zh": ("zh_CN", "zh-CN", "zh_Hans"),
}

Document = list[str]


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
