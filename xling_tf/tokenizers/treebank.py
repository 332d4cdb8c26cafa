"""Treebank-style words inside a graph, with core TensorFlow operations only.

A process that has nothing but TensorFlow can then load the exported model.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from xling_tf.config import WordsConfig
from xling_tf.corpora.line_files import CHINESE, KANA
from xling_tf.tokenizers.composition import lowercased, readable

# The token of a sentence without any other token, so that every sentence has a position to pool
# over. The rules below split brackets from words, so that no text contains it.
EMPTY_TOKEN = "<empty>"

# A rule is (pattern, replacement) in RE2 syntax. Character classes stand inside brackets, so that
# other runtimes can put ranges in their place.
_Rules = tuple[tuple[str, str], ...]

_SPACES: _Rules = (
    # Single plain spaces do not match: replacing them by themselves took a tenth of the time.
    ("[\\pZ\\pC]{2,}|[\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\\pC]", " "),
)

# In Chinese and Japanese, each character is a token.
_CHARACTERS = r"\p{Han}\p{Hiragana}\p{Katakana}"
_SINGLE: _Rules = ((f"([{_CHARACTERS}])", r" \1 "),)

# With bigrams, a unit is a character of Chinese or Japanese, or a consonant of Thai, Lao, Khmer or
# Burmese with its vowels and marks.
_BEFORE = "\u0e40-\u0e44\u0ec0-\u0ec4"  # vowels before their consonant
_AFTER = "\\pM\uff9e\uff9f\u0e30\u0e32\u0e33\u0e45\u0eb0\u0eb2\u0eb3\u0ebd"
_BELOW = "[\u17d2\u1039][\u1780-\u17b3\u1000-\u102a]"  # consonants below another
_LETTERS = (
    f"{_CHARACTERS}\u30fc\uff70\u0e01-\u0e2f\u0e46\u0e81-\u0eaf\u0ec6\u0edc-\u0edf"
    f"\u1780-\u17b3\u17d7\u1000-\u102a\u103f{_BEFORE}"
)
_UNIT = f"[{_BEFORE}]*[{_LETTERS}](?:{_BELOW}|[{_AFTER}])*"
# Three copies of each unit make "a a ab b bc c c" of "abc": at the ends, units have no neighbour.
_PAIRED: _Rules = ((f"((?:{_UNIT})+)", r" \1 "), (f"({_UNIT})", r"\1 \1 \1"))
_PAIR = re.compile(f"[{KANA}{CHINESE}]{{2}}")

# As the Penn Treebank tokenizer does (Chidambaram et al. 2019, sec. 3.2: "treebank style
# tokenized") with punctuation and English contractions, extended to the punctuation of the other
# languages.
_PUNCTUATION: _Rules = (
    (r"[‘’ʼ`´]", "'"),
    (r"[“”„«»″]", '"'),
    (r"(\.\.\.+|…|--+|[^\pL\pM\pN\s.,:'_-])", r" \1 "),
    # Every comma and colon is a token, except inside numbers ("1,234", "10:30"), where the next
    # rule undoes the split. It runs twice because matches do not overlap, and "1,2,3" has two that
    # share a digit.
    (r"([,:])", r" \1 "),
    (r"([\pN]) ([,:]) ([\pN])", r"\1\2\3"),
    (r"([\pN]) ([,:]) ([\pN])", r"\1\2\3"),
    # A full stop at the end of a word is a token ("x.y z."), also before or after a quote.
    (r"([\pL\pN\pM]'?)(\.)('?)(\s|$)", r"\1 \2 \3 "),
    # Quotes at the beginning or end of a word are tokens; apostrophes inside words are not.
    (r"(^|\s)'([\pL\pN])", r"\1' \2"),
    (r"([^\s])'(\s|$)", r"\1 ' "),
    (r"(?i)([\pL])('(?:s|m|d|ll|re|ve))(\s|$)", r"\1 \2 "),
    (r"(?i)([\pL])(n't)(\s|$)", r"\1 \2 "),
)


def rules(config: WordsConfig) -> dict[str, Any]:
    """Returns what other runtimes need to split texts.

    Args:
        config: `bigrams`.

    Returns:
        "rules", which split a text if they are applied in order; "text_rules", the number of the
        first of them after which each run of characters without spaces can be split alone;
        "unspaced", the characters that these change beside spaces; and "classes", see
        `character_classes`.
    """
    text_rules = _text_rules(config)
    return {
        "rules": text_rules + _PUNCTUATION,
        "text_rules": len(text_rules),
        "unspaced": _LETTERS if config.bigrams else _CHARACTERS,
        "classes": character_classes(),
    }


def _text_rules(config: WordsConfig) -> tuple[tuple[str, str], ...]:
    return _SPACES + (_PAIRED if config.bigrams else _SINGLE)


def are_pairs(words: Sequence[str]) -> NDArray[np.bool_]:
    """Returns whether each word is two characters of Chinese or Japanese, see `bigrams`.

    Examples:
        >>> are_pairs(["中", "中文", "ab"]).tolist()
        [False, True, False]
    """
    return np.array([_PAIR.fullmatch(word) is not None for word in words])


def tokenize(
    sentences: tf.Tensor, config: WordsConfig, max_tokens: int | None = None
) -> tf.RaggedTensor:
    """Splits `[batch]` strings into words.

    Args:
        sentences: The strings.
        config: `max_tokens`, `lowercase` and `bigrams`.
        max_tokens: Maximum number of tokens of a sentence in place of that of `config`.

    Returns:
        `[batch, (tokens)]` strings; a sentence without words has the single token `EMPTY_TOKEN`.

    Examples:
        >>> tokenize(tf.constant(["Don't go, Ana."]), WordsConfig(lowercase=True)).to_list()
        [[b'do', b"n't", b'go', b',', b'ana', b'.']]
    """
    max_tokens = max_tokens or config.max_tokens
    text = readable(sentences, max_tokens)
    if config.lowercase:
        text = lowercased(text)
    for pattern, replacement in _text_rules(config) + _PUNCTUATION:
        text = tf.strings.regex_replace(text, pattern, replacement)
    text = tf.strings.strip(text)
    text = tf.where(tf.equal(text, ""), EMPTY_TOKEN, text)
    return tf.strings.split(text)[:, :max_tokens]


# The character classes in the rules, in RE2's syntax.
_CLASSES = (r"\pL", r"\pM", r"\pN", r"\pZ", r"\pC", r"\p{Han}", r"\p{Hiragana}", r"\p{Katakana}")


@cache
def character_classes() -> Mapping[str, Sequence[tuple[int, int]]]:
    """Returns the code points' ranges of each class in the rules, in TensorFlow's Unicode."""
    points = np.array([*range(0xD800), *range(0xE000, 0x110000)], np.int32)
    characters = tf.strings.unicode_encode(points[:, None], "UTF-8")
    ranges = {}
    for name in _CLASSES:
        belongs = np.zeros(0x110001, np.int8)
        belongs[points] = tf.strings.regex_full_match(characters, f"(?s)[{name}]")
        # A range begins where the step is 1 and ends where it is -1: 0 1 1 0 has the steps 1 0 -1.
        steps = np.diff(belongs, prepend=0)
        firsts, ends = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
        ranges[name] = list(zip(firsts.tolist(), (ends - 1).tolist(), strict=True))
    return ranges
