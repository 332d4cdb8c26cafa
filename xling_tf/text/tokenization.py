"""Treebank-style tokens inside the graph, from core string operations only.

Core operations keep the exported model loadable by a process that has nothing but TensorFlow.
"""

import tensorflow as tf

from xling_tf.config import TextConfig
from xling_tf.corpora.line_files import MAX_EXPANSION
from xling_tf.text.composition import composed

# Stands for a sentence without any token, so that every sentence has a position to pool over. The
# rules below split typed brackets from words, so no sentence of a user contains it.
EMPTY_TOKEN = "<empty>"
# Of a text, what is looked at; no language has words that long on average.
BYTES_PER_TOKEN = 40

# Each rule is (pattern, replacement) in RE2 syntax, applied in order; they follow the Penn Treebank
# tokenizer (Chidambaram et al. 2019, sec. 3.2: "treebank style tokenized") for punctuation and English
# contractions, extended to the punctuation of the other languages. In scripts without spaces between
# words each character is a token. Classes of characters stand in brackets, where other runtimes can put
# their ranges.
RULES = (
    # Not a plain space alone, as most are: to replace it by itself took a tenth of the time of all rules.
    ("[\\pZ\\pC]{2,}|[\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\\pC]", " "),
    (r"[‘’ʼ`´]", "'"),
    (r"[“”„«»″]", '"'),
    (
        r"(\.\.\.+|…|--+|[\p{Han}\p{Hiragana}\p{Katakana}]|[^\pL\pM\pN\s.,:'_-])",
        r" \1 ",
    ),
    # Every comma and colon is a token, but inside numbers ("1,234", "10:30") they are put back.
    # Twice, because matches do not overlap and "1,2,3" has two that share a digit.
    (r"([,:])", r" \1 "),
    (r"([\pN]) ([,:]) ([\pN])", r"\1\2\3"),
    (r"([\pN]) ([,:]) ([\pN])", r"\1\2\3"),
    # A full stop is a token where its word ends ("x.y z ."), before and after quotes too.
    (r"([\pL\pN\pM]'?)(\.)('?)(\s|$)", r"\1 \2 \3 "),
    # Quotes at the ends of words; apostrophes inside stay.
    (r"(^|\s)'([\pL\pN])", r"\1' \2"),
    (r"([^\s])'(\s|$)", r"\1 ' "),
    (r"(?i)([\pL])('(?:s|m|d|ll|re|ve))(\s|$)", r"\1 \2 "),
    (r"(?i)([\pL])(n't)(\s|$)", r"\1 \2 "),
)


def readable(sentences: tf.Tensor, max_tokens: int) -> tf.Tensor:
    """Brings `[batch]` strings to UTF-8 in NFC, cut to a page; bytes that are no UTF-8 become spaces."""
    # No text beyond what can hold `max_tokens` is looked at, so a megabyte costs what a page costs. The last
    # cut comes after NFC, so that all forms of a text lose the same characters.
    most = BYTES_PER_TOKEN * max_tokens
    text = composed(_cut(sentences, MAX_EXPANSION * most))
    return tf.cond(tf.reduce_any(tf.strings.length(text) > most), lambda: _cut(text, most), lambda: text)


def _cut(texts: tf.Tensor, most: int) -> tf.Tensor:
    """The first bytes of texts; half a character at the end becomes a space."""
    cut = tf.strings.substr(texts, 0, most, unit="BYTE")
    return tf.strings.unicode_transcode(cut, "UTF-8", "UTF-8", replacement_char=0x20)


def lowercased(text: tf.Tensor) -> tf.Tensor:
    """Lowercases `[batch]` UTF-8 strings of any language."""
    # It would drop what follows a zero character, which is as good as a space.
    return tf.strings.lower(tf.strings.regex_replace(text, r"\x00", " "), encoding="utf-8")


def tokenize(sentences: tf.Tensor, config: TextConfig) -> tf.RaggedTensor:
    """Splits `[batch]` strings into `[batch, (tokens)]`; one without any becomes `EMPTY_TOKEN`.

    Example:
        >>> tokenize(tf.constant(["Don't go, Ana."]), TextConfig(lowercase=True)).to_list()
        [[b'do', b"n't", b'go', b',', b'ana', b'.']]
    """
    text = readable(sentences, config.max_tokens)
    if config.lowercase:
        text = lowercased(text)
    for pattern, replacement in RULES:
        text = tf.strings.regex_replace(text, pattern, replacement)
    text = tf.strings.strip(text)
    text = tf.where(tf.equal(text, ""), EMPTY_TOKEN, text)
    return tf.strings.split(text)[:, : config.max_tokens]
