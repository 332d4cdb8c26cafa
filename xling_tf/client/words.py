"""Splits texts into words as `xling_tf.tokenizers.words` does in the graph."""

import codecs
import re
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

# A text is cut after this many bytes for each token; in no language are words that long on average.
BYTES_PER_TOKEN = 40
# A text has at most this many times the bytes of its NFC: a decomposed "ΐ" has 3.5 times as many.
MAX_EXPANSION = 4
# Stands between runs while they are split together; it is a separator, so no run contains it.
_BORDER = "\ue000"
_MAX_KEPT = 100_000  # runs of characters whose words are kept


def _space(error: Any) -> tuple[str, int]:
    return " ", error.end


codecs.register_error("xling_tf_space", _space)


def ngrams_of(word: str, settings: Mapping[str, Any]) -> list[str]:
    """Returns the n-grams of a word; `settings` are the "ngrams" of the tokenizer's `rules`."""
    marked = f"<{word[: settings['max_characters']]}>"
    return [
        marked[i : i + size] for size in settings["sizes"] for i in range(len(marked) - size + 1)
    ]


class WordSplitter:
    """Splits texts into words as `xling_tf.tokenizers.words` does in the graph.

    After the first of the rules ("text_rules"), which split scripts without spaces, the others
    change nothing across spaces; so the words of each run of characters are kept.

    Args:
        settings: The tokenizer's `rules`.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        # Python's version of Unicode may differ. Characters are parsed faster than their numbers.
        ranges = {
            name: "".join(
                f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in pairs
            )
            for name, pairs in settings["classes"].items()
        }
        rules = [(_compiled(pattern, ranges), new) for pattern, new in settings["rules"]]
        self._text_rules = rules[: settings["text_rules"]]
        self._rules = rules[settings["text_rules"] :]
        self._changed = _compiled(rf"[\pZ\pC{settings['unspaced']}]", ranges)
        # No rule changes these; ʼ is a letter and becomes an apostrophe.
        self._one_word = _compiled(r"(?:(?!ʼ)[\pL\pN])+", ranges)
        self._words: dict[str, list[str]] = {}

    def __call__(self, texts: Sequence[str]) -> list[list[str]]:
        """Returns the words of each text, at least one."""
        runs = [self._runs(text) for text in texts]
        words = self._words
        if len(words) > _MAX_KEPT:  # another thread may still read the old ones
            words = self._words = {}
        new = [run for run in {*chain.from_iterable(runs)} if run not in words]
        words |= {run: [run] for run in new if self._one_word.fullmatch(run)}
        if mixed := [run for run in new if run not in words]:
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
        if not is_simple and self._changed.search(text.replace(" ", "")):
            for pattern, replacement in self._text_rules:
                text = pattern.sub(replacement, text)
        return text.split()


def readable(text: str, max_bytes: int) -> str:
    """Returns a text in NFC, cut after `max_bytes` of its UTF-8, with spaces for incomplete
    characters.

    Examples:
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


def _compiled(pattern: str, ranges: Mapping[str, str]) -> re.Pattern[str]:
    """Compiles a pattern, with ranges of characters in place of its classes' names."""
    for name, characters in ranges.items():
        pattern = pattern.replace(name, characters)
    return re.compile(pattern)
