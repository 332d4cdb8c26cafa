"""The held-out tenth (Chidambaram et al. 2019, sec. 3.1), by hashes of normalised texts.

That alone does not keep a held-out sentence out of training: it may also be in a document or be a
reply. So a record leaves training if one of its texts is held out with a record of another type, or
if one of its `RecordType.hidden` fields has the text of a hidden field of a held-out record of the
same type. Both rules also remove mined negatives, but keep their record. Sentences that differ in a
word remain.

Questions that share a few answers would all leave training in this way. So there is one exception:
if a corpus would lose more than a twentieth of its training records because of texts that did not
decide that a record of the same type and languages is held out (such as answers), the corpus keeps
these records. What decided (the questions) stays hidden, and the held-out part is the same.
"""

import hashlib
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xling_tf.corpora.records import Corpus, RecordType

HELD_OUT_FRACTION = 0.1
# The largest share of a corpus that leaves training for texts that it shares with held-out records,
# if they did not decide that these are held out.
MOST_LEFT_OUT = 0.05
_FEW = 2  # so few records may leave a corpus of any size
_HASH_BYTES = 8


class Subset(IntEnum):
    """Which records of the data are trained on, and which are held out."""

    NEITHER = 0
    TRAIN = 1
    HELD_OUT = 2


class HashedCorpus(NamedTuple):
    """The hashes of the texts of a corpus."""

    corpus: Corpus
    type: RecordType
    texts: NDArray[np.uint64]  # [texts of all corpora]
    first: NDArray[np.int64]  # [records], the position of each record's first text in `texts`
    num_texts: NDArray[np.int32]  # [records]
    # [records] hashes of each record's document; empty if the type has none.
    documents: NDArray[np.uint64]

    def column(self, field: str) -> NDArray[np.uint64]:
        """Returns the `[records]` hashes of a text field."""
        return self.texts[self.first + self.type.fields.index(field)]


class Division(NamedTuple):
    """The subset of each record of a corpus, and why some of them are not in training."""

    subsets: NDArray[np.int8]  # [records], values of `Subset`
    # [records] numbers of texts that may be used: fewer if a negative is held out.
    num_texts: NDArray[np.int32]
    # Records left out, as they share a text with a held-out record of their own type.
    num_shared: int
    num_kept: int  # records in training although they share a text with one: the exception
    # Records left out, as one of their texts is held out with a record of another type.
    num_elsewhere: int


class _HeldOut(NamedTuple):
    """Distinct hashes of texts of records that are not for training, ascending."""

    texts: NDArray[np.uint64]  # of all fields
    deciding: NDArray[np.uint64]  # of hidden fields, that decided that a record is held out
    others: NDArray[np.uint64]  # of hidden fields, the rest

    @classmethod
    def joined(cls, parts: Sequence["_HeldOut"]) -> "_HeldOut":
        """Joins the texts of several corpora."""
        texts, deciding, others = (_distinct(hashes) for hashes in zip(*parts, strict=True))
        return cls(texts, deciding, _without(others, deciding))


def normalised(text: str) -> str:
    """Removes differences in spelling that leave the sentence the same: case, width and spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def text_hash(text: str) -> int:
    """Hashes the normalised text to 64 bits."""
    return int.from_bytes(
        hashlib.blake2b(normalised(text).encode(), digest_size=_HASH_BYTES).digest()
    )


def text_hashes(texts: Sequence[str]) -> NDArray[np.uint64]:
    """Returns the `[texts]` values of `text_hash`."""
    return np.fromiter(map(text_hash, texts), np.uint64, len(texts))


def held_out(text: str, fraction: float = HELD_OUT_FRACTION) -> bool:
    """True if a text's hash is in the held-out fraction, and so in every larger one."""
    return text_hash(text) < fraction * 256**_HASH_BYTES


def divide(corpora: Sequence[HashedCorpus]) -> list[Division]:
    """Divides all corpora of a training into training and held-out records.

    If the publisher split a corpus (`Corpus.split`), that split is used: test files are in neither
    subset, and a training file is split by hash only if there is no development file of the same
    name.
    """
    with_dev = {
        (c.corpus.name, c.corpus.languages) for c in corpora if c.corpus.split.startswith("dev")
    }
    subsets = [_alone(c, (c.corpus.name, c.corpus.languages) in with_dev) for c in corpora]
    by_type: defaultdict[str, list[int]] = defaultdict(list)
    for place, hashed in enumerate(corpora):
        by_type[hashed.type.name].append(place)
    held_out = [
        _held_out_texts(hashed, subset) for hashed, subset in zip(corpora, subsets, strict=True)
    ]
    divisions: dict[int, Division] = {}
    secret, hidden = {}, {}
    for name, places in by_type.items():
        same = [(corpora[place], subsets[place], held_out[place]) for place in places]
        divided, secret[name], hidden[name] = _divide_type(same)
        divisions |= zip(places, divided, strict=True)
    elsewhere = {name: _distinct(t for o, t in secret.items() if o != name) for name in by_type}
    return [
        _without_leaks(c, divisions[place], hidden[c.type.name], elsewhere[c.type.name])
        for place, c in enumerate(corpora)
    ]


