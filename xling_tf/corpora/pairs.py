"""Reads pairs of texts from any table, file or sequence, for every function that takes pairs.

The names of columns say what they hold; row numbers are left out. Two columns that are named by
languages are a pair, as are the texts of `translation: {"en": ..., "es": ...}`. Without names, two
texts are a pair, and three texts are a text, the right one and a wrong one, as in
sentence-transformers. Any other table needs names.
"""

import math
import os
import re
from collections import Counter
from collections.abc import ItemsView, Iterable, Mapping, Sequence, Set
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from absl import logging

from xling_tf.client.texts import as_python, describe, encodable, is_blank
from xling_tf.corpora.column_names import (
    is_header,
    language_columns,
    name_key,
    roles_of,
)
from xling_tf.corpora.tables import NESTED, LeftOut, flattened, read_any
from xling_tf.errors import UserError, as_user_error

# The names of classes, written in the same way.
_SAME = "(entailment|duplicate|equivalent|paraphrase|similar|same|match|true|yes)"
_DIFFERENT = re.compile(f"(not?|non|dis|un){_SAME}|false|no|different")
_OTHER_CLASSES = {"neutral", "contradiction"}  # of inference
# Classes of inference are not scores: 0 is entailment and 2 contradiction.
_INFERENCE = {-1.0, 0.0, 1.0, 2.0}
_NOT_A_PAIR = "not a pair"  # reason for a row that is left out, neither empty nor broken
# Cells of no text: numbers, and codes such as "Q-0001" or "2024-05-01"; or nothing.
_CODE = re.compile(r"\s*(?:[\d.,:/+-]*|[A-Za-z]{0,4}[-_#]?[\d.:/-]+)\s*")
_CATEGORY = 30  # characters of a category, at most
_ADVICE = 'name the columns "anchor", "positive", "negative", or "sentence1", "sentence2", "score"'


class Pair(NamedTuple):
    """Two texts that belong together, optionally with a score or wrong texts."""

    first: str
    second: str
    score: float | None = None
    wrong: tuple[str, ...] = ()


def read_pairs(pairs: Any, languages: Sequence[str] = ()) -> list[Pair]:
    """Reads pairs of texts from rows, a table or a table's path; all have a score, or none has.

    Args:
        pairs: The rows, see the top of this module.
        languages: Order of columns that are named by languages alone; () for their own order.

    Returns:
        The pairs. Rows that are not pairs are left out, with a warning.

    Raises:
        UserError: It is not clear which columns are a pair, or a tenth of the rows are not pairs.

    Examples:
        >>> read_pairs([{"negative": "dos", "query": "one", "answer": "uno"}])
        [Pair(first='one', second='uno', score=None, wrong=('dos',))]
        >>> read_pairs([{"sentence1": "one", "sentence2": "uno", "label": "entailment"}])
        [Pair(first='one', second='uno', score=1.0, wrong=())]
    """
    if not isinstance(pairs, str | os.PathLike):
        return _read_pairs(pairs, languages, "pairs")
    try:
        return _read_pairs(pairs, languages, str(pairs))
    except UserError as error:
        if str(pairs) in str(error):
            raise
        raise UserError(f"{pairs}: {error}") from error


def _read_pairs(pairs: Any, languages: Sequence[str], title: str) -> list[Pair]:
    left_out = LeftOut()
    names, table = _as_rows(pairs, languages, left_out)
    rows = [row for _, row in table]
    roles = _roles(names, languages, rows) or _roles_of_texts(names, rows)
    score_name = dict(zip(roles, names, strict=False)).get("score", "")
    features = getattr(pairs, "features", None)  # of a Hugging Face dataset
    classes = (
        getattr(features.get(score_name), "names", ()) if isinstance(features, Mapping) else ()
    )
    result: list[Pair] = []
    numbers: set[float | None] = set()
    faulty: list[tuple[int, Any]] = []
    for number, row in table:
        cells: dict[str, list[Any]] = {"first": [], "second": [], "wrong": [], "score": []}
        if len(row) != len(roles):
            left_out.add(f"not {len(roles)} columns", number)
            faulty.append((number, row))
            continue
        for role, cell in zip(roles, row, strict=True):
            if role is not None:
                is_list = isinstance(cell, list | tuple) and role == "wrong"
                cells[role] += map(as_python, cell if is_list else [cell])
        numbers |= {*map(_number, cells["score"])}
        if (pair := _pair(cells, classes)) is None:
            is_missing = any(map(_is_missing, cells["first"] + cells["second"]))
            left_out.add("empty column" if is_missing else _NOT_A_PAIR, number)
            faulty.append((number, row))
        else:
            result.append(pair)
    is_inference = "hypothesis" in map(name_key, names) or max(_INFERENCE) in numbers
    if name_key(score_name) == "label" and is_inference and numbers <= _INFERENCE and not classes:
        raise UserError(
            f"expected scores, but the column {score_name} seems to have classes of inference (0 "
            "for entailment); if they are scores, rename the column to score"
        )
    try:
        left_out.require_few(title, len(result))
    except UserError as error:
        # The numbers of rows are enough to find empty cells and broken lines in a file.
        is_told = title != "pairs" and _NOT_A_PAIR not in left_out
        raise error if is_told or not faulty else _not_a_pair(*faulty[0], f" ({error})") from None
    _log(title, names, roles, len(result), left_out)
    return result


