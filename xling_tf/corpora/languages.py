"""Which language a text is in, by its character n-grams, where these are sure of it."""

import copy
import difflib
import locale
import re
from collections.abc import Collection
from functools import cache

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from xling_tf.errors import UserError

# The languages that most text is in, which a text may be in besides the expected ones. Every further
# one costs mistakes on short texts: with all 139, 2% of sentences of 20 to 40 letters, here 0.2%.
_WIDESPREAD = frozenset(
    (
        *("ar", "bg", "cs", "da", "de", "el", "en", "es", "fa", "fi", "fr", "he", "hi", "hu", "id"),
        *("it", "ja", "ko", "nl", "pl", "pt", "ro", "ru", "sv", "th", "tr", "uk", "vi", "zh"),
    )
)
_SURE = 0.9  # probability
# Letters; shorter texts are names and labels as often as sentences.
_SHORTEST = 20
_SHORTEST_UNSPACED = 7
_UNSPACED = frozenset({"ja", "ko", "th", "zh"})


def plain(language: str) -> str:
    """The code of a language without its region: "pt" of "pt_BR"."""
    return language.partition("_")[0]


def is_recognisable(language: str) -> bool:
    """Whether texts in a language, as "es" or "pt_BR", can be recognised."""
    return plain(language) in _model().nb_classes


def require_known(language: str, used: Collection[str] = ()) -> None:
    """Makes sure that a code, as "es" or "pt_BR", is that of a language.

    Known are the languages that can be recognised and those of Python's list of locales.

    Args:
        language: The code.
        used: Codes that are known too, as those of files that are there.

    Raises:
        UserError: It is none.
    """
    known = {re.split(r"\W|_", name)[0] for name in locale.locale_alias.values()}
    if language in used or plain(language) in known or is_recognisable(language):
        return
    meant = difflib.get_close_matches(re.split("[-_]", language.lower())[0], {*used, *_WIDESPREAD})
    hint = f"; did you mean {meant[0]}?" if meant else ""
    raise UserError(
        "a language is expected by its code as in file names (ISO 639-1: en, es, zh_TW), got "
        f"{language!r}{hint}"
    )


def language_of(text: str, expected: Collection[str]) -> str | None:
    """The language of a text (py3langid; Lui and Baldwin 2012).

    Args:
        text: A sentence.
        expected: The languages that it should be in, as ["en", "es"]; it may be in a widespread
            one instead.

    Returns:
        The language's plain code, or None where the text is too short to tell or could as well be
        in another one.

    Example:
        >>> language_of("The children are playing in the garden.", ["en", "es"])
        'en'
        >>> language_of("Madrid", ["en", "es"]) is None
        True
    """
    language, probability = _identifier(frozenset(map(plain, expected))).classify(text)
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
    identifier.set_languages(filter(is_recognisable, expected | _WIDESPREAD))
    return identifier
