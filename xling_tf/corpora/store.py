"""Corpora on disk: read and divided once, then available record by record or column by column."""

import hashlib
import json
import mmap
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
from absl import logging
from numpy.typing import ArrayLike, NDArray

from xling_tf.corpora.cleaning import SAMPLE_SIZE, corpus_faults
from xling_tf.corpora.line_files import UNSPACED
from xling_tf.corpora.record_types import RECORD_TYPES
from xling_tf.corpora.records import Corpus, Record, RecordType, columns_of
from xling_tf.corpora.split import (
    MOST_LEFT_OUT,
    Division,
    HashedCorpus,
    Subset,
    divide,
    text_hash,
    text_hashes,
)
from xling_tf.errors import UserError
from xling_tf.files import file_digest, read_json, recover_folder, replacing_folder
from xling_tf.program import progress

# Increase it when the content of the files or the division of the corpora changes.
STORE_VERSION = 11
_CONTENT = "content.json"
_TEXTS = "texts"
# The texts of all records are in one file, one after another; neighbouring records share texts, as
# the triplets of a document do. The files of numbers and their types: of each text its begin (and
# the end of the last text), number of tokens, hash; of each record its first text, number of texts,
# label, `Subset`.
_NUMBERS = {
    "text_starts": "q",
    "num_tokens": "h",
    "hash": "Q",
    "first_text": "q",
    "num_texts": "i",
    "label": "b",
    "part": "b",
}
_BLOCK = 1 << 13  # records or texts in memory at once
# A character of a script without spaces, a word with any "-", "." or "'" inside, or another mark.
_TOKEN = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+(?:[-.'’]\w+)*|[^\w\s]")
_MAX_TOKENS = 256  # one endless line must not fill a batch of its own


class CorpusStore:
    """Reads a store, whose files are memory-mapped; once open, the folder may be deleted."""

    def __init__(self, folder: Path) -> None:
        with (folder / _TEXTS).open("rb") as file:
            is_empty = not os.fstat(file.fileno()).st_size
            self._bytes = b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        numbers = (_numbers(folder, name) for name in _NUMBERS)
        self.text_starts, self.num_tokens, self.hash, self.first_text, *others = numbers
        self.num_texts, self.label, part = others
        corpora, begin = [], 0
        for entry in read_json(folder / _CONTENT)["corpora"]:
            record_type, end = entry.pop("kind"), begin + entry["num_records"]
            train, held_out = (
                StoredRecords(
                    self, RECORD_TYPES[record_type], begin + np.flatnonzero(part[begin:end] == p)
                )
                for p in (Subset.TRAIN, Subset.HELD_OUT)
            )
            corpora.append(
                StoredCorpus(**entry, record_type=record_type, train=train, held_out=held_out)
            )
            begin = end
        self.corpora = tuple(corpora)

    def contents(self) -> dict[str, str]:
        """Returns the number of records and a digest of each corpus, by title."""
        return {c.title: f"{c.num_records} records, {c.digest}" for c in self.corpora}

    def texts(self, positions: NDArray[np.int64]) -> NDArray[np.object_]:
        """Reads the `[n]` UTF-8 bytes of texts, by their `[n]` positions among all."""
        texts = np.empty(len(positions), object)
        starts = self.text_starts[positions].tolist()
        ends = self.text_starts[positions + 1].tolist()
        texts[:] = [self._bytes[start:end] for start, end in zip(starts, ends, strict=True)]
        return texts

    def training_texts_by_language(self) -> dict[str, Iterator[str]]:
        """Returns iterators over the distinct training texts of each language, in order."""
        sides: defaultdict[str, list[tuple[StoredRecords, slice]]] = defaultdict(list)
        for corpus in self.corpora:
            if len(corpus.train):
                for language, side in columns_of(corpus.languages):
                    sides[language].append((corpus.train, side))
        return {language: self._distinct_texts(parts) for language, parts in sides.items()}

    def _distinct_texts(self, sides: Sequence[tuple["StoredRecords", slice]]) -> Iterator[str]:
        is_used = np.zeros(len(self.text_starts) - 1, bool)
        for records, side in sides:
            for positions in list(records.positions())[side]:
                is_used[positions] = True
        positions = np.flatnonzero(is_used)
        # Texts with the same 64 bits count as equal.
        hashes = np.fromiter(map(hash, self._in_blocks(positions)), np.int64, len(positions))
        _, firsts = np.unique(hashes, return_index=True)
        for text in self._in_blocks(positions[np.sort(firsts)]):
            yield text.decode()

    def _in_blocks(self, positions: NDArray[np.int64]) -> Iterator[bytes]:
        for begin in range(0, len(positions), _BLOCK):
            yield from self.texts(positions[begin : begin + _BLOCK])


@dataclass(frozen=True, eq=False)
class StoredRecords(Sequence[Record]):
    """Records of one type, by their `[records]` indices in a store; read on demand."""

    store: CorpusStore
    type: RecordType
    indices: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice | NDArray[Any]) -> "StoredRecords": ...
    def __getitem__(self, place: int | slice | NDArray[Any]) -> "Record | StoredRecords":
        if isinstance(place, slice | np.ndarray):
            return StoredRecords(self.store, self.type, self.indices[place])
        index = int(self.indices[place])
        first = int(self.store.first_text[index])
        texts = self.store.texts(np.arange(first, first + int(self.store.num_texts[index])))
        return self.type.make([t.decode() for t in texts], int(self.store.label[index]))

    def column(self, field: str) -> NDArray[np.object_]:
        """Returns `[records]` UTF-8 bytes of a text field."""
        return self.store.texts(self.store.first_text[self.indices] + self.type.fields.index(field))

    def hashes(self, field: str) -> NDArray[np.uint64]:
        """Returns the `[records]` `text_hash` of a text field."""
        place = self.type.fields.index(field)
        return self.store.hash[self.store.first_text[self.indices] + place]

    def negatives(self, number: int, missing: NDArray[np.object_]) -> NDArray[np.object_]:
        """Returns `[records]` UTF-8 bytes of the `number`-th negative; `missing` fills the gaps."""
        place, column = len(self.type.fields) + number, missing.copy()
        has = self.store.num_texts[self.indices] > place
        column[has] = self.store.texts(self.store.first_text[self.indices[has]] + place)
        return column

    def positions(self, num_last: int = 0) -> Iterator[NDArray[np.int64]]:
        """Yields the positions of the records' first texts, then of the second texts, and so on.

        A record with fewer texts is left out; so are the last `num_last` texts of each record.
        """
        first = self.store.first_text[self.indices]
        count = self.store.num_texts[self.indices] - num_last
        for place in range(np.max(count, initial=0)):
            yield first[count > place] + place

    @property
    def lengths(self) -> NDArray[np.int16]:
        """`[records]` numbers of tokens of the longest text that is not a context, estimated."""
        count = self.store.num_texts[self.indices] - self.type.num_contexts
        longest = np.zeros(len(self), np.int16)
        for place, positions in enumerate(self.positions(self.type.num_contexts)):
            has = count > place
            longest[has] = np.maximum(longest[has], self.store.num_tokens[positions])
        return longest

    @property
    def labels(self) -> NDArray[np.int32]:
        """`[records]` labels; 0 if the type has none."""
        return self.store.label[self.indices].astype(np.int32)

    @property
    def text_hashes(self) -> Iterator[NDArray[np.uint64]]:
        """Yields the `text_hash` of the records' first texts, then of the second, and so on."""
        return (self.store.hash[positions] for positions in self.positions())


class StoredCorpus(NamedTuple):
    """A corpus in a store."""

    title: str
    name: str
    record_type: str
    languages: str
    num_records: int
    digest: str
    train: StoredRecords
    held_out: StoredRecords


def join(parts: Sequence[StoredRecords]) -> StoredRecords:
    """Concatenates the records of several corpora of one type, at least one."""
    indices = np.concatenate([part.indices for part in parts])
    return StoredRecords(parts[0].store, parts[0].type, indices)


def open_store(
    folder: Path, corpora: Sequence[Corpus], accept: Callable[[CorpusStore], None]
) -> CorpusStore:
    """Opens the store of some corpora; writes it first unless the folder holds exactly these.

    Args:
        folder: Folder of the store.
        corpora: The corpora. If they are read, warnings say what seems wrong with them.
        accept: Called with the store. If it raises an error, an earlier store stays in place.

    Returns:
        The store.

    Raises:
        UserError: A corpus changed while it was read, or the folder cannot be written.
    """
    recover_folder(folder)
    versions = [[corpus.title, corpus.version()] for corpus in corpora]
    content: dict[str, Any] = {"store": STORE_VERSION, "versions": versions}
    if _holds(folder, content):
        logging.info("corpora are in %s", folder)
        store = CorpusStore(folder)
        accept(store)
        return store
    try:
        with (
            progress(f"reading {len(corpora)} corpora into {folder}"),
            replacing_folder(folder) as temporary,
        ):
            content["corpora"] = _write(temporary, corpora)
            if [[corpus.title, corpus.version()] for corpus in corpora] != versions:
                raise UserError(
                    "a corpus changed while it was read; start again when its file is complete"
                )
            content["files"] = _digests(temporary)
            (temporary / _CONTENT).write_text(json.dumps(content, indent=1), encoding="utf-8")
            store = CorpusStore(temporary)
            _warn_of_faults(store, corpora)
            accept(store)
        return store
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"{folder} cannot be written: {reason}; free some space, or choose another folder"
        ) from error