def _pair(cells: Mapping[str, list[Any]], classes: Sequence[str]) -> Pair | None:
    """Makes a pair of the cells of a row, by their roles; None if they are none."""
    wrong = [text for text in cells["wrong"] if not _is_missing(text)]
    texts = [*cells["first"], *cells["second"], *wrong]
    scores = [_score(value, classes) for value in cells["score"]]
    if None in scores or not all(isinstance(t, str) and not is_blank(t) for t in texts):
        return None
    first, second, *wrong = map(encodable, texts)
    return Pair(first, second, scores[0] if scores else None, tuple(wrong))


def _log(
    title: str, names: Sequence[str], roles: Sequence[str | None], count: int, left_out: LeftOut
) -> None:
    """Logs which columns are read, and what is left out."""
    places = range(1, len(roles) + 1)
    columns = [
        name or f"column {place}" for place, name in zip_longest(places, names, fillvalue="")
    ]
    used = {role: name for name, role in reversed([*zip(columns, roles, strict=False)]) if role}
    others = [name for name, role in zip(columns, roles, strict=False) if not role]
    logging.info(
        "%s: %d pairs; text: %s, right: %s%s%s",
        title,
        count,
        used["first"],
        used["second"],
        f", score: {used['score']}" if "score" in used else "",
        f"; columns left out: {', '.join(others)}" if others else "",
    )
    if left_out:
        logging.warning("%s: rows left out: %s", title, left_out)


_Rows = list[tuple[int, Any]]


def _as_rows(pairs: Any, languages: Sequence[str], left_out: LeftOut) -> tuple[list[str], _Rows]:
    """Splits a table into column names, none if there are none, and rows with their numbers."""
    if isinstance(pairs, str | os.PathLike):
        header, numbered = read_any(Path(pairs), languages, left_out.add)
        names: Any = header or None
    else:
        names, table = _table(pairs)
        numbered = [*enumerate(table, 1)]
    if not numbered:
        reasons = f" (left out: {left_out})" if left_out else ""
        is_file = isinstance(pairs, str | os.PathLike)
        advice = "correct the file" if is_file else "an iterator gives its rows only once"
        raise UserError(f"expected pairs, but there are none{reasons}; {advice}")
    kind: Any = Mapping if isinstance(numbered[0][1], Mapping) else list | tuple
    for number, row in numbered:
        if not isinstance(row, kind):
            left_out.add("not a row of texts", number)
    rows = [(number, row) for number, row in numbered if isinstance(row, kind)]
    if not rows:
        raise _not_a_pair(*numbered[0])
    if names is not None and not NESTED.isdisjoint(names):
        rows, kind = [(n, dict(zip(names, row, strict=True))) for n, row in rows], Mapping
    if kind is Mapping:
        # A row may lack the translations that others have.
        nested = {x for _, row in rows for x in NESTED if isinstance(row.get(x), Mapping)}
        flat = [(number, flattened(row)) for number, row in rows]
        names = dict.fromkeys(chain.from_iterable(row for _, row in flat))
        names = [name for name in names if name not in nested]
        rows = [(number, [row.get(name) for name in names]) for number, row in flat]
    # pandas numbers columns that have no names.
    is_named = names is not None and all(isinstance(name, str) for name in names)
    cells = [(number, [*map(as_python, row)]) for number, row in rows]
    return [*names] if is_named else [], cells


def _table(pairs: Any) -> tuple[Any, list[Any]]:
    """Splits a table in memory into column names, None if there are none, and its rows."""
    if hasattr(pairs, "itertuples"):  # pandas
        return pairs.columns, [*pairs.itertuples(index=False, name=None)]
    if hasattr(pairs, "to_pydict"):  # Arrow, where several columns may have one name
        return pairs.schema.names, [*zip(*(c.to_pylist() for c in pairs.columns), strict=True)]
    if isinstance(pairs, Mapping) and pairs and all(map(_is_column, pairs.values())):
        with as_user_error("expected columns of equal length, but {error}", ValueError):
            return [*pairs], [*zip(*map(as_python, pairs.values()), strict=True)]
    if isinstance(pairs, Mapping) and any(hasattr(t, "features") for t in pairs.values()):
        raise UserError(
            f"expected a table, got its parts {', '.join(pairs)}; choose one, as in "
            f'data["{next(iter(pairs))}"]'
        )
    rows = [*pairs] if isinstance(pairs, ItemsView) else as_python(pairs)
    if isinstance(rows, bytes | Mapping | Set) or not isinstance(rows, Iterable):
        raise UserError(
            f"expected pairs in a list of rows, a table or its path, got {describe(pairs)}"
        )
    return None, [*map(as_python, rows)]


