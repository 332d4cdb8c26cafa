"""Corpora on the disk: read and divided once, then at hand record by record.

The folder of a store holds the texts of all records, one after another, and files of numbers: where
each text begins, which texts are a record's, and which records are for training or held out.
Records share texts at their ends, as triplets of a document do.
"""

import hashlib
import json
import os
import re
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self, overload

import numpy as np
from absl import logging
from numpy.typing import ArrayLike, NDArray

from xling_tf.corpora.cleaning import SAMPLE_SIZE, warn_of_faults
from xling_tf.corpora.records import (
    Corpus,
    InferencePair,
    Kind,
    QuestionAnswer,
    Record,
    ResponsePair,
    SentenceTriplet,
    TranslationPair,
    columns_of,
)
from xling_tf.corpora.split import HashedCorpus, Part, divide, text_hash, text_hashes
from xling_tf.errors import UserError
from xling_tf.files import read_json, recover_folder, replacing_folder

# Raise it when what is written changes, or how corpora are divided.
STORE_VERSION = 5
_CONTENT = "content.json"
_TEXTS = "texts"
_TRAIN, _HELD_OUT = "train", "held_out"
# Files of numbers, by their types: of each text, and one more, where it begins; of each record its
# texts, its label and its length in tokens.
_NUMBERS = {"text_starts": "q", "first_text": "q", "num_texts": "i", "label": "b", "length": "h"}
_HASH = "hash"  # of each text, while corpora are divided
_BUFFERED = 1 << 13  # texts before they go to the disk
_WINDOW_BITS = 16  # of the bytes read at once where all texts are gone through

# The graph's tokenizer in brief, for bucketing: words, with marks that may stand inside them, and
# single marks. Scripts without spaces between words have a token a character.
_TOKENS = re.compile(r"\w+(?:[-.'’]\w+)*|[^\w\s]")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_LONGEST = 256  # one endless line must not count as a batch of its own
# How many texts of a record, the last ones, are contexts, which do not make a batch longer.
_NUM_CONTEXTS: Mapping[Kind, int] = {"questions": 1}

_TEXTS_OF: Mapping[Kind, Callable[[Any], tuple[str, ...]]] = {
    "parallel": lambda pair: (*pair[:2], *pair.negatives),
    "conversations": tuple,
    "documents": tuple,
    "nli": lambda pair: pair[:2],
    "questions": tuple,
}
_RECORDS: Mapping[Kind, Callable[[list[str], int], Record]] = {
    "parallel": lambda texts, label: TranslationPair(texts[0], texts[1], tuple(texts[2:])),
    "conversations": lambda texts, label: ResponsePair(*texts),
    "documents": lambda texts, label: SentenceTriplet(*texts),
    "nli": lambda texts, label: InferencePair(texts[0], texts[1], label),
    "questions": lambda texts, label: QuestionAnswer(*texts),
}


class CorpusStore:
    """Reads a store; only numbers of some bytes a record are ever in memory.

    Args:
        folder: That of the store. Once it is open, the folder may be deleted.

    Attributes:
        corpora: In the order in which they were written.
    """

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / _TEXTS, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        numbers = {name: _numbers(folder / name, code) for name, code in _NUMBERS.items()}
        self._starts, self._first = numbers["text_starts"], numbers["first_text"]
        self._count = numbers["num_texts"]
        self.labels, self.lengths = numbers["label"], numbers["length"]
        parts = {name: _numbers(folder / name, "q") for name in (_TRAIN, _HELD_OUT)}
        taken = dict.fromkeys(parts, 0)
        corpora = []
        for entry in _content(folder)["corpora"]:
            kept: dict[str, StoredRecords] = {}
            for name, indices in parts.items():
                begin, taken[name] = taken[name], taken[name] + entry.pop(name)
                kept[name] = StoredRecords(self, entry["kind"], indices[begin : taken[name]])
            corpora.append(StoredCorpus(**entry, train=kept[_TRAIN], held_out=kept[_HELD_OUT]))
        self.corpora = tuple(corpora)

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
        is_first = _is_first(np.fromiter(map(hash, self._raw(places)), np.int64, len(places)))
        for raw in self._raw(places[is_first]):
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


