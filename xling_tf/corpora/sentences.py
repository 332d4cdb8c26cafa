"""Paragraphs and sentences of a text, and of a text and its translation."""

import re
from collections.abc import Iterator

import sentencex

from xling_tf.corpora.cleaning import lengths_agree, normalise
from xling_tf.corpora.records import TranslationPair

_PARAGRAPH_END = re.compile(r"\n\s*\n")
_BULLET = re.compile(r"^(?:[*•·▪‣–|-] )+")
# sentencex splits these from what follows: "M. Dupont", "1. Open the file."
_STUB = re.compile(r"\W*\w{1,2}\.")


def paragraphs(text: str) -> list[str]:
    """Splits a text at empty lines; each paragraph comes on one line, without its bullet."""
    lines = (_BULLET.sub("", normalise(part)) for part in _PARAGRAPH_END.split(text))
    return [line for line in lines if line]


def sentences(paragraph: str, language: str) -> list[str]:
    """Splits a paragraph into sentences.

    Args:
        paragraph: Normalised text.
        language: ISO code; decides which abbreviations do not end a sentence.

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


def aligned_sentences(
    pair: TranslationPair, source_language: str, target_language: str
) -> Iterator[TranslationPair]:
    """Splits a text and its translation into sentence pairs.

    Paragraphs are paired when both texts have equally many, then sentences likewise; what cannot be
    aligned stays in one piece.
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
