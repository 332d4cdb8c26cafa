"""Decides which sentences and pairs are fit for training, and finds faults of whole corpora."""

import copy
import locale
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import cache
from statistics import mean, stdev
from typing import Any

from absl import logging

from xling_tf.corpora.line_files import UNSPACED, is_unspaced, without_country
from xling_tf.corpora.records import Record, SentenceTriplet, TranslationPair, columns_of
from xling_tf.errors import UserError, library

MAX_CHARACTERS = 350  # Chidambaram et al. 2018, appendix A.1
SAMPLE_SIZE = 250  # records sampled of a corpus; the share of a fault is accurate to 4 points
_MIN_LETTERS = 0.5
_MAX_LENGTH_RATIO = 2.2
_LENGTH_SLACK = 12  # characters; short sentences differ more
_MAX_SHARED_WORDS = 0.6
# Characters of a language for one of English. Medians of the messages of Home Assistant 2026.11
# that have 20 characters or more in English: .31 and .32 in Chinese (two scripts, 15,742 and 22,898
# messages), .53 in Japanese (20,168; sentences, with fewer foreign words, are near .4) and .52 in
# Korean (22,916). Languages with an alphabet, the scripts of India, Khmer and Burmese are between
# .75 and 1.25 and need no figure.
_CHARACTERS_PER_ENGLISH = {"zh": 0.33, "yue": 0.33, "ja": 0.45, "ko": 0.5}
# In 345 corpora of manuals, menus, games, novels, subtitles and web pages, at most 3.5% of the
# texts were taken for another language.
_MAX_FOREIGN = 0.1
_MIN_RECOGNISED = 30  # texts; fewer say nothing about a corpus
_MAX_UNTRANSLATED = 0.1
_MIN_DIFFERENT = 0.5
# Of the mean from 0, in standard errors, of at most 1,000 sentences: 3.7 or more in 206 files of
# documents in about 15 languages, at most 3.0 in two shuffles of each.
_MIN_DEVIATIONS = 3
_MIN_NEIGHBOURS = 150  # sentences; of fewer, ordered ones may have few words in common

# The most widespread languages, which `language_of` recognises besides the expected ones. Each
# further language adds mistakes on short texts: with all 139, 2% of sentences of 20 to 40 letters;
# with these, 0.2%.
_WIDESPREAD = frozenset(
    "ar bg cs da de el en es fa fi fr he hi hu id it ja ko nl pl pt ro ru sv th tr uk vi zh".split()
)
_MIN_PROBABILITY = 0.9
# Letters; shorter texts are names and labels as often as sentences.
_MIN_LETTER_COUNT = 20
_MIN_LETTER_COUNT_UNSPACED = 7

# Number of groups of texts whose language is recognised, of texts in a group, and of the short
# sentences whose letters they must have together. The first 3 sentences of a document have them in
# 57% of the cases, the first 5 in 95%, and the first 10 always.
_CHUNKS, _TEXTS_TOGETHER, _MIN_SENTENCES = 40, 8, 10

_WHITE_SPACE = re.compile(r"\s+")
# In the scripts from Arabic to Burmese, joiners spell words, such as Persian plurals.
_INVISIBLE = re.compile(
    "[\0\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\ufeff]|(?<![\u0600-\u1aff])[\u200c\u200d]"
)
# Combining marks, such as the vowel signs of Hindi: parts of words that `\w` and `str.isalpha` do
# not match. Marks above U+FFFF, of rare scripts, would make matching four times as slow.
_MARKS = "".join(c for c in map(chr, range(0x300, 0x10000)) if unicodedata.category(c)[0] == "M")
WORD = re.compile(rf"[^\W\d_]+(?:(?:['’]|[{_MARKS}]+)[^\W\d_]+)*[{_MARKS}]*")
# In scripts without spaces, each sign counts as a word.
_WORD_OR_SIGN = re.compile(rf"[{UNSPACED}]|\w+")
# Marks after anything else, such as the one that asks for a colourful emoji, are not letters.
_MARKS_OF_LETTERS = re.compile(rf"(?<=[^\W\d_])[{_MARKS}]+")
_THOUSANDS = re.compile(r"(?<=\d)[., \u00a0\u066c\u202f’'](?=\d{3}(?!\d))")
_LONG_NUMBER = re.compile(r"\d{2,}")
_LEFTOVER = re.compile(
    r"</?\w[^<>]*>|&\w+;|\{\w*\}|\$\{?\w|%[sd]\b|%\(|%\d\b|\[\[|\]\]|\\[nt]"
    r"|https?:|www\.|\ufffd|\|\|"
    r"|[_=*#~-]{3,}|[.·]{5,}|(?:\. ){3}|<\?>"
    r"|^=|\w\([^()]*;"  # formulas of spreadsheets
)


