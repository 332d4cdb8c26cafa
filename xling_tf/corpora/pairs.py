"""Reads pairs of texts from any table or sequence, for every function that takes pairs.

If any column has a known name, the names decide what the columns hold. Otherwise the first two columns are
texts, a third and last column of numbers is a score, and all other columns are wrong texts.
"""

import math
import os
import re
from collections.abc import ItemsView, Iterable, Mapping, Sequence, Set
from itertools import chain
from typing import Any, NamedTuple

from xling_tf.errors import UserError
from xling_tf.inputs import encodable, plain, shown

# The names of columns, in lower case and without spaces and punctuation.
_FIRST = {"anchor", "query", "question", "source", "src", "first"}
_FIRST |= {"sentence1", "text1", "question1", "sentencea", "texta", "questiona"}
_SECOND = {"positive", "pos", "answer", "target", "tgt", "second", "response", "document", "passage"}
_SECOND |= {"sentence2", "text2", "question2", "sentenceb", "textb", "questionb"}
_SCORE = {"score", "label", "similarity", "similarityscore", "relatednessscore", "isduplicate"}
_WRONG = re.compile(r"((hard)?neg(ative)?|wrong)(text|answer)?s?\d*")
# Numeric labels of inference are not scores: 0 is entailment and 2 contradiction.
_CLASSES = {-1.0, 0.0, 1.0, 2.0}

_MIN_ROWS = 8  # fewer say hardly anything about a column
_WORD = re.compile(r"[!-~]{1,64}")  # a class, an identifier or a number, rather than a text


class Pair(NamedTuple):
    """Two texts that belong together, and perhaps a score or wrong texts."""

    first: str
    second: str
    score: float | None = None
    wrong: tuple[str, ...] = ()


def read_pairs(pairs: Any) -> list[Pair]:
    """Reads pairs of texts from rows or a table; all have a score, or none has.

    Example:
        >>> read_pairs([{"negative": "dos", "query": "one", "answer": "uno"}])
        [Pair(first='one', second='uno', score=None, wrong=('dos',))]
    """
    names, rows = _as_rows(pairs)
    if not rows:
        raise UserError("expected pairs, but there are none; an iterator gives its rows only once")
    indices = _known_indices(names or [])
    if indices:
        rows = [[row[index] for index in indices] for row in rows]
    for row in rows:  # a cell may be a list of wrong texts
        row[2:] = chain.from_iterable(cell if isinstance(cell, list | tuple) else (cell,) for cell in row[2:])
        row[:] = [encodable(cell) if isinstance(cell, str) else cell for cell in row]
    for number, row in enumerate(rows, 1):
        if len(row) < 2 or not all(isinstance(text, str) and text.strip() for text in row[:2]):
            raise _not_a_pair(number, row)
    score_name = names[indices[2]] if names and len(indices) > 2 else ""
    if _role(score_name) == "score" or (not indices and _third_column_is_score(rows)):
        return _scored(rows, score_name, names or ())
    if not indices:
        _require_texts(rows)
    result = []
    for number, (first, second, *others) in enumerate(rows, 1):
        wrong = tuple(text for text in others if not _is_missing(text))
        if not all(isinstance(text, str) for text in wrong):
            raise _not_a_pair(number, rows[number - 1])
        result.append(Pair(first, second, None, wrong))
    return result


