"""Reads pairs of texts from any table or sequence, in the same way for every function that takes pairs.

Known column names say what a column holds. Without them, the first two columns are texts, and the values of
the others tell whether they are a score or wrong texts. A column that may be neither, such as classes or
identifiers, is refused: trained on as text, it would do harm silently.
"""

import math
import os
import re
from collections.abc import ItemsView, Iterable, Mapping, Sequence, Set
from decimal import Decimal
from itertools import chain
from numbers import Real
from typing import Any, NamedTuple

from xling_tf.errors import UserError
from xling_tf.inputs import plain, shown

# The names of columns, in lower case and without spaces and punctuation.
_FIRST = {"anchor", "query", "question", "source", "src", "first"}
_NUMBERED = re.compile(r"(sentence|text|question)[12ab]")
_FIRST |= {"sentence1", "text1", "question1", "sentencea", "texta", "questiona"}
_SECOND = {"positive", "pos", "answer", "target", "tgt", "second", "response", "document", "passage"}
_SECOND |= {"sentence2", "text2", "question2", "sentenceb", "textb", "questionb"}
_SCORE = {"score", "label", "similarity", "similarityscore", "relatednessscore", "isduplicate"}
_WRONG = re.compile(r"((hard)?neg(ative)?|wrong)(text|answer)?s?\d*")
# Labels of inference as numbers are no scores: 0 is entailment and 2 contradiction.
_CLASSES = {-1.0, 0.0, 1.0, 2.0}

# Fewer rows tell hardly anything about a column.
_FEWEST_ROWS = 8
# A column holds numbers, or identifiers, if at least this share of its values are.
_NEARLY_ALL = 0.9
# A column of texts is refused if at least this share of them are numbers.
_TOO_MANY_NUMBERS = 0.25
# A column of classes has at most this many different values, or twice the root of the number of rows.
_MOST_CLASSES = 20
_SAMPLED_ROWS = 5000  # looked at to tell what a column holds
_HIGHEST_SCORE = 100  # of whole numbers that are all different

_IDENTIFIER = re.compile(r"(?=[!-~]*[\d_/:#@])[!-~]{1,64}")  # one ASCII word with a digit or a sign in it
_WORD = re.compile(r"[!-~]{1,32}")
_FEW_WORDS = re.compile(r"\S+(\s+\S+){0,3}")
_DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+")
_THOUSANDS = re.compile(r"[-+]?0*[1-9]\d*,\d{3}")  # or three decimals


class Pair(NamedTuple):
    """Two texts that belong together, and their score or wrong texts, if there are any."""

    first: str
    second: str
    score: float | None = None
    wrong: tuple[str, ...] = ()


def read_pairs(pairs: Any, chosen: Sequence[str] = ()) -> list[Pair]:
    """Reads pairs of texts, perhaps with a score or wrong texts.

    Args:
        pairs: Rows in a list, an array or an iterator, or a table of pandas, Arrow, polars or `datasets`.
            A row is a sequence or a dict.
        chosen: The names of the columns that hold the two texts; no other column is read.

    Returns:
        The pairs, all with a score or all without.

    Raises:
        UserError: There are no pairs, a row is no pair, or a column may be neither texts nor scores.

    Example:
        >>> read_pairs([("one", "uno", "0.5")])
        [Pair(first='one', second='uno', score=0.5, wrong=())]
        >>> read_pairs([{"negative": "dos", "query": "one", "answer": "uno"}])
        [Pair(first='one', second='uno', score=None, wrong=('dos',))]
    """
    names, rows = as_rows(pairs)
    if not rows:
        raise UserError("pairs are expected, but there are none; an iterator gives its rows only once")
    if names is None and _is_header(rows[0]):
        raise UserError(
            f"pair 1 is {shown(rows[0])}, which are names of columns; leave that line out, or read the file "
            "with pandas.read_csv"
        )
    places = _places_of(chosen, names) if chosen else _places_by_role(names or [])
    if places:
        rows = [[row[place] for place in places] for row in rows]
    rows = [[*row[:2], *_spread(row[2:])] for row in rows]
    for number, row in enumerate(rows, 1):
        is_pair = len(row) > 1 and all(isinstance(text, str) and text.strip() for text in row[:2])
        if not is_pair or not all(_is_missing(v) or isinstance(v, str | Real | Decimal) for v in row[2:]):
            raise _no_pair(number, row)
    score_name = names[places[2]] if names and len(places) > 2 else ""
    if _role(score_name) == "score" or (not places and _ends_in_scores(rows)):
        return _scored(rows, score_name, is_inference="hypothesis" in map(_key, names or ()))
    result = []
    for number, (first, second, *others) in enumerate(rows, 1):
        wrong = tuple(text for text in others if not _is_missing(text))
        if not all(isinstance(text, str) for text in wrong):
            raise _no_pair(number, rows[number - 1])
        result.append(Pair(first, second, None, wrong))
    return result


