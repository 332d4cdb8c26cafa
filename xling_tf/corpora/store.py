"""Corpora on the disk: read and divided once, then at hand record by record.

The folder of a store holds the texts of all records, one after another, and files of numbers: where
each text begins, which texts are a record's, and which records are for training or held out.
Records share texts at their ends, as triplets of a document do.
"""

import hashlib
import json
import os
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
from absl import logging
from numpy.typing import ArrayLike, NDArray

from xling_tf.corpora.cleaning import SAMPLE_SIZE, corpus_faults
from xling_tf.corpora.records import (
    Corpus,
    InferencePair,
    Kind,
    QuestionAnswer,
    Record,
    ResponsePair,
    SentenceTriplet,
    SimilarityPair,
    TranslationPair,
    columns_of,
)
from xling_tf.corpora.split import HashedCorpus, Part, divide, text_hash, text_hashes
from xling_tf.errors import UserError, progress
from xling_tf.files import read_json, recover_folder, replacing_folder

# Raise it when what is written changes, or how corpora are divided.
STORE_VERSION = 7
_CONTENT = "content.json"
_TEXTS = "texts"
_TRAIN, _HELD_OUT = "train", "held_out"
# Files of numbers, and their types. Of each text: where it begins (and where the last one ends), the number
# of its tokens, its hash. Of each record: its first text, the number of its texts, its label.
_NUMBERS = {
    "text_starts": "q",
    "num_tokens": "h",
    "hash": "Q",
    "first_text": "q",
    "num_texts": "i",
    "label": "b",
}
_BUFFERED = 1 << 13  # texts before they go to the disk
_WINDOW_BITS = 16  # of the bytes read at once where all texts are gone through

_WORD, _INNER, _MARK, _UNSPACED = 1, 2, 4, 8  # what a character is, as bits
_UNSPACED_SCRIPTS = (slice(0x3040, 0x3100), slice(0x3400, 0xA000))
_LONGEST = 256  # tokens; one endless line must not count as a batch of its own
# How many texts of a record, the last ones, are contexts, which do not make a batch longer.
_NUM_CONTEXTS: Mapping[Kind, int] = {"questions": 1}

_TEXTS_OF: Mapping[Kind, Callable[[Any], tuple[str, ...]]] = {
    "parallel": lambda pair: (*pair[:2], *pair.negatives),
    "conversations": tuple,
    "documents": tuple,
    "nli": lambda pair: pair[:2],
    "questions": tuple,
    "similarity": lambda pair: pair[:2],
}
_RECORDS: Mapping[Kind, Callable[[list[str], int], Record]] = {
    "parallel": lambda texts, label: TranslationPair(texts[0], texts[1], tuple(texts[2:])),
    "conversations": lambda texts, label: ResponsePair(*texts),
    "documents": lambda texts, label: SentenceTriplet(*texts),
    "nli": lambda texts, label: InferencePair(texts[0], texts[1], label),
    "questions": lambda texts, label: QuestionAnswer(*texts),
    "similarity": lambda texts, label: SimilarityPair(texts[0], texts[1], label),
}


