"""Reads pairs of texts from any table or sequence, for every function that takes pairs.

The names of columns say what they hold. Without names, two texts are a pair, and three are a text, the right
and a wrong one, as in sentence-transformers; anything else needs names.
"""

import math
import os
import re
from collections.abc import ItemsView, Iterable, Mapping, Sequence, Set
from itertools import chain
from typing import Any, NamedTuple

from xling_tf.errors import UserError
from xling_tf.inputs import as_python, describe, encodable, is_blank

# The names of columns, in lower case and without spaces and punctuation.
_FIRST = "anchor query question source src first sentence1 text1 question1 sentencea texta questiona"
_SECOND = "positive pos answer target tgt second response document passage"
_SECOND += " sentence2 text2 question2 sentenceb textb questionb"
_SCORE = "score label similarity similarityscore relatednessscore isduplicate"
_ROLES = {"first": _FIRST.split(), "second": _SECOND.split(), "score": _SCORE.split()}
_WRONG = re.compile(r"((hard)?neg(ative)?|wrong)(text|answer)?s?\d*")
# The names of classes, written in the same way: 1 if the texts are alike, 0 if they differ.
_ALIKE = re.compile(
    "(not?|non|dis|un)?(entailment|duplicate|equivalent|paraphrase|similar|same|match|true|yes)"
)
_DIFFERENT = {"false", "no", "different"}
_OTHER_CLASSES = {"neutral", "contradiction"}  # of inference
_OTHER_NAMES = {"message", "reply", "context", "premise", "hypothesis", "id"}  # in the first lines of files
# Classes of inference are not scores: 0 is entailment and 2 contradiction.
_INFERENCE = {-1.0, 0.0, 1.0, 2.0}
_ADVICE = 'name the columns "anchor", "positive", "negative", or "sentence1", "sentence2", "score"'


class Pair(NamedTuple):
    """Two texts that belong together, and perhaps a score or wrong texts."""

    first: str
    second: str
    score: float | None = None
    wrong: tuple[str, ...] = ()


def read_pairs(pairs: Any) -> list[Pair]:
    """Reads pairs of texts from rows or a table; all have a score, or none has.

    Raises:
        UserError: The columns have no names and are not two or three texts, or a row is not a pair.

    Example:
        >>> read_pairs([{"negative": "dos", "query": "one", "answer": "uno"}])
        [Pair(first='one', second='uno', score=None, wrong=('dos',))]
        >>> read_pairs([{"sentence1": "one", "sentence2": "uno", "label": "entailment"}])
        [Pair(first='one', second='uno', score=1.0, wrong=())]
    """
    names, table = _as_rows(pairs)
    if not table:
        raise UserError("expected pairs, but there are none; an iterator gives its rows only once")
    roles = _roles(names)
    if not any(roles):
        _require_texts(table)
        roles = ["first", "second", "wrong"]
    score_name = next((name for name, role in zip(names, roles, strict=False) if role == "score"), "")
    features = getattr(pairs, "features", None)  # of a Hugging Face dataset
    classes = getattr(features.get(score_name), "names", ()) if isinstance(features, Mapping) else ()
    result = []
    for number, row in enumerate(table, 1):
        cells: dict[str, list[Any]] = {"first": [], "second": [], "wrong": [], "score": []}
        for role, cell in zip(roles, row, strict=False):
            cells[role] += cell if isinstance(cell, list | tuple) and role == "wrong" else [cell]
        *columns, scores = cells.values()
        columns[2] = [text for text in columns[2] if not _is_missing(text)]
        texts = [encodable(text) if isinstance(text, str) else text for text in chain(*columns)]
        scores = [_score(value, classes) for value in scores]
        if not all(isinstance(text, str) and not is_blank(text) for text in texts) or None in scores:
            raise _not_a_pair(number, row)
        result.append(Pair(texts[0], texts[1], scores[0] if scores else None, tuple(texts[2:])))
    values = {_number(row[roles.index("score")]) for row in table} if score_name and not classes else {None}
    is_inference = "hypothesis" in map(_key, names) or max(_INFERENCE) in values
    if _key(score_name) == "label" and is_inference and values <= _INFERENCE:
        raise UserError(
            f"expected scores, but the column {score_name} has classes of inference (0 is entailment); if "
            "they are scores, call the column score"
        )
    return result


def is_header(cells: Iterable[Any]) -> bool:
    """Returns True if all cells of a first row are names of columns."""
    return all(_role(cell) or _key(cell) in _OTHER_NAMES for cell in cells)


