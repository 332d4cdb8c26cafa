"""The held-out tenth: which records are for development, decided by their text alone.

Chidambaram et al. 2019, sec. 3.1: "we use 90% of the data for training, and the remaining 10% for
development/validation." A hash of the text decides, so the split is the same for reordered,
extended or newly prepared files, and the same sentence is held out of every corpus.
"""

import hashlib
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache
from operator import attrgetter

from xling_tf.corpora.corpus import Corpus, Kind
from xling_tf.corpora.records import Record
from xling_tf.corpora.unicode_forms import normal_form

HELD_OUT_FRACTION = 0.1
_HASH_BYTES = 8

# For each kind: the column that decides, and the one whose held-out texts leave training as well.
# Questions to a paragraph stay together: of one that is held out, no sentence is an answer in training.
_DECIDING: dict[Kind, str] = {
    "parallel": "source",
    "conversations": "message",
    "nli": "premise",
    "questions": "context",
}
_GUARDED: dict[Kind, str] = {
    "parallel": "target",
    "conversations": "response",
    "questions": "answer",
}


class Part(IntEnum):
    """Where a record goes."""

    NEITHER = 0
    TRAIN = 1
    HELD_OUT = 2


# (record, key of its document) to its part.
Decide = Callable[[Record, str | None], Part]


def normalised(text: str) -> str:
    r"""Returns the text without the differences that make no other sentence of it.

    Example:
        >>> normalised("Ｈello\u00a0 World ")
        'hello world'
    """
    return " ".join(normal_form(text, "NFKC").casefold().split())


def held_out(text: str, fraction: float = HELD_OUT_FRACTION) -> bool:
    """Decides by the hash of the normalised text whether it is held out of training.

    What is held out of a fraction stays so in every larger one.

    Args:
        text: The text that stands for the record.
        fraction: The expected share of texts that are held out.

    Returns:
        Whether it is held out.
    """
    return text_hash(text) < fraction * 256**_HASH_BYTES


def text_hash(text: str) -> int:
    """Hashes the normalised text to 64 bits."""
    digest = hashlib.blake2b(normalised(text).encode(), digest_size=_HASH_BYTES)
    return int.from_bytes(digest.digest())


def decisions(corpora: Sequence[Corpus]) -> list[Decide]:
    """How each corpus is divided, before held-out texts are guarded.

    Natural language inference obeys the split of its name: a training file is split only where no
    file of its name is for development, and test files are in neither part.

    Args:
        corpora: All that are used together.

    Returns:
        For each corpus what decides about a record.
    """
    with_dev = {(c.name, c.languages) for c in corpora if c.kind == "nli" and _is_dev(c)}
    return [_decision(c, (c.name, c.languages) in with_dev) for c in corpora]


def guarded_hash(kind: Kind) -> Callable[[Record], int] | None:
    """What tells whether a record for training would give a held-out one away.

    It would where the text to be found is that of a held-out record of the same kind and languages:
    then it is in neither part.

    Returns:
        Maps a record to the hash of that text; None for kinds of which no text is guarded.
    """
    if kind not in _GUARDED:
        return None
    text_of = attrgetter(_GUARDED[kind])
    return lambda record: text_hash(text_of(record))


def _decision(corpus: Corpus, has_dev: bool) -> Decide:
    if corpus.split == "test":
        return lambda record, group: Part.NEITHER
    if _is_dev(corpus):
        return lambda record, group: Part.HELD_OUT
    if corpus.split == "train" and has_dev:
        return lambda record, group: Part.TRAIN

    @lru_cache(maxsize=1024)  # the records of a document, or of a premise, follow one another
    def by_hash(key: str) -> Part:
        return Part.HELD_OUT if held_out(key) else Part.TRAIN

    if corpus.kind == "documents":
        return lambda record, group: by_hash(str(group))
    text_of = attrgetter(_DECIDING[corpus.kind])
    return lambda record, group: by_hash(text_of(record))


def _is_dev(corpus: Corpus) -> bool:
    # MultiNLI has two: dev_matched and dev_mismatched.
    return corpus.split.startswith("dev")