class CorpusStore:
    """Reads a store, whose folder may then be deleted; in memory are some bytes a record."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / _TEXTS, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        numbers = {name: _numbers(folder / name, code) for name, code in _NUMBERS.items()}
        self._starts, self._first = numbers["text_starts"], numbers["first_text"]
        self._count = numbers["num_texts"]
        self._num_tokens, self.labels = numbers["num_tokens"], numbers["label"]
        self._hashes = numbers["hash"]
        parts = {name: _numbers(folder / name, "q") for name in (_TRAIN, _HELD_OUT)}
        taken = dict.fromkeys(parts, 0)
        entries = read_json(folder / _CONTENT)["corpora"]
        for entry in entries:
            for name, indices in parts.items():
                begin, taken[name] = taken[name], taken[name] + entry[name]
                entry[name] = StoredRecords(self, entry["kind"], indices[begin : taken[name]])
        self.corpora = tuple(StoredCorpus(**entry) for entry in entries)

    def counts(self) -> dict[str, int]:
        """How many records each corpus has, by its title."""
        return {corpus.title: corpus.num_records for corpus in self.corpora}

    def contents(self) -> dict[str, str]:
        """What tells each corpus from another one, by its title."""
        return {c.title: f"{c.num_records} records, {c.digest}" for c in self.corpora}

    def record(self, kind: Kind, index: int) -> Record:
        """Reads a record, by its number among all."""
        first, count = int(self._first[index]), int(self._count[index])
        starts = self._starts[first : first + count + 1].tolist()
        raw = os.pread(self._file, starts[-1] - starts[0], starts[0])
        places = pairwise(start - starts[0] for start in starts)
        texts = [raw[begin:end].decode() for begin, end in places]
        return _RECORDS[kind](texts, int(self.labels[index]))

    def lengths(self, kind: Kind, indices: NDArray[np.int64]) -> NDArray[np.int16]:
        """`[records]` tokens of the longest text of each, as `approximate_lengths` says."""
        first, count = self._first[indices], self._count[indices] - _NUM_CONTEXTS.get(kind, 0)
        longest = np.zeros(len(indices), np.int16)
        for place in range(np.max(count, initial=0)):
            has = count > place
            longest[has] = np.maximum(longest[has], self._num_tokens[first[has] + place])
        return longest

    def text_hashes(self, indices: NDArray[np.int64]) -> Iterator[NDArray[np.uint64]]:
        """Yields the `text_hash` of the first text of each record, then of each second text, and so on."""
        first, count = self._first[indices], self._count[indices]
        for place in range(np.max(count, initial=0)):
            yield self._hashes[first[count > place] + place]

    def training_texts_by_language(self) -> dict[str, Iterator[str]]:
        """The distinct training texts of each language that has any, in the order of the corpora.

        They are read once, as they are asked for. A text in two languages is one of both.
        """
        sides: defaultdict[str, list[tuple[StoredRecords, slice]]] = defaultdict(list)
        for corpus in self.corpora:
            if len(corpus.train):
                for language, side in columns_of(corpus.languages):
                    sides[language].append((corpus.train, side))
        return {language: self._distinct_texts(parts) for language, parts in sides.items()}

    def _distinct_texts(self, sides: Sequence[tuple["StoredRecords", slice]]) -> Iterator[str]:
        wanted = np.zeros(len(self._starts) - 1, bool)
        for records, side in sides:
            first, count = self._first[records.indices], self._count[records.indices]
            for place in range(np.max(count, initial=0))[side]:
                wanted[first[count > place] + place] = True
        places = np.flatnonzero(wanted)
        # Texts with the same 64 bits are taken for equal.
        hashes = np.fromiter(map(hash, self._raw(places)), np.int64, len(places))
        _, firsts = np.unique(hashes, return_index=True)
        for raw in self._raw(places[np.sort(firsts)]):
            yield raw.decode()

    def _raw(self, places: NDArray[np.int64]) -> Iterator[bytes]:
        """Reads texts, by their numbers in ascending order, a window of the file at a time."""
        windows = np.flatnonzero(np.diff(self._starts[places] >> _WINDOW_BITS)) + 1
        for window in np.split(places, windows):
            starts, ends = self._starts[window].tolist(), self._starts[window + 1].tolist()
            if starts:
                raw = os.pread(self._file, ends[-1] - starts[0], starts[0])
                for start, end in zip(starts, ends, strict=True):
                    yield raw[start - starts[0] : end - starts[0]]


@dataclass(frozen=True, eq=False)
class StoredRecords(Sequence[Record]):
    """Records of one kind, by their `[records]` numbers in a store, read when asked for."""

    store: CorpusStore
    kind: Kind
    indices: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> "StoredRecords": ...
    def __getitem__(self, place: int | slice) -> "Record | StoredRecords":
        if isinstance(place, slice):
            return StoredRecords(self.store, self.kind, self.indices[place])
        return self.store.record(self.kind, int(self.indices[place]))

    @property
    def lengths(self) -> NDArray[np.int16]:
        """`[records]` tokens of the longest text, roughly."""
        return self.store.lengths(self.kind, self.indices)

    @property
    def labels(self) -> NDArray[np.int32]:
        """`[records]` labels; 0 where the kind has none."""
        return self.store.labels[self.indices].astype(np.int32)

    @property
    def text_hashes(self) -> Iterator[NDArray[np.uint64]]:
        """See `CorpusStore.text_hashes`."""
        return self.store.text_hashes(self.indices)


class StoredCorpus(NamedTuple):
    """A corpus in a store."""

    title: str
    name: str
    kind: Kind
    languages: str
    num_records: int
    digest: str
    train: StoredRecords
    held_out: StoredRecords


def join(parts: Sequence[StoredRecords]) -> StoredRecords:
    """Puts the records of several corpora of a kind, at least one, in a row."""
    indices = np.concatenate([part.indices for part in parts])
    return StoredRecords(parts[0].store, parts[0].kind, indices)


def open_store(folder: Path, corpora: Sequence[Corpus], accept: Callable[[CorpusStore], None]) -> CorpusStore:
    """Opens the store of some corpora; writes it, whole or not at all, where there is none of them.

    `accept` raises an error where the store must not take the place of an earlier one. A warning is
    logged for each thing that seems wrong with a corpus.
    """
    recover_folder(folder)
    versions = _versions(corpora)
    content: dict[str, Any] = {"store": STORE_VERSION, "versions": versions}
    if _holds(folder, content):
        logging.info("corpora are in %s", folder)
        store = CorpusStore(folder)
        accept(store)
        return store
    try:
        with progress(f"reading {len(corpora)} corpora into {folder}"), replacing_folder(folder) as temporary:
            content["corpora"] = _write(temporary, corpora)
            if _versions(corpora) != versions:
                raise UserError(
                    "corpora must stay as they are while they are read, but a file has changed meanwhile; "
                    "start again when it is complete"
                )
            content["files"] = _digests(temporary)
            (temporary / _CONTENT).write_text(json.dumps(content, indent=1), encoding="utf-8")
            store = CorpusStore(temporary)
            _check(store, corpora)
            accept(store)
        return store
    except OSError as error:
        raise UserError(
            f"the corpora must be written to {folder}, but cannot be: {error.strerror or error}; make room "
            "there, or take another folder"
        ) from error


def transient_store(corpora: Sequence[Corpus], parent: Path | None = None) -> CorpusStore:
    """Opens a store, in `parent` or the system's temporary folder, that goes with the process."""
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        return open_store(Path(folder) / "store", corpora, lambda store: None)


