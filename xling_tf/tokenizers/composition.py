"""Unicode text inside a graph, with core TensorFlow operations only: valid UTF-8 of a bounded
length, in composed form (NFC, UAX #15), and lower case.

"é" can be one character, or "e" and a combining mark. Composition gives both the same tokens.
"""

import sys
import unicodedata
from collections.abc import Iterable
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from xling_tf.client.words import BYTES_PER_TOKEN, MAX_EXPANSION

# A character in the tables is its code point, and in higher bits its combining class, or 0.
_CODE_BITS = 21
_CODE = (1 << _CODE_BITS) - 1
_NONE = -1
_TEXTS_AT_ONCE = 2048  # bounds the memory


class _Tables(NamedTuple):
    """Unicode's composition data, as arrays or as constants of a graph."""

    # In RE2's syntax: matches texts surely in NFC, characters each followed by sorted marks.
    pattern: str
    listed: Any  # [listed] code points that decompose or are marks, ascending
    parts: Any  # [listed, 4] characters that they decompose to, padded with `_NONE`
    pairs: Any  # [pairs] pairs of code points that compose, each packed into one number, ascending
    composites: Any  # [pairs] code points that they compose to


def readable(sentences: tf.Tensor, max_tokens: int) -> tf.Tensor:
    """Returns `[batch]` valid UTF-8 in NFC, cut to a length that holds `max_tokens` tokens."""
    # The first cut makes a megabyte cost no more than a page. The second comes after NFC, so that
    # composed and decomposed forms of a text are cut at the same character.
    limit = BYTES_PER_TOKEN * max_tokens
    text = composed(first_bytes(sentences, MAX_EXPANSION * limit))
    is_longer = tf.reduce_any(tf.strings.length(text) > limit)
    return tf.cond(is_longer, lambda: first_bytes(text, limit), lambda: text)


def first_bytes(texts: tf.Tensor, limit: int) -> tf.Tensor:
    """Cuts `[batch]` strings after `limit` bytes; spaces replace bytes that are not UTF-8."""
    cut = tf.strings.substr(texts, 0, limit, unit="BYTE")
    return tf.strings.unicode_transcode(cut, "UTF-8", "UTF-8", replacement_char=0x20)


def lowercased(text: tf.Tensor) -> tf.Tensor:
    """Lowercases `[batch]` UTF-8 strings of any language."""
    # `tf.strings.lower` drops the text after a zero character.
    return tf.strings.lower(tf.strings.regex_replace(text, r"\x00", " "), encoding="utf-8")


@tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
def composed(texts: tf.Tensor) -> tf.Tensor:
    r"""Returns `[batch]` UTF-8 strings in NFC.

    Examples:
        >>> composed(tf.constant(["n\u0303"])).numpy()[0].decode()
        'ñ'
    """
    pattern, *arrays = _read_unicode_data()
    # The constants are made outside the loops, which would otherwise copy them.
    tables = _Tables(pattern, *map(tf.constant, arrays))
    rows = tf.where(~tf.strings.regex_full_match(texts, pattern))

    def compose_some(begin: tf.Tensor, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        end = begin + _TEXTS_AT_ONCE
        chunk = rows[begin:end]
        in_nfc = _compose(tf.gather_nd(texts, chunk), tables)
        return end, tf.tensor_scatter_nd_update(texts, chunk, in_nfc)

    _, texts = tf.while_loop(
        lambda begin, _: begin < tf.size(rows), compose_some, (0, texts), parallel_iterations=1
    )
    return texts


def _compose(texts: tf.Tensor, tables: _Tables) -> tf.Tensor:
    characters = tf.strings.unicode_decode(texts, "UTF-8")
    state = _decompose(characters.values, tf.cast(characters.value_rowids(), tf.int32), tables)
    codes, _, rows, _ = tf.while_loop(
        lambda codes, classes, rows, has_composed: has_composed,
        lambda codes, classes, rows, _: _compose_pairs(codes, classes, rows, tables),
        (*state, True),
        shape_invariants=(*[tf.TensorShape([None])] * 3, tf.TensorShape([])),
    )
    composed = tf.RaggedTensor.from_value_rowids(codes, rows, tf.size(texts), validate=False)
    return tf.strings.unicode_encode(composed, "UTF-8")


def _decompose(
    codes: tf.Tensor, rows: tf.Tensor, tables: _Tables
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Decomposes characters and sorts marks; returns each part's code points, classes, text."""
    index, is_listed = _find(codes, tables.listed)
    alone = tf.pad(codes[:, None], [[0, 0], [0, tables.parts.shape[1] - 1]], constant_values=_NONE)
    parts = tf.where(is_listed[:, None], tf.gather(tables.parts, index), alone)
    indices = tf.where(parts >= 0)
    parts, rows = tf.gather_nd(parts, indices), tf.gather(rows, indices[:, 0])
    codes, classes = parts & _CODE, tf.bitwise.right_shift(parts, _CODE_BITS)
    # A run is a character and the marks after it. Marks are sorted by class, stably.
    begins = tf.concat([tf.ones_like(rows[:1], tf.bool), rows[1:] > rows[:-1]], axis=0) | tf.equal(
        classes, 0
    )
    keys = tf.cumsum(tf.cast(begins, tf.int64)) * 256 + tf.cast(classes, tf.int64)
    order = tf.cond(
        tf.reduce_all(keys[1:] >= keys[:-1]),
        lambda: tf.range(tf.size(keys)),
        lambda: tf.argsort(keys, stable=True),
    )
    return tf.gather(codes, order), tf.gather(classes, order), rows


def _compose_pairs(
    codes: tf.Tensor, classes: tf.Tensor, rows: tf.Tensor, tables: _Tables
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Composes starters with the first character that combines; the last result: if any was."""
    is_starter = tf.equal(classes, 0)
    starters = tf.concat([[0], tf.cast(tf.where(is_starter)[:, 0], tf.int32)], axis=0)
    starter = tf.gather(starters, tf.cumsum(tf.cast(is_starter, tf.int32), exclusive=True))
    # Between the two, another starter blocks composition, and so does a mark of the same or a
    # higher class.
    previous = tf.concat([tf.zeros_like(classes[:1]), classes[:-1]], axis=0)
    is_free = tf.equal(previous, 0) | (previous < classes)
    is_free &= (starter < tf.range(tf.size(codes))) & tf.equal(tf.gather(rows, starter), rows)
    pairs = tf.bitwise.left_shift(tf.cast(tf.gather(codes, starter), tf.int64), _CODE_BITS)
    index, composes = _find(pairs | tf.cast(codes, tf.int64), tables.pairs)
    seconds = tf.cast(tf.where(is_free & composes)[:, 0], tf.int32)
    firsts = tf.gather(starter, seconds)
    # Pairs are composed from left to right; overlapping pairs wait for the next round.
    waits = tf.equal(firsts[1:], firsts[:-1]) | tf.equal(firsts[1:], seconds[:-1])
    is_next = tf.concat([tf.ones_like(firsts[:1], tf.bool), ~waits], axis=0)
    firsts, seconds = tf.boolean_mask(firsts, is_next), tf.boolean_mask(seconds, is_next)
    composites = tf.gather(tables.composites, tf.gather(index, seconds))
    codes = tf.tensor_scatter_nd_update(codes, firsts[:, None], composites)
    stays = tf.tensor_scatter_nd_update(
        tf.ones_like(codes, tf.bool), seconds[:, None], tf.zeros_like(seconds, tf.bool)
    )
    left = (tf.boolean_mask(array, stays) for array in (codes, classes, rows))
    return (*left, tf.size(seconds) > 0)


def _find(values: tf.Tensor, ascending: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Looks values up in a sorted array; returns their positions, and True where it has them."""
    indices = tf.minimum(tf.searchsorted(ascending, values), ascending.shape[0] - 1)
    return indices, tf.equal(tf.gather(ascending, indices), values)


@cache
def _read_unicode_data() -> _Tables:
    characters = list(map(chr, range(sys.maxunicode + 1)))
    classes = {c: mark for c in characters if (mark := unicodedata.combining(c))}
    apart = {c: d for c in characters if (d := unicodedata.normalize("NFD", c)) != c}
    together = {d: c for c, d in apart.items() if unicodedata.is_normalized("NFC", c)}
    # A decomposition of three characters composes in two steps: "ǖ" is "ü" with a macron.
    pairs = sorted(
        (ord(unicodedata.normalize("NFC", d[:-1])) << _CODE_BITS | ord(d[-1]), ord(c))
        for d, c in together.items()
    )
    # Korean syllables, without an entry in Unicode's data, would compose again.
    listed = [
        c for c in characters if c in classes or (c in apart and unicodedata.decomposition(c))
    ]
    parts = np.full((len(listed), max(map(len, apart.values()))), _NONE, np.int32)
    for row, character in zip(parts, listed, strict=True):
        decomposed = apart.get(character, character)
        row[: len(decomposed)] = [classes.get(d, 0) << _CODE_BITS | ord(d) for d in decomposed]
    # UAX #15, sec. 9: "unsure" characters never occur in NFC, or not after some others.
    unsure = {d[-1] for d in together} | (apart.keys() - together.values())
    sure = sorted((c for c in classes if c not in unsure), key=classes.__getitem__)
    sorted_marks = (f"[{_ranges(same)}]*" for _, same in groupby(sure, classes.__getitem__))
    return _Tables(
        pattern=f"([^{_ranges(unsure | classes.keys())}]{''.join(sorted_marks)})*",
        listed=np.array(list(map(ord, listed)), np.int32),
        parts=parts,
        pairs=np.array([pair for pair, _ in pairs], np.int64),
        composites=np.array([composite for _, composite in pairs], np.int32),
    )


def _ranges(characters: Iterable[str]) -> str:
    """Writes characters as ranges for a bracket expression of a regular expression."""
    codes = sorted(map(ord, characters))
    runs = [
        [code for _, code in run]
        for _, run in groupby(enumerate(codes), lambda item: item[1] - item[0])
    ]
    return "".join(f"\\x{{{run[0]:x}}}-\\x{{{run[-1]:x}}}" for run in runs)