class StoredRecords(Sequence[Record]):
    """Some records of a store, each read when it is asked for.

    Args:
        store: The store.
        kind: Of all of them.
        indices: `[records]` int64 numbers among all records of the store.
    """

    def __init__(self, store: CorpusStore, kind: Kind, indices: NDArray[np.int64]) -> None:
        self.store = store
        self.kind = kind
        self.indices = indices

    def __len__(self) -> int:
        """Number of records."""
        return len(self.indices)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> "StoredRecords": ...
    def __getitem__(self, place: int | slice) -> "Record | StoredRecords":
        """The record at a place, or the records of a slice."""
        if isinstance(place, slice):
            return StoredRecords(self.store, self.kind, self.indices[place])
        return self.store.record(self.kind, int(self.indices[place]))

    @property
    def lengths(self) -> NDArray[np.int16]:
        """`[records]` tokens of the longest text, roughly, as `approximate_length` says."""
        return self.store.lengths[self.indices]

    @property
    def labels(self) -> NDArray[np.int32]:
        """`[records]` labels; 0 where the kind has none."""
        return self.store.labels[self.indices].astype(np.int32)


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


def open_store(
    folder: Path, corpora: Sequence[Corpus], accept: Callable[[CorpusStore], None]
) -> CorpusStore:
    """Opens the store of some corpora, which is written where there is none or one of others.

    Args:
        folder: That of the store, which is replaced whole or not at all.
        corpora: What it holds. A warning is logged for each thing that seems wrong with one.
        accept: Raises an error where the store must not take the place of an earlier one.

    Raises:
        UserError: A corpus cannot be read, or changes meanwhile, or the folder cannot be written; or that
            of `accept`.
    """
    recover_folder(folder)
    content: dict[str, Any] = {"store": STORE_VERSION, "versions": _versions(corpora)}
    if _holds(folder, content):
        logging.info("corpora are in %s", folder)
        store = CorpusStore(folder)
        accept(store)
        return store
    logging.info("reading %d corpora into %s", len(corpora), folder)
    try:
        with replacing_folder(folder) as temporary:
            content["corpora"] = _write(temporary, corpora)
            if _versions(corpora) != content["versions"]:
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
    """Opens a store of which nothing is left when the process has ended.

    Args:
        corpora: What it holds.
        parent: Folder on the disk that has the room; None: that of the system for temporary files.
    """
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        return open_store(Path(folder) / "store", corpora, lambda store: None)


def approximate_length(text: str) -> int:
    """Estimates a text's tokens, well enough to put texts of similar length together."""
    length = len(_TOKENS.findall(text))
    if not text.isascii():
        length += len(_UNSPACED.findall(text))
    return min(max(length, 1), _LONGEST)


def _write(folder: Path, corpora: Sequence[Corpus]) -> list[dict[str, Any]]:
    """Writes the files of a store; gives the fields of `StoredCorpus`, the parts by their sizes."""
    with _Writer(folder) as writer:
        written = [writer.append(corpus) for corpus in corpora]
    first = _numbers(folder / "first_text", "q")
    hashes = _numbers(folder / _HASH, "Q")
    parts = divide(
        [HashedCorpus(c, hashes, first[w.begin : w.end], w.documents) for c, w in written]
    )
    entries = []
    with (folder / _TRAIN).open("wb") as train, (folder / _HELD_OUT).open("wb") as held_out:
        for (corpus, place), part in zip(written, parts, strict=True):
            trained = place.begin + np.flatnonzero(part == Part.TRAIN)
            held = place.begin + np.flatnonzero(part == Part.HELD_OUT)
            train.write(trained.data)
            held_out.write(held.data)
            fields = {key: getattr(corpus, key) for key in ("title", "name", "kind", "languages")}
            counts = {"num_records": len(part), _TRAIN: len(trained), _HELD_OUT: len(held)}
            entries.append({**fields, **counts, "digest": place.digest})
    (folder / _HASH).unlink()
    return entries


class _Written(NamedTuple):
    """Where the records of a corpus are; the digest is of all that was written."""

    begin: int
    end: int
    documents: NDArray[np.uint64]
    digest: str


