"""Every text encoded once: a system that keeps its vectors in an SQLite file.

Suites share texts, and a run that is killed goes on where it was.
"""

import dataclasses
import hashlib
import sqlite3
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from xling_tf.errors import UserError
from xling_tf.evaluators.batching import length_sorted_batches
from xling_tf.evaluators.encoding import System, encode_checked, require
from xling_tf.files import require_writable_folder

# What is encoded at once and lost if the process is killed: seconds of work.
_MAX_ROWS = 1024
_MAX_CHARACTERS = 2**17
# Keys of one query: below every SQLite's limit on parameters (999 before 3.32).
_KEYS_PER_QUERY = 900
_SCHEMA = """
    PRAGMA page_size = 32768;
    CREATE TABLE IF NOT EXISTS vectors (key BLOB UNIQUE NOT NULL, vector BLOB NOT NULL);
"""


def cached(system: System, folder: Path | None, *, show_progress: bool) -> System:
    """Gives a system whose vectors are computed once for each text, and kept.

    Sentences, questions and responses (an answer in its context) are kept apart. A vector is the same
    to the bit, whether it was kept or has just been computed.

    Args:
        system: Whose vectors are float32 from now on.
        folder: Keeps a file for each system, by its checksum; several processes may use one at a time.
            None, or a system without checksum: the vectors are gone with the system.
        show_progress: Whether to show a bar while texts are encoded.

    Returns:
        The system. It raises `UserError` for a text whose vector is zero, not finite or of another
        width than those before; vectors of its batch are not kept.

    Raises:
        UserError: The folder cannot be written.

    Example:
        >>> calls = []
        >>> lengths = lambda texts: calls.append(texts) or np.array([[len(text)] for text in texts])
        >>> system = cached(System(name="l", sentences=lengths), None, show_progress=False)
        >>> system(["a", "bc", "a"]).tolist(), system(["bc"]).tolist(), calls
        ([[1.0], [2.0], [1.0]], [[2.0]], [['bc', 'a']])
    """
    cache = _Cache(system, folder, show_progress)

    def keeping(role: str) -> Callable[..., np.ndarray] | None:
        encode = getattr(system, role)
        return encode and (lambda *columns: cache.encode(role, encode, columns))

    roles: dict[str, Any] = {
        role: keeping(role) for role in ("sentences", "questions", "responses")
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

    def encode(
        self, role: str, encode: Callable[..., np.ndarray], columns: Sequence[list[str]]
    ) -> NDArray[np.float32]:
        """Gives the vectors of rows of texts, of which those not yet known are encoded."""
        try:
            return self._encode(role, encode, columns)
        except sqlite3.DatabaseError as error:
            raise UserError(
                f"the file of embeddings {self._path} must be readable and writable, but SQLite says "
                f"{str(error)!r}; make room on its disk or, if the file is damaged, remove it (what was "
                "encoded before is kept)"
            ) from error

    def _encode(
        self, role: str, encode: Callable[..., np.ndarray], columns: Sequence[list[str]]
    ) -> NDArray[np.float32]:
        self._connection.executescript(_SCHEMA)
        keys = [_digest(role, *row) for row in zip(*columns, strict=True)]
        row_of = dict(zip(keys, range(len(keys)), strict=True))
        known = {key for (key,) in self._select("key", list(row_of))}
        if known and role not in self._widths:
            ((num_bytes,),) = self._select("length(vector)", [next(iter(known))])
            self._widths[role] = num_bytes // np.dtype(np.float32).itemsize
        rows = [row for key, row in row_of.items() if key not in known]
        lengths = [sum(len(column[row]) for column in columns) for row in rows]
        batches = length_sorted_batches(lengths, max_rows=_MAX_ROWS, max_length=_MAX_CHARACTERS)
        # None: hidden where it would fill a file instead of moving on a screen.
        hidden = None if self._show_progress and rows else True
        label = f"{self._name}: {role}"
        with tqdm(total=len(rows), desc=label, unit="text", leave=False, disable=hidden) as bar:
            for batch in batches:
                of_batch = [rows[place] for place in batch]
                texts = [[column[row] for row in of_batch] for column in columns]
                vectors = self._checked(role, encode, texts)
                stored = zip(
                    (keys[row] for row in of_batch), map(np.ndarray.tobytes, vectors), strict=True
                )
                with self._connection:
                    # A key that another process stored meanwhile keeps its vector.
                    self._connection.executemany(
                        "INSERT OR IGNORE INTO vectors VALUES (?, ?)", stored
                    )
                bar.update(len(batch))
        return self._read(role, keys)

    def _checked(
        self, role: str, encode: Callable[..., np.ndarray], columns: list[list[str]]
    ) -> NDArray[np.float32]:
        """Encodes a batch of rows, whose vectors must be worth keeping."""
        texts = columns[0]
        with np.errstate(over="ignore"):
            vectors = encode_checked(lambda _: encode(*columns), texts).astype(np.float32)
        finite = np.asarray(np.isfinite(vectors).all(axis=1))
        require(finite, texts, "a finite vector", "infinity or NaN in it")
        require(np.any(vectors, axis=1), texts, "a vector with a direction", "zero only")
        width = self._widths.setdefault(role, vectors.shape[1])
        same = np.full(len(texts), width == vectors.shape[1])
        require(same, texts, f"vectors of {width} numbers", f"{vectors.shape[1]} numbers")
        return vectors

    def _read(self, role: str, keys: list[bytes]) -> NDArray[np.float32]:
        result = np.empty((len(keys), self._widths.get(role, 0)), np.float32)
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            some = keys[start : start + _KEYS_PER_QUERY]
            vectors = dict(self._select("key, vector", some))
            content = b"".join(vectors.get(key, b"") for key in some)
            part = result[start : start + len(some)]
            if len(content) != part.nbytes:
                raise sqlite3.DatabaseError("vectors are missing or cut")
            part[:] = np.frombuffer(content, np.float32).reshape(part.shape)
        return result

    def _select(self, columns: str, keys: list[bytes]) -> Iterator[Any]:
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            some = keys[start : start + _KEYS_PER_QUERY]
            places = ",".join("?" * len(some))
            query = f"SELECT {columns} FROM vectors WHERE key IN ({places})"
            yield from self._connection.execute(query, some)


def _digest(*texts: str) -> bytes:
    """A digest of texts: which they are, and where one ends and the next begins."""
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.digest()
