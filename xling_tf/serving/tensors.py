"""Values of JSON to arrays, refused in the words of util/json_tensor.cc."""

import base64
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from xling_tf.serving.errors import ServingError
from xling_tf.serving.json_values import double, is_double
from xling_tf.serving.json_writing import printed

# NumPy has no arrays of more dimensions.
MAX_RANK = 64
_NUMPY = {
    "DT_FLOAT": np.float32,
    "DT_DOUBLE": np.float64,
    "DT_INT8": np.int8,
    "DT_INT16": np.int16,
    "DT_INT32": np.int32,
    "DT_INT64": np.int64,
    "DT_UINT8": np.uint8,
    "DT_UINT32": np.uint32,
    "DT_UINT64": np.uint64,
    "DT_BOOL": np.bool_,
    "DT_STRING": np.object_,
}
_RANGES = {
    **dict.fromkeys(("DT_INT8", "DT_INT16", "DT_INT32", "DT_UINT8"), (-(2**31), 2**31 - 1)),
    "DT_INT64": (-(2**63), 2**63 - 1),
    "DT_UINT32": (0, 2**32 - 1),
    "DT_UINT64": (0, 2**64 - 1),
}
_LARGEST_WHOLE = {"DT_FLOAT": 2**24 - 1, "DT_DOUBLE": 2**53 - 1}
_LARGEST = {"DT_FLOAT": float(np.finfo(np.float32).max), "DT_DOUBLE": float("inf")}
_BLANKS = b" \t\n\r\v\f"
_BASE64 = re.compile(rb"([A-Za-z0-9+/]*)([=.]*)")


def shape_of(value: Any) -> tuple[int, ...]:
    """Lengths along the first elements (GetDenseTensorShape).

    Example:
        >>> shape_of([[1, 2], [3]])
        (2, 2)
    """
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    return tuple(shape)


def flatten(value: Any, shape: tuple[int, ...], dtype: str) -> list[Any]:
    """The elements of nested lists in order (FillTensorProto).

    Args:
        value: A value or nested lists.
        shape: `shape_of(value)`; at most `MAX_RANK` long.
        dtype: "DT_FLOAT", ...

    Raises:
        ServingError: The lists are ragged, or an element has another type.
    """
    elements: list[Any] = []
    _fill(value, 0, shape, dtype, elements)
    return elements