def as_rows(pairs: Any) -> tuple[list[str] | None, list[list[Any]]]:
    """Splits a table or rows into the names of the columns, None if they have none, and rows of values.

    Example:
        >>> as_rows([{"a": 1}, {"b": 2}])
        (['a', 'b'], [[1, None], [None, 2]])
        >>> as_rows(iter([("one", "uno")]))
        (None, [['one', 'uno']])
    """
    names: Any = None
    if hasattr(pairs, "itertuples"):  # pandas; its kinds of missing values become None
        rows = pairs.astype(object).where(pairs.notna(), None).itertuples(index=False, name=None)
        names = pairs.columns
    elif hasattr(pairs, "iter_rows"):  # polars
        names, rows = pairs.columns, pairs.iter_rows()
    elif hasattr(pairs, "to_pylist"):  # Arrow
        names = getattr(pairs, "column_names", getattr(getattr(pairs, "schema", None), "names", None))
        rows = pairs.to_pylist() if names is None else zip(*map(plain, pairs.columns), strict=True)
    elif getattr(getattr(pairs, "dtype", None), "names", None):  # a structured array
        names, rows = pairs.dtype.names, pairs.tolist()
    elif isinstance(pairs, Mapping) and pairs and all(map(_is_column, pairs.values())):
        names, columns = [*pairs], [plain(column) for column in pairs.values()]
        if len({*map(len, columns)}) > 1:
            raise UserError(f"columns of one length are expected, got {[*map(len, columns)]}")
        rows = zip(*columns, strict=True)
    elif (
        isinstance(pairs, str | bytes | os.PathLike | Mapping | Set) and not isinstance(pairs, ItemsView)
    ) or not isinstance(pairs, Iterable):
        raise UserError(
            f"pairs are expected in a list of rows or a table, got {shown(pairs)}; read a file with "
            "pandas.read_csv, choose a split of a dataset, or give the items() of a dict"
        )
    else:
        rows = pairs
    table = [plain(row) for row in rows]
    for number, row in enumerate(table, 1):
        is_named = isinstance(row, Mapping)
        if not isinstance(row, list | tuple | Mapping) or is_named != isinstance(table[0], Mapping):
            raise _no_pair(number, row)
    if table and isinstance(table[0], Mapping):
        names = [*dict.fromkeys(chain.from_iterable(table))]
        table = [[row.get(name) for name in names] for row in table]
    # pandas numbers columns that have no names.
    if names is not None:
        names = [*names] if all(isinstance(name, str) for name in names) else None
    return names, [[*map(plain, row)] for row in table]


def _is_column(value: Any) -> bool:
    return isinstance(plain(value), list | tuple)


def _key(name: Any) -> str:
    return re.sub(r"[\s_-]", "", str(name).lower())


def _role(name: Any) -> str | None:
    """What a column's name says that it holds: "first", "second", "score" or "wrong"; None if nothing."""
    key = _key(name)
    for role, names in (("first", _FIRST), ("second", _SECOND), ("score", _SCORE)):
        if key in names:
            return role
    return "wrong" if _WRONG.fullmatch(key) else None


def _is_header(row: Sequence[Any]) -> bool:
    """True if a row holds the names of columns."""
    roles = [_role(value) if isinstance(value, str) else None for value in row]
    return {"first", "second"} <= set(roles) and None not in roles


def _places_of(chosen: Sequence[str], names: list[str] | None) -> list[int]:
    for name in chosen:
        if name not in (names or ()):
            raise UserError(f"a column named {name!r} is expected, but the pairs have {_listed(names)}")
    return [(names or []).index(name) for name in chosen]


