"""Averages of words in NumPy alone: a whole model is this file beside its weights and its
vocabulary.

The wheels of `export --to wheel` contain a copy of this file, so it imports nothing else of this
package.
"""

import codecs
import ctypes
import json
import os
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

SETTINGS, WEIGHTS, VOCABULARY = "word_averages.json", "model.safetensors", "vocabulary.txt"
# NFC lengthens a text at most fourfold in UTF-8.
MAX_EXPANSION = 4
# Stands between runs while they are split together; it is a separator, so no run contains it.
_BORDER = "\ue000"
_TEXTS_AT_ONCE = 1024  # bounds the memory
_MAX_KEPT = 100_000  # runs of characters whose words are kept, and unknown words whose vectors are

# All but spaces, controls, halves of pairs and what is never drawn (Default_Ignorable_Code_Point).
_VISIBLE = re.compile(
    r"[^\s\0-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\ud800-\udfff\U000e0000-\U000e0fff]"
)

codecs.register_error("xling_tf_space", lambda error: (" ", error.end))  # type: ignore[attr-defined]


def is_blank(text: str) -> bool:
    r"""True for a text without a visible character.

    Example:
        >>> is_blank("\u200b "), is_blank("\u200bHola")
        (True, False)
    """
    return _VISIBLE.search(text) is None


class PerProcess:
    """Something that a process opens when it first calls this, and a forked process opens anew.

    A forked process has none of its parent's threads: it would wait for them forever if it used, or
    at its end destroyed, a session that its parent has opened. So it leaves that one alone. Import
    ONNX Runtime with `telemetry_off`.
    """

    def __init__(self, open_it: Callable[[], Any]) -> None:
        self._open = open_it
        self._opened: Any = None
        self._lock = Lock()
        _ALL_OPENED.add(self)

    def __call__(self) -> Any:
        """Returns what is open in this process; threads may call it at once."""
        with self._lock:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    def leave_to_parent(self) -> None:
        """Called in a forked process: forgets what the parent has opened, without destroying it."""
        if self._opened is not None:
            # One reference more than there are: neither this line nor Python's end destroys it.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._opened))
        self._opened, self._lock = None, Lock()


_ALL_OPENED: WeakSet[PerProcess] = WeakSet()


def _after_fork() -> None:
    for opened in list(_ALL_OPENED):
        opened.leave_to_parent()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def telemetry_off() -> Iterator[None]:
    """Lets a block import ONNX Runtime without its telemetry; the environment is then as it was.

    The import starts a thread for telemetry, for which a forked process would wait forever at its
    end.
    """
    name = "ORT_DISABLE_TELEMETRY"
    if name in os.environ:  # as the user wants it
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]


