"""Which sentences and pairs are fit for training, and what is wrong with a whole corpus."""

import copy
import difflib
import locale
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cache

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from xling_tf.corpora.line_files import normal_form
from xling_tf.corpora.records import Record, TranslationPair, columns_of
from xling_tf.corpora.split import normalised
from xling_tf.errors import UserError

MAX_CHARACTERS = 350  # Chidambaram et al. 2018, appendix A.1
SAMPLE_SIZE = 250  # records of a corpus, by which the share of a fault is known to 4%
_MIN_LETTERS = 0.5
_MAX_LENGTH_RATIO = 2.2
_LENGTH_SLACK = 12  # characters; short sentences differ more
_MAX_SHARED_WORDS = 0.6
_MIN_HAN = 0.3
# Characters of a language for one of English, measured on sentence pairs.
_CHARACTERS_PER_ENGLISH = {"zh": 0.33}
_UNSPACED = frozenset({"ja", "ko", "th", "zh"})
# Of 345 corpora of manuals, menus, games, novels, subtitles and web pages that this was tried on,
# the one with the most text taken for another language had 3.5% of it.
_MAX_FOREIGN = 0.1
_MIN_RECOGNISED = 30  # texts; fewer say nothing of a corpus
_MAX_UNTRANSLATED = 0.1
_MIN_DIFFERENT = 0.5

# Frequent English words that are no words of Spanish, French or German.
_ENGLISH_WORD = re.compile("the|of|to|and|is|you|that|it|for|with|are|be|this|by|from|when")
_MAX_ENGLISH_WORDS = 0.15

# The languages that most text is in, which a text may be in besides the expected ones. Every further
# one costs mistakes on short texts: with all 139, 2% of sentences of 20 to 40 letters, here 0.2%.
_WIDESPREAD = {
    *("ar", "bg", "cs", "da", "de", "el", "en", "es", "fa", "fi", "fr", "he", "hi", "hu", "id"),
    *("it", "ja", "ko", "nl", "pl", "pt", "ro", "ru", "sv", "th", "tr", "uk", "vi", "zh"),
}
_SURE = 0.9  # probability
# Letters; shorter texts are names and labels as often as sentences.
_SHORTEST = 20
_SHORTEST_UNSPACED = 7

_WHITE_SPACE = re.compile(r"\s+")
_INVISIBLE = re.compile("[\0\u00ad\u200b-\u200f\u202a-\u202e\u2060\ufeff]")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_HAN = re.compile("[\u3400-\u9fff]")
_THOUSANDS = re.compile(r"(?<=\d)[., \u00a0\u202f’'](?=\d{3}(?!\d))")
_LONG_NUMBER = re.compile(r"\d{2,}")
_LEFTOVER = re.compile(
    r"</?\w[^<>]*>|&\w+;|\{\w*\}|\$\{?\w|%[sd]\b|%\(|%\d\b|\[\[|\]\]|\\[nt]|https?:|www\.|\ufffd|\|\|"
    r"|[_=*#~-]{3,}|[.·]{5,}|(?:\. ){3}|<\?>"
    r"|^=|\w\([^()]*;"  # formulas of spreadsheets
)


def normalise(text: str) -> str:
    """The text in NFC, on one line, single spaces, without invisible characters and half characters."""
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
    """Whether a sentence is surely English, or without Chinese, where it should not be."""
    if language in _UNSPACED:
        return len(_HAN.findall(text)) < _MIN_HAN * sum(map(str.isalpha, text))
    words = _WORD.findall(text.lower())
    english = sum(map(bool, map(_ENGLISH_WORD.fullmatch, words)))
    return language != "en" and english > _MAX_ENGLISH_WORDS * len(words)


def _form_fault(text: str) -> str | None:
    if not text:
        return "empty"
    if len(text) > MAX_CHARACTERS:
        return "too long"
    if letter_share(text) < _MIN_LETTERS:
        return "few letters"
    return "markup or placeholder" if _LEFTOVER.search(text) else None


def _fault_between(pair: TranslationPair, source: str, target: str) -> str | None:
    if pair.source.lower() == pair.target.lower():
        return "same on both sides"
    if not lengths_agree(pair.source, pair.target, source, target):
        return "length ratio"
    if numbers(pair.source) != numbers(pair.target):
        return "numbers differ"
    theirs = _WORD.findall(pair.target.lower())
    shared = set(_WORD.findall(pair.source.lower())).intersection(theirs)
    num_shared = sum(word in shared for word in theirs)
    return "not translated" if num_shared > _MAX_SHARED_WORDS * len(theirs) else None