class _Writer(ExitStack):
    """Appends corpora to the files of a store."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._num_records = self._num_texts = self._num_bytes = 0

    def __enter__(self) -> Self:
        names = (_TEXTS, *_NUMBERS, _HASH)
        self._files = {n: self.enter_context((self._folder / n).open("wb")) for n in names}
        self._put("text_starts", [0])
        return self

    def append(self, corpus: Corpus) -> tuple[Corpus, _Written]:
        begin = self._num_records
        self._corpus, self._digest = corpus, hashlib.blake2b(digest_size=8)
        self._texts: list[str] = []
        self._rows: list[tuple[int, int, int]] = []  # of each record: shared texts, texts, label
        self._last_lengths = np.zeros(0, np.int16)
        documents: list[int] = []
        texts_of = _TEXTS_OF[corpus.kind]
        last: tuple[str, ...] = ()
        last_group: str | None = None
        for record, group in corpus:
            texts = texts_of(record)
            shared = min(len(texts), len(last))
            while shared and last[-shared:] != texts[:shared]:
                shared -= 1
            self._texts += texts[shared:]
            self._rows.append((shared, len(texts), getattr(record, "label", 0)))
            last = texts
            if group is not None:
                documents.append(documents[-1] if group == last_group else text_hash(group))
                last_group = group
            if len(self._rows) == _BUFFERED:
                self._flush()
        self._flush()
        written = _Written(
            begin, self._num_records, np.array(documents, np.uint64), self._digest.hexdigest()
        )
        return corpus, written

    def _flush(self) -> None:
        if not self._rows:
            return
        rows = np.array(self._rows, np.int64)
        raw = [text.encode() for text in self._texts]
        sizes = np.array(list(map(len, raw)), np.int64)
        lengths = np.array(list(map(approximate_length, self._texts)), np.int16)
        shared, count, label = rows.T
        first = self._num_texts + np.cumsum(count - shared) - count
        self._put("text_starts", self._num_bytes + np.cumsum(sizes))
        self._put("first_text", first)
        self._put("num_texts", count)
        self._put("label", label)
        self._put(_HASH, text_hashes(self._texts))
        joined = b"".join(raw)
        self._files[_TEXTS].write(joined)
        for part in (joined, sizes.tobytes(), rows.tobytes()):
            self._digest.update(part)
        # The first records may share texts with those before them.
        known = np.concatenate([self._last_lengths, lengths])
        offsets = first - self._num_texts + len(self._last_lengths)
        longest = np.zeros(len(rows), np.int16)
        num_sentences = count - _NUM_CONTEXTS.get(self._corpus.kind, 0)
        for place in range(np.max(num_sentences)):
            has = num_sentences > place
            longest[has] = np.maximum(longest[has], known[offsets[has] + place])
        self._put("length", longest)
        self._last_lengths = known[len(known) - count[-1] :]
        self._num_records += len(rows)
        self._num_texts += len(raw)
        self._num_bytes += len(joined)
        self._texts, self._rows = [], []

    def _put(self, name: str, numbers: ArrayLike) -> None:
        self._files[name].write(np.asarray(numbers, _NUMBERS.get(name, "Q")).tobytes())


def _check(store: CorpusStore, corpora: Sequence[Corpus]) -> None:
    begin = 0
    for corpus, stored in zip(corpora, store.corpora, strict=True):
        count = stored.num_records
        step = -(-count // SAMPLE_SIZE) or 1
        sample = [store.record(corpus.kind, begin + place) for place in range(0, count, step)]
        warn_of_faults(corpus, sample)
        if corpus.split in ("", "train") and not len(stored.train):
            logging.warning(
                "%s: of its %d records none is left for training: %d are held out, and the others would "
                "give held-out ones away",
                *(corpus.title, count, len(stored.held_out)),
            )
        begin += count


def _is_first(numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each number is not there before."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    is_first = np.ones(len(numbers), bool)
    is_first[order[1:][ordered[1:] == ordered[:-1]]] = False
    return is_first


def _versions(corpora: Sequence[Corpus]) -> list[list[str]]:
    return [[corpus.title, corpus.version()] for corpus in corpora]


def _holds(folder: Path, wanted: Mapping[str, Any]) -> bool:
    """Whether the store of a folder is one of these corpora, with every file as it was written."""
    if not (folder / _CONTENT).exists():
        return False
    try:
        content = _content(folder)
        if not wanted.items() <= content.items():
            return False
        damaged = [
            name for name, digest in _digests(folder).items() if digest != content["files"][name]
        ]
    except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        damaged = [repr(error)]
    if damaged:
        logging.warning(
            "the store %s is damaged (%s): the corpora are read again", folder, damaged[0]
        )
    return not damaged


def _content(folder: Path) -> dict[str, Any]:
    return read_json(folder / _CONTENT)


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