class Client(ABC):
    """What the clients in wheels have in common; `dim` is the width of the vectors.

    A blank text, without a visible character, has the zero vector, which a search leaves out.
    """

    dim: int
    _folder: Path  # by which pickle loads a client again

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._folder,)

    def encode(self, texts: str | Sequence[str]) -> NDArray[np.float32]:
        """Encodes one text or several.

        Args:
            texts: A text, or any number of them.

        Returns:
            `[texts, dim]` float32 of unit length, or `[dim]` for a single text; zeros for a blank
            text.

        Raises:
            TypeError: Something other than a text is among them, or they are a mapping, a set or a
                table.
        """
        return self._vectors(texts, "default")

    def similarity(self, first: Any, second: Any) -> NDArray[np.float32]:
        """Returns the cosines of texts or vectors: `[first, second]`; single ones have no axis."""
        return self._either(first, "default") @ self._either(second, "default").T

    def semantic_search(
        self, queries: Any, corpus: Any, top_k: int = 10
    ) -> list[list[dict[str, Any]]]:
        """Finds the most similar texts of a corpus for each query, by comparing with all of them.

        Args:
            queries: A text, or any number of them; or their `[queries, dim]` vectors.
            corpus: Texts, or their `[texts, dim]` vectors.
            top_k: Maximum number of results for a query.

        Returns:
            For each query, results such as `{"corpus_id": 3, "score": 0.8}`, the best first. Blank
            texts are in no result, and a blank query has none.

        Raises:
            TypeError: A query or a text of the corpus is neither a text nor a vector.
            ValueError: Vectors have another width.
        """
        vectors = np.atleast_2d(self._either(corpus, "document"))
        has_text = np.any(vectors, axis=1)
        results = []
        for query in np.atleast_2d(self._either(queries, "query")):
            scores = vectors @ query
            order = np.argsort(-scores, kind="stable")
            best = order[has_text[order]][:top_k] if np.any(query) else []
            results.append([{"corpus_id": int(i), "score": float(scores[i])} for i in best])
        return results

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        """Encodes documents for LangChain."""
        return self._vectors(texts, "document").tolist()

    def embed_query(self, text: str) -> list[float]:
        """Encodes a query for LangChain."""
        return self._vectors(text, "query").tolist()

    def _either(self, values: Any, role: str) -> NDArray[np.float32]:
        """Returns the vectors of texts; or vectors, in an array or lists, scaled to unit length."""
        is_list = (
            isinstance(values, list | tuple) and len(values) > 0 and not isinstance(values[0], str)
        )
        if getattr(getattr(values, "dtype", None), "kind", "f" if is_list else "") not in (
            "f",
            "i",
            "u",
        ):
            return self._vectors(values, role)
        try:
            vectors = np.asarray(values, np.float32)
        except (TypeError, ValueError):
            return self._vectors(values, role)  # says which of them is no text
        if vectors.ndim not in (1, 2) or vectors.shape[-1] != self.dim:
            raise ValueError(f"vectors must be [rows, {self.dim}], got shape {list(vectors.shape)}")
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
        return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)

    def _vectors(self, texts: str | Sequence[str], role: str) -> NDArray[np.float32]:
        listed = _listed(texts)
        vectors = np.zeros((len(listed), self.dim), np.float32)
        rows = [row for row, text in enumerate(listed) if not is_blank(text)]
        for begin in range(0, len(rows), _TEXTS_AT_ONCE):
            some = rows[begin : begin + _TEXTS_AT_ONCE]
            vectors[some] = self._encode([listed[row] for row in some], role)
        return vectors[0] if isinstance(texts, str) else vectors

    @abstractmethod
    def _encode(self, texts: Sequence[str], role: str) -> NDArray[np.float32]:
        """Returns `[texts, dim]` unit vectors; `role` is "query", "document" or "default"."""


def _listed(texts: Any) -> list[str]:
    """Returns one text, or a column of texts, as a list; raises a `TypeError` for anything else."""
    if isinstance(texts, str):
        return [texts]
    # Iterating over a table would give the names of columns, over a mapping its keys; a set has no
    # order.
    refused = isinstance(texts, bytes | bytearray | memoryview | Mapping | Set)
    if refused or not isinstance(texts, Iterable) or len(getattr(texts, "shape", (1,))) != 1:
        raise TypeError(
            f"texts must be a string or a list of strings, but got a {type(texts).__name__}"
        )
    listed = list(texts)
    for position, text in enumerate(listed):
        if not isinstance(text, str):
            raise TypeError(f"texts must be strings, but texts[{position}] is {text!r:.80}")
    return listed