def transient_store(corpora: Sequence[Corpus], parent: Path | None = None) -> CorpusStore:
    """Opens a store, in `parent` or the temporary folder, that disappears with the process."""
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        return open_store(Path(folder) / "store", corpora, lambda store: None)


def _write(folder: Path, corpora: Sequence[Corpus]) -> list[dict[str, Any]]:
    """Writes the files of a store; returns the fields of `StoredCorpus` without the records."""
    written = _write_records(folder, corpora)
    first, hashes = _numbers(folder, "first_text"), _numbers(folder, "hash")
    count, part = (np.array(_numbers(folder, name)) for name in ("num_texts", "part"))
    hashed = [
        HashedCorpus(
            corpus, RECORD_TYPES[corpus.record_type], hashes, first[place], count[place], documents
        )
        for corpus, place, documents, _ in written
    ]
    entries = []
    for (corpus, place, _, digest), division in zip(written, divide(hashed), strict=True):
        _report(corpus.title, division, int(np.sum(count[place] - division.num_texts)))
        part[place], count[place] = division.subsets, division.num_texts
        entries.append(
            {
                "title": corpus.title,
                "name": corpus.name,
                "kind": corpus.record_type,
                "languages": corpus.languages,
                "num_records": len(division.subsets),
                "digest": digest,
            }
        )
    count.tofile(folder / "num_texts")
    part.tofile(folder / "part")
    return entries


