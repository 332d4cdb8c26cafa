r"""The markup of Wiki-40B: its articles to sentences.

Guo et al. 2020, "Wiki-40B: Multilingual language model dataset". A text is lines such as
"_START_ARTICLE_", "Ada", "_START_SECTION_", "Life", "_START_PARAGRAPH_", and the paragraphs of a
section stand on one line with "_NEWLINE_" between them.
"""

import re
from collections.abc import Iterator

from xling_tf.corpora.cleaning import normalise, sentence_fault
from xling_tf.corpora.records import SentenceTriplet
from xling_tf.corpora.sentences import sentences

_PROSE = ("_START_PARAGRAPH_", "_NEWLINE_")
_MARK = re.compile(r"(_START_ARTICLE_|_START_SECTION_|_START_PARAGRAPH_|_NEWLINE_)")


def article_sentences(text: str, language: str) -> list[str]:
    r"""The sentences of an article; titles and section names are sentences, as in the paper.

    Args:
        text: An article with its markup.
        language: ISO code.

    Returns:
        The sentences in order, unfiltered (Chidambaram et al. 2018, appendix A.1: "all article
        titles and article section names are treated as sentences inline").

    Example:
        >>> article_sentences(
        ...     "\n_START_ARTICLE_\nAda\n_START_PARAGRAPH_\nShe wrote. She died._NEWLINE_So.", "en"
        ... )
        ['Ada', 'She wrote.', 'She died.', 'So.']
    """
    found: list[str] = []
    # What stands before the first mark is no text.
    _, *parts = _MARK.split(text)
    for mark, part in zip(parts[::2], parts[1::2], strict=True):
        if not (line := normalise(part)):
            continue
        found += sentences(line, language) if mark in _PROSE else [line]
    return found


def article_triplets(text: str, language: str) -> Iterator[SentenceTriplet]:
    """The runs of three sentences of an article, none of which has a fault."""
    lines = article_sentences(text, language)
    fit = [not sentence_fault(line, language, min_words=1) for line in lines]
    for i in range(len(lines) - 2):
        if all(fit[i : i + 3]):
            yield SentenceTriplet(*lines[i : i + 3])
