"""Reads pairs of texts from any table, file or sequence, for every function that takes pairs.

The names of columns say what they hold; numbers of rows are left out. Two columns that are named by
languages are a pair, as are the texts of `translation: {"en": ..., "es": ...}`. Without names, two
texts are a pair, and three are a text, the right and a wrong one, as in sentence-transformers;
anything else needs names.
"""

import math
import os
import re
from collections.abc import ItemsView, Iterable, Mapping, Sequence, Set
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from xling_tf.client.texts import as_python, describe, encodable, is_blank
from xling_tf.corpora.column_names import (
    is_header,
    is_row_number,
    language_columns,
    name_key,
    role_of,
    roles_of,
)
from xling_tf.corpora.tables import NESTED, flattened, header_of, read_table
from xling_tf.errors import UserError, as_user_error

# The names of classes, written in the same way.
_SAME = "(entailment|duplicate|equivalent|paraphrase|similar|same|match|true|yes)"
_DIFFERENT = re.compile(f"(not?|non|dis|un){_SAME}|false|no|different")
_OTHER_CLASSES = {"neutral", "contradiction"}  # of inference
# Classes of inference are not scores: 0 is entailment and 2 contradiction.
_INFERENCE = {-1.0, 0.0, 1.0, 2.0}
_UNNAMED = ("anchor", "positive", "negative")
_ADVICE = 'name the columns "anchor", "positive", "negative", or "sentence1", "sentence2", "score"'


class Pair(NamedTuple):
    """Two texts that belong together, and perhaps a score or wrong texts."""

    first: str
    second: str
    score: float | None = None
    wrong: tuple[str, ...] = ()


def read_pairs(pairs: Any, languages: Sequence[str] = ()) -> list[Pair]:
    """Reads pairs of texts from rows, a table or a table's path; all have a score, or none has.

    Columns that are named by languages alone are in the order of `languages`, or else in their own.

    Raises:
        UserError: The columns have no names and are not two or three texts, or a row is not a pair.

    Examples:
        >>> read_pairs([{"negative": "dos", "query": "one", "answer": "uno"}])
        [Pair(first='one', second='uno', score=None, wrong=('dos',))]
        >>> read_pairs([{"sentence1": "one", "sentence2": "uno", "label": "entailment"}])
        [Pair(first='one', second='uno', score=1.0, wrong=())]
    """
    names, table = _as_rows(pairs, languages)
    roles = _roles(names, languages) or _roles_of_texts(table)
    score_name = dict(zip(roles, names, strict=False)).get("score", "")
    features = getattr(pairs, "features", None)  # of a Hugging Face dataset
    classes = (
        getattr(features.get(score_name), "names", ()) if isinstance(features, Mapping) else ()
    )
    result, numbers = [], set()
    for number, row in enumerate(table, 1):
        cells: dict[str, list[Any]] = {"first": [], "second": [], "wrong": [], "score": []}
        for role, cell in zip(roles, row, strict=False):
            if role is None:
                continue
            cells[role] += map(
                as_python, cell if isinstance(cell, list | tuple) and role == "wrong" else [cell]
            )
        wrong = [text for text in cells["wrong"] if not _is_missing(text)]
        texts = [*cells["first"], *cells["second"], *wrong]
        scores = [_score(value, classes) for value in cells["score"]]
        if (
            not all(isinstance(text, str) and not is_blank(text) for text in texts)
            or None in scores
        ):
            raise _not_a_pair(number, row)
        first, second, *wrong = map(encodable, texts)
        result.append(Pair(first, second, scores[0] if scores else None, tuple(wrong)))
        numbers |= {*map(_number, cells["score"])}
    is_inference = "hypothesis" in map(name_key, names) or max(_INFERENCE) in numbers
    if name_key(score_name) == "label" and is_inference and numbers <= _INFERENCE and not classes:
        raise UserError(
            f"expected scores, but the column {score_name} has classes of inference (0 is "
            "entailment); if they are scores, call the column score"
        )
    return result


