"""Writing a store of corpora, in one pass over each and in bounded memory."""

import hashlib
import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from absl import logging
from numpy.typing import NDArray

from xling_tf.corpora.checks import SAMPLE_SIZE, warn_of_faults
from xling_tf.corpora.corpus import Corpus, Kind
from xling_tf.corpora.records import Record
from xling_tf.corpora.split import Decide, Part, decisions, guarded_hash

TEXTS = "texts"
TRAIN, HELD_OUT = "train", "held_out"
# Files of numbers, by their types: of each text, and one more, where it begins; of each record its
# texts, its label and its length. Records share texts at their ends, as triplets of a document do.
NUMBERS = {"text_starts": "q", "first_text": "q", "num_texts": "i", "label": "b", "length": "h"}
_BUFFERED = 1 << 13  # bytes of texts, and records, before they go to the disk

# The graph's tokenizer in brief, for bucketing: words, with marks that may stand inside them, and
# single marks. Scripts without spaces between words have a token a character.
_TOKENS = re.compile(r"\w+(?:[-.'’]\w+)*|[^\w\s]")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
# One endless line must not count as a batch of its own.
_LONGEST = 256

_TEXTS: Mapping[Kind, Callable[[Any], tuple[str, ...]]] = {
    "parallel": lambda pair: (*pair[:2], *pair.negatives),
    "conversations": tuple,
    "documents": tuple,
    "nli": lambda pair: pair[:2],
    "questions": tuple,
}

# How many of these, the last ones, are contexts, which do not make a batch longer.
_NUM_CONTEXTS: Mapping[Kind, int] = {"questions": 1}


def write_store(folder: Path, corpora: Sequence[Corpus]) -> list[dict[str, Any]]:
    """Reads corpora, divides them and writes the files of a store.

    A training record that would give a held-out one away is in neither part. A warning is logged for
    each thing that seems wrong with a corpus.

    Args:
        folder: An empty one.
        corpora: All that are used together.

    Returns:
        What there is to say of each corpus: the fields of `StoredCorpus`, the parts by their sizes.

    Raises:
        UserError: A corpus cannot be read.
        OSError: A file cannot be written.
    """
    with _Writer(folder) as writer:
        divisions = [
            writer.add(corpus, decide)
            for corpus, decide in zip(corpora, decisions(corpora), strict=True)
        ]
    hidden: defaultdict[tuple[Kind, str], list[NDArray[np.uint64]]] = defaultdict(list)
    for corpus, division in zip(corpora, divisions, strict=True):
        hidden[corpus.kind, corpus.languages].append(division.hidden())
    guarded = {key: np.unique(np.concatenate(hashes)) for key, hashes in hidden.items()}
    entries, first = [], 0
    with (folder / TRAIN).open("wb") as train, (folder / HELD_OUT).open("wb") as held_out:
        for corpus, division in zip(corpora, divisions, strict=True):
            trained = division.trained(guarded[corpus.kind, corpus.languages])
            held = np.flatnonzero(division.parts == Part.HELD_OUT)
            train.write((first + trained).data)
            held_out.write((first + held).data)
            first += len(division.parts)
            entries.append(_entry(corpus, division, len(trained), len(held)))
    return entries


def _entry(
    corpus: Corpus, division: "_Division", num_trained: int, num_held: int
) -> dict[str, Any]:
    num_records = len(division.parts)
    if corpus.split in ("", "train") and not num_trained:
        logging.warning(
            "%s: of its %d records none is left for training: %d are held out, and the others would "
            "give held-out ones away",
            *(corpus.title, num_records, num_held),
        )
    fields = {key: getattr(corpus, key) for key in ("title", "name", "kind", "languages")}
    return {
        **fields,
        "num_records": num_records,
        "digest": division.digest,
        TRAIN: num_trained,
        HELD_OUT: num_held,
    }


