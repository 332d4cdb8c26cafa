"""JSON as RapidJSON reads it, down to the offset at which it gives up.

TensorFlow Serving reads requests with RapidJSON 1.1.0 (rapidjson/reader.h) and kParseNanAndInfFlag.
What the `json` module reads alike is read by it, which is fast; the rest, and every mistake, is read
again by the parser here, which knows RapidJSON's habits and messages.
"""

import json
import re
from typing import Any

from xling_tf.serving.errors import ServingError
from xling_tf.serving.json_parser import RapidJsonParser
from xling_tf.serving.json_values import json_object

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
            return json.loads(text, object_pairs_hook=json_object)
        except (ValueError, RecursionError):
            pass  # told by the parser below
    if not careful:
        raise ServingError.invalid_argument("JSON Parse error: Unspecific syntax error.")
    return RapidJsonParser(body).document()


def _surrogates_are_paired(body: bytes) -> bool:
    return not _SURROGATE.search(body) or bool(_PAIRED.fullmatch(body))


def _may_be_too_big(body: bytes) -> bool:
    """Whether a number might not fit into a double, which the json module does not mind."""
    return bool(_BIG_EXPONENT.search(body)) or _MANY_DIGITS in body.translate(_TO_ZEROS)