def _places_by_role(names: list[str]) -> list[int]:
    """Finds the columns of the two texts, then of the score or the wrong texts; [] if no name is known."""
    roles = [_role(name) for name in names]
    if not {"first", "second"} <= {*roles}:
        # Beside a column "text", "text1" is the second one.
        roles = [None if _NUMBERED.fullmatch(_key(n)) else role for n, role in zip(names, roles, strict=True)]
    places: dict[str | None, list[int]] = {}
    for place, role in enumerate(roles):
        places.setdefault(role, []).append(place)
    unknown = places.pop(None, [])
    if not places:
        return []
    sides = [places.get(side, []) for side in ("first", "second")]
    missing = [side for side in sides if not side]
    scores, wrong = places.get("score", []), places.get("wrong", [])
    if len(unknown) != len(missing) or any(len(side) > 1 for side in sides) or len(scores) + bool(wrong) > 1:
        raise UserError(
            "two columns of texts are expected, such as anchor and positive, or sentence1 and sentence2, and "
            f"perhaps a score or negatives, but the pairs have {_listed(names)}; choose and rename: "
            'table[["a", "b"]].rename(columns={"a": "anchor", "b": "positive"})'
        )
    left = iter(unknown)
    return [*(side[0] if side else next(left) for side in sides), *scores, *wrong]


def _spread(cells: Iterable[Any]) -> Iterable[Any]:
    """Flattens cells that are lists, such as lists of negatives."""
    return chain.from_iterable(cell if isinstance(cell, list | tuple) else (cell,) for cell in cells)


def _is_missing(value: Any) -> bool:
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value))


def _number(value: Any) -> float | None:
    """A number, or one that is written as text; None for anything else."""
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, str | Real | Decimal):
        return None
    text = str(value).strip()
    digits = text.removesuffix("%").rstrip()
    if _THOUSANDS.fullmatch(digits):
        return math.nan  # thousands or decimals
    if "_" in digits:
        return None
    if _DECIMAL_COMMA.fullmatch(digits):
        digits = digits.replace(",", ".")
    try:
        return float(digits) / (100 if text.endswith("%") else 1)
    except ValueError:
        return None


def _kind(column: Sequence[Any]) -> str:
    """What nearly all values of a column are."""
    if sum(_number(value) is not None for value in column) >= _NEARLY_ALL * len(column):
        return "numbers"
    return "identifiers" if _share(column, _IDENTIFIER) >= _NEARLY_ALL else "texts"


def _share(column: Sequence[Any], pattern: re.Pattern[str]) -> float:
    matches = (isinstance(value, str) and pattern.fullmatch(value.strip()) for value in column)
    return sum(map(bool, matches)) / len(column)


def _ends_in_scores(rows: list[list[Any]]) -> bool:
    """True if a score follows the two texts, in rows without column names; refuses ambiguous columns."""
    num_columns = max(map(len, rows))
    kinds = _kinds_of_texts(rows, num_columns)
    for place in range(2, num_columns):
        full = [row for row in rows if len(row) > place and not _is_missing(row[place])]
        if not full:
            raise next(_no_pair(n, row) for n, row in enumerate(rows, 1) if len(row) > place)
        is_typed = not all(isinstance(row[place], str) for row in full)
        full = _sample(full)
        not_numbers = [row[place] for row in full if _number(row[place]) is None]
        if num_columns == 3 and (is_typed or not not_numbers):
            if _are_row_numbers([_number(row[place]) or 0.0 for row in full]):
                raise _no_text(place, f"whole numbers in it that are all different, as {full[0][place]!r}")
            return True
        if is_typed or len(not_numbers) <= (1 - _TOO_MANY_NUMBERS) * len(full):
            raise _no_text(
                place, f"numbers in it, and {not_numbers[0]!r}" if not_numbers else "numbers in it"
            )
        if len(full) >= _FEWEST_ROWS:
            if kinds[1] == "texts" and _kind([row[place] for row in full]) != "texts":
                raise _no_text(place, f"identifiers in it, as {full[0][place]!r}")
            _require_no_classes(full, place)
    return False