def to_array(elements: Sequence[Any], shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array of elements that `flatten` returned; strings are `bytes` in an object array."""
    if dtype == "DT_STRING":
        array = np.empty(len(elements), np.object_)
        array[:] = elements
    elif dtype in _RANGES:
        wide = np.uint64 if dtype == "DT_UINT64" else np.int64
        array = np.array(elements, wide).astype(_NUMPY[dtype])
    else:
        array = np.array(elements, np.float64 if dtype in _LARGEST else np.bool_)
        with np.errstate(over="ignore"):
            array = array.astype(_NUMPY[dtype])
    return array.reshape(shape)


def is_base64(value: Any) -> bool:
    """Whether a value is `{"b64": "..."}` (IsValBase64Object)."""
    if not isinstance(value, dict) or len(getattr(value, "pairs", value)) != 1:
        return False
    return isinstance(value.get("b64"), str)


def _fill(value: Any, level: int, shape: tuple[int, ...], dtype: str, elements: list[Any]) -> None:
    rank = len(shape)
    if not isinstance(value, list):
        if level != rank:
            raise ServingError.invalid_argument(
                f"JSON Value: {printed(value)} found at incorrect level: {level + 1} in the JSON "
                f"DOM. Expected at level: {rank}"
            )
        elements.append(_element(value, dtype))
        return
    if level >= rank:
        raise ServingError.invalid_argument(
            f"Encountered list at unexpected level: {level} expected < {rank}"
        )
    if len(value) != shape[level]:
        raise ServingError.invalid_argument(
            f"Encountered list at unexpected size: {len(value)} at level: {level} expected size: "
            f"{shape[level]}"
        )
    if level == rank - 1 and (converted := in_bulk(value, dtype)) is not None:
        elements.extend(converted)
        return
    for item in value:
        _fill(item, level + 1, shape, dtype, elements)


def in_bulk(values: list[Any], dtype: str) -> list[Any] | None:
    """The elements of a list where all are of the plainest kind, else None; for speed only."""
    kinds = set(map(type, values))
    if dtype == "DT_STRING" and kinds == {str}:
        return [text.encode("utf-8", "surrogateescape") for text in values]
    if dtype in _LARGEST and kinds == {float} and max(map(abs, values)) <= _LARGEST[dtype]:
        return values
    return None


def _element(value: Any, dtype: str) -> Any:
    """AddValueToTensor."""
    if isinstance(value, dict):
        return _base64(value, dtype)
    convert = _ELEMENTS.get(dtype)
    if convert is None:
        raise ServingError.unimplemented(
            f"Conversion of JSON Value: {printed(value)} to type: {type_name(dtype)}"
        )
    return convert(value, dtype)


def _decimal(value: Any, dtype: str) -> float:
    if type(value) not in (int, float):
        raise _type_error(value, dtype)
    limits = _LARGEST if is_double(value) else _LARGEST_WHOLE
    number = double(value)
    if math.isfinite(number) and abs(number) > limits[dtype]:
        raise ServingError.invalid_argument(
            f"Cannot convert JSON value: {printed(value)} to {type_name(dtype)} without loss of "
            "precision."
        )
    return number


def _whole(value: Any, dtype: str) -> int:
    smallest, largest = _RANGES[dtype]
    if type(value) is not int or not smallest <= value <= largest:
        raise _type_error(value, dtype)
    return value


def _truth(value: Any, dtype: str) -> bool:
    if type(value) is not bool:
        raise _type_error(value, dtype)
    return value


def _text(value: Any, dtype: str) -> bytes:
    if type(value) is not str:
        raise _type_error(value, dtype)
    return value.encode("utf-8", "surrogateescape")


_ELEMENTS: dict[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(_LARGEST, _decimal),
    **dict.fromkeys(_RANGES, _whole),
    "DT_BOOL": _truth,
    "DT_STRING": _text,
}


def _base64(value: Any, dtype: str) -> bytes:
    """JsonDecodeBase64Object: blanks are skipped, padding may be left out (absl/strings/escaping.h)."""
    if dtype != "DT_STRING":
        raise _type_error(value, dtype)
    if not is_base64(value):
        raise ServingError.invalid_argument(
            f"JSON Value: {printed(value)} not formatted correctly for base64 data"
        )
    text = value["b64"].encode("utf-8", "surrogateescape").translate(None, _BLANKS)
    match = _BASE64.fullmatch(text)
    missing = -len(match[1]) % 4 if match else 3
    if match is None or missing == 3 or len(match[2]) not in (0, missing):
        raise ServingError.invalid_argument("Unable to base64 decode")
    return base64.b64decode(match[1] + b"=" * missing)


def _type_error(value: Any, dtype: str) -> ServingError:
    return ServingError.invalid_argument(
        f"JSON Value: {printed(value)} Type: {json_type(value)} is not of expected type: "
        f"{type_name(dtype)}"
    )


def json_type(value: Any) -> str:
    """JsonTypeString: "Null", "True", "False", "Object", "Array", "String" or "Number"."""
    if value is None or isinstance(value, bool):
        return "Null" if value is None else str(value)
    kinds = {"Object": dict, "Array": list, "String": str}
    return next((name for name, kind in kinds.items() if isinstance(value, kind)), "Number")


def type_name(dtype: str) -> str:
    """DataTypeString: "DT_FLOAT" is "float"."""
    return dtype.removeprefix("DT_").lower()
