"""Converts texts in any common form to a list of strings, for every client."""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Set
from inspect import signature
from typing import Any

import numpy as np

from ..errors import UserError, did_you_mean

# One text, or several in a list, tuple, array, tensor, Series, Arrow column, generator or tf.data
# dataset.
Texts = str | bytes | Iterable[Any]

_SHOWN = 80  # characters of a wrong value in a message
_SURROGATES = re.compile("[\ud800-\udfff]")

# All but spaces, controls, halves of pairs and what is never drawn (Default_Ignorable_Code_Point).
_VISIBLE = re.compile(
    r"[^\s\0-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8"
    r"\ud800-\udfff\U000e0000-\U000e0fff]"
)


def is_blank(text: str) -> bool:
    r"""True for a text without a visible character.

    Examples:
        >>> is_blank("\u200b "), is_blank("\u200bHola")
        (True, False)
    """
    return _VISIBLE.search(text) is None


def as_texts(texts: Texts, name: str) -> list[str]:
    """Converts one text or several to a list of strings that can be encoded as UTF-8.

    Bytes are decoded as UTF-8. Lone surrogates, which JSON may contain, become spaces.

    Args:
        texts: A string or bytes, or several of them in a list, tuple, NumPy array, TensorFlow
            tensor, pandas or Polars Series, Arrow array, generator or tf.data dataset, whose
            batches are joined.
        name: The name of the argument, for the `UserError` about a value that is not a text.

    Examples:
        >>> as_texts((b"Hola", "Hello"), "sentences")
        ['Hola', 'Hello']
    """
    if is_single(texts):
        return [_as_text(texts, name, name)]
    # Iterating over a table would give the names of columns, over a mapping its keys; a set has no
    # order.
    if isinstance(texts, bytearray | memoryview | Mapping | Set) or not _is_column(texts):
        raise UserError(
            f"{name} must be a string or a list of strings, but got {describe(texts)}; give a "
            "column of a table or a flattened array (in a graph, call the exported model itself "
            "or KerasEncoder)"
        )
    return [
        text if _is_encodable(text) else _as_text(text, f"{name}[{index}]", name)
        for index, text in enumerate(_values(texts, name))
    ]


def encodable(text: str) -> str:
    """Replaces lone surrogates, which JSON may contain and UTF-8 cannot, by spaces."""
    return text if text.isascii() else _SURROGATES.sub(" ", text)


def _is_encodable(text: object) -> bool:
    """True for a string without lone surrogates; faster than to look for them."""
    if type(text) is not str:
        return False
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def is_single(texts: Texts) -> bool:
    """True for one text: a string, bytes, or an array, tensor or Arrow scalar that holds one."""
    return isinstance(texts, str | bytes) or _rank(texts) == 0 or hasattr(texts, "as_py")


def require_prompt(prompt: Any) -> None:
    """Raises a `UserError` unless a prompt is one string, or None."""
    if not isinstance(prompt, str | None):
        raise UserError(f"prompt cannot be {describe(prompt)}: give one string for all texts")


# Values of sentence-transformers' options that change nothing, beside None, False and empty ones,
# which mean that an option is not used.
_ACCEPTED: Mapping[str, Container[Any]] = {
    "backend": ("torch",),
    "convert_to_numpy": (True,),
    "normalize_embeddings": (None, True),
    "output_value": ("sentence_embedding",),
    "similarity_fn_name": ("cosine",),
    "trust_remote_code": (True,),
}
# None or False asks for something else.
_ALWAYS_USED = ("convert_to_numpy", "normalize_embeddings", "output_value")


def require_unused(
    options: Mapping[str, Any], device: Callable[[], str], function: Callable[..., Any]
) -> None:
    """Raises a `UserError` for an option of sentence-transformers with a value that would change
    something.

    `device` returns the name of the device that the model runs on; `function` has the arguments
    that a misspelt option may mean.
    """
    for name, value in options.items():
        is_unused = value is None or value is False or value in ({}, [], ())
        is_accepted = value in _ACCEPTED.get(name, ()) or (is_unused and name not in _ALWAYS_USED)
        is_accepted |= name == "chunk_size" and isinstance(value, int)
        if name == "device" and value is not None:
            is_accepted = str(value).removesuffix(":0") == device()
        if not is_accepted:
            hint = did_you_mean(name, signature(function).parameters, "leave it out")
            raise UserError(f"{name}={describe(value)} is not supported; {hint}")


def require_as_many(some: list[str], others: list[str], name: str, others_name: str) -> None:
    """Raises a `UserError` unless two lists have the same length; names are for its message."""
    if len(some) != len(others):
        raise UserError(
            f"expected as many {name} as {others_name}, but got {len(some)} for {len(others)}"
        )


def describe(value: Any) -> str:
    """Describes a wrong value in a message: its type, shape (if any), and start of its repr."""
    text = " ".join(repr(value).split())
    shape = f" of shape {list(value.shape)}" if _rank(value) is not None else ""
    return f"{type(value).__name__}{shape} {text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}"


def _rank(value: object) -> int | None:
    """The number of dimensions of an array, tensor or table, or None for anything else."""
    try:
        return len(value.shape)  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError):  # no shape, or a tensor with unknown rank
        return None


def _is_column(texts: object) -> bool:
    if _rank(texts) not in (None, 1) or not isinstance(texts, Iterable):
        return False
    try:
        iter(texts)
    except (TypeError, NotImplementedError):  # symbolic tensors raise the latter
        return False
    return True


def _values(texts: Any, name: str) -> Iterator[Any]:
    """Yields the values of a column, as Python objects if the library can convert all at once."""
    if hasattr(texts, "as_numpy_iterator"):  # a tf.data dataset
        if int(texts.cardinality()) == -1:
            raise UserError(f"{name} must end, but this dataset repeats forever; use take(count)")
        for element in texts.as_numpy_iterator():
            yield from element if _rank(element) == 1 else [element]
    else:
        yield from texts if isinstance(texts, list | tuple) else as_python(texts)


def as_python(value: Any) -> Any:
    """Converts arrays, tensors and scalars to Python objects, and bytes in UTF-8 to strings."""
    if value is None or type(value) in (str, float, int, list, tuple, dict):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # the repr of NumPy's strings differs
    if hasattr(value, "_asdict"):
        return value._asdict()
    if hasattr(value, "numpy"):
        value = np.asarray(value.numpy(), object)
    for name in ("as_py", "to_dicts", "to_pylist", "tolist"):
        if hasattr(value, name):
            value = getattr(value, name)()
            break
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


def _as_text(value: Any, place: str, name: str) -> str:
    """Converts bytes, or an array, tensor or Arrow scalar without dimensions, to a string."""
    text = as_python(value)
    if isinstance(text, str):
        return encodable(text)
    if isinstance(text, bytes):
        raise UserError(
            f"{name} must be strings or UTF-8, but {place} is {describe(text)}; decode it "
            "yourself, for example with value.decode('latin-1')"
        )
    advice = (
        "flatten nested lists, fill in or drop missing values, and convert others with str(value)"
    )
    if text is value and hasattr(value, "dtype"):  # a tensor without a value, as in `Dataset.map`
        advice = "in a graph, call the exported model itself or KerasEncoder"
    raise UserError(f"{name} must be strings, but {place} is {describe(value)}; {advice}")