def _report(title: str, division: Division, num_cut: int) -> None:
    """Logs which records share texts with held-out ones: left out of training, or in it."""
    num_train = int(np.sum(division.subsets == Subset.TRAIN))
    num_before = num_train + division.num_shared + division.num_elsewhere
    if division.num_kept:
        message = (
            "%s: %d of %d training records share texts, such as answers, with held-out records; "
            "because they are more than %d%%, they stay in training, and only the other texts of "
            "held-out records are new to the model"
        )
        logging.info(message, title, division.num_kept, num_before, round(100 * MOST_LEFT_OUT))
    if division.num_shared:
        message = (
            "%s: %d of %d training records are left out: they share texts with held-out records"
        )
        log = logging.warning if division.num_shared > MOST_LEFT_OUT * num_before else logging.info
        log(message, title, division.num_shared, num_before)
    if division.num_elsewhere:
        message = (
            "%s: %d of %d training records are left out: their texts are held out in data of "
            "other kinds"
        )
        logging.info(message, title, division.num_elsewhere, num_before)
    if num_cut:
        message = "%s: %d negatives are left out: those that are held out, and those after them"
        logging.warning(message, title, num_cut)


def _write_records(
    folder: Path, corpora: Sequence[Corpus]
) -> list[tuple[Corpus, slice, NDArray[np.uint64], str]]:
    """Returns each corpus with its records' place, the hashes of their documents, and a digest."""
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
            for texts, rows, keys in _blocks(corpus):
                documents += keys
                encoded = [text.encode() for text in texts]
                sizes = np.array(list(map(len, encoded)), np.int64)
                shared, count, label = rows.T
                put("text_starts", num_bytes + np.cumsum(sizes))
                put("first_text", num_texts + np.cumsum(count - shared) - count)
                put("num_texts", count)
                put("label", label)
                put("part", np.full(len(rows), Subset.NEITHER))
                put("num_tokens", _approximate_lengths(texts))
                put("hash", text_hashes(texts))
                joined = b"".join(encoded)
                files[_TEXTS].write(joined)
                for part in (joined, sizes.tobytes(), rows.tobytes()):
                    digest.update(part)
                num_records += len(rows)
                num_texts += len(encoded)
                num_bytes += len(joined)
            place = slice(begin, num_records)
            written.append((corpus, place, np.array(documents, np.uint64), digest.hexdigest()))
    return written