def _as_rows(pairs: Any) -> tuple[list[str] | None, list[list[Any]]]:
    """Splits a table or rows into column names, None if there are none, and rows of values."""
    names: Any = None
    if hasattr(pairs, "itertuples"):  # pandas; its kinds of missing values become None
        rows = pairs.astype(object).where(pairs.notna(), None).itertuples(index=False, name=None)
        names = pairs.columns
    elif hasattr(pairs, "iter_rows"):  # polars
        rows = pairs.iter_rows(named=True)
    elif hasattr(pairs, "to_pylist"):  # Arrow
        rows = pairs.to_pylist()
    elif isinstance(pairs, Mapping) and pairs and all(map(_is_column, pairs.values())):
        names, columns = [*pairs], [plain(column) for column in pairs.values()]
        if len({*map(len, columns)}) > 1:
            raise UserError(f"expected columns of equal length, got lengths {[*map(len, columns)]}")
        rows = zip(*columns, strict=True)
    elif (
        isinstance(pairs, str | bytes | os.PathLike | Mapping | Set) and not isinstance(pairs, ItemsView)
    ) or not isinstance(pairs, Iterable):
        raise UserError(f"expected pairs in a list of rows or a table, got {shown(pairs)}")
    else:
        rows = pairs
    table = [plain(row) for row in rows]
    for number, row in enumerate(table, 1):
        is_named = isinstance(row, Mapping)
        if not isinstance(row, list | tuple | Mapping) or is_named != isinstance(table[0], Mapping):
            raise _not_a_pair(number, row)
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
    """Returns what a column of some name holds: "first", "second", "score", "wrong", or None if unknown."""
    key = _key(name)
    for role, names in (("first", _FIRST), ("second", _SECOND), ("score", _SCORE)):
        if key in names:
            return role
    return "wrong" if _WRONG.fullmatch(key) else None


def _known_indices(names: list[str]) -> list[int]:
    """Returns the indices of both texts, then of the score or the wrong texts; [] if no name is known."""
    roles = [_role(name) for name in names]
    indices: dict[str | None, list[int]] = {}
    for index, role in enumerate(roles):
        indices.setdefault(role, []).append(index)
    unknown = indices.pop(None, [])
    if not indices:
        return []
    sides = [indices.get(side, []) for side in ("first", "second")]
    missing = [side for side in sides if not side]
    scores, wrong = indices.get("score", []), indices.get("wrong", [])
    if len(unknown) != len(missing) or any(len(side) > 1 for side in sides) or len(scores) + bool(wrong) > 1:
        raise UserError(
            "expected two columns of texts, as anchor and positive, perhaps with score or negatives, "
            f"but the pairs have {', '.join(names)}; choose and rename columns"
        )
    others = iter(unknown)
    return [*(side[0] if side else next(others) for side in sides), *scores, *wrong]


def _is_missing(value: Any) -> bool:
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value))


def _number(value: Any) -> float | None:
    """Returns a number, or one that is written as text; None for anything else."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _third_column_is_score(rows: list[list[Any]]) -> bool:
    values = [row[2] for row in rows if len(row) > 2 and not _is_missing(row[2])]
    return bool(values) and max(map(len, rows)) == 3 and None not in map(_number, values)


def _require_texts(rows: list[list[Any]]) -> None:
    """Raises a `UserError` if one of three or more unnamed columns holds single words, such as classes."""
    num_columns = max(map(len, rows))
    for index in range(num_columns if num_columns > 2 else 0):
        texts = [row[index] for row in rows if len(row) > index and isinstance(row[index], str)]
        if len(texts) >= _MIN_ROWS and all(_WORD.fullmatch(text.strip()) for text in texts):
            raise UserError(
                "expected rows of two texts, then wrong texts or a score, but column "
                f"{index + 1} has single words, like classes or identifiers: {texts[0]!r}; leave it out; if "
                'it is right, name the columns "anchor", "positive", "negative" or "score"'
            )


def _scored(rows: list[list[Any]], name: str, names: Sequence[str]) -> list[Pair]:
    if without := sum(len(row) < 3 for row in rows):
        raise UserError(f"expected a score for all {len(rows)} pairs or for none, but {without} have none")
    result = []
    for number, (first, second, value) in enumerate(rows, 1):
        score = _number(value)
        if score is None or not math.isfinite(score):
            raise _not_a_pair(number, rows[number - 1])
        result.append(Pair(first, second, score))
    scores = {pair.score or 0.0 for pair in result}
    is_inference = "hypothesis" in map(_key, names) or max(_CLASSES) in scores
    if _key(name) == "label" and scores <= _CLASSES and is_inference:
        raise UserError(
            f"expected scores, but the column {name} has only {sorted(scores)}, like the classes of "
            "inference (0 is entailment); if they are scores, call the column score"
        )
    return result


def _not_a_pair(number: int, row: Any) -> UserError:
    return UserError(
        f"pair {number} must be two texts that are not empty, and perhaps a score (a finite number) or wrong "
        f"texts, got {shown(row)}; correct it, or leave it out"
    )