def _is_column(value: Any) -> bool:
    return isinstance(as_python(value), list | tuple)


def _roles(
    names: Sequence[str], languages: Sequence[str], table: Sequence[list[Any]]
) -> list[str | None]:
    """Returns the roles of columns, None for those to leave out; [] if there is no known name."""
    roles, by_language = roles_of(names, languages), language_columns(names)
    if not any(roles) and len(by_language) < 3:
        return []
    if len({*roles} & {"first", "second"}) == 1:
        _add_other_side(roles, _texts_among(_columns(table)))
    counts = [roles.count(role) for role in ("first", "second", "score")]
    is_ambiguous = "score" in roles and "wrong" in roles
    if counts not in ([1, 1, 0], [1, 1, 1]) or is_ambiguous:
        raise _too_many(names)
    return roles


def _add_other_side(roles: list[str | None], texts: Sequence[int]) -> None:
    """Gives the missing role to the column of texts whose name is unknown, if there is only one."""
    others = [place for place in texts if roles[place] is None]
    if len(others) == 1:
        roles[others[0]] = "first" if "second" in roles else "second"


def _columns(table: Sequence[list[Any]]) -> list[tuple[Any, ...]]:
    """Returns the columns of those rows whose number of cells is the most frequent."""
    widths = Counter(map(len, table))
    width = max(widths, key=widths.__getitem__)
    return [*zip(*(row for row in table if len(row) == width), strict=True)]


def _too_many(names: Sequence[str]) -> UserError:
    return UserError(
        f"expected two columns of texts, got {', '.join(names)}; choose two and {_ADVICE}"
    )


def _roles_of_texts(names: Sequence[str], table: Sequence[list[Any]]) -> list[str | None]:
    """Returns the roles of columns with unknown names or none: two texts, or three."""
    if is_header(table[0]) or "id" in map(name_key, table[0]):
        raise UserError(
            f"expected pairs, but the first row names columns, {describe(table[0])}; leave it out"
        )
    columns = _columns(table)
    width = len(columns)
    used = _texts_among(columns) if names else [*range(width)]
    if names and len(used) not in (2, 3):
        raise _too_many(names)
    if len(used) not in (2, 3) or not all(_is_mostly(str, columns[place]) for place in used):
        raise UserError(
            "expected rows of two texts, or of three (a text, the right and a wrong one), but "
            f"pair 1 is {describe(table[0])}; for scores or more texts, give a table and {_ADVICE}"
        )
    for index, column in enumerate(columns, 1):
        cells = column[1:] or column  # the first may be a name that is not known
        if width == 3 and all(
            _score(c) is not None or name_key(c) in _OTHER_CLASSES for c in cells
        ):
            kind = f"column {index} has numbers or classes, such as {cells[-1]!r}"
            raise UserError(f"expected texts, but {kind}; {_ADVICE}")
    roles: list[str | None] = [None] * width
    for place, role in zip(used, ("first", "second", "wrong"), strict=False):
        roles[place] = role
    return roles


def _is_mostly(kind: type, cells: Sequence[Any]) -> bool:
    return 2 * sum(isinstance(cell, kind) for cell in cells) > len(cells)


def _texts_among(columns: Sequence[Sequence[Any]]) -> list[int]:
    """Returns the places of the columns of texts; of more than two, not those of categories."""
    texts = [
        place
        for place, cells in enumerate(columns)
        if _is_mostly(str, cells) and not all(map(_CODE.fullmatch, map(str, cells)))
    ]
    if len(texts) > 2:
        texts = [place for place in texts if not _is_category(columns[place])]
    return texts


def _is_category(cells: Sequence[Any]) -> bool:
    """True for a column of few different texts, all short."""
    distinct = {*filter(None, map(str, cells))}
    return len(distinct) <= len(cells) / 4 and max(map(len, distinct), default=0) <= _CATEGORY


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


def _not_a_pair(number: int, row: Any, more: str = "") -> UserError:
    return UserError(
        f"pair {number} must be two texts that are not empty, and may have wrong texts or a score "
        f"(a finite number, or a class such as duplicate or not_duplicate), got {describe(row)}; "
        f"correct it, or leave it out{more}"
    )
