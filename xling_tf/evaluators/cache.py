"""Stores vectors in an SQLite file, so that each text is encoded once, even after a kill."""

import hashlib
import sqlite3
import sys
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from xling_tf.client.batches import encode_in_batches
from xling_tf.errors import as_user_error
from xling_tf.evaluators.encoding import BatchLimits, Embedder, encode_checked
from xling_tf.files import require_writable_folder

# Below the limit on a query's parameters of every SQLite version (999 before 3.32).
_KEYS_PER_QUERY = 900
_SCHEMA = """
    PRAGMA page_size = 32768;
    CREATE TABLE IF NOT EXISTS vectors (key BLOB UNIQUE NOT NULL, vector BLOB NOT NULL);
"""


def cached(embedder: Embedder, folder: Path | None, *, show_progress: bool) -> Embedder:
    """Wraps an embedder so that the vector of each text is computed once, and stored as float32.

    Sentences, questions, responses (an answer in its context) and probabilities of pairs are stored
    separately. A killed process loses one batch. The folder has a file for each embedder, named
    after its checksum; several processes may use it. Without a folder or a checksum, the vectors
    live as long as the embedder.

    Examples:
        >>> calls = []
        >>> lengths = lambda texts: calls.append(texts) or np.array([[len(text)] for text in texts])
        >>> embedder = cached(Embedder(name="l", sentences=lengths), None, show_progress=False)
        >>> embedder(["a", "bc", "a"]).tolist(), embedder(["bc"]).tolist(), calls
        ([[1.0], [2.0], [1.0]], [[2.0]], [['bc', 'a']])
    """
    cache = _Cache(embedder, folder, show_progress)
    # The cache makes the batches, so that texts are sorted by length once.
    return embedder.wrapped(
        lambda role, function: partial(cache.encode, role, function), batch_limits=None
    )


class _Cache:
    """The vectors of an embedder in an SQLite file."""

    def __init__(self, embedder: Embedder, folder: Path | None, show_progress: bool) -> None:
        self._name, self._limits = embedder.name, (embedder.batch_limits or BatchLimits())._asdict()
        self._show_progress = show_progress and sys.stderr is not None and sys.stderr.isatty()
        self._path: Path | None = None
        if folder is not None and embedder.checksum is not None:
            require_writable_folder(folder, "choose another folder for the embeddings")
            folder.mkdir(parents=True, exist_ok=True)
            self._path = folder / f"{_digest(embedder.checksum).hex()}.sqlite"
        # An empty name is a temporary file, which disappears with the connection. Another process
        # writes for milliseconds.
        self._connection = sqlite3.connect(self._path or "", timeout=60, check_same_thread=False)
        weakref.finalize(self, self._connection.close)

    def encode(
        self, role: str, encode: Callable[..., np.ndarray], *columns: list[str]
    ) -> np.ndarray:
        """Returns the vectors of rows of texts, and encodes those that are not stored."""
        keys = {row: _digest(role, *row) for row in zip(*columns, strict=True)}

        def store(*batch: list[str]) -> np.ndarray:
            vectors = encode_checked(encode, *batch, name=self._name).astype(np.float32)
            rows = zip(
                (keys[row] for row in zip(*batch, strict=True)), map(bytes, vectors), strict=True
            )
            with self._connection:
                self._connection.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
            return vectors

        message = (
            f"the embeddings {self._path or 'in a temporary file'} must be readable and writable, "
            "but SQLite says '{error}'; make room on the disk or, if the file is damaged, remove it"
        )
        with as_user_error(message, sqlite3.DatabaseError):
            self._connection.executescript(_SCHEMA)
            vectors = self._read([*keys.values()])
            if missing := [row for row, key in keys.items() if key not in vectors]:
                options = {**self._limits, "show_progress": self._show_progress}
                encode_in_batches(store, *map(list, zip(*missing, strict=True)), **options)
                # Read again, as another process may have stored other vectors meanwhile.
                vectors |= self._read([keys[row] for row in missing])
        if not keys:
            return np.zeros((0, 0), np.float32)
        return np.stack([vectors[keys[row]] for row in zip(*columns, strict=True)])

    def _read(self, keys: Sequence[bytes]) -> dict[bytes, np.ndarray]:
        """Returns the vectors that are stored for some of the keys."""
        contents: dict[bytes, bytes] = {}
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            chunk = keys[start : start + _KEYS_PER_QUERY]
            query = f"SELECT key, vector FROM vectors WHERE key IN ({','.join('?' * len(chunk))})"
            contents |= self._connection.execute(query, chunk)
        return {key: np.frombuffer(content, np.float32) for key, content in contents.items()}


def _digest(*texts: str) -> bytes:
    """A digest of texts and of where each ends."""
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.digest()