def _as_rows(pairs: Any, languages: Sequence[str]) -> tuple[list[str], list[list[Any]]]:
    """Splits a table or rows into column names, none if there are none, and rows of values."""
    names: Any = None
    if isinstance(pairs, str | os.PathLike):
        first = header_of(Path(pairs))
        names = [
            name for name, role in zip(first, _roles(first, languages), strict=False) if role
        ] or None
        table: list[Any] = read_table(Path(pairs), names or _UNNAMED[: len(first)])
    elif hasattr(pairs, "itertuples"):  # pandas
        names, table = pairs.columns, [*pairs.itertuples(index=False, name=None)]
    elif hasattr(pairs, "to_pydict"):  # Arrow, where several columns may have one name
        names = pairs.schema.names
        table = [*zip(*(c.to_pylist() for c in pairs.columns), strict=True)]
    elif isinstance(pairs, Mapping) and pairs and all(map(_is_column, pairs.values())):
        with as_user_error("expected columns of equal length, but {error}", ValueError):
            names, table = [*pairs], [*zip(*map(as_python, pairs.values()), strict=True)]
    else:
        rows = [*pairs] if isinstance(pairs, ItemsView) else as_python(pairs)
        if isinstance(rows, bytes | Mapping | Set) or not isinstance(rows, Iterable):
            raise UserError(
                f"expected pairs in a list of rows, a table or its path, got {describe(pairs)}"
            )
        table = [*map(as_python, rows)]
    if not table:
        raise UserError("expected pairs, but there are none; an iterator gives its rows only once")
    kind: Any = Mapping if isinstance(table[0], Mapping) else list | tuple
    for number, row in enumerate(table, 1):
        if not isinstance(row, kind):
            raise _not_a_pair(number, row)
    if names is not None and not NESTED.isdisjoint(names):
        table, kind = [dict(zip(names, row, strict=True)) for row in table], Mapping
    if kind is Mapping:
        # A row may lack the translations that others have.
        nested = {name for row in table for name in NESTED if isinstance(row.get(name), Mapping)}
        table = [*map(flattened, table)]
        names = [name for name in dict.fromkeys(chain.from_iterable(table)) if name not in nested]
        table = [[row.get(name) for name in names] for row in table]
    # pandas numbers columns that have no names.
    is_named = names is not None and all(isinstance(name, str) for name in names)
    return [*names] if is_named else [], [[*map(as_python, row)] for row in table]


def _is_column(value: Any) -> bool:
    return isinstance(as_python(value), list | tuple)


def _roles(names: Sequence[str], languages: Sequence[str]) -> list[str | None]:
    """Returns the roles of columns, None for those to leave out; [] if there is no known name."""
    roles, by_language = roles_of(names, languages), language_columns(names)
    if not any(roles) and len(by_language) < 3:
        return []
    counts = [roles.count(role) for role in ("first", "second", "score")]
    # Of columns in three or more languages, the others are left out.
    chosen = by_language if any(roles) and not any(map(role_of, names)) else []
    unknown = [
        name
        for place, (name, role) in enumerate(zip(names, roles, strict=True))
        if not (role or is_row_number(name) or place in chosen)
    ]
    is_ambiguous = "score" in roles and "wrong" in roles
    if counts not in ([1, 1, 0], [1, 1, 1]) or unknown or is_ambiguous:
        raise UserError(
            f"expected two columns of texts, got {', '.join(names)}; choose two and {_ADVICE}"
        )
    return roles


def _roles_of_texts(table: Sequence[list[Any]]) -> list[str | None]:
    """Returns the roles of columns without names, which must all be two texts, or all three."""
    if is_header(table[0]) or "id" in map(name_key, table[0]):
        raise UserError(
            f"expected pairs, but the first row names columns, {describe(table[0])}; leave it out"
        )
    for number, row in enumerate(table, 1):
        if (
            not 2 <= len(row) <= 3
            or len(row) != len(table[0])
            or not all(isinstance(c, str) for c in row)
        ):
            raise UserError(
                "expected rows of two texts, or of three (a text, the right and a wrong one), but "
                f"pair {number} is {describe(row)}; for scores or more texts, give a table and "
                f"{_ADVICE}"
            )
    for index, column in enumerate(zip(*table, strict=True), 1):
        cells = column[1:] or column  # the first may be a name that is not known
        if len(table[0]) == 3 and all(
            _score(c) is not None or name_key(c) in _OTHER_CLASSES for c in cells
        ):
            kind = f"column {index} has numbers or classes, such as {cells[-1]!r}"
            raise UserError(f"expected texts, but {kind}; {_ADVICE}")
    return ["first", "second", "wrong"]


def _is_missing(value: Any) -> bool:
    return (
        is_blank(value) if isinstance(value, str) else str(value) in ("None", "nan", "<NA>", "NaT")
    )


def _number(value: Any) -> float | None:
    """Returns a number, or one that is written as text; None for anything else."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _score(value: Any, classes: Sequence[str] = ()) -> float | None:
    """Returns a score, or 1 or 0 for the name or the number of a class; None for anything else."""
    if classes and isinstance(value, int):
        value = classes[value] if 0 <= value < len(classes) else None  # -1: without a label
    if (score := _number(value)) is not None:
        return score if math.isfinite(score) else None
    name = name_key(value)
    return 1.0 if re.fullmatch(_SAME, name) else 0.0 if _DIFFERENT.fullmatch(name) else None


def _not_a_pair(number: int, row: Any) -> UserError:
    return UserError(
        f"pair {number} must be two texts that are not empty, and may have wrong texts or a score "
        f"(a finite number, or a class such as duplicate or not_duplicate), got {describe(row)}; "
        "correct it, or leave it out"
    )
