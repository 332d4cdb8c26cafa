"""A model's training texts as short hashes, to measure how much of other data it has seen."""

import io
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from xling_tf.corpora.split import are_among, text_hashes
from xling_tf.errors import as_user_error

# The file in the folder of a run and of an exported model.
TRAINED_ON = "trained_on.npz"


class TrainedOn(NamedTuple):
    """Hashes of the texts of training records, and of each record's first two texts in any order.

    Hashes have 32 bits: after training on n texts, a new text counts as seen with a probability of
    n / 2^32, which is 0.06% for 2.5 million texts.
    """

    texts: NDArray[np.uint32]  # [texts], ascending
    pairs: NDArray[np.uint32]  # [pairs], ascending

    @classmethod
    def from_hashes(cls, parts: Iterable[Iterable[NDArray[np.uint64]]]) -> Self:
        """Collects hashes; each part comes from `StoredRecords.text_hashes`."""
        texts, pairs = ([np.zeros(0, np.uint32)] for _ in cls._fields)
        for part in parts:
            if columns := list(part):
                texts += map(_shortened, columns)
                pairs.append(_shortened(columns[0] + columns[1]))
        return cls(np.unique(np.concatenate(texts)), np.unique(np.concatenate(pairs)))

    @classmethod
    def read(cls, folder: Path) -> "TrainedOn | None":
        """Reads the file of a run's folder or an exported model; None if it is missing."""
        path = folder / TRAINED_ON
        if not path.is_file():
            return None
        errors = (EOFError, LookupError, OSError, TypeError, ValueError, BadZipFile, zlib.error)
        message = f"{path} is damaged ({{error}}); restore it from a copy, or remove it"
        with as_user_error(message, *errors), path.open("rb") as file, np.load(file) as gaps:
            return cls(*(np.cumsum(gaps[name], dtype=np.uint32) for name in cls._fields))

    def to_bytes(self) -> bytes:
        """Returns the content of the file for `read`: the gaps between hashes, compressed."""
        file = io.BytesIO()
        gaps = {n: np.diff(hashes, prepend=np.uint32(0)) for n, hashes in self._asdict().items()}
        np.savez_compressed(file, **gaps)
        return file.getvalue()

    def joined(self, other: Self) -> Self:
        """Adds the training texts of another model."""
        return type(self)(*(np.union1d(*hashes) for hashes in zip(self, other, strict=True)))

    def share_of_texts(self, texts: Iterable[str]) -> float:
        """Returns the share of texts (at least one) that were in training."""
        return _share(text_hashes([*texts]), self.texts)

    def share_of_pairs(self, pairs: Sequence[tuple[str, ...]]) -> float:
        """Returns the share of pairs (at least one) whose texts were in one training record."""
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        hashes = dict(zip(texts, text_hashes(texts), strict=True))
        first, second = (np.array([hashes[text] for text in s]) for s in zip(*pairs, strict=True))
        return _share(first + second, self.pairs)


def _shortened(hashes: NDArray[np.uint64]) -> NDArray[np.uint32]:
    return (hashes >> np.uint64(32)).astype(np.uint32)


def _share(hashes: NDArray[np.uint64], ascending: NDArray[np.uint32]) -> float:
    return float(np.mean(are_among(_shortened(hashes), ascending)))
