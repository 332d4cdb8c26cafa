"""What a corpus is to the rest: whose it is, and records that are read anew at each pass."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from xling_tf.corpora.records import Record

Kind = Literal["parallel", "documents", "conversations", "nli", "questions"]
# A record and the key of its document, None where it stands alone. A split must not separate records
# with equal keys.
Row = tuple[Record, str | None]


@dataclass(frozen=True, kw_only=True)
class Corpus(ABC):
    """A file, the shards of one, or a dataset of a library: whatever gives records one by one.

    It holds none of them, so that it may be larger than the memory.

    Attributes:
        name: A file's name up to the languages.
        kind: What its records are.
        languages: "en-es" for translations, "en" for the others.
        split: "train", "dev", "dev_matched", "dev_mismatched" or "test" where the corpus states it,
            as natural language inference does, else "".
    """

    name: str
    kind: Kind
    languages: str
    split: str = ""

    @property
    def title(self) -> str:
        """What it is called in messages and results, as "nli/snli_1.0.en.train"."""
        parts = (f"{self.kind}/{self.name}", self.languages, self.split)
        return ".".join(filter(None, parts))

    @abstractmethod
    def version(self) -> str:
        """Tells the corpus as it is now from one with other records."""

    @abstractmethod
    def __iter__(self) -> Iterator[Row]:
        """Yields its rows, in the same order each time.

        Raises:
            UserError: There are none, or they cannot be read to their end.
        """


def columns_of(languages: str) -> list[tuple[str, slice]]:
    """Which columns of a corpus' records are in which language.

    Args:
        languages: Of a corpus: "en-es" or "en".

    Returns:
        Each language with the places of its texts: of translations the first one is in the source
        language, and the others, wrong translations among them, are in the target language.

    Example:
        >>> columns_of("en-es")
        [('en', slice(0, 1, None)), ('es', slice(1, None, None))]
        >>> columns_of("en")
        [('en', slice(0, None, None))]
    """
    source, *targets = languages.split("-")
    return [(source, slice(0, 1 if targets else None)), *((t, slice(1, None)) for t in targets)]