class WordAverages(Client):
    """A sentence encoder that averages word vectors.

    Words outside the vocabulary get a vector from their character n-grams (Chidambaram et al. 2019,
    sec. 2.1).

    Args:
        folder: What `export --to wheel` puts into a wheel: settings, weights and vocabulary.

    Example:
        >>> model = WordAverages("exported/multilingual-static-numpy")  # doctest: +SKIP
        >>> model.encode(["Hola", "Hello"]).shape  # doctest: +SKIP
        (2, 256)
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = folder = Path(folder).absolute()
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        self.dim = settings["dim"]
        self._split = WordSplitter(settings["text"])
        self._ngrams = settings["text"]["ngrams"]
        words = (folder / VOCABULARY).read_text(encoding="utf-8").split("\n")[:-1]
        self._ids = {word: row for row, word in enumerate(words)}
        self._weights = read_tensors(folder / WEIGHTS)
        self._spelled: dict[str, NDArray[np.float32]] = {}

    def _encode(self, texts: Sequence[str], role: str) -> NDArray[np.float32]:
        words = sorted(enumerate(self._split(texts)), key=lambda item: -len(item[1]))
        lengths = np.array([len(row) for _, row in words])
        begins = np.cumsum(lengths) - lengths
        flat = [word for _, row in words for word in row]
        found = [*map(self._ids.get, flat)]
        unknown = [position for position, row in enumerate(found) if row is None]
        ids = np.array([row or 0 for row in found], np.intp)
        table, scales = self._weights["words"], self._weights["words_scales"][ids]
        scales[unknown] = 0
        sums = np.zeros((len(texts), self.dim), np.float32)
        # The first word of each text, then the second of those that have one, and so on: five times
        # as fast as `np.add.reduceat`.
        for place in range(lengths[0]):
            positions = begins[lengths > place] + place
            sums[: len(positions)] += table[ids[positions]] * scales[positions]
        if unknown:
            rows = np.searchsorted(begins, unknown, side="right") - 1
            np.add.at(sums, rows, self._spell([flat[position] for position in unknown]))
        # A sum has the direction of the mean.
        vectors = np.empty_like(sums)
        vectors[[index for index, _ in words]] = sums
        return vectors / np.sqrt(np.maximum(np.sum(vectors**2, axis=1, keepdims=True), 1e-24))

    def _spell(self, words: Sequence[str]) -> NDArray[np.float32]:
        """Returns `[words, dim]` vectors of words outside the vocabulary."""
        spelled = self._spelled
        if len(spelled) > _MAX_KEPT:  # another thread may still read the old ones
            spelled = self._spelled = {}
        if new := [word for word in dict.fromkeys(words) if word not in spelled]:
            spelled |= zip(new, self._spell_anew(new), strict=True)
        return np.stack([spelled[word] for word in words])

    def _spell_anew(self, words: Sequence[str]) -> NDArray[np.float32]:
        weights = self._weights
        if self._ngrams is None:
            return np.repeat(weights["unknown_bias"][None], len(words), axis=0)
        spellings = [ngrams_of(word, self._ngrams) for word in words]
        hashes = [fingerprint(ngram.encode()) for ngram in chain.from_iterable(spellings)]
        buckets = np.array([number % self._ngrams["num_buckets"] for number in hashes], np.int64)
        known = weights["ngram_buckets"]
        positions = np.minimum(np.searchsorted(known, buckets), len(known) - 1)
        # Row 0 is for n-grams that training did not see.
        ids = np.where(known[positions] == buckets, positions + 1, 0)
        begins = np.cumsum([0, *map(len, spellings[:-1])])
        rows = weights["ngrams"][ids] * weights["ngrams_scales"][ids]
        sums = np.add.reduceat(rows, begins, axis=0)
        hidden = np.tanh(sums @ weights["ngram_kernel"] + weights["ngram_bias"])
        return hidden @ weights["unknown_kernel"] + weights["unknown_bias"]


def ngrams_of(word: str, settings: Mapping[str, Any]) -> list[str]:
    """Returns the n-grams of a word; `settings` are the "ngrams" of the tokenizer's `rules`."""
    marked = f"<{word[: settings['max_characters']]}>"
    return [
        marked[i : i + size] for size in settings["sizes"] for i in range(len(marked) - size + 1)
    ]