def _as_rows(pairs: Any) -> tuple[list[str], list[list[Any]]]:
    """Splits a table or rows into column names, none if there are none, and rows of values."""
    names: Any = None
    if hasattr(pairs, "itertuples"):  # pandas; its kinds of missing values become None
        rows = pairs.astype(object).where(pairs.notna(), None).itertuples(index=False, name=None)
        names = pairs.columns
    elif hasattr(pairs, "to_dicts") or hasattr(pairs, "to_pylist"):  # polars, Arrow
        rows = pairs.to_dicts() if hasattr(pairs, "to_dicts") else pairs.to_pylist()
    elif isinstance(pairs, Mapping) and pairs and all(map(_is_column, pairs.values())):
        names, columns = [*pairs], [as_python(column) for column in pairs.values()]
        if len({*map(len, columns)}) > 1:
            raise UserError(f"expected columns of equal length, got lengths {[*map(len, columns)]}")
        rows = zip(*columns, strict=True)
    elif (
        isinstance(pairs, str | bytes | os.PathLike | Mapping | Set) and not isinstance(pairs, ItemsView)
    ) or not isinstance(pairs, Iterable):
        raise UserError(f"expected pairs in a list of rows or a table, got {describe(pairs)}")
    else:
        rows = pairs
    table = [as_python(row) for row in rows]
    for number, row in enumerate(table, 1):
        is_named = isinstance(row, Mapping)
        if not isinstance(row, list | tuple | Mapping) or is_named != isinstance(table[0], Mapping):
            raise _not_a_pair(number, row)
    if table and isinstance(table[0], Mapping):
        names = [*dict.fromkeys(chain.from_iterable(table))]
        table = [[row.get(name) for name in names] for row in table]
    # pandas numbers columns that have no names.
    if names is None or not all(isinstance(name, str) for name in names):
        names = []
    return [*names], [[*map(as_python, row)] for row in table]


def _is_column(value: Any) -> bool:
    return isinstance(as_python(value), list | tuple)


def _key(name: Any) -> str:
    return re.sub(r"[\s_-]", "", str(name).lower())


def _role(name: Any) -> str | None:
    """Returns what a column of some name holds: "first", "second", "score", "wrong", or None if unknown."""
    key = _key(name)
    role = next((role for role, names in _ROLES.items() if key in names), None)
    return "wrong" if _WRONG.fullmatch(key) else role


def _roles(names: Sequence[str]) -> list[str]:
    """Returns the roles of columns; one of unknown name is the text that is missing; [] if none is known."""
    roles = [_role(name) for name in names]
    missing = [side for side in ("first", "second") if side not in roles]
    counts = [roles.count(role) for role in ("first", "second", "score")]
    is_ambiguous = max(counts) > 1 or ("score" in roles and "wrong" in roles)
    if any(roles) and (roles.count(None) != len(missing) or is_ambiguous):
        raise UserError(
            f"expected two columns of texts, but got {', '.join(names)}; choose columns and {_ADVICE}"
        )
    return [role or missing.pop(0) for role in roles] if any(roles) else []


def _require_texts(table: Sequence[list[Any]]) -> None:
    """Raises a `UserError` unless rows without names are all two texts, or all three."""
    if is_header(table[0]):
        raise UserError(
            f"expected pairs, but the first row names columns, {describe(table[0])}; leave it out"
        )
    for number, row in enumerate(table, 1):
        if not 2 <= len(row) <= 3 or len(row) != len(table[0]) or not all(isinstance(c, str) for c in row):
            raise UserError(
                "expected rows of two texts, or of three (a text, the right and a wrong one), but pair "
                f"{number} is {describe(row)}; for scores or more texts, give a table and {_ADVICE}"
            )
    for index, column in enumerate(zip(*table, strict=True), 1):
        if len(table[0]) == 3 and all(_score(c) is not None or _key(c) in _OTHER_CLASSES for c in column):
            kind = f"column {index} has numbers or classes, first {column[0]!r}"
            raise UserError(f"expected texts, but {kind}; {_ADVICE}")


def _is_missing(value: Any) -> bool:
    if isinstance(value, str):
        return is_blank(value)
    return value is None or (isinstance(value, float) and math.isnan(value))


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
    if alike := _ALIKE.fullmatch(_key(value)):
        return 0.0 if alike[1] else 1.0
    return 0.0 if _key(value) in _DIFFERENT else None


def _not_a_pair(number: int, row: Any) -> UserError:
    return UserError(
        f"pair {number} must be two texts that are not empty, and perhaps wrong texts or a score (a finite "
        f"number, or a class as duplicate or not_duplicate), got {describe(row)}; correct it, or leave it out"
    )