def approximate_lengths(texts: Sequence[str]) -> NDArray[np.int16]:
    """Estimates texts' tokens, well enough to put texts of similar length together.

    It is the graph's tokenizer in brief: a token is a word, with marks that stand inside it, or a
    single mark; a character too in scripts without spaces between words.

    Example:
        >>> approximate_lengths(["It's 3.14, isn't it?", ""]).tolist()
        [6, 1]
    """
    codes = np.frombuffer(f" {' '.join(texts)} ".encode("utf-32-le"), np.uint32)
    character = _characters()[np.minimum(codes, 0xFFFF)]  # beyond, each is taken for a mark
    word = character & _WORD > 0
    within = np.zeros_like(word)
    within[1:-1] = (character[1:-1] & _INNER > 0) & word[:-2] & word[2:]
    tokens = (character & _MARK > 0) & ~within
    tokens[1:] |= word[1:] & ~(word | within)[:-1]
    starts = np.cumsum([1, *(len(text) + 1 for text in texts)])[:-1]
    lengths = np.add.reduceat(tokens + (character & _UNSPACED > 0).astype(np.int64), starts)
    return np.clip(lengths, 1, _LONGEST).astype(np.int16)


@cache
def _characters() -> NDArray[np.uint8]:
    table = np.zeros(1 << 16, np.uint8)
    for code, character in enumerate(map(chr, range(len(table)))):
        if character.isalnum() or character == "_":
            table[code] = _WORD
        elif not character.isspace():
            table[code] = _MARK | _INNER * (character in "-.'’")
    for script in _UNSPACED_SCRIPTS:
        table[script] |= _UNSPACED
    return table


def _write(folder: Path, corpora: Sequence[Corpus]) -> list[dict[str, Any]]:
    """Writes the files of a store; gives the fields of `StoredCorpus`, the parts by their sizes."""
    written = _write_records(folder, corpora)
    first = _numbers(folder / "first_text", "q")
    hashes = _numbers(folder / "hash", "Q")
    count = np.array(_numbers(folder / "num_texts", _NUMBERS["num_texts"]))
    places = [slice(w.begin, w.end) for w in written]
    divisions = divide(
        [
            HashedCorpus(w.corpus, hashes, first[place], count[place], w.documents)
            for w, place in zip(written, places, strict=True)
        ]
    )
    entries = []
    with (folder / _TRAIN).open("wb") as train, (folder / _HELD_OUT).open("wb") as held_out:
        for (corpus, begin, end, _, digest), (parts, num_texts) in zip(written, divisions, strict=True):
            trained = begin + np.flatnonzero(parts == Part.TRAIN)
            held = begin + np.flatnonzero(parts == Part.HELD_OUT)
            if num_cut := int(np.sum(count[begin:end] - num_texts)):
                message = "%s: %d wrong texts are left out: a held-out text is among them"
                logging.warning(message, corpus.title, num_cut)
            count[begin:end] = num_texts
            train.write(trained.data)
            held_out.write(held.data)
            fields = {key: getattr(corpus, key) for key in ("title", "name", "kind", "languages")}
            counts = {"num_records": end - begin, _TRAIN: len(trained), _HELD_OUT: len(held)}
            entries.append({**fields, **counts, "digest": digest})
    count.tofile(folder / "num_texts")
    return entries