class WordSplitter:
    """Splits texts into words as `xling_tf.tokenizers.words` does in the graph.

    The rules change nothing across spaces, and nothing in letters and digits alone, once Chinese
    and Japanese are split; so the words of each run of other characters are kept.

    Args:
        settings: The tokenizer's `rules`.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        # The first rule puts spaces in place of separators and control characters; a later one puts
        # them around Chinese and Japanese characters.
        self._separators = _compiled(r"[\pZ\pC]+", settings)
        self._ideographs = _compiled(r"([\p{Han}\p{Hiragana}\p{Katakana}])", settings)
        self._either = _compiled(r"[\pZ\pC\p{Han}\p{Hiragana}\p{Katakana}]", settings)
        self._rules = [
            (_compiled(pattern, settings), new) for pattern, new in settings["rules"][1:]
        ]
        self._words: dict[str, list[str]] = {}

    def __call__(self, texts: Sequence[str]) -> list[list[str]]:
        """Returns the words of each text, at least one."""
        runs = [self._runs(text) for text in texts]
        words = self._words
        if len(words) > _MAX_KEPT:  # another thread may still read the old ones
            words = self._words = {}
        new = [run for run in {*chain.from_iterable(runs)} if run not in words]
        words |= {run: [run] for run in new if run.isalnum()}
        if mixed := [run for run in new if not run.isalnum()]:
            # One pass over all runs is faster than one a run.
            joined = f" {_BORDER} ".join(mixed)
            for pattern, replacement in self._rules:
                joined = pattern.sub(replacement, joined)
            words |= zip(mixed, map(str.split, joined.split(_BORDER)), strict=True)
        empty, limit = [self._settings["empty"]], self._settings["max_tokens"]
        return [[word for run in row for word in words[run]][:limit] or empty for row in runs]

    def _runs(self, text: str) -> list[str]:
        """Returns the runs of a text without spaces."""
        text = readable(text, self._settings["max_bytes"])
        if self._settings["lowercase"]:
            text = text.lower()
        is_simple = text.isascii() and text.isprintable()
        if not is_simple and self._either.search(text.replace(" ", "")):
            text = self._ideographs.sub(r" \1 ", self._separators.sub(" ", text))
        return text.split()


def readable(text: str, max_bytes: int) -> str:
    """Returns a text in NFC, cut after `max_bytes` of its UTF-8, with spaces for incomplete
    characters.

    Example:
        >>> readable("señor", 3)
        'se '
    """
    if text.isascii():
        return text[:max_bytes]
    return first_bytes(
        unicodedata.normalize("NFC", first_bytes(text, MAX_EXPANSION * max_bytes)), max_bytes
    )


def first_bytes(text: str, max_bytes: int) -> str:
    """Cuts a text after `max_bytes` of its UTF-8, with spaces for incomplete characters."""
    # A character has at least one byte, so the text can be cut before it is encoded.
    encoded = text[:max_bytes].encode("utf-8", "surrogatepass")
    return encoded[:max_bytes].decode("utf-8", "xling_tf_space")


def _compiled(pattern: str, settings: Mapping[str, Any]) -> re.Pattern[str]:
    """Compiles a pattern with ranges for its classes: Python's version of Unicode may differ."""
    for name, ranges in settings["classes"].items():
        literal = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)
        pattern = pattern.replace(name, literal)
    return re.compile(pattern)


def read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """Maps a safetensors file into memory; returns its arrays by name."""
    kinds = {"F32": np.float32, "I8": np.int8, "I64": np.int64}
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    content = np.memmap(path, np.uint8, "r", offset=8 + size)
    tensors = {}
    for name, about in header.items():
        if name != "__metadata__":
            begin, end = about["data_offsets"]
            tensors[name] = content[begin:end].view(kinds[about["dtype"]]).reshape(about["shape"])
    return tensors


_K0, _K2, _MASK = 0xC3A5C85C97CB3127, 0x9AE16A3B2F90404F, 2**64 - 1


def fingerprint(text: bytes) -> int:
    """Computes FarmHash's Fingerprint64 of at most 16 bytes, as `tf.strings.to_hash_bucket_fast`
    does.

    Example:
        >>> fingerprint(b"hola") % 10  # tf.strings.to_hash_bucket_fast("hola", 10)
        7
    """
    size = len(text)
    if size > 16:
        raise ValueError(f"expected at most 16 bytes, got {size}")
    if size >= 8:
        factor = _K2 + 2 * size
        first = int.from_bytes(text[:8], "little") + _K2 & _MASK
        last = int.from_bytes(text[-8:], "little")
        left = (_rotated(last, 37) * factor + first) & _MASK
        return _mix(left, (_rotated(first, 25) + last) * factor & _MASK, factor)
    if size >= 4:
        first, last = int.from_bytes(text[:4], "little"), int.from_bytes(text[-4:], "little")
        return _mix(size + (first << 3), last, _K2 + 2 * size)
    if size:
        first = text[0] + (text[size // 2] << 8)
        last = size + (text[-1] << 2)
        mixed = (first * _K2 ^ last * _K0) & _MASK
        return (mixed ^ mixed >> 47) * _K2 & _MASK
    return _K2


def _mix(first: int, second: int, factor: int) -> int:
    mixed = (first ^ second) * factor & _MASK
    mixed = (second ^ mixed ^ mixed >> 47) * factor & _MASK
    return (mixed ^ mixed >> 47) * factor & _MASK


def _rotated(number: int, bits: int) -> int:
    return (number >> bits | number << 64 - bits) & _MASK
