"""JSON as RapidJSON reads it, down to the offset at which it gives up.

TensorFlow Serving reads requests with RapidJSON 1.1.0 (rapidjson/reader.h) and kParseNanAndInfFlag.
What the `json` module reads alike is read by it, which is fast; the rest, and every mistake, is read
again by the parser here, which knows RapidJSON's habits and messages.
"""

import json
import math
import re
from typing import Any

from xling_tf.serving.errors import ServingError

# RapidJSON recurses until its stack is gone; deeper requests are refused here, before that.
MAX_DEPTH = 1000
_LARGEST_INT, _SMALLEST_INT = 2**64 - 1, -(2**63)
_TENTH_OF_LARGEST = 1.7976931348623157e307
# The parser here is slow: longer requests with mistakes are told so with less detail.
MAX_CAREFUL = 2**18
# Where the json module may differ: numbers too big for a double, and surrogates.
_BIG_EXPONENT = re.compile(rb"[eE]\+?\d{3}")
_TO_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_MANY_DIGITS = b"0" * 309
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_PAIRED = re.compile(
    rb"(?:[^\\]++|\\[^u]|\\u(?![dD][89a-fA-F])"
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+"
)
_SPACE = re.compile(rb"[ \n\r\t]*+")
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*+')
_HEX = re.compile(rb"[0-9a-fA-F]{4}")
_DIGITS = re.compile(rb"[0-9]*+")
_LITERALS: dict[bytes, tuple[bytes, Any]] = {
    b"n": (b"null", None),
    b"t": (b"true", True),
    b"f": (b"false", False),
}
_ESCAPES = {
    **{b'"': b'"', b"\\": b"\\", b"/": b"/", b"b": b"\b"},
    **{b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"},
}


class Repeated(dict[str, Any]):
    """An object with a key that comes more than once: the first one counts, `pairs` has all."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        """The members, in order."""
        super().__init__(reversed(pairs))
        self.pairs = pairs


def is_double(value: Any) -> bool:
    """Whether RapidJSON keeps a value as a double: decimals, and integers beyond 64 bits.

    Example:
        >>> is_double(1.0), is_double(1), is_double(2**64)
        (True, False, True)
    """
    if type(value) is int:
        return not _SMALLEST_INT <= value <= _LARGEST_INT
    return type(value) is float


def read(body: bytes) -> Any:
    """Reads a document; bytes of strings that are not UTF-8 become surrogates (PEP 383).

    Args:
        body: Of the request.

    Returns:
        Lists, strings, numbers, True, False, None and dicts (`Repeated` where keys are repeated).

    Raises:
        ServingError: "JSON Parse error: Invalid value. at offset: 0", and the like.

    Example:
        >>> read(b'{"instances": [1.0, NaN]}')
        {'instances': [1.0, nan]}
    """
    if not body:
        raise ServingError.invalid_argument("JSON Parse error: The document is empty")
    careful = len(body) <= MAX_CAREFUL
    if _surrogates_are_paired(body) and not (careful and _may_be_too_big(body)):
        try:
            text = body.decode("utf-8", "surrogateescape")
            return json.loads(text, object_pairs_hook=_object)
        except (ValueError, RecursionError):
            pass  # told by the parser below
    if not careful:
        raise ServingError.invalid_argument("JSON Parse error: Unspecific syntax error.")
    return _Parser(body).document()


def double(value: float | int) -> float:
    """A number as a double, infinite where it is too big for one."""
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _surrogates_are_paired(body: bytes) -> bool:
    return not _SURROGATE.search(body) or bool(_PAIRED.fullmatch(body))


def _may_be_too_big(body: bytes) -> bool:
    """Whether a number might not fit into a double, which the json module does not mind."""
    return bool(_BIG_EXPONENT.search(body)) or _MANY_DIGITS in body.translate(_TO_ZEROS)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    return members if len(members) == len(pairs) else Repeated(pairs)


class _Parser:
    """GenericReader of rapidjson/reader.h, with a stack of its own instead of recursion."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.at = 0
        for mark in (b"\xef", b"\xbb", b"\xbf"):  # a byte order mark, or a part of one
            self.consume(mark)

    def document(self) -> Any:
        self.skip_space()
        if not self.peek():
            raise self.error("The document is empty.")
        value = self.value()
        self.skip_space()
        if self.peek():
            raise self.error("The document root must not be followed by other values.")
        return value

    def value(self) -> Any:
        parents: list[tuple[list[Any], list[str] | None]] = []
        while True:
            opening = self.peek()
            if opening in (b"[", b"{") and opening:
                if len(parents) >= MAX_DEPTH:
                    raise self.error("Terminate parsing due to Handler error.")
                self.at += 1
                self.skip_space()
                keys: list[str] | None = [] if opening == b"{" else None
                if not self.consume(b"]" if keys is None else b"}"):
                    parents.append(([], keys))
                    self.key(keys)
                    continue
                value: Any = [] if keys is None else {}
            else:
                value = self.scalar(opening)
            while parents:
                values, keys = parents[-1]
                values.append(value)
                if self.more(keys is not None):
                    self.key(keys)
                    break
                value = values if keys is None else _object(list(zip(keys, values, strict=True)))
                parents.pop()
            else:
                return value

    def more(self, in_object: bool) -> bool:
        self.skip_space()
        if self.consume(b","):
            self.skip_space()
            return True
        if self.consume(b"}" if in_object else b"]"):
            return False
        if in_object:
            raise self.error("Missing a comma or '}' after an object member.")
        raise self.error("Missing a comma or ']' after an array element.")

    def key(self, keys: list[str] | None) -> None:
        if keys is None:
            return
        if self.peek() != b'"':
            raise self.error("Missing a name for object member.")
        keys.append(self.string())
        self.skip_space()
        if not self.consume(b":"):
            raise self.error("Missing a colon after a name of object member.")
        self.skip_space()

    def scalar(self, first: bytes) -> Any:
        if first == b'"':
            return self.string()
        if first not in _LITERALS:
            return self.number()
        word, value = _LITERALS[first]
        for code in word:
            if not self.consume(bytes([code])):
                raise self.error("Invalid value.")
        return value

    def string(self) -> str:
        self.at += 1
        pieces = []
        while True:
            plain = _PLAIN.match(self.body, self.at)
            assert plain is not None
            pieces.append(plain[0])
            self.at = plain.end()
            char = self.peek()
            if char == b'"':
                self.at += 1
                return b"".join(pieces).decode("utf-8", "surrogateescape")
            if not char:
                raise self.error("Missing a closing quotation mark in string.")
            if char != b"\\":
                raise self.error("Invalid escape character in string.")
            pieces.append(self.escape())

    def escape(self) -> bytes:
        start = self.at
        char = self.body[start + 1 : start + 2]
        if char in _ESCAPES:
            self.at += 2
            return _ESCAPES[char]
        if char != b"u":
            raise self.error("Invalid escape character in string.")
        code = self.hexadecimal(start, start + 2)
        self.at = start + 6
        if 0xD800 <= code <= 0xDBFF:
            if self.body[self.at : self.at + 2] != b"\\u":
                raise self.error("The surrogate pair in string is invalid.", start)
            low = self.hexadecimal(start, self.at + 2)
            if not 0xDC00 <= low <= 0xDFFF:
                raise self.error("The surrogate pair in string is invalid.", start)
            self.at += 6
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        return chr(code).encode("utf-8", "surrogatepass")

    def hexadecimal(self, start: int, at: int) -> int:
        match = _HEX.match(self.body, at)
        if match is None:
            raise self.error("Incorrect hex digit after \\u escape in string.", start)
        return int(match[0], 16)

    def number(self) -> float | int:
        start = self.at
        minus = self.consume(b"-")
        if self.peek() in (b"N", b"I"):
            return self.not_finite(minus)
        whole = self.digits()
        if not whole:
            raise self.error("Invalid value.")
        if whole.startswith(b"0"):
            self.at -= len(whole) - 1
            whole = b"0"
        fraction = b""
        decimals = self.consume(b".")
        if decimals and not (fraction := self.digits()):
            raise self.error("Miss fraction part in number.")
        exponent = b""
        if self.consume(b"e") or self.consume(b"E"):
            negative = not self.consume(b"+") and self.consume(b"-")
            if not (exponent := self.digits()):
                raise self.error("Miss exponent in number.")
            if not negative and int(exponent.lstrip(b"0")[:9] or b"0") > 308 + len(fraction):
                raise self.error("Number too big to be stored in double.", start)
        if float(whole[:-1] or b"0") >= _TENTH_OF_LARGEST:
            raise self.error("Number too big to be stored in double.", start)
        text = self.body[start : self.at]
        return float(text) if decimals or exponent or len(whole) > 20 else int(text)

    def not_finite(self, minus: bool) -> float:
        if self.consume(b"N"):
            if self.consume(b"a") and self.consume(b"N"):
                return float("nan")
        elif self.consume(b"I") and self.consume(b"n") and self.consume(b"f"):
            rest = all(map(self.consume, (b"i", b"n", b"i", b"t", b"y")))
            if rest or self.body[self.at - 1 : self.at] == b"f":
                return float("-inf") if minus else float("inf")
        raise self.error("Invalid value.")

    def digits(self) -> bytes:
        match = _DIGITS.match(self.body, self.at)
        assert match is not None
        self.at = match.end()
        return match[0]

    def peek(self) -> bytes:
        """The next byte; the end and a zero byte are one to RapidJSON."""
        return self.body[self.at : self.at + 1].replace(b"\0", b"")

    def consume(self, char: bytes) -> bool:
        found = self.body.startswith(char, self.at)
        self.at += found
        return found

    def skip_space(self) -> None:
        match = _SPACE.match(self.body, self.at)
        assert match is not None
        self.at = match.end()

    def error(self, message: str, at: int | None = None) -> ServingError:
        offset = self.at if at is None else at
        return ServingError.invalid_argument(f"JSON Parse error: {message} at offset: {offset}")
