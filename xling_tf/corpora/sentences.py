"""Sentences of a text, and of a text and its translation."""

import re
import unicodedata
from collections.abc import Iterator, Sequence

import sentencex

from xling_tf.corpora.cleaning import lengths_agree, normalise
from xling_tf.corpora.records import TranslationPair

_PARAGRAPH_END = re.compile(r"\n\s*\n")
_BULLET = re.compile(r"^(?:[*•·▪‣–|-] )+")
# sentencex parts these from what follows: "M. Dupont", "1. Open the file."
_STUB = re.compile(r"\W*\w{1,2}\.")
# It breaks on a no-break space behind an initial.
_SPACE = re.compile(r"[^\S\n]")


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a text (parted by an empty line), each on one line without bullet."""
    lines = (_BULLET.sub("", normalise(part)) for part in _PARAGRAPH_END.split(text))
    return [line for line in lines if line]


def sentences(paragraph: str, language: str) -> list[str]:
    """The sentences of a normalised paragraph, by the rules of a language (sentencex).

    Example:
        >>> sentences("Dr. Smith left. Why?", "en")
        ['Dr. Smith left.', 'Why?']
    """
    found: list[str] = []
    for segment in sentencex.segment(language, paragraph):
        piece = _BULLET.sub("", segment.strip())
        if piece and found and _STUB.fullmatch(found[-1]):
            found[-1] += " " + piece
        elif piece:
            found.append(piece)
    return found


def sentence_spans(paragraph: str, language: str) -> list[tuple[int, int]]:
    """The (start, end) of a paragraph's sentences in characters, without gaps."""
    boundaries = sentencex.get_sentence_boundaries(language, _SPACE.sub(" ", paragraph))
    return [(boundary["start_index"], boundary["end_index"]) for boundary in boundaries]


def aligned_sentences(
    pair: TranslationPair, source_language: str, target_language: str
) -> Iterator[TranslationPair]:
    """Yields the sentence pairs of a text and its translation.

    Paragraphs are paired when both texts have equally many, then sentences likewise; what cannot be
    taken apart stays in one piece.
    """
    ours, theirs = paragraphs(pair.source), paragraphs(pair.target)
    if len(ours) != len(theirs):
        ours, theirs = [" ".join(ours)], [" ".join(theirs)]
    for source, target in zip(ours, theirs, strict=True):
        parts = sentences(source, source_language), sentences(target, target_language)
        pairs = [TranslationPair(*sides) for sides in zip(*parts, strict=False)]
        if len(parts[0]) == len(parts[1]) and all(
            lengths_agree(one.source, one.target, source_language, target_language) for one in pairs
        ):
            yield from pairs
        else:
            yield TranslationPair(source, target)


def surroundings(sentences: Sequence[str], num_neighbours: int) -> dict[str, str]:
    """Maps each distinct sentence of a text to itself between its neighbours where it comes first.

    Example:
        >>> surroundings(["One.", "Two.", "Three."], 1)["Three."]
        'Two. Three.'
    """
    around: dict[str, str] = {}
    for place, sentence in enumerate(sentences):
        if sentence not in around:
            near = sentences[max(0, place - num_neighbours) : place + num_neighbours + 1]
            # No space follows the wide full stop of Chinese.
            is_wide = (unicodedata.east_asian_width(each[-1:] or " ") in "WF" for each in near)
            spaced = (each if wide else f"{each} " for each, wide in zip(near, is_wide, strict=True))
            around[sentence] = "".join(spaced).strip()
    return around
