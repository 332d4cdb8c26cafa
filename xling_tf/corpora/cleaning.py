"""Which sentences and pairs are fit for training: filters that name their reasons."""

import re
from collections import Counter
from collections.abc import Callable

from xling_tf.corpora.line_files import normal_form
from xling_tf.corpora.records import TranslationPair

MAX_CHARACTERS = 350  # Chidambaram et al. 2018, appendix A.1
MIN_LETTERS = 0.5
MAX_NEAR_DUPLICATES = 3
_MAX_LENGTH_RATIO = 2.2
_LENGTH_SLACK = 12  # characters; short sentences differ more
_MAX_SHARED_WORDS = 0.6
_MIN_HAN = 0.3
# Characters of a language for one of English, measured on sentence pairs.
_CHARACTERS_PER_ENGLISH = {"zh": 0.33}
_UNSPACED = frozenset({"zh", "ja", "th"})

# Frequent English words that are no words of Spanish, French or German.
_ENGLISH_WORD = re.compile("the|of|to|and|is|you|that|it|for|with|are|be|this|by|from|when")
_MAX_ENGLISH_WORDS = 0.15

_WHITE_SPACE = re.compile(r"\s+")
_INVISIBLE = re.compile("[\0\u00ad\u200b-\u200f\u202a-\u202e\u2060\ufeff]")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_HAN = re.compile("[\u3400-\u9fff]")
_THOUSANDS = re.compile(r"(?<=\d)[., \u00a0\u202f’'](?=\d{3}(?!\d))")
_LONG_NUMBER = re.compile(r"\d{2,}")
_DIGITS = re.compile(r"\d+")
_LEFTOVER = re.compile(
    r"</?\w[^<>]*>|&\w+;|\{\w*\}|\$\{?\w|%[sd]\b|%\(|%\d\b|\[\[|\]\]|\\[nt]|https?:|www\.|\ufffd|\|\|"
    r"|[_=*#~-]{3,}|[.·]{5,}|(?:\. ){3}|<\?>"
    r"|^=|\w\([^()]*;"  # formulas of spreadsheets
)


def normalise(text: str) -> str:
    """The text in NFC, on one line, single spaces, without invisible characters and half characters.

    Args:
        text: Any text.

    Returns:
        The text as the corpus files hold it.

    Example:
        >>> normalise(" one   two ")
        'one two'
    """
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, as JSON and entities can spell it
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _WHITE_SPACE.sub(" ", _INVISIBLE.sub("", normal_form(text))).strip()


def word_count(text: str, language: str) -> int:
    """Words of a text; for a language written without spaces, letters less one."""
    if language in _UNSPACED:
        return sum(map(str.isalpha, text)) - 1
    return len(_WORD.findall(text))


def letter_share(text: str) -> float:
    """The share of letters among the characters that are not spaces."""
    visible = text.replace(" ", "")
    return sum(map(str.isalpha, visible)) / len(visible) if visible else 0.0


def numbers(text: str) -> set[str]:
    """The numbers of two and more digits, whatever parts their thousands."""
    return set(_LONG_NUMBER.findall(_THOUSANDS.sub("", text)))


def lengths_agree(source: str, target: str, source_language: str, target_language: str) -> bool:
    """Whether one text can be the translation of the other by its length."""
    ours = len(source) / _CHARACTERS_PER_ENGLISH.get(source_language, 1.0)
    theirs = len(target) / _CHARACTERS_PER_ENGLISH.get(target_language, 1.0)
    shorter, longer = sorted((ours, theirs))
    return longer <= _MAX_LENGTH_RATIO * shorter + _LENGTH_SLACK


def in_another_language(text: str, language: str) -> bool:
    """Whether a sentence is English, or without Chinese, where it should not be.

    Args:
        text: A sentence.
        language: ISO code of the language it should be in.

    Returns:
        True where the sentence is surely in another one; English itself is not looked at.
    """
    if language in _UNSPACED:
        return len(_HAN.findall(text)) < _MIN_HAN * sum(map(str.isalpha, text))
    words = _WORD.findall(text.lower())
    english = sum(map(bool, map(_ENGLISH_WORD.fullmatch, words)))
    return language != "en" and english > _MAX_ENGLISH_WORDS * len(words)


def looks_untranslated(source: str, target: str) -> bool:
    """Whether most of the translation's words are words of the source."""
    ours = set(_WORD.findall(source.lower()))
    theirs = _WORD.findall(target.lower())
    return sum(word in ours for word in theirs) > _MAX_SHARED_WORDS * len(theirs)


# (reason, whether a sentence of a language has that fault)
FORM_FAULTS: tuple[tuple[str, Callable[[str, str], bool]], ...] = (
    ("empty", lambda text, _: not text),
    ("too long", lambda text, _: len(text) > MAX_CHARACTERS),
    ("few letters", lambda text, _: letter_share(text) < MIN_LETTERS),
    ("markup or placeholder", lambda text, _: bool(_LEFTOVER.search(text))),
)
SENTENCE_FAULTS = (*FORM_FAULTS, ("another language", in_another_language))

# (reason, whether a pair of (source, target, source language, target language) has that fault)
PAIR_FAULTS: tuple[tuple[str, Callable[[str, str, str, str], bool]], ...] = (
    ("same on both sides", lambda a, b, _s, _t: a.lower() == b.lower()),
    ("length ratio", lambda a, b, s, t: not lengths_agree(a, b, s, t)),
    ("numbers differ", lambda a, b, _s, _t: numbers(a) != numbers(b)),
    ("not translated", lambda a, b, _s, _t: looks_untranslated(a, b)),
)


def sentence_fault(text: str, language: str, min_words: int = 2) -> str | None:
    """The first reason against a sentence, or None.

    Args:
        text: A normalised sentence.
        language: ISO code.
        min_words: At least this many words (`word_count`).

    Returns:
        The reason's name.
    """
    for reason, has_fault in SENTENCE_FAULTS:
        if has_fault(text, language):
            return reason
    return "too short" if word_count(text, language) < min_words else None


def pair_fault(pair: TranslationPair, source_language: str, target_language: str) -> str | None:
    """The first reason against a translation pair, or None.

    Args:
        pair: Two normalised sentences.
        source_language: ISO code.
        target_language: ISO code.

    Returns:
        The reason's name.
    """
    fault = sentence_fault(pair.source, source_language, 3) or sentence_fault(
        pair.target, target_language, 3
    )
    if fault:
        return fault
    for reason, has_fault in PAIR_FAULTS:
        if has_fault(pair.source, pair.target, source_language, target_language):
            return reason
    return None


class PairCleaner:
    """Decides pair by pair what is kept, and counts what is not.

    Args:
        source_language: ISO code.
        target_language: ISO code.

    Attributes:
        dropped: How many pairs each reason cost.
    """

    def __init__(self, source_language: str, target_language: str) -> None:
        self._languages = (source_language, target_language)
        self._seen: set[TranslationPair] = set()
        self._templates: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def keeps(self, pair: TranslationPair) -> bool:
        """Whether the pair is fit and new; counts the reason where it is not."""
        reason = pair_fault(pair, *self._languages) or self._repetition(pair)
        if reason:
            self.dropped[reason] += 1
        return reason is None

    def _repetition(self, pair: TranslationPair) -> str | None:
        if pair in self._seen:
            return "duplicate"
        self._seen.add(pair)
        template = _DIGITS.sub("0", pair.source.lower())
        self._templates[template] += 1
        return "near-duplicate" if self._templates[template] > MAX_NEAR_DUPLICATES else None
