"""The held-out tenth: which records are for development, decided by their text alone.

Chidambaram et al. 2019, sec. 3.1: "we use 90% of the data for training, and the remaining 10% for
development/validation." A hash of the normalised text decides, so the split is the same for
reordered, extended or newly prepared files and for other spellings.

That alone does not keep a held-out sentence out of training: it may stand in a document, or be a
reply, whose own hash says training. So a record leaves training if one of its texts is held out with
a record of another kind, or if the text to be found (of translations, either side) is one of a
held-out record of its own kind. Both rules remove mined negatives too, but keep their record.
What remains are sentences that differ in a word: `near_twins`.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xling_tf.corpora.line_files import normal_form
from xling_tf.corpora.records import Corpus, Kind

HELD_OUT_FRACTION = 0.1
_HASH_BYTES = 8


class _Columns(NamedTuple):
    """The texts of a record, by their places; those after `shown` are mined negatives."""

    shown: range  # what a held-out record hides from training on other kinds
    guarded: range  # what it hides from training on its own kind
    deciding: int | None  # what decides on the record; None: its document


# Questions to a paragraph stay together. A reply is the next message of a dialogue: if messages hid
# as well, a fifth of the conversations would leave training.
_COLUMNS: dict[Kind, _Columns] = {
    "parallel": _Columns(shown=range(2), guarded=range(2), deciding=0),
    "conversations": _Columns(shown=range(2), guarded=range(1, 2), deciding=0),
    "documents": _Columns(shown=range(3), guarded=range(0), deciding=None),
    "nli": _Columns(shown=range(2), guarded=range(0), deciding=0),
    "questions": _Columns(shown=range(3), guarded=range(1, 2), deciding=2),
    "similarity": _Columns(shown=range(2), guarded=range(0), deciding=0),
}


class Part(IntEnum):
    """Where a record goes."""

    NEITHER = 0
    TRAIN = 1
    HELD_OUT = 2


class HashedCorpus(NamedTuple):
    """A corpus by the hashes of its texts."""

    corpus: Corpus
    texts: NDArray[np.uint64]  # [texts of all corpora]
    first: NDArray[np.int64]  # [records], the place of each record's first text in `texts`
    num_texts: NDArray[np.int32]  # [records]
    documents: NDArray[np.uint64]  # [records], of each record's document; empty without documents


def normalised(text: str) -> str:
    """Returns the text without the differences that make no other sentence of it."""
    return " ".join(normal_form(text, "NFKC").casefold().split())


def text_hash(text: str) -> int:
    """Hashes the normalised text to 64 bits."""
    return int.from_bytes(_digest(text))


def text_hashes(texts: Sequence[str]) -> NDArray[np.uint64]:
    """`text_hash` of each of some texts."""
    return np.frombuffer(b"".join(map(_digest, texts)), ">u8").astype(np.uint64)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(normalised(text).encode(), digest_size=_HASH_BYTES).digest()


def held_out(text: str, fraction: float = HELD_OUT_FRACTION) -> bool:
    """Decides by its hash whether a text is held out; then it is so in every larger fraction."""
    return text_hash(text) < fraction * 256**_HASH_BYTES


class Division(NamedTuple):
    """How the records of a corpus are used."""

    parts: NDArray[np.int8]  # [records], values of `Part`
    num_texts: NDArray[np.int32]  # [records], fewer where a negative is a held-out text


def divide(corpora: Sequence[HashedCorpus]) -> list[Division]:
    """Divides corpora that are used together.

    Natural language inference obeys the split of its name: a training file is split only where no
    file of its name is for development, and test files are in neither part.
    """
    with_dev = {(c.name, c.languages) for c, *_ in corpora if c.split.startswith("dev")}
    parts = [_by_hash(c, (c.corpus.name, c.corpus.languages) in with_dev) for c in corpora]
    shown: dict[Kind, NDArray[np.uint64]] = {}
    guarded: dict[Kind, NDArray[np.uint64]] = {}
    for kind, columns in _COLUMNS.items():
        of_kind = [
            (c, part != Part.TRAIN) for c, part in zip(corpora, parts, strict=True) if c.corpus.kind == kind
        ]
        shown[kind] = _hashes(of_kind, columns.shown)
        guarded[kind] = _hashes(of_kind, columns.guarded)
    others = {
        kind: np.sort(np.concatenate([hashes for other, hashes in shown.items() if other != kind]))
        for kind in _COLUMNS
    }
    divisions = []
    for hashed, part in zip(corpora, parts, strict=True):
        kind = hashed.corpus.kind
        for hidden, places in ((others[kind], _COLUMNS[kind].shown), (guarded[kind], _COLUMNS[kind].guarded)):
            for column in places:
                leaks = are_among(hashed.texts[hashed.first + column], hidden)
                part[leaks & (part == Part.TRAIN)] = Part.NEITHER
        num_texts = hashed.num_texts.copy()
        for place in range(_COLUMNS[kind].shown.stop, np.max(num_texts, initial=0)):
            has = np.flatnonzero(num_texts > place)
            texts = hashed.texts[hashed.first[has] + place]
            leaks = are_among(texts, others[kind]) | are_among(texts, guarded[kind])
            # A record's texts lie side by side, so the negatives after it, which are less hard, go too.
            num_texts[has[leaks]] = place
        divisions.append(Division(part, num_texts))
    return divisions


def _by_hash(hashed: HashedCorpus, has_dev: bool) -> NDArray[np.int8]:
    split = hashed.corpus.split
    stated = {"test": Part.NEITHER, "train": Part.TRAIN if has_dev else None}.get(split)
    if split.startswith("dev"):
        stated = Part.HELD_OUT
    if stated is not None:
        return np.full(len(hashed.first), stated, np.int8)
    column = _COLUMNS[hashed.corpus.kind].deciding
    keys = hashed.documents if column is None else hashed.texts[hashed.first + column]
    is_held_out = keys < np.uint64(HELD_OUT_FRACTION * 256**_HASH_BYTES)
    return np.where(is_held_out, Part.HELD_OUT, Part.TRAIN).astype(np.int8)


def _hashes(hidden: Sequence[tuple[HashedCorpus, Any]], columns: range) -> NDArray[np.uint64]:
    found = [c.texts[c.first[is_hidden] + place] for c, is_hidden in hidden for place in columns]
    return np.unique(np.concatenate([np.zeros(0, np.uint64), *found]))


def are_among(
    hashes: NDArray[np.unsignedinteger[Any]], ascending: NDArray[np.unsignedinteger[Any]]
) -> NDArray[np.bool_]:
    """True for each hash that is in an ascending array of hashes."""
    # np.isin would look for the distinct ones anew for each corpus, most of the time that reading takes.
    begin, end = (np.searchsorted(ascending, hashes, side) for side in ("left", "right"))
    return begin < end


def near_twins(held_out: Sequence[tuple[Any, ...]], training: Iterable[tuple[Any, ...]]) -> NDArray[np.bool_]:
    """Marks held-out pairs that training knows but for a word.

    Texts are near twins if they are equal once a word at most is left out of each: a word more, a
    word less, another word or a word elsewhere. A pair is marked if a side of it is a near twin of the
    same side of a training pair. Memory grows with the held-out texts alone.
    """
    unseen = [{key for pair in held_out for key in _without_a_word(pair[side])} for side in (0, 1)]
    seen: tuple[set[int], set[int]] = (set(), set())
    for pair in training:
        for side in (0, 1):
            seen[side].update(unseen[side].intersection(_without_a_word(pair[side])))
    return np.array(
        [any(not seen[s].isdisjoint(_without_a_word(pair[s])) for s in (0, 1)) for pair in held_out],
        bool,
    )


def _without_a_word(text: str) -> Iterator[int]:
    words = normalised(text).split()
    yield hash(" ".join(words))
    if len(words) > 1:  # any two words are equal without a word
        for place in range(len(words)):
            yield hash(" ".join(words[:place] + words[place + 1 :]))