class _Written(NamedTuple):
    """Where the records of a corpus are; the digest is of all that was written."""

    corpus: Corpus
    begin: int
    end: int
    documents: NDArray[np.uint64]
    digest: str


def _write_records(folder: Path, corpora: Sequence[Corpus]) -> list[_Written]:
    written = []
    num_records = num_texts = num_bytes = 0
    with ExitStack() as stack:
        names = (_TEXTS, *_NUMBERS)
        files = {name: stack.enter_context((folder / name).open("wb")) for name in names}

        def put(name: str, numbers: ArrayLike) -> None:
            files[name].write(np.asarray(numbers, _NUMBERS[name]).tobytes())

        put("text_starts", [0])
        for corpus in corpora:
            begin, digest = num_records, hashlib.blake2b(digest_size=8)
            documents: list[int] = []
            records = _rows(corpus)
            while batch := list(islice(records, _BUFFERED)):
                texts = [text for row in batch for text in row.texts]
                documents += [row.document for row in batch if row.document is not None]
                raw = [text.encode() for text in texts]
                sizes = np.array(list(map(len, raw)), np.int64)
                rows = np.array([(row.shared, row.num_texts, row.label) for row in batch], np.int64)
                shared, count, label = rows.T
                put("text_starts", num_bytes + np.cumsum(sizes))
                put("first_text", num_texts + np.cumsum(count - shared) - count)
                put("num_texts", count)
                put("label", label)
                put("num_tokens", approximate_lengths(texts))
                put("hash", text_hashes(texts))
                joined = b"".join(raw)
                files[_TEXTS].write(joined)
                for part in (joined, sizes.tobytes(), rows.tobytes()):
                    digest.update(part)
                num_records += len(batch)
                num_texts += len(raw)
                num_bytes += len(joined)
            keys = np.array(documents, np.uint64)
            written.append(_Written(corpus, begin, num_records, keys, digest.hexdigest()))
    return written


class _Row(NamedTuple):
    """A record as it is written."""

    texts: tuple[str, ...]  # those that the record before does not end with
    shared: int  # how many of its texts that one does end with
    num_texts: int
    label: int
    document: int | None


def _rows(corpus: Corpus) -> Iterator[_Row]:
    last: tuple[str, ...] = ()
    last_group: str | None = None
    document: int | None = None
    for record, group in corpus:
        texts = _TEXTS_OF[corpus.kind](record)
        shared = min(len(texts), len(last))
        while shared and last[-shared:] != texts[:shared]:
            shared -= 1
        if group != last_group:
            document = None if group is None else text_hash(group)
        yield _Row(texts[shared:], shared, len(texts), getattr(record, "label", 0), document)
        last, last_group = texts, group


def _check(store: CorpusStore, corpora: Sequence[Corpus]) -> None:
    begin = 0
    for corpus, stored in zip(corpora, store.corpora, strict=True):
        count = stored.num_records
        step = -(-count // SAMPLE_SIZE) or 1
        sample = [store.record(corpus.kind, begin + place) for place in range(0, count, step)]
        for fault in corpus_faults(corpus.languages, sample):
            logging.warning(
                "%s: %s; correct the corpus or take it out, if that is not meant so",
                *(corpus.title, fault),
            )
        if corpus.split in ("", "train") and not len(stored.train):
            logging.warning(
                "%s: of its %d records none is left for training: %d are held out, and the others would "
                "give held-out ones away",
                *(corpus.title, count, len(stored.held_out)),
            )
        begin += count


def _versions(corpora: Sequence[Corpus]) -> list[list[str]]:
    return [[corpus.title, corpus.version()] for corpus in corpora]


def _holds(folder: Path, wanted: Mapping[str, Any]) -> bool:
    """Whether the store of a folder is one of these corpora, with every file as it was written."""
    if not (folder / _CONTENT).exists():
        return False
    try:
        content = read_json(folder / _CONTENT)
        if not wanted.items() <= content.items():
            return False
        damaged = [name for name, digest in _digests(folder).items() if digest != content["files"][name]]
    except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        damaged = [repr(error)]
    if damaged:
        logging.warning("the store %s is damaged (%s): the corpora are read again", folder, damaged[0])
    return not damaged


def _digests(folder: Path) -> dict[str, str]:
    digests = {}
    for name in (_TEXTS, *_NUMBERS, _TRAIN, _HELD_OUT):
        with (folder / name).open("rb") as file:
            digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def _numbers(path: Path, code: str) -> NDArray[Any]:
    if not path.stat().st_size:  # which cannot be mapped
        return np.zeros(0, code)
    return np.asarray(np.memmap(path, code, mode="r"))
