"""Every text encoded once: a system that keeps its vectors in an SQLite file.

Suites share texts, and a run that is killed goes on where it was.
"""

import dataclasses
import hashlib
import sqlite3
import sys
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from xling_tf.errors import UserError
from xling_tf.evaluators.encoding import System, encode_checked, length_sorted_batches, require
from xling_tf.files import require_writable_folder

# What is encoded at once and lost if the process is killed: seconds of work.
_MAX_ROWS, _MAX_CHARACTERS = 1024, 2**17
# Keys of one query: below every SQLite's limit on parameters (999 before 3.32).
_KEYS_PER_QUERY = 900
_SCHEMA = """
    PRAGMA page_size = 32768;
    CREATE TABLE IF NOT EXISTS vectors (key BLOB UNIQUE NOT NULL, vector BLOB NOT NULL);
"""


def cached(system: System, folder: Path | None, *, show_progress: bool) -> System:
    """Gives a system whose vectors, float32 from now on, are computed once for each text, and kept.

    Sentences, questions and responses (an answer in its context) are kept apart. The folder has a file
    for each system, by its checksum; several processes may use it. Without a folder or a checksum the
    vectors are gone with the system.

    Example:
        >>> calls = []
        >>> lengths = lambda texts: calls.append(texts) or np.array([[len(text)] for text in texts])
        >>> system = cached(System(name="l", sentences=lengths), None, show_progress=False)
        >>> system(["a", "bc", "a"]).tolist(), system(["bc"]).tolist(), calls
        ([[1.0], [2.0], [1.0]], [[2.0]], [['bc', 'a']])
    """
    cache = _Cache(system, folder, show_progress)
    roles: dict[str, Any] = {
        role: partial(cache.encode, role, encode)
        for role in ("sentences", "questions", "responses")
        if (encode := getattr(system, role))
    }
    return dataclasses.replace(system, **roles)


class _Cache:
    """The vectors of a system by what was encoded, in an SQLite file."""

    def __init__(self, system: System, folder: Path | None, show_progress: bool) -> None:
        self._name = system.name
        self._show_progress = show_progress
        self._widths: dict[str, int] = {}
        self._path: Path | None = None
        if folder is not None and system.checksum is not None:
            require_writable_folder(folder, "choose another folder for the embeddings")
            self._path = folder / f"{_digest(system.checksum).hex()}.sqlite"
        # Without a name it is a file of SQLite's own that goes with the connection. Another process
        # writes for milliseconds.
        self._connection = sqlite3.connect(self._path or "", timeout=60, check_same_thread=False)
        weakref.finalize(self, self._connection.close)

    def encode(self, role: str, encode: Callable[..., np.ndarray], *columns: list[str]) -> np.ndarray:
        """Gives the vectors of rows of texts, of which those not yet known are encoded."""
        keys = [_digest(role, *row) for row in zip(*columns, strict=True)]
        try:
            self._connection.executescript(_SCHEMA)
            vectors = self._read(list(dict.fromkeys(keys)))
            for vector in list(vectors.values())[:1]:
                self._widths.setdefault(role, len(vector) // 4)
            row_of = {key: row for row, key in enumerate(keys) if key not in vectors}
            self._add(role, encode, row_of, columns)
            # Read, as another process may have stored another vector meanwhile.
            vectors |= self._read(list(row_of))
        except sqlite3.DatabaseError as error:
            raise UserError(
                f"the file of embeddings {self._path} must be readable and writable, but SQLite says "
                f"{str(error)!r}; make room on its disk or, if the file is damaged, remove it"
            ) from error
        content = b"".join(vectors[key] for key in keys)
        shape = len(keys), self._widths.get(role, 0)
        return np.frombuffer(content, np.float32).reshape(shape).copy()

    def _add(
        self,
        role: str,
        encode: Callable[..., np.ndarray],
        row_of: dict[bytes, int],
        columns: Sequence[list[str]],
    ) -> None:
        """Encodes rows, batch after batch, and stores their vectors by their keys."""
        keys = list(row_of)
        lengths = [sum(len(column[row]) for column in columns) for row in row_of.values()]
        # None: hidden where it would fill a file instead of moving on a screen.
        hidden = None if self._show_progress and keys and sys.stderr else True
        label = f"{self._name}: {role}"
        with tqdm(total=len(keys), desc=label, unit="text", leave=False, disable=hidden) as bar:
            for batch in length_sorted_batches(lengths, max_rows=_MAX_ROWS, max_length=_MAX_CHARACTERS):
                of_batch = [keys[place] for place in batch]
                texts, *others = [[column[row_of[key]] for key in of_batch] for column in columns]
                with np.errstate(over="ignore"):
                    vectors = encode_checked(encode, texts, *others, name=self._name).astype(np.float32)
                finite = np.all(np.isfinite(vectors), axis=1)
                require(finite, texts, "a finite vector", "infinity or NaN in float32", self._name)
                nonzero = np.any(vectors != 0, axis=1)
                require(nonzero, texts, "a vector with a direction", "zero only", self._name)
                width = self._widths.setdefault(role, vectors.shape[1])
                same = np.full(len(texts), width == vectors.shape[1])
                came = f"{vectors.shape[1]} numbers"
                require(same, texts, f"vectors of {width} numbers", came, self._name)
                rows = map(np.ndarray.tobytes, vectors)
                with self._connection:
                    self._connection.executemany(
                        "INSERT OR IGNORE INTO vectors VALUES (?, ?)",
                        zip(of_batch, rows, strict=True),
                    )
                bar.update(len(batch))

    def _read(self, keys: list[bytes]) -> dict[bytes, bytes]:
        """Gives the vectors of those of the keys that have one."""
        found: dict[bytes, bytes] = {}
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            some = keys[start : start + _KEYS_PER_QUERY]
            places = ",".join("?" * len(some))
            query = f"SELECT key, vector FROM vectors WHERE key IN ({places})"
            found.update(self._connection.execute(query, some))
        return found


def _digest(*texts: str) -> bytes:
    """A digest of texts: which they are, and where one ends and the next begins."""
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.digest()
