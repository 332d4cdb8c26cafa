"""Sentences to the ids of words and n-grams, without TensorFlow."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.runtimes.format import WORDS, library
from xling_tf.runtimes.readable import readable

# Words outside of the vocabulary whose n-grams are kept at hand.
_CACHED_WORDS = 100_000

Ranges = Sequence[tuple[int, int]]


class Words:
    """Turns sentences into ids of words, as `xling_tf.text.words` does in the graph.

    Args:
        folder: Has the vocabulary.
        text: The settings for text in `runtime.json`.

    Raises:
        UserError: pyfarmhash is not installed.
    """

    def __init__(self, folder: Path, text: Mapping[str, Any]) -> None:
        self._hash = library("farmhash", "pyfarmhash").fingerprint64
        vocabulary = (folder / WORDS).read_text(encoding="utf-8").split("\n")[:-1]
        self._ids = {word: row for row, word in enumerate(vocabulary)}
        self._rules = compile_rules(text["rules"], text["classes"])
        self._text = text
        self._ngrams = text["ngrams"]
        self._spell = lru_cache(_CACHED_WORDS)(self._spell_anew)

    def tokenize(self, sentence: str) -> list[str]:
        """Splits a sentence into at least one word."""
        kept = readable(sentence, self._text["max_bytes"])
        if self._text["lowercase"]:
            kept = kept.lower()
        for substitute, replacement in self._rules:
            kept = substitute(replacement, kept)
        return kept.split()[: self._text["max_tokens"]] or [self._text["empty"]]

    def inputs(self, batch: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
        """The model's inputs for sentences of words."""
        if not self._ngrams:
            return padded([[self._row(word) for word in words] for words in batch])
        unknown: dict[str, int] = {}  # and its number, in the order of their first use
        ids = [
            [
                row
                if (row := self._ids.get(word)) is not None
                else len(self._ids) + unknown.setdefault(word, len(unknown))
                for word in words
            ]
            for words in batch
        ]
        spelt = [self._spell(word) for word in unknown] or [(0, [])]
        longest = max(1, *(len(ngrams) for _, ngrams in spelt))
        fill = self._ngrams["num_buckets"]
        return padded(ids) | {
            "buckets": np.array([bucket for bucket, _ in spelt], np.int32),
            "ngrams": np.array([n + [fill] * (longest - len(n)) for _, n in spelt], np.int32),
        }

    def _row(self, word: str) -> int:
        return self._ids.get(word, len(self._ids) + self._bucket(word, self._text["num_buckets"]))

    def _spell_anew(self, word: str) -> tuple[int, list[int]]:
        """The bucket of a word and those of its n-grams."""
        marked = f"<{word[: self._ngrams['max_characters']]}>"
        ngrams = [
            self._bucket(marked[begin : begin + size], self._ngrams["num_buckets"])
            for size in self._ngrams["sizes"]
            for begin in range(len(marked) - size + 1)
        ]
        return self._bucket(word, self._text["num_buckets"]), ngrams

    def _bucket(self, text: str, num_buckets: int) -> int:
        """As `tf.strings.to_hash_bucket_fast`."""
        return int(self._hash(text.encode()) % num_buckets)


def padded(ids: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
    """Sentences of ids as `[batch, tokens]`, padded with 0, and their lengths.

    Example:
        >>> padded([[4, 5], [6]])["ids"].tolist()
        [[4, 5], [6, 0]]
    """
    lengths = np.array([len(row) for row in ids], np.int32)
    filled = np.zeros((len(ids), max(lengths)), np.int32)
    for row, sentence in zip(filled, ids, strict=True):
        row[: len(sentence)] = sentence
    return {"ids": filled, "lengths": lengths}


def compile_rules(
    rules: Sequence[tuple[str, str]], classes: Mapping[str, Ranges]
) -> list[tuple[Callable[[str, str], str], str]]:
    r"""Compiles rules whose classes of characters are the given ranges.

    So the tokens do not depend on the version of Unicode that an engine for patterns knows.

    Example:
        >>> ((substitute, replacement),) = compile_rules([(r"([\pN])", r"<\1>")], {r"\pN": [(48, 57)]})
        >>> substitute(replacement, "a1½")
        'a<1>½'
    """
    return [
        (re.compile(_expand(pattern, classes)).sub, replacement) for pattern, replacement in rules
    ]


def _expand(pattern: str, classes: Mapping[str, Ranges]) -> str:
    for name, ranges in classes.items():
        literal = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)
        pattern = pattern.replace(name, literal)
    return pattern
