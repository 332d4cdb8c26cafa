"""The held-out tenth (Chidambaram et al. 2019, sec. 3.1), by the hash of a record's normalised text.

That alone does not keep a held-out sentence out of training: it may also be in a document or be a reply. So a
record leaves training if one of its texts is held out with a record of another type, or if one of its
`RecordType.hidden` fields has the text of a hidden field of a held-out record of the same type. Both rules
remove mined negatives too, but keep their record. Sentences that differ in a word remain.
"""

import hashlib
import unicodedata
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xling_tf.corpora.records import Corpus, RecordType

HELD_OUT_FRACTION = 0.1
_HASH_BYTES = 8


class Part(IntEnum):
    """The part of the data that a record belongs to."""

    NEITHER = 0
    TRAIN = 1
    HELD_OUT = 2


class HashedCorpus(NamedTuple):
    """The hashes of the texts of a corpus."""

    corpus: Corpus
    record_type: RecordType
    texts: NDArray[np.uint64]  # [texts of all corpora]
    first: NDArray[np.int64]  # [records], the position of each record's first text in `texts`
    num_texts: NDArray[np.int32]  # [records]
    documents: NDArray[np.uint64]  # [records], of each record's document; empty if the type has none

    def column(self, field: str) -> NDArray[np.uint64]:
        """Returns the `[records]` hashes of a text field."""
        return self.texts[self.first + self.record_type.fields.index(field)]


# `[records]` values of `Part`, and numbers of texts that may be used: fewer if a negative is a held-out text.
Division = tuple[NDArray[np.int8], NDArray[np.int32]]


def normalised(text: str) -> str:
    """Removes differences in spelling that leave the sentence the same: case, width and spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def text_hash(text: str) -> int:
    """Hashes the normalised text to 64 bits."""
    return int.from_bytes(hashlib.blake2b(normalised(text).encode(), digest_size=_HASH_BYTES).digest())


def text_hashes(texts: Sequence[str]) -> NDArray[np.uint64]:
    """Returns the `[texts]` values of `text_hash`."""
    return np.fromiter(map(text_hash, texts), np.uint64, len(texts))


def held_out(text: str, fraction: float = HELD_OUT_FRACTION) -> bool:
    """Returns True if the hash of a text is in the held-out fraction, and so in every larger fraction."""
    return text_hash(text) < fraction * 256**_HASH_BYTES


def divide(corpora: Sequence[HashedCorpus]) -> list[Division]:
    """Divides all corpora of a training into training and held-out records.

    If the publisher split a corpus (`Corpus.split`), that split is used: test files are in neither part, and
    a training file is split by hash only if there is no development file of the same name.
    """
    with_dev = {(c.corpus.name, c.corpus.languages) for c in corpora if c.corpus.split.startswith("dev")}
    parts = [_parts_alone(c, (c.corpus.name, c.corpus.languages) in with_dev) for c in corpora]
    divided = list(zip(corpora, parts, strict=True))
    forbidden = {}
    for record_type in {c.record_type.name: c.record_type for c in corpora}.values():
        others = [(hashed, part) for hashed, part in divided if hashed.record_type is not record_type]
        same = [(hashed, part) for hashed, part in divided if hashed.record_type is record_type]
        forbidden[record_type.name] = (
            _held_out_hashes(others, lambda type_: type_.fields),
            _held_out_hashes(same, lambda type_: type_.hidden),
        )
    return [_without_leaks(c, part, *forbidden[c.record_type.name]) for c, part in divided]


def _parts_alone(hashed: HashedCorpus, has_dev: bool) -> NDArray[np.int8]:
    """Returns the `[records]` parts without regard to other corpora."""
    split = hashed.corpus.split
    published = {"test": Part.NEITHER, "train": Part.TRAIN if has_dev else None}.get(split)
    if split.startswith("dev"):
        published = Part.HELD_OUT
    if published is not None:
        return np.full(len(hashed.first), published, np.int8)
    field = hashed.record_type.split_by
    keys = hashed.documents if field is None else hashed.column(field)
    is_held_out = keys < np.uint64(HELD_OUT_FRACTION * 256**_HASH_BYTES)
    return np.where(is_held_out, Part.HELD_OUT, Part.TRAIN).astype(np.int8)


def _held_out_hashes(
    divided: Sequence[tuple[HashedCorpus, NDArray[np.int8]]], fields_of: Callable[[RecordType], Sequence[str]]
) -> NDArray[np.uint64]:
    """Returns the distinct hashes of some fields of the records that are not for training, ascending."""
    columns = [c.column(name)[part != Part.TRAIN] for c, part in divided for name in fields_of(c.record_type)]
    return np.unique(np.concatenate([np.zeros(0, np.uint64), *columns]))


def _without_leaks(
    hashed: HashedCorpus, parts: NDArray[np.int8], others: NDArray[np.uint64], hidden: NDArray[np.uint64]
) -> Division:
    """Removes records and negatives from training whose text is held out elsewhere."""
    fields = hashed.record_type.fields
    for hashes, columns in ((others, fields), (hidden, hashed.record_type.hidden)):
        for field in columns:
            leaks = are_among(hashed.column(field), hashes)
            parts[leaks & (parts == Part.TRAIN)] = Part.NEITHER
    num_texts = hashed.num_texts.copy()
    for position in range(len(fields), np.max(num_texts, initial=0)):
        has = np.flatnonzero(num_texts > position)
        texts = hashed.texts[hashed.first[has] + position]
        leaks = are_among(texts, others) | are_among(texts, hidden)
        # The texts of a record are contiguous, so the later negatives, which are less hard, go too.
        num_texts[has[leaks]] = position
    return parts, num_texts


def are_among(
    hashes: NDArray[np.unsignedinteger[Any]], ascending: NDArray[np.unsignedinteger[Any]]
) -> NDArray[np.bool_]:
    """Returns `[hashes]` bool, True for each hash that is in an ascending array of hashes."""
    # np.isin would sort again for each corpus, which takes most of the time of reading.
    begin, end = (np.searchsorted(ascending, hashes, side) for side in ("left", "right"))
    return begin < end
