"""Splits a text into paragraphs and sentences."""

import re
import unicodedata
from collections.abc import Sequence

from xling_tf.corpora.cleaning import normalise
from xling_tf.corpora.line_files import without_country
from xling_tf.errors import library

_PARAGRAPH_END = re.compile(r"\n\s*\n")
_BULLET = re.compile(r"^(?:[*•·▪‣–|-] )+")
# sentencex splits after these: "M. Dupont", "1. Open the file."
_STUB = re.compile(r"\W*\w{1,2}\.")
# sentencex breaks at a no-break space after an initial.
_SPACE = re.compile(r"[^\S\n]")


def paragraphs(text: str) -> list[str]:
    """Returns a text's paragraphs (separated by empty lines), each on one line, without bullets."""
    lines = (_BULLET.sub("", normalise(part)) for part in _PARAGRAPH_END.split(text))
    return [line for line in lines if line]


def sentences(paragraph: str, language: str) -> list[str]:
    """Splits a normalised paragraph into sentences, by the rules of a language (sentencex)."""
    joined: list[str] = []
    splitter = library("sentencex", "sentencex", "align")
    for segment in splitter.segment(without_country(language), paragraph):
        piece = _BULLET.sub("", segment.strip())
        if piece and joined and _STUB.fullmatch(joined[-1]):
            joined[-1] += " " + piece
        elif piece:
            joined.append(piece)
    return joined


def sentence_spans(paragraph: str, language: str) -> list[tuple[int, int]]:
    """Returns (start, end) of the sentences of a paragraph in characters, without gaps.

    Examples:
        >>> sentence_spans("One. Two.", "en")
        [(0, 5), (5, 9)]
    """
    splitter = library("sentencex", "sentencex", "align")
    boundaries = splitter.get_sentence_boundaries(
        without_country(language), _SPACE.sub(" ", paragraph)
    )
    return [(boundary["start_index"], boundary["end_index"]) for boundary in boundaries]


def surroundings(sentences: Sequence[str], num_neighbours: int) -> dict[str, str]:
    """Maps a text's distinct sentences to their first occurrences, joined with neighbours."""
    around: dict[str, str] = {}
    for index, sentence in enumerate(sentences):
        if sentence not in around:
            window = sentences[max(0, index - num_neighbours) : index + num_neighbours + 1]
            # No space follows the wide full stop of Chinese.
            is_wide = (unicodedata.east_asian_width(text[-1:] or " ") in "WF" for text in window)
            spaced = (text if w else f"{text} " for text, w in zip(window, is_wide, strict=True))
            around[sentence] = "".join(spaced).strip()
    return around
