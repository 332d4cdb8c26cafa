"""What columns hold, by the names that widespread data sets give them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

# "Question", "answer" and "translation" in other languages.
_QUESTION = (
    "pregunta|pergunta|frage|domanda|vraag|fråga|spørgsmål|spørsmål|kysymys|pytanie|otázka|kérdés"
    "|întrebare|galdera|soru|pertanyaan|câuhỏi|вопрос|питання|въпрос|ερώτηση|سؤال|שאלה|प्रश्न"
    "|คำถาม|问题|問題|質問|질문"
)
_ANSWER = (
    "respuesta|resposta|réponse|reponse|antwort|risposta|antwoord|svar|vastaus|odpowiedź|odpověď"
    "|odpoveď|válasz|răspuns|erantzuna|cevap|yanıt|jawaban|trảlời|ответ|відповідь|отговор|απάντηση"
    "|جواب|إجابة|תשובה|उत्तर|คำตอบ|答案|回答|答え|답변|traducción|traduccion|traduction"
    "|tradução|traduzione|übersetzung|vertaling|перевод|翻译|翻訳"
)
# The roles of columns in pairs by their names, in lower case without spaces and punctuation.
_ROLES = re.compile(
    "(?P<first>anchor|query|source|src|first|message|premise|(?:sentence|text|question)[1a]"
    rf"|(?:question|{_QUESTION})s?)"
    "|(?P<second>pos|positive|target|tgt|second|response|reply|hypothesis|document|passage"
    rf"|(?:sentence|text|question)[2b]|(?:answer|{_ANSWER})s?)"
    r"|(?P<score>score|label|similarity|similarityscore|relatedness|relatednessscore|isduplicate)"
    r"|(?P<wrong>(?:(?:hard)?neg(?:ative)?|wrong)(?:text|answer)?s?\d*)"
)
# Numbers of rows, and the index that pandas writes.
_ROW_NUMBER = re.compile(
    r"(?:pair|sentence|question|row|example|q|gu|uu)?(?:id|idx|index)\d?|indexlevel\d|unnamed:\d+|"
)
# Of a first row that names columns in any language: see `is_unlike`.
_NOT_A_NAME = re.compile(r"[.?!:;,¿¡。？！，、；：؟،।]|^[\d\s.,-]+$")
_LONGEST_NAME, _ENOUGH_ROWS, _NEARLY_ALL = 40, 8, 0.9
# Other names of columns in widespread data sets, the best first.
_OTHER_NAMES = {
    "source": ("english",),
    "target": ("nonenglish",),
    "question": ("query",),
    "response": ("reply",),
    "sentence1": ("sentencea", "text1", "texta", "question1"),
    "sentence2": ("sentenceb", "text2", "textb", "question2"),
    "score": "similarityscore similarity relatednessscore relatedness label isduplicate".split(),
}
_LANGUAGE_NAMES = dict(
    entry.split(":")
    for entry in (
        "afrikaans:af albanian:sq amharic:am arabic:ar armenian:hy azerbaijani:az basque:eu "
        "belarusian:be bengali:bn bosnian:bs bulgarian:bg burmese:my catalan:ca chinese:zh "
        "croatian:hr czech:cs danish:da dutch:nl english:en esperanto:eo estonian:et finnish:fi "
        "french:fr galician:gl georgian:ka german:de greek:el gujarati:gu hausa:ha hebrew:he "
        "hindi:hi hungarian:hu icelandic:is indonesian:id irish:ga italian:it japanese:ja "
        "kannada:kn kazakh:kk khmer:km korean:ko kurdish:ku lao:lo latin:la latvian:lv "
        "lithuanian:lt macedonian:mk malay:ms malayalam:ml maltese:mt marathi:mr mongolian:mn "
        "nepali:ne norwegian:no pashto:ps persian:fa polish:pl portuguese:pt punjabi:pa "
        "romanian:ro russian:ru serbian:sr sinhala:si slovak:sk slovenian:sl somali:so spanish:es "
        "swahili:sw swedish:sv tagalog:tl tamil:ta telugu:te thai:th turkish:tr ukrainian:uk "
        "urdu:ur uzbek:uz vietnamese:vi welsh:cy yoruba:yo zulu:zu"
    ).split()
)
_LANGUAGES = frozenset(_LANGUAGE_NAMES.values())
# Words beside a language in the name of a column, and forms of Chinese writing.
_OTHER_WORDS = {"text", "sentence", "sent", "translation", "translations", "translated", "lang"}
_OTHER_WORDS |= {"language", "source", "target", "src", "tgt"}
_SCRIPTS = {"simplified": "hans", "traditional": "hant"}


def name_key(name: Any) -> str:
    """Returns the name of a column in lower case, without spaces and punctuation."""
    return re.sub(r"[\s_-]", "", str(name).lower())


def role_of(name: Any) -> str | None:
    """What a column of some name holds: "first", "second", "score", "wrong", None if unknown."""
    match = _ROLES.fullmatch(name_key(name))
    return match and match.lastgroup


def is_row_number(name: Any) -> bool:
    """Returns True if a column of some name, or without a name, numbers the rows."""
    return bool(_ROW_NUMBER.fullmatch(name_key(name)))


def language_in(name: Any) -> str:
    """Returns the language that a column's name may stand for, in lower case; "" if there is none.

    Examples:
        >>> names = ("Spanish", "text_es", "es-ES", "translation.zh_Hans", "title")
        >>> [language_in(name) for name in names]
        ['es', 'es', 'es_es', 'zh_hans', '']
    """
    words = [w for w in re.split(r"[\W_]+", str(name).lower()) if w and w not in _OTHER_WORDS]
    language, *region = words or [""]
    parts = [_LANGUAGE_NAMES.get(language, language)]
    code = "_".join([*parts, *(_SCRIPTS.get(word, word) for word in region)])
    return code if re.fullmatch(r"[a-z]{2,3}(_([a-z]{2}|[a-z]{4}|\d{3}))?", code) else ""


def is_header(cells: Iterable[Any]) -> bool:
    """Returns True if all cells of a first row are names of columns."""
    return all(
        role_of(c) or name_key(c) == "context" or (name_key(c) and is_row_number(c)) for c in cells
    )


def names_columns(cells: Sequence[Any], languages: Sequence[str] = ()) -> bool:
    """Returns True if a first row has known names of columns of pairs, perhaps among others."""
    return any(roles_of(cells, languages)) or len(language_columns(cells)) > 2


def is_unlike(first: Sequence[str], others: Sequence[Sequence[str]]) -> bool:
    """Returns True if a first row, in any language, surely names the columns of the other rows.

    Its cells are short, without punctuation, and shorter than nearly all others in a column of
    texts. There must be enough other rows of as many cells; columns of numbers and categories do
    not matter.

    Examples:
        >>> rows = [("Wo kann ich parken?", "Vor dem Haus, den ganzen Tag.")] * 8
        >>> is_unlike(("Frage", "Antwort"), rows), is_unlike(("Danke!", "Bitte sehr!"), rows)
        (True, False)
    """
    texts = [cell.strip() for cell in first]
    alike = [cells for cells in others if len(cells) == len(first)]
    if (
        len(alike) < _ENOUGH_ROWS
        or len({*filter(None, texts)}) < max(2, sum(map(bool, texts)))
        or any(_NOT_A_NAME.search(text) or len(text) > _LONGEST_NAME for text in texts)
    ):
        return False
    columns = zip(texts, zip(*alike, strict=True), strict=True)
    long = [
        sum(len(cell) >= 2 * len(text) for cell in column) >= _NEARLY_ALL * len(column)
        for text, column in columns
        if text
    ]
    return sum(long) >= 2 and not {tuple(first)} & {*map(tuple, alike)}


def roles_of(names: Sequence[Any], order: Sequence[str] = ()) -> list[str | None]:
    """Returns each column's role, see `role_of`; if none, two languages are "first" and "second".

    They are in the order of the columns, or in `order`, if columns are named by these languages.

    Examples:
        >>> roles_of(["idx", "label", "sentence1", "sentence2"])
        [None, 'score', 'first', 'second']
        >>> roles_of(["id", "text_es", "text_en"])
        [None, 'first', 'second']
    """
    roles = [role_of(name) for name in names]
    if any(roles):
        return roles
    places = language_columns(names)
    wanted = find_columns([names[place] for place in places], ("source", "target"), others=order)
    if order and wanted:
        places = [places[index] for index in wanted if index is not None]
    if len({language_in(names[place]) for place in places}) == len(places) == 2:
        for place, role in zip(places, ("first", "second"), strict=True):
            roles[place] = role
    return roles


def language_columns(names: Sequence[Any]) -> list[int]:
    """Returns the places of columns that are named by known languages."""
    places = [place for place, name in enumerate(names) if is_language(name)]
    if len(places) > 2:  # "id" may be Indonesian, or a number
        places = [place for place in places if not is_row_number(names[place])]
    return places


def is_language(name: Any) -> bool:
    """Returns True if a column is named by a known language, see `language_in`."""
    return language_in(name).split("_")[0] in _LANGUAGES


def find_columns(
    names: Sequence[str], columns: Sequence[str], *, others: Sequence[str] = (), optional: int = 0
) -> list[int | None] | None:
    """Finds columns by their names, or by other names, which may be the codes of languages.

    A language is also found by its English name, with a region, and beside words such as "text".

    Returns the place of each column, None for an optional one (of the last) that is missing; None
    instead of a list if a column is missing, if two have its name, or if one stands for two.

    Examples:
        >>> find_columns(["id", "es", "en"], ["source", "target"], others=["en", "es"])
        [2, 1]
        >>> find_columns(["Spanish", "text_en"], ["source", "target"], others=["en", "es"])
        [1, 0]
    """
    places: list[int | None] = []
    for column, other in zip_longest(columns, others, fillvalue=""):
        matches = next(filter(None, _matches(names, column, other)), [])
        if len(matches) > 1 or not (matches or len(places) >= len(columns) - optional):
            return None
        places.append(matches[0] if matches else None)
    found = [place for place in places if place is not None]
    return places if len({*found}) == len(found) else None


def _matches(names: Sequence[str], column: str, other: str) -> Iterator[list[int]]:
    """Yields the places of columns that may be meant, the best first."""
    keys = [name_key(name) for name in names]
    known = [name_key(column), *([name_key(other)] if other else [])]
    yield from ([place for place, key in enumerate(keys) if key == name] for name in known)
    code, language = other.lower(), other.lower().split("_")[0]
    if other:
        languages = [language_in(name) for name in names]
        yield [place for place, found in enumerate(languages) if found == code]
        yield [place for place, found in enumerate(languages) if found.split("_")[0] == language]
    more = _OTHER_NAMES.get(column, ())
    if other and column in ("source", "target"):  # English may be either of them
        more = ("english",) if language == "en" else ("nonenglish",)
    yield from ([place for place, key in enumerate(keys) if key == name] for name in more)