def _divide_type(
    same: Sequence[tuple[HashedCorpus, NDArray[np.int8], _HeldOut]],
) -> tuple[list[Division], NDArray[np.uint64], NDArray[np.uint64]]:
    """Divides the corpora of one type, apart from texts of other types.

    Also returns the texts that other types may not train on, and those that may not be negatives.
    """
    together = _HeldOut.joined([texts for _, _, texts in same])
    by_languages: defaultdict[str, list[_HeldOut]] = defaultdict(list)
    for hashed, _, texts in same:
        by_languages[hashed.corpus.languages].append(texts)
    # The exception is for corpora in the same languages: scored pairs across languages have the
    # sentences of those in one language, though few are repeated in either.
    limits = {}
    for languages, near in by_languages.items():
        shared = _without(_HeldOut.joined(near).others, together.deciding)
        limits[languages] = np.union1d(together.deciding, _without(together.others, shared)), shared
    divisions, known = [], []
    for hashed, subset, _ in same:
        division, texts_kept = _without_shared(hashed, subset, *limits[hashed.corpus.languages])
        divisions.append(division)
        known.append(texts_kept)
    in_training = _distinct(known)
    hidden = np.union1d(together.deciding, _without(together.others, in_training))
    return divisions, _without(together.texts, in_training), hidden


def _alone(hashed: HashedCorpus, has_dev: bool) -> NDArray[np.int8]:
    """Returns the `[records]` subsets, without regard to other corpora."""
    split = hashed.corpus.split
    published = {"test": Subset.NEITHER, "train": Subset.TRAIN if has_dev else None}.get(split)
    if split.startswith("dev"):
        published = Subset.HELD_OUT
    if published is not None:
        return np.full(len(hashed.first), published, np.int8)
    deciding = hashed.type.deciding
    keys = hashed.documents
    if deciding:
        keys = np.min([hashed.column(field) for field in deciding], axis=0)
    return np.where(keys < _limit(hashed.type), Subset.HELD_OUT, Subset.TRAIN).astype(np.int8)


def _limit(record_type: RecordType) -> np.uint64:
    """The hash below which deciding texts are held out, so that a tenth of the records is."""
    share = 1 - (1 - HELD_OUT_FRACTION) ** (1 / max(1, len(record_type.deciding)))
    return np.uint64(share * 256**_HASH_BYTES)


def _held_out_texts(hashed: HashedCorpus, subsets: NDArray[np.int8]) -> _HeldOut:
    """Returns the texts of the records of a corpus that are not for training."""
    record_type, is_published = hashed.type, hashed.corpus.split.startswith(("dev", "test"))
    columns = {field: hashed.column(field)[subsets != Subset.TRAIN] for field in record_type.fields}
    # Of a pair without an order, one text may have decided alone.
    deciding = _distinct(
        columns[field][is_published | (columns[field] < _limit(record_type))]
        for field in record_type.deciding
        if field in record_type.hidden
    )
    others = _distinct(columns[field] for field in record_type.hidden)
    return _HeldOut(_distinct(columns.values()), deciding, _without(others, deciding))


def _distinct(hashes: Iterable[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    return np.unique(np.concatenate([np.zeros(0, np.uint64), *hashes]))


def _without(hashes: NDArray[np.uint64], ascending: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return hashes[~are_among(hashes, ascending)]


def _without_shared(
    hashed: HashedCorpus,
    subsets: NDArray[np.int8],
    never: NDArray[np.uint64],
    shared: NDArray[np.uint64],
) -> tuple[Division, NDArray[np.uint64]]:
    """Removes records with texts of `never`, and those with texts of `shared` unless they are many.

    Also returns the texts of the records that stay nevertheless.
    """
    columns = [hashed.column(field) for field in hashed.type.hidden]
    is_never, is_shared = np.zeros((2, len(subsets)), bool)
    for column in columns:
        is_never |= are_among(column, never)
        is_shared |= are_among(column, shared)
    in_training = subsets == Subset.TRAIN
    is_shared &= in_training & ~is_never
    stay = np.sum(is_shared) > max(_FEW, MOST_LEFT_OUT * np.sum(in_training))
    leave = in_training & (is_never if stay else is_never | is_shared)
    division = Division(
        subsets=np.where(leave, np.int8(Subset.NEITHER), subsets),
        num_texts=hashed.num_texts.copy(),
        num_shared=int(np.sum(leave)),
        num_kept=int(np.sum(is_shared)) if stay else 0,
        num_elsewhere=0,
    )
    return division, _distinct(column[is_shared] for column in columns if stay)


def _without_leaks(
    hashed: HashedCorpus,
    division: Division,
    hidden: NDArray[np.uint64],
    elsewhere: NDArray[np.uint64],
) -> Division:
    """Removes records whose text is held out with another type, and negatives that are held out."""
    subsets, num_texts = division.subsets, division.num_texts
    before = np.sum(subsets == Subset.TRAIN)
    fields = hashed.type.fields
    for field in fields:
        subsets[are_among(hashed.column(field), elsewhere) & (subsets == Subset.TRAIN)] = (
            Subset.NEITHER
        )
    for position in range(len(fields), np.max(num_texts, initial=0)):
        has = np.flatnonzero(num_texts > position)
        texts = hashed.texts[hashed.first[has] + position]
        leaks = are_among(texts, elsewhere) | are_among(texts, hidden)
        # The texts of a record are contiguous, so the later negatives, which are less hard, go too.
        num_texts[has[leaks]] = position
    return division._replace(num_elsewhere=int(before - np.sum(subsets == Subset.TRAIN)))


def are_among(
    hashes: NDArray[np.unsignedinteger[Any]], ascending: NDArray[np.unsignedinteger[Any]]
) -> NDArray[np.bool_]:
    """Returns `[hashes]` bool, True for each hash that is in an ascending array of hashes."""
    # np.isin would sort again for each corpus, which takes most of the time of reading.
    begin, end = (np.searchsorted(ascending, hashes, side) for side in ("left", "right"))
    return begin < end
