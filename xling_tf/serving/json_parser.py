"""RapidJSON's parser (rapidjson/reader.h, version 1.1.0), with its habits and messages."""

import re
from typing import Any

from xling_tf.serving.errors import ServingError
from xling_tf.serving.json_values import json_object

# RapidJSON recurses until its stack is gone; deeper requests are refused here, before that.
MAX_DEPTH = 1000
_TENTH_OF_LARGEST = 1.7976931348623157e307
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


class RapidJsonParser:
    """GenericReader of rapidjson/reader.h, with a stack of its own instead of recursion.

    Args:
        body: Of the request.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0
        for mark in (b"\xef", b"\xbb", b"\xbf"):  # a byte order mark, or a part of one
            self._consume(mark)

    def document(self) -> Any:
        """Parses the whole body.

        Raises:
            ServingError: It is no JSON.
        """
        self._skip_space()
        if not self._peek():
            raise self._error("The document is empty.")
        value = self._value()
        self._skip_space()
        if self._peek():
            raise self._error("The document root must not be followed by other values.")
        return value

    def _value(self) -> Any:
        parents: list[tuple[list[Any], list[str] | None]] = []
        while True:
            opening = self._peek()
            if opening in (b"[", b"{") and opening:
                if len(parents) >= MAX_DEPTH:
                    raise self._error("Terminate parsing due to Handler error.")
                self._at += 1
                self._skip_space()
                keys: list[str] | None = [] if opening == b"{" else None
                if not self._consume(b"]" if keys is None else b"}"):
                    parents.append(([], keys))
                    self._key(keys)
                    continue
                value: Any = [] if keys is None else {}
            else:
                value = self._scalar(opening)
            while parents:
                values, keys = parents[-1]
                values.append(value)
                if self._more(keys is not None):
                    self._key(keys)
                    break
                value = (
                    values if keys is None else json_object(list(zip(keys, values, strict=True)))
                )
                parents.pop()
            else:
                return value

    def _more(self, in_object: bool) -> bool:
        self._skip_space()
        if self._consume(b","):
            self._skip_space()
            return True
        if self._consume(b"}" if in_object else b"]"):
            return False
        if in_object:
            raise self._error("Missing a comma or '}' after an object member.")
        raise self._error("Missing a comma or ']' after an array element.")

    def _key(self, keys: list[str] | None) -> None:
        if keys is None:
            return
        if self._peek() != b'"':
            raise self._error("Missing a name for object member.")
        keys.append(self._string())
        self._skip_space()
        if not self._consume(b":"):
            raise self._error("Missing a colon after a name of object member.")
        self._skip_space()

    def _scalar(self, first: bytes) -> Any:
        if first == b'"':
            return self._string()
        if first not in _LITERALS:
            return self._number()
        word, value = _LITERALS[first]
        for code in word:
            if not self._consume(bytes([code])):
                raise self._error("Invalid value.")
        return value

    def _string(self) -> str:
        self._at += 1
        pieces = []
        while True:
            plain = _PLAIN.match(self._body, self._at)
            assert plain is not None
            pieces.append(plain[0])
            self._at = plain.end()
            char = self._peek()
            if char == b'"':
                self._at += 1
                return b"".join(pieces).decode("utf-8", "surrogateescape")
            if not char:
                raise self._error("Missing a closing quotation mark in string.")
            if char != b"\\":
                raise self._error("Invalid escape character in string.")
            pieces.append(self._escape())

    def _escape(self) -> bytes:
        start = self._at
        char = self._body[start + 1 : start + 2]
        if char in _ESCAPES:
            self._at += 2
            return _ESCAPES[char]
        if char != b"u":
            raise self._error("Invalid escape character in string.")
        code = self._hexadecimal(start, start + 2)
        self._at = start + 6
        if 0xD800 <= code <= 0xDBFF:
            if self._body[self._at : self._at + 2] != b"\\u":
                raise self._error("The surrogate pair in string is invalid.", start)
            low = self._hexadecimal(start, self._at + 2)
            if not 0xDC00 <= low <= 0xDFFF:
                raise self._error("The surrogate pair in string is invalid.", start)
            self._at += 6
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        return chr(code).encode("utf-8", "surrogatepass")

    def _hexadecimal(self, start: int, at: int) -> int:
        match = _HEX.match(self._body, at)
        if match is None:
            raise self._error("Incorrect hex digit after \\u escape in string.", start)
        return int(match[0], 16)

    def _number(self) -> float | int:
        start = self._at
        minus = self._consume(b"-")
        if self._peek() in (b"N", b"I"):
            return self._not_finite(minus)
        whole = self._digits()
        if not whole:
            raise self._error("Invalid value.")
        if whole.startswith(b"0"):
            self._at -= len(whole) - 1
            whole = b"0"
        fraction = b""
        decimals = self._consume(b".")
        if decimals and not (fraction := self._digits()):
            raise self._error("Miss fraction part in number.")
        exponent = b""
        if self._consume(b"e") or self._consume(b"E"):
            negative = not self._consume(b"+") and self._consume(b"-")
            if not (exponent := self._digits()):
                raise self._error("Miss exponent in number.")
            if not negative and int(exponent.lstrip(b"0")[:9] or b"0") > 308 + len(fraction):
                raise self._error("Number too big to be stored in double.", start)
        if float(whole[:-1] or b"0") >= _TENTH_OF_LARGEST:
            raise self._error("Number too big to be stored in double.", start)
        text = self._body[start : self._at]
        return float(text) if decimals or exponent or len(whole) > 20 else int(text)

    def _not_finite(self, minus: bool) -> float:
        if self._consume(b"N"):
            if self._consume(b"a") and self._consume(b"N"):
                return float("nan")
        elif self._consume(b"I") and self._consume(b"n") and self._consume(b"f"):
            rest = all(map(self._consume, (b"i", b"n", b"i", b"t", b"y")))
            if rest or self._body[self._at - 1 : self._at] == b"f":
                return float("-inf") if minus else float("inf")
        raise self._error("Invalid value.")

    def _digits(self) -> bytes:
        match = _DIGITS.match(self._body, self._at)
        assert match is not None
        self._at = match.end()
        return match[0]

    def _peek(self) -> bytes:
        """The next byte; the end and a zero byte are one to RapidJSON."""
        return self._body[self._at : self._at + 1].replace(b"\0", b"")

    def _consume(self, char: bytes) -> bool:
        found = self._body.startswith(char, self._at)
        self._at += found
        return found

    def _skip_space(self) -> None:
        match = _SPACE.match(self._body, self._at)
        assert match is not None
        self._at = match.end()

    def _error(self, message: str, at: int | None = None) -> ServingError:
        offset = self._at if at is None else at
        return ServingError.invalid_argument(f"JSON Parse error: {message} at offset: {offset}")
