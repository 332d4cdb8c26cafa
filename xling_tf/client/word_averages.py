"""Averages of words, in NumPy alone."""

import json
import os
from collections.abc import Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .backends import RuntimeFolder
from .farmhash import fingerprint
from .words import WordSplitter, ngrams_of

WEIGHTS, VOCABULARY = "model.safetensors", "vocabulary.txt"
_MAX_KEPT = 100_000  # unknown words whose vectors are kept


class WordAverages(RuntimeFolder):
    """A model that averages word vectors.

    Words outside the vocabulary get a vector from their character n-grams (Chidambaram et al. 2019,
    sec. 2.1).
    """

    batch_size = 1024  # bounds the memory

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__(folder)
        with self.reading():
            text = self.settings["text"]
            self.split, self._ngrams = WordSplitter(text), text["ngrams"]
            words = (self.folder / VOCABULARY).read_text(encoding="utf-8").split("\n")[:-1]
            self.rows = {word: row for row, word in enumerate(words)}
            self._weights = read_tensors(self.folder / WEIGHTS)
            self._in_4_bits = {8: False, 4: True}[self.settings["bits"]]
        self._spelled: dict[str, NDArray[np.float32]] = {}

    def embed(self, texts: list[str], role: str, *contexts: list[str]) -> NDArray[np.float32]:
        """Returns unit vectors of one or more texts."""
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        words = sorted(enumerate(self.split(texts)), key=lambda item: -len(item[1]))
        lengths = np.array([len(row) for _, row in words])
        begins = np.cumsum(lengths) - lengths
        flat = [word for _, row in words for word in row]
        ids = np.fromiter(map(self.rows.get, flat, repeat(-1)), np.intp, len(flat))
        unknown = np.flatnonzero(ids < 0)
        scales = self._weights["words_scales"][ids]
        scales[unknown] = 0
        sums = np.zeros((len(texts), len(self._weights["unknown_bias"])), np.float32)
        # The first word of each text, then the second of those that have one, and so on: five times
        # as fast as `np.add.reduceat`.
        for place in range(lengths[0]):
            positions = begins[lengths > place] + place
            sums[: len(positions)] += self._numbers("words", ids[positions]) * scales[positions]
        if len(unknown):
            rows = np.searchsorted(begins, unknown, side="right") - 1
            np.add.at(sums, rows, self._spell([flat[position] for position in unknown]))
        # A sum has the direction of the mean. Numbers that are not stored are zeros.
        vectors = np.zeros((len(texts), self.dim), np.float32)
        vectors[[index for index, _ in words], : sums.shape[1]] = sums
        return vectors / np.sqrt(np.maximum(np.sum(vectors**2, axis=1, keepdims=True), 1e-24))

    def _numbers(self, table: str, rows: NDArray[np.integer]) -> NDArray[np.int8]:
        """Returns rows of a table, without their scales."""
        numbers: NDArray[Any] = self._weights[table][rows]
        if self._in_4_bits:
            # The lower half of a byte becomes the first of two bytes, the upper half the second.
            wide = numbers.astype("<u2")
            numbers = ((wide | wide << 4) & 0x0F0F).view(np.int8) - np.int8(8)
        return numbers

    def _spell(self, words: Sequence[str]) -> NDArray[np.float32]:
        """Returns `[words, stored]` vectors of words outside the vocabulary."""
        spelled = self._spelled
        if len(spelled) > _MAX_KEPT:  # another thread may still read the old ones
            spelled = self._spelled = {}
        if new := [word for word in dict.fromkeys(words) if word not in spelled]:
            spelled |= zip(new, self._spell_anew(new), strict=True)
        return np.stack([spelled[word] for word in words])

    def ngram_rows(self, words: Sequence[str]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Returns the rows of all n-grams of the words, and how many of them each word has."""
        assert self._ngrams
        spellings = [ngrams_of(word, self._ngrams) for word in words]
        hashes = [fingerprint(ngram.encode()) for ngram in chain.from_iterable(spellings)]
        buckets = np.array([number % self._ngrams["num_buckets"] for number in hashes], np.int64)
        known = self._weights["ngram_buckets"]
        positions = np.minimum(np.searchsorted(known, buckets), len(known) - 1)
        # Row 0 is for n-grams that training did not see.
        rows = np.where(known[positions] == buckets, positions + 1, 0)
        return rows, np.array([*map(len, spellings)])

    def _spell_anew(self, words: Sequence[str]) -> NDArray[np.float32]:
        weights = self._weights
        if self._ngrams is None:
            return np.repeat(weights["unknown_bias"][None], len(words), axis=0)
        ids, counts = self.ngram_rows(words)
        rows = self._numbers("ngrams", ids) * weights["ngrams_scales"][ids]
        sums = np.add.reduceat(np.pad(rows, ((0, 1), (0, 0))), np.cumsum(counts) - counts, axis=0)
        sums[counts == 0] = 0  # words that are shorter than any n-gram
        hidden = np.tanh(sums @ weights["ngram_kernel"] + weights["ngram_bias"])
        return hidden @ weights["unknown_kernel"] + weights["unknown_bias"]


def read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """Maps a safetensors file into memory; returns its arrays by name."""
    kinds = {"F32": np.float32, "I8": np.int8, "U8": np.uint8, "I64": np.int64}
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    # A view of the mapped memory, because NumPy takes parts of its own class faster.
    content = np.asarray(np.memmap(path, np.uint8, "r", offset=8 + size))
    tensors = {}
    for name, about in header.items():
        if name != "__metadata__":
            begin, end = about["data_offsets"]
            tensors[name] = content[begin:end].view(kinds[about["dtype"]]).reshape(about["shape"])
    return tensors