def _kinds_of_texts(rows: list[list[Any]], num_columns: int) -> list[str]:
    """The kinds of the first two columns; refuses one that is not text beside one that is."""
    sample = _sample(rows)
    first, second = ([row[place] for row in sample] for place in range(2))
    kinds = [_kind(first), _kind(second)]
    if len(rows) < _FEWEST_ROWS or "texts" not in kinds:
        return kinds
    for place, kind in enumerate(kinds):
        if num_columns == 2:
            # Names may belong to codes, and questions may have numbers as answers.
            is_text = kind == "identifiers" or (place == 1 and not _are_few(second, first))
        else:
            wrong = [cell for row in sample for cell in row[2:]]
            is_text = place == 1 and kind == "identifiers" and _kind(wrong) == "identifiers"
        if kind != "texts" and not is_text:
            raise _no_text(place, f"{kind} in it, as {rows[0][place]!r}")
    return kinds


def _require_no_classes(rows: list[list[Any]], wrong_place: int) -> None:
    """Refuses rows in which one of the two texts, or the wrong text, has as few values as classes have."""
    columns = {place: [row[place] for row in rows] for place in (0, 1, wrong_place)}
    for place, values in columns.items():
        others = [column for other, column in columns.items() if other != place]
        # Hundreds of answers may belong to a few questions, but those have more than one word. One wrong text
        # may belong to many rows if it is long, or the right one of other rows.
        pattern = _FEW_WORDS if place == wrong_place else _WORD
        is_text = _share(values, pattern) < 1 or {*values} <= {*chain(*others)}
        if _are_few(values, *others) and not is_text:
            why = f"only {len({*values})} different values in {len(rows)} rows, like classes"
            raise _no_text(place, f"{why}: {rows[0][place]!r}")


def _are_few(values: Sequence[Any], *others: Sequence[Any]) -> bool:
    """True if values are as few as classes, and much fewer than those of the other columns."""
    count, limit = len({*values}), max(_MOST_CLASSES, 2 * math.isqrt(len(values)))
    return count <= limit and 2 * count < min(len({*column}) for column in others)


def _are_row_numbers(numbers: list[float]) -> bool:
    """True if numbers are whole and all different, and ascending or too high for scores."""
    is_different = len({*numbers}) == len(numbers) >= _FEWEST_ROWS
    is_high = numbers == sorted(numbers) or max(numbers) > _HIGHEST_SCORE
    return is_different and is_high and all(number % 1 == 0 for number in numbers)


def _sample(rows: list[list[Any]]) -> list[list[Any]]:
    return rows[:: math.ceil(len(rows) / _SAMPLED_ROWS)]


def _no_text(place: int, why: str) -> UserError:
    return UserError(
        "rows are expected to be two texts, then wrong texts, or a score in the third and last place, but "
        f"column {place + 1} has {why}; leave it out, or turn classes into scores; if it is right, give a "
        'table or dicts with the column names "anchor", "positive", "negative" or "score"'
    )


def _scored(rows: list[list[Any]], name: str, *, is_inference: bool) -> list[Pair]:
    if without := sum(len(row) < 3 for row in rows):
        raise UserError(f"a score is expected of all {len(rows)} pairs or of none, but {without} have none")
    result = []
    for number, (first, second, value) in enumerate(rows, 1):
        score = _number(value)
        if score is None or not math.isfinite(score):
            raise _no_pair(number, rows[number - 1])
        result.append(Pair(first, second, score))
    scores = {pair.score or 0.0 for pair in result}
    if _key(name) == "label" and scores <= _CLASSES and (is_inference or max(_CLASSES) in scores):
        raise UserError(
            f"scores are expected, but the column {name} has only {sorted(scores)} in it, like the classes "
            "of inference (0 is entailment); if they are scores, call the column score"
        )
    return result


def _no_pair(number: int, row: Any) -> UserError:
    return UserError(
        f'pair {number} is expected to be two texts that are not empty, ("one", "other"), perhaps with a '
        f"score, a finite number, or with wrong texts, got {shown(row)}; correct it, leave it out, or choose "
        "the columns of texts"
    )


def _listed(names: Sequence[Any] | None) -> str:
    return ", ".join(map(str, names)) if names else "columns without names"