def approximate_length(text: str) -> int:
    """Estimates a text's tokens, well enough to put texts of similar length together."""
    length = len(_TOKENS.findall(text))
    if not text.isascii():
        length += len(_UNSPACED.findall(text))
    return min(max(length, 1), _LONGEST)


class _Division(NamedTuple):
    """How the records of a corpus were decided on: `[records]` parts and hashes of guarded texts.

    There are no hashes where nothing is guarded. The digest is of all that was written.
    """

    parts: NDArray[np.int8]
    hashes: NDArray[np.uint64]
    digest: str

    def hidden(self) -> NDArray[np.uint64]:
        return self.hashes[self.parts[: len(self.hashes)] == Part.HELD_OUT]

    def trained(self, hidden: NDArray[np.uint64]) -> NDArray[np.int64]:
        is_trained = self.parts == Part.TRAIN
        if len(self.hashes):
            is_trained &= ~np.isin(self.hashes, hidden)
        return np.flatnonzero(is_trained)


class _Writer(ExitStack):
    """Appends records to the files of a store."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._numbers = {name: array(code) for name, code in NUMBERS.items()}

    def __enter__(self) -> Self:
        self._texts = self.enter_context((self._folder / TEXTS).open("wb", _BUFFERED))
        self._files = {
            name: self.enter_context((self._folder / name).open("wb")) for name in NUMBERS
        }
        self._numbers["text_starts"].append(0)
        self._num_texts = self._num_bytes = 0
        return self

    def add(self, corpus: Corpus, decide: Decide) -> _Division:
        """Appends a corpus."""
        parts, hashes = array("b"), array("Q")
        texts_of, hash_of = _TEXTS[corpus.kind], guarded_hash(corpus.kind)
        sample, self._digest = _Sample(), hashlib.blake2b(digest_size=8)
        self._last: tuple[str, ...] = ()
        self._lengths: list[int] = []
        for record, group in corpus:
            parts.append(decide(record, group))
            if hash_of:
                hashes.append(hash_of(record))
            texts = texts_of(record)
            num_sentences = len(texts) - _NUM_CONTEXTS.get(corpus.kind, 0)
            self._append(texts, num_sentences, getattr(record, "label", 0))
            sample.add(record)
        self._flush()
        warn_of_faults(corpus, sample.records())
        return _Division(
            np.frombuffer(parts, np.int8),
            np.frombuffer(hashes, np.uint64),
            self._digest.hexdigest(),
        )

    def _append(self, texts: tuple[str, ...], num_sentences: int, label: int) -> None:
        shared = min(len(texts), len(self._last))
        while shared and self._last[-shared:] != texts[:shared]:
            shared -= 1
        lengths = self._lengths[len(self._lengths) - shared :]
        for text in texts[shared:]:
            raw = text.encode()
            self._num_bytes += self._texts.write(raw)
            self._digest.update(raw + b"\n")
            self._numbers["text_starts"].append(self._num_bytes)
            lengths.append(approximate_length(text))
        self._num_texts += len(texts) - shared
        self._digest.update(b"%d %d\n" % (shared, label))
        self._last, self._lengths = texts, lengths
        self._numbers["first_text"].append(self._num_texts - len(texts))
        self._numbers["num_texts"].append(len(texts))
        self._numbers["label"].append(label)
        self._numbers["length"].append(max(lengths[:num_sentences]))
        if len(self._numbers["label"]) == _BUFFERED:
            self._flush()

    def _flush(self) -> None:
        for name, numbers in self._numbers.items():
            numbers.tofile(self._files[name])
            del numbers[:]


class _Sample:
    """Every n-th record, n as small as the sample's size allows."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._seen = 0
        self._step = 1

    def add(self, record: Record) -> None:
        if self._seen % self._step == 0:
            self._records.append(record)
            if len(self._records) == 2 * SAMPLE_SIZE:
                del self._records[1::2]
                self._step *= 2
        self._seen += 1

    def records(self) -> list[Record]:
        return self._records[:: -(-len(self._records) // SAMPLE_SIZE) or 1]