def normalise(text: str) -> str:
    """Returns a text in NFC, on one line, with single spaces and without invisible characters.

    Joiners stay in the scripts that spell words with them. Halves of surrogate pairs, which JSON
    and HTML entities can spell, become U+FFFD.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _WHITE_SPACE.sub(" ", unicodedata.normalize("NFC", _INVISIBLE.sub("", text))).strip()


def letter_share(text: str) -> float:
    """Returns the share of letters among the characters that are not spaces."""
    visible = text.replace(" ", "")
    return num_letters(visible) / len(visible) if visible else 0.0


def num_letters(text: str) -> int:
    """Returns the number of letters, with the marks of letters."""
    marks = () if text.isascii() else _MARKS_OF_LETTERS.findall(text)
    return sum(map(str.isalpha, text)) + sum(map(len, marks))


def lengths_agree(source: str, target: str, source_language: str, target_language: str) -> bool:
    """Returns True if one text is neither too long nor too short for a translation of the other."""
    sides = ((source, source_language), (target, target_language))
    lengths = [
        len(text) / _CHARACTERS_PER_ENGLISH.get(without_country(code), 1.0) for text, code in sides
    ]
    return max(lengths) <= _MAX_LENGTH_RATIO * min(lengths) + _LENGTH_SLACK


def form_fault(text: str) -> str | None:
    """Returns why a normalised text is not a sentence of any language, or None if it may be one."""
    if not text:
        return "empty"
    if len(text) > MAX_CHARACTERS:
        return "too long"
    if letter_share(text) < _MIN_LETTERS:
        return "few letters"
    return "markup or placeholder" if has_leftovers(text) else None


def has_leftovers(text: str) -> bool:
    """Returns True if a text has markup, a placeholder or damaged characters."""
    return bool(_LEFTOVER.search(text))


def translation_fault(pair: TranslationPair, source: str, target: str) -> str | None:
    """Returns the first reason why two texts do not look like translations, or None."""
    if pair.source.lower() == pair.target.lower():
        return "same on both sides"
    if not lengths_agree(pair.source, pair.target, source, target):
        return "length ratio"
    # Numbers of two or more digits of any script, without separators of thousands.
    sides = (_LONG_NUMBER.findall(_THOUSANDS.sub("", text)) for text in (pair.source, pair.target))
    numbers = [{*map(int, side)} for side in sides]
    if numbers[0] != numbers[1]:
        return "numbers differ"
    target_words = WORD.findall(pair.target.lower())
    shared = set(WORD.findall(pair.source.lower())).intersection(target_words)
    num_shared = sum(word in shared for word in target_words)
    return "not translated" if num_shared > _MAX_SHARED_WORDS * len(target_words) else None


def _is_recognisable(language: str) -> bool:
    return without_country(language) in _model().nb_classes


def bitext_fault(pair: TranslationPair, source: str, target: str) -> str | None:
    """Returns the first reason why a normalised pair does not look like translations, or None.

    Unlike `translation_fault`, it also checks the form and the language of both sides.
    """
    if (
        fault := form_fault(pair.source)
        or form_fault(pair.target)
        or translation_fault(pair, source, target)
    ):
        return fault
    for text, language in ((pair.source, source), (pair.target, target)):
        recognised = language_of(text, (source, target))
        if _is_recognisable(language) and recognised not in (None, without_country(language)):
            return "another language"
    return None


def is_in_use(language: str) -> bool:
    """Returns True for the code of a language that computers are set to, with a country or without.

    Examples:
        >>> is_in_use("fr"), is_in_use("pt_BR"), is_in_use("tmp")
        (True, True, False)
    """
    codes = {re.split(r"\W|_", name)[0] for name in locale.locale_alias.values()}
    return without_country(language) in codes


def require_known(language: str, used: Collection[str] = ()) -> None:
    """Raises a `UserError` unless py3langid or `locale` knows the code, or it is in `used`."""
    if language in used or is_in_use(language) or _is_recognisable(language):
        return
    raise UserError(
        f"expected a language code such as en or zh_TW (ISO 639-1), got {language!r}; correct it"
    )


def language_of(text: str, expected: Collection[str]) -> str | None:
    """Returns a sentence's language by py3langid (Lui and Baldwin 2012), expected or widespread.

    It is a code without a country, and None if the text is too short or the language uncertain.
    """
    language, probability = _identifier(frozenset(map(without_country, expected))).classify(text)
    if probability < _MIN_PROBABILITY or num_letters(text) < _min_letters(language):
        return None
    return str(language)


def _min_letters(language: str) -> int:
    return _MIN_LETTER_COUNT_UNSPACED if is_unspaced(language) else _MIN_LETTER_COUNT


def language_of_texts(texts: Sequence[str], expected: Collection[str] = ()) -> str | None:
    """Returns the language of most texts, recognised in groups, because short texts say little.

    It is a code without a country, or None if the texts are few, the language is uncertain, or
    py3langid is not installed.

    Args:
        texts: Sentences. If they are many, up to 640 of them are drawn at equal distances.
        expected: Languages to tell apart, besides the widespread ones; if it is empty, all that
            py3langid knows, which has three codes for Norwegian.

    Examples:
        >>> language_of_texts(["Non dago geltokia?", "Bihar euria egingo du."] * 10)
        'eu'
    """
    sample = texts[:: max(1, len(texts) // (_CHUNKS * _TEXTS_TOGETHER))]
    counts = Counter[str]()
    with suppress(UserError):
        for begin in range(0, len(sample), _TEXTS_TOGETHER):
            together = " ".join(sample[begin : begin + _TEXTS_TOGETHER])
            known = _identifier(frozenset(map(without_country, expected))) if expected else _model()
            language, probability = known.classify(together)
            counts[str(language)] += probability > 0.5
    language, count = counts.most_common(1)[0] if counts else ("", 0)
    num = num_letters(" ".join(sample)) if counts else 0
    is_certain = 2 * count > len(sample) / _TEXTS_TOGETHER
    return language if is_certain and num >= _MIN_SENTENCES * _min_letters(language) else None


def are_swapped(named: Sequence[str | None], recognised: Sequence[str | None]) -> bool:
    """Returns True if each of two texts is in the language that the other should be in.

    Args:
        named: The languages that they should be in; a country or script does not count.
        recognised: The languages that they are in; None if one is unknown.

    Examples:
        >>> are_swapped(["en", "zh_TW"], ["zh", "en"]), are_swapped(["en", "en"], ["en", "en"])
        (True, False)
    """
    codes = [without_country(code) if code else None for code in named]
    return None not in codes and codes[0] != codes[1] and codes == [*reversed(recognised)]


@cache
def _model() -> Any:
    langid = library("py3langid.langid", "py3langid", "align")
    return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)


@cache
def _identifier(expected: frozenset[str]) -> Any:
    identifier = copy.copy(_model())
    identifier.set_languages(filter(_is_recognisable, expected | _WIDESPREAD))
    return identifier


def are_shuffled(triplets: Sequence[SentenceTriplet]) -> bool:
    """Returns True if the lines of documents seem to be shuffled.

    They do if sentences share no more rare words with their neighbours than with the neighbours of
    other sentences.

    Args:
        triplets: Neighbouring sentences, evenly drawn from documents; False for too few.
    """
    if len(triplets) < _MIN_NEIGHBOURS:
        return False
    words = [[{*_WORD_OR_SIGN.findall(text.lower())} for text in each] for each in triplets]
    counts = Counter(word for _, middle, _ in words for word in middle)
    differences = []
    for number, (before, middle, after) in enumerate(words):
        far_before, _, far_after = words[(number + len(words) // 2) % len(words)]
        common = [
            sum(1 / (1 + counts[w]) for w in middle & other)
            for other in (before, after, far_before, far_after)
        ]
        differences.append(common[0] + common[1] - common[2] - common[3])
    error = stdev(differences) / len(differences) ** 0.5
    return mean(differences) <= _MIN_DEVIATIONS * error


def warn_of_unlisted(texts: Sequence[str], languages: Collection[str], subject: str) -> None:
    """Warns if texts are in none of the languages that a model lists, if it lists any.

    Args:
        texts: Sentences.
        languages: Codes, with a country or without.
        subject: Begins the warning, such as "the texts seem".
    """
    known = {without_country(code) for code in languages}
    language = language_of_texts(texts) if known else None
    if language and language not in known:
        logging.warning(
            "%s to be in %s, which is not among the %d languages of the model; "
            "`xling-tf languages %s` says which model knows it",
            *(subject, language, len(known), language),
        )


def corpus_faults(languages: str, records: Sequence[Record]) -> Iterator[str]:
    """Yields a phrase for each fault of a sample: other languages, equal sides, many repeats."""
    yield from _foreign_languages(languages, records)
    pairs = [record for record in records if isinstance(record, TranslationPair)]
    equal = sum(pair.source.casefold() == pair.target.casefold() for pair in pairs)
    if equal > _MAX_UNTRANSLATED * len(pairs):
        yield f"{equal / len(pairs):.0%} of the pairs are the same text on both sides"
    different = len(set(records))
    if different < _MIN_DIFFERENT * len(records):
        yield f"only {different} of a sample of {len(records)} records differ"


def _foreign_languages(languages: str, records: Sequence[Record]) -> Iterator[str]:
    """Yields a phrase for each side in other languages, or one if both sides are swapped."""
    faults, main = [], []
    for language, side in columns_of(languages):
        if not _is_recognisable(language):
            continue
        fields = (field for record in records for field in tuple(record)[side])
        texts = dict.fromkeys(field for field in fields if isinstance(field, str))
        recognised = (language_of(t, languages.split("-")) for t in list(texts)[:SAMPLE_SIZE])
        counts = Counter(filter(None, recognised))
        total = counts.total()
        if total < _MIN_RECOGNISED:
            continue
        main += [code for code, n in counts.most_common(1) if n > total / 2]
        del counts[without_country(language)]
        if counts.total() > _MAX_FOREIGN * total:
            frequent = [code for code, n in counts.most_common() if n > counts.total() / 4]
            share = f"{counts.total() / total:.0%} of the {language} side"
            faults.append(f"{share} look like {' or '.join(frequent) or 'other languages'}")
    codes = languages.split("-")
    if len(codes) == 2 and are_swapped(codes, main):
        yield f"the sides seem to be swapped: the first is in {main[0]}, the second in {main[1]}"
    else:
        yield from faults
