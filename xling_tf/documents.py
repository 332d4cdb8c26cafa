"""Vectors of documents: the document is divided into parts, which are encoded and pooled."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from xling_tf.corpora.line_files import is_unspaced
from xling_tf.corpora.sentences import sentences

# Yu et al. 2018, sec. 5.1.
WINDOW_WORDS = 128
STRIDE_WORDS = 64
MAX_PARTS = 64  # news articles have about a dozen sentences; only the beginning of a book is encoded
_DOCUMENTS_AT_ONCE = 2000  # number of documents whose parts are encoded in one call


def divide(text: str, language: str, segmentation: str) -> list[str]:
    """Divides a document into "sentences", found by sentencex, or "windows" of 128 words, every 64 words.

    Returns:
        From 1 to `MAX_PARTS` parts.

    Example:
        >>> divide("Dr. Smith left. Why?", "en", "sentences")
        ['Dr. Smith left.', 'Why?']
    """
    if segmentation == "sentences":
        return sentences(text, language)[:MAX_PARTS] or [""]
    separator = "" if is_unspaced(language) else " "  # without spaces, words are characters
    words = text.split() if separator else list(text)
    starts = range(0, max(len(words) - STRIDE_WORDS, 1), STRIDE_WORDS)
    windows = [separator.join(words[start : start + WINDOW_WORDS]) for start in starts]
    return windows[:MAX_PARTS] or [""]


def pool(
    encode: Callable[[list[str]], NDArray[np.floating]], documents: Sequence[Sequence[str]]
) -> dict[str, NDArray[np.float32]]:
    """Encodes documents that are already divided into parts.

    Returns:
        The "mean" and the "max" of the parts' vectors, `[documents, dim]` each.

    Example:
        >>> count_letters = lambda texts: np.array([[len(text)] for text in texts])
        >>> pool(count_letters, [["a", "abc"]])["mean"].tolist()
        [[2.0]]
    """
    means, maxima = [], []
    for start in range(0, len(documents), _DOCUMENTS_AT_ONCE):
        chunk = documents[start : start + _DOCUMENTS_AT_ONCE]
        texts = dict.fromkeys(part for parts in chunk for part in parts)
        row_of = {text: row for row, text in enumerate(texts)}
        vectors = np.asarray(encode(list(texts)), np.float32)
        for parts in chunk:
            part_vectors = vectors[[row_of[part] for part in parts]]
            means.append(part_vectors.mean(axis=0))
            maxima.append(part_vectors.max(axis=0))
    return {"mean": np.array(means, np.float32), "max": np.array(maxima, np.float32)}
