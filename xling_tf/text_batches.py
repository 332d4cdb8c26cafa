"""Texts as users hand them over: checked, and encoded in batches of similar length."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from xling_tf.errors import UserError
from xling_tf.evaluators.batching import length_sorted_batches
from xling_tf.search.arrays import require_positive

Texts = str | Iterable[str]

_SHOWN = 40  # characters of a wrong value in a message


def as_texts(texts: Texts, name: str) -> list[str]:
    """Checks that something is strings.

    Args:
        texts: A string, or strings in a list, tuple, array, Series or generator.
        name: What the caller calls them, for the message.

    Returns:
        The strings, in their order.

    Raises:
        UserError: One is something else, or they have no order of their own.

    Example:
        >>> as_texts("Hola", "sentences"), as_texts(("Hola", "¿Qué tal?"), "sentences")
        (['Hola'], ['Hola', '¿Qué tal?'])
    """
    if isinstance(texts, str):
        return [texts]
    # A table gives its columns' names and a mapping its keys; a set forgets what came first.
    rank = getattr(texts, "ndim", 1)
    if not isinstance(texts, Iterable) or isinstance(texts, bytes | Mapping | Set) or rank != 1:
        came = f"{rank} dimensions" if rank != 1 else f"{type(texts).__name__} {_shown(texts)}"
        raise UserError(f"{name} must be a string or a list of strings, but got {came}")
    found = list(texts)
    for place, text in enumerate(found):
        if not isinstance(text, str):
            raise UserError(
                f"{name} must be strings, but {name}[{place}] is {type(text).__name__} {_shown(text)}; "
                f"{_remedy(text)}"
            )
    return found


def encode_in_batches(
    call: Callable[..., ArrayLike],
    columns: Sequence[list[str]],
    *,
    batch_size: int,
    show_progress: bool,
    finish: Callable[[NDArray[np.float32]], NDArray[Any]] | None = None,
) -> NDArray[Any]:
    """Encodes rows of texts, as many as there are.

    Args:
        call: Takes a list of bytes for each column, gives as many rows `[rows, numbers]`.
        columns: As many texts in each.
        batch_size: Rows handed over at once, those of similar length together.
        show_progress: Whether to show a bar.
        finish: What is done to each batch, so that its result is all that is held of all.

    Returns:
        `[rows, numbers]` in the order of the rows.

    Raises:
        UserError: The batch size is none, or `call` gives something else than rows.
    """
    require_positive(batch_size, "batch_size")

    def encode(rows: list[int]) -> NDArray[Any]:
        encoded = _encode_rows(call, columns, rows)
        return finish(encoded) if finish else encoded

    lengths = [sum(map(len, row)) for row in zip(*columns, strict=True)]
    batches = length_sorted_batches(lengths, max_rows=batch_size, max_length=sys.maxsize)
    result: NDArray[Any] | None = None
    with tqdm(total=len(lengths), disable=not show_progress, unit="sentence") as bar:
        for rows in batches:
            encoded = encode(rows.tolist())
            if result is None:
                result = np.empty((len(lengths), encoded.shape[1]), encoded.dtype)
            result[rows] = encoded
            bar.update(len(rows))
    return encode([]) if result is None else result


def _encode_rows(
    call: Callable[..., ArrayLike], columns: Sequence[list[str]], rows: list[int]
) -> NDArray[np.float32]:
    # JSON may hold half of a surrogate pair, which UTF-8 cannot; models bear bytes that are no UTF-8.
    batch = ([column[i].encode("utf-8", "surrogatepass") for i in rows] for column in columns)
    encoded = np.asarray(call(*batch), np.float32)
    if encoded.ndim != 2 or len(encoded) != len(rows):
        raise UserError(
            f"a model that gives an array of shape [{len(rows)}, dim] for {len(rows)} texts is "
            f"expected, but this one gave shape {list(encoded.shape)}; load an exported sentence encoder"
        )
    return encoded


def _shown(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _remedy(value: object) -> str:
    if isinstance(value, bytes):
        return "decode it, as with value.decode('utf-8')"
    if isinstance(value, Iterable):
        return "flatten nested lists"
    return "fill in or drop missing values, and convert others with str(value)"
