"""The held-out tenth: which records are for development, decided by their text alone.

Chidambaram et al. 2019, sec. 3.1: "we use 90% of the data for training, and the remaining 10% for
development/validation." A hash of the text decides, so the split is the same for reordered,
extended or newly prepared files, and the same sentence is held out of every corpus.
"""

import hashlib
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from xling_tf.corpora.folder import Corpus, Kind
from xling_tf.corpora.records import Record

HELD_OUT_FRACTION = 0.1
_HASH_BYTES = 8

# For each kind: the column that decides, and the one whose held-out texts leave training as well.
_DECIDING: dict[Kind, str] = {"parallel": "source", "conversations": "message", "nli": "premise"}
_GUARDED: dict[Kind, str] = {"parallel": "target", "conversations": "response"}


class Split(NamedTuple):
    """The two parts of a corpus; a pair that straddles them is in neither."""

    train: list[Record]
    held_out: list[Record]


def normalised(text: str) -> str:
    r"""Returns the text without the differences that make no other sentence of it.

    Example:
        >>> normalised("Ｈello\u00a0 World ")
        'hello world'
    """
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def held_out(text: str, fraction: float = HELD_OUT_FRACTION) -> bool:
    """Decides by the hash of the normalised text whether it is held out of training.

    What is held out of a fraction stays so in every larger one.

    Args:
        text: The text that stands for the record.
        fraction: The expected share of texts that are held out.

    Returns:
        Whether it is held out.
    """
    digest = hashlib.blake2b(normalised(text).encode(), digest_size=_HASH_BYTES)
    return int.from_bytes(digest.digest()) < fraction * 256**_HASH_BYTES


def split_corpus(corpus: Corpus) -> tuple[list[Record], list[Record]]:
    """Splits a corpus that is used alone; see `split_corpora`."""
    return split_corpora([corpus])[0]


def split_corpora(corpora: Sequence[Corpus]) -> list[Split]:
    """Splits corpora that are used together into training and held-out records.

    Translations are held out by source, conversations by message, documents whole, and inference
    by premise. A training pair is dropped if its target or response is one of a held-out pair in
    any of the corpora in the same language, so that training sees no held-out sentence of either
    side. Inference files obey the split of their name: a training file is split only where no
    file of its name is for development, and test files are in neither part.

    Args:
        corpora: The corpora, as `load_folder` gives them.

    Returns:
        For each corpus its two parts, in the order of its records.
    """
    with_dev = {(c.name, c.languages) for c in corpora if c.kind == "nli" and c.split == "dev"}
    splits = [_split_alone(c, (c.name, c.languages) in with_dev) for c in corpora]
    guarded: defaultdict[tuple[Kind, str], set[str]] = defaultdict(set)
    for corpus, split in zip(corpora, splits, strict=True):
        guarded[corpus.kind, corpus.languages].update(_guarded(corpus.kind, split.held_out))
    return [
        split._replace(train=_without(c.kind, split.train, guarded[c.kind, c.languages]))
        for c, split in zip(corpora, splits, strict=True)
    ]


def _split_alone(corpus: Corpus, has_dev: bool) -> Split:
    records = list(corpus.records)
    if corpus.split == "test":
        return Split([], [])
    if corpus.split == "dev":
        return Split([], records)
    if corpus.split == "train" and has_dev:
        return Split(records, [])
    keys = corpus.groups
    if keys is None:
        keys = list(map(attrgetter(_DECIDING[corpus.kind]), records))
    is_held_out = {key: held_out(key) for key in dict.fromkeys(keys)}
    split = Split([], [])
    for record, key in zip(records, keys, strict=True):
        (split.held_out if is_held_out[key] else split.train).append(record)
    return split


def _guarded(kind: Kind, records: Sequence[Record]) -> Iterator[str]:
    if kind in _GUARDED:
        yield from map(normalised, map(attrgetter(_GUARDED[kind]), records))


def _without(kind: Kind, records: list[Record], texts: set[str]) -> list[Record]:
    if kind not in _GUARDED:
        return records
    guarded = zip(records, _guarded(kind, records), strict=True)
    return [record for record, text in guarded if text not in texts]
