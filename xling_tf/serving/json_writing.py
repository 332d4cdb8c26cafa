"""JSON as RapidJSON's PrettyWriter prints it: strings, and whole values inside error messages."""

import math
import re
from collections.abc import Iterator
from typing import Any

from xling_tf.serving.decimals import decimal
from xling_tf.serving.json_values import Repeated, double, is_double

# TensorFlow Serving prints a refused value whole, indentation and all; a hostile one would be
# gigabytes, so that it is cut here.
MAX_PRINTED = 65536
_LARGEST_FLOAT = 3.4028234e38
_UNSAFE = re.compile(rb'["\\\x00-\x1f]')
_ESCAPES = {
    **{bytes([code]): b"\\u00%02X" % code for code in range(32)},
    **{b'"': b'\\"', b"\\": b"\\\\", b"\b": b"\\b", b"\f": b"\\f"},
    **{b"\n": b"\\n", b"\r": b"\\r", b"\t": b"\\t"},
}


def string(raw: bytes) -> bytes:
    r"""A string in quotes (WriteString of rapidjson/writer.h); bytes that are not UTF-8 stay.

    Example:
        >>> string(b'a "tab"\t\x01')
        b'"a \\"tab\\"\\t\\u0001"'
    """
    return b'"' + _UNSAFE.sub(_escaped, raw) + b'"'


def printed(value: Any) -> str:
    """A value as error messages show it (JsonValueToString of util/json_tensor.cc).

    A decimal number alone has the digits of a float; inside lists and objects it has those of a
    double, and a NaN there ends the text, for the writer refuses it.

    Args:
        value: What `json_reading.read` returns, or a part of it.

    Example:
        >>> print(printed({"instances": [1, 0.5]}))
        {
            "instances": [
                1,
                0.5
            ]
        }
    """
    if is_double(value):
        number = double(value)
        return decimal(number, single=abs(number) <= _LARGEST_FLOAT)
    pieces: list[bytes] = []
    size = 0
    for piece in _pretty(value):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_PRINTED:
            break
    return b"".join(pieces)[:MAX_PRINTED].decode("utf-8", "surrogateescape")


def _escaped(match: re.Match[bytes]) -> bytes:
    return _ESCAPES[match[0]]


def _pretty(value: Any) -> Iterator[bytes]:
    # Without recursion: values may be as deep as the parser lets them.
    levels: list[tuple[Iterator[tuple[bytes, Any]], bytes]] = []
    while True:
        if isinstance(value, dict | list) and value:
            brackets = (b"{", b"}") if isinstance(value, dict) else (b"[", b"]")
            yield brackets[0]
            levels.append((_members(value, len(levels) + 1), brackets[1]))
        else:
            text = _scalar(value)
            if text is None:
                return
            yield text
        while levels:
            member = next(levels[-1][0], None)
            if member is not None:
                prefix, value = member
                yield prefix
                break
            yield b"\n" + b"    " * (len(levels) - 1) + levels.pop()[1]
        else:
            return


def _members(value: Any, depth: int) -> Iterator[tuple[bytes, Any]]:
    indent = b"\n" + b"    " * depth
    comma = b""
    if isinstance(value, list):
        for member in value:
            yield comma + indent, member
            comma = b","
        return
    for key, member in value.pairs if isinstance(value, Repeated) else value.items():
        yield comma + indent + string(key.encode("utf-8", "surrogateescape")) + b": ", member
        comma = b","


def _scalar(value: Any) -> bytes | None:
    if isinstance(value, str):
        return string(value.encode("utf-8", "surrogateescape"))
    if isinstance(value, dict | list):
        return b"{}" if isinstance(value, dict) else b"[]"
    if is_double(value):
        return _double(double(value))
    return b"null" if value is None else str(value).lower().encode()


def _double(value: float) -> bytes | None:
    """Shortest digits, laid out as Prettify of rapidjson/internal/dtoa.h does."""
    if not math.isfinite(value):
        return None
    sign = "-" if math.copysign(1, value) < 0 else ""
    digits, power = _shortest(abs(value))
    point = power + len(digits)
    if not digits:
        text = "0.0"
    elif power >= 0 and point <= 21:
        text = digits + "0" * power + ".0"
    elif 0 < point <= 21:
        text = digits[:point] + "." + digits[point:]
    elif -6 < point <= 0:
        text = "0." + "0" * -point + digits
    else:
        fraction = "." + digits[1:] if len(digits) > 1 else ""
        text = f"{digits[0]}{fraction}e{point - 1}"
    return (sign + text).encode()


def _shortest(value: float) -> tuple[str, int]:
    """The shortest digits that give the number back, and the power of ten of the last."""
    mantissa, _, exponent = repr(value).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    stripped = digits.rstrip("0")
    return stripped.lstrip("0"), int(exponent or 0) - len(fraction) + len(digits) - len(stripped)