def sentence_fault(text: str, language: str, min_words: int = 2) -> str | None:
    """The first reason against a normalised sentence, or None."""
    if reason := _form_fault(text):
        return reason
    if in_another_language(text, language):
        return "another language"
    return "too short" if word_count(text, language) < min_words else None


def pair_fault(pair: TranslationPair, source_language: str, target_language: str) -> str | None:
    """The first reason against a pair of normalised sentences, or None."""
    return (
        sentence_fault(pair.source, source_language, 3)
        or sentence_fault(pair.target, target_language, 3)
        or _fault_between(pair, source_language, target_language)
    )


def bitext_fault(pair: TranslationPair, source_language: str, target_language: str) -> str | None:
    """As `pair_fault` for any languages: recognised by a library, which keeps short sentences."""
    reason = _form_fault(pair.source) or _form_fault(pair.target)
    if reason := reason or _fault_between(pair, source_language, target_language):
        return reason
    languages = (source_language, target_language)
    for text, language in zip(pair[:2], languages, strict=True):
        found = language_of(str(text), languages)
        if _is_recognisable(language) and found not in (None, _plain(language)):
            return f"{language} side in another language"
    return None


def repeat_key(pair: TranslationPair) -> str:
    """What equal pairs have in common: their text but for case, width and spaces."""
    return "\t".join(map(normalised, (pair.source, pair.target)))


def _plain(language: str) -> str:
    return language.partition("_")[0]  # "pt" of "pt_BR"


def _is_recognisable(language: str) -> bool:
    return _plain(language) in _model().nb_classes


def require_known(language: str, used: Collection[str] = ()) -> None:
    """Raises a `UserError` for a code that neither py3langid nor `locale` nor `used` knows."""
    known = {re.split(r"\W|_", name)[0] for name in locale.locale_alias.values()}
    if language in used or _plain(language) in known or _is_recognisable(language):
        return
    meant = difflib.get_close_matches(re.split("[-_]", language.lower())[0], {*used, *_WIDESPREAD})
    hint = f"; did you mean {meant[0]}?" if meant else ""
    raise UserError(
        "a language is expected by its code as in file names (ISO 639-1: en, es, zh_TW), got "
        f"{language!r}{hint}"
    )


def language_of(text: str, expected: Collection[str]) -> str | None:
    """The plain code of a sentence's language, expected or widespread; None where that is unsure.

    It is recognised by py3langid (Lui and Baldwin 2012).
    """
    language, probability = _identifier(frozenset(map(_plain, expected))).classify(text)
    shortest = _SHORTEST_UNSPACED if language in _UNSPACED else _SHORTEST
    if probability < _SURE or sum(map(str.isalpha, text)) < shortest:
        return None
    return str(language)


@cache
def _model() -> LanguageIdentifier:
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@cache
def _identifier(expected: frozenset[str]) -> LanguageIdentifier:
    identifier = copy.copy(_model())
    identifier.set_languages(filter(_is_recognisable, expected | _WIDESPREAD))
    return identifier


def corpus_faults(languages: str, records: Sequence[Record]) -> Iterator[str]:
    """Yields what is wrong with a sample: another language, equal sides, or hardly anything but repeats."""
    for language, side in columns_of(languages):
        parts = (part for record in records for part in tuple(record)[side])
        texts = dict.fromkeys(part for part in parts if isinstance(part, str))
        expected = languages.split("-")
        if _is_recognisable(language):
            looks = (language_of(text, expected) for text in list(texts)[:SAMPLE_SIZE])
            found = Counter(filter(None, looks))
            total = found.total()
            del found[_plain(language)]
            if total >= _MIN_RECOGNISED and found.total() > _MAX_FOREIGN * total:
                often = [code for code, n in found.most_common() if n > found.total() / 4]
                share = f"{found.total() / total:.0%} of the {language} side"
                yield f"{share} look like {' or '.join(often) or 'others'}"
    pairs = [record for record in records if isinstance(record, TranslationPair)]
    equal = sum(pair.source.casefold() == pair.target.casefold() for pair in pairs)
    if equal > _MAX_UNTRANSLATED * len(pairs):
        yield f"{equal / len(pairs):.0%} of the pairs are the same text on both sides"
    different = len(set(records))
    if different < _MIN_DIFFERENT * len(records):
        yield f"only {different} of {len(records)} records looked at differ"
