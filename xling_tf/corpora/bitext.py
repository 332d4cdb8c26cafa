"""Which pairs of a found bitext translate each other: rules for a pair, and the removal of repeats.

Chidambaram et al. 2018, appendix A.1, clean their translations by rules and then "by a pre-trained
translation pair scoring system"; the rules are here and in `cleaning`, scores in `pipelines.bitext`.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator

from xling_tf.corpora.cleaning import FORM_FAULTS, PAIR_FAULTS
from xling_tf.corpora.languages import is_recognisable, language_of, plain
from xling_tf.corpora.records import TranslationPair
from xling_tf.corpora.split import normalised


def bitext_fault(pair: TranslationPair, source_language: str, target_language: str) -> str | None:
    """The first reason against a pair of a bitext, or None.

    The reasons are those of the default corpora (`cleaning`), with the language recognised by a
    library in place of lists of words, and with short sentences, which it cannot recognise, kept.

    Args:
        pair: Two normalised sentences (`cleaning.normalise`).
        source_language: ISO code.
        target_language: ISO code.

    Returns:
        The reason's name.

    Example:
        >>> bitext_fault(TranslationPair("Good morning!", "¡Buenos días!"), "en", "es")
        >>> bitext_fault(TranslationPair("It is 10 past 9.", "Son las 12."), "en", "es")
        'numbers differ'
    """
    sides = ((pair.source, source_language), (pair.target, target_language))
    for text, language in sides:
        for reason, has_fault in FORM_FAULTS:
            if has_fault(text, language):
                return reason
    for reason, is_no_pair in PAIR_FAULTS:
        if is_no_pair(pair.source, pair.target, source_language, target_language):
            return reason
    for text, language in sides:
        found = language_of(text, (source_language, target_language))
        if is_recognisable(language) and found not in (None, plain(language)):
            return f"{language} side in another language"
    return None


def repeat_key(pair: TranslationPair) -> str:
    """What equal pairs have in common: their text but for case, width and spaces."""
    return "\t".join(map(normalised, (pair.source, pair.target)))


def without_repeats(
    pairs: Iterable[TranslationPair], dropped: Counter[str]
) -> Iterator[TranslationPair]:
    """Yields the first pair of each `repeat_key`.

    Args:
        pairs: Normalised pairs; digests of all that differ are held in memory.
        dropped: Counts the others, as "duplicate" and, where case, width or spaces differ,
            "near-duplicate".
    """
    seen: dict[bytes, bytes] = {}
    for pair in pairs:
        key, exact = _digest(repeat_key(pair)), _digest("\t".join((pair.source, pair.target)))
        if key not in seen:
            seen[key] = exact
            yield pair
        else:
            dropped["duplicate" if seen[key] == exact else "near-duplicate"] += 1


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