def _blocks(corpus: Corpus) -> Iterator[tuple[list[str], NDArray[np.int64], list[int]]]:
    """Yields blocks of the records' texts; a text repeated from the record before comes once."""
    # Each block also has `[records, 3]` integers (numbers of shared texts and of all texts, label),
    # and the hashes of the records' documents, if the type has documents.
    last: tuple[str, ...] = ()
    last_key, document = None, 0
    records = iter(corpus)
    while block := list(islice(records, _BLOCK)):
        new: list[str] = []
        rows, documents = [], []
        for record, key in block:
            texts = RECORD_TYPES[corpus.record_type].texts_of(record)
            shared = min(len(texts), len(last))
            while shared and last[-shared:] != texts[:shared]:
                shared -= 1
            new += texts[shared:]
            rows.append((shared, len(texts), getattr(record, "label", 0)))
            if key is not None:
                document = document if key == last_key else text_hash(key)
                documents.append(document)
            last, last_key = texts, key
        yield new, np.array(rows, np.int64), documents


def _approximate_lengths(texts: Sequence[str]) -> NDArray[np.int16]:
    """Estimates the `[texts]` numbers of tokens, from 1 to 256, to batch texts of similar length.

    Examples:
        >>> _approximate_lengths(["It's 3.14, isn't it?", ""]).tolist()
        [6, 1]
    """
    return np.array([min(max(1, len(_TOKEN.findall(t))), _MAX_TOKENS) for t in texts], np.int16)


def _warn_of_faults(store: CorpusStore, corpora: Sequence[Corpus]) -> None:
    begin = 0
    for corpus, stored in zip(corpora, store.corpora, strict=True):
        count = stored.num_records
        records = StoredRecords(store, stored.train.type, np.arange(begin, begin + count))
        sample = list(records[:: -(-count // SAMPLE_SIZE) or 1])
        for fault in corpus_faults(corpus.languages, sample):
            logging.warning("%s: %s; correct or remove the corpus", corpus.title, fault)
        if corpus.split in ("", "train") and not len(stored.train):
            message = (
                "%s: none of its %d records is left for training: %d are held out, others share "
                "their texts"
            )
            logging.warning(message, corpus.title, count, len(stored.held_out))
        begin += count


def _holds(folder: Path, expected: Mapping[str, Any]) -> bool:
    """Returns True if a folder holds the store of these corpora, undamaged."""
    if not (folder / _CONTENT).exists():
        return False
    try:
        content = read_json(folder / _CONTENT)
        if not expected.items() <= content.items():
            return False
        damaged = [name for name, d in _digests(folder).items() if d != content["files"][name]]
    except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        damaged = [repr(error)]
    if damaged:
        logging.warning("the store %s is damaged (%s), so it is made again", folder, damaged[0])
    return not damaged


def _digests(folder: Path) -> dict[str, str]:
    return {name: file_digest(folder / name, "sha256") for name in (_TEXTS, *_NUMBERS)}


def _numbers(folder: Path, name: str) -> NDArray[Any]:
    if not (folder / name).stat().st_size:  # an empty file cannot be mapped
        return np.zeros(0, _NUMBERS[name])
    return np.asarray(np.memmap(folder / name, _NUMBERS[name], mode="r"))
