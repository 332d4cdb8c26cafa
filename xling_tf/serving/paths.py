"""What a request asks for, read from its method and path."""

import re
from typing import Literal, NamedTuple, cast
from urllib.parse import unquote_to_bytes

from xling_tf.serving.errors import ServingError

Action = Literal["predict", "classify", "regress", "status", "metadata"]

# TensorFlow Serving, model_servers/http_rest_api_util.cc: kPredictionApiGegex, kModelStatusApiRegex.
_VERSION = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_POST = re.compile(
    rf"/v1/models/(?P<model>[^/:]+){_VERSION}:(?P<action>classify|regress|predict)",
    re.IGNORECASE | re.ASCII,
)
_GET = re.compile(
    rf"/v1/models(?:/(?P<model>[^/:]+))?{_VERSION}(?:/(?P<action>metadata))?",
    re.IGNORECASE | re.ASCII,
)
_LARGEST_VERSION = 2**63 - 1


class Target(NamedTuple):
    """What a request asks for.

    Attributes:
        model: Its name, percent-decoded; bytes that are not UTF-8 are surrogates (PEP 383).
        version: If the path names one.
        label: If the path names one; never together with a version.
        action: What to do.
    """

    model: str
    version: int | None
    label: str | None
    action: Action


def parse_path(method: str, path: str) -> Target:
    """Reads the target of a request (ParseModelInfo, model_servers/http_rest_api_util.cc).

    Args:
        method: "GET", "POST" or whatever else came.
        path: As it stood in the request line: still percent-encoded, with `?` and the query where
            it had one, which is part of the path here as it is in TensorFlow Serving.

    Raises:
        ServingError: The protocol has no such request.

    Example:
        >>> parse_path("POST", "/v1/models/en-es/versions/3:predict")
        Target(model='en-es', version=3, label=None, action='predict')
        >>> parse_path("GET", "/v1/models/en%2Des").model
        'en-es'
    """
    pattern = {"POST": _POST, "GET": _GET}.get(method)
    match = pattern.fullmatch(path) if pattern else None
    if match is None:
        raise ServingError.invalid_argument(f"Malformed request: {method} {path}")
    version = None if match["version"] is None else _version(match["version"])
    if match["model"] is None:
        raise ServingError.invalid_argument("Missing model name in request.")
    return Target(
        _decoded(match["model"]),
        version,
        None if match["label"] is None else _decoded(match["label"]),
        cast(Action, (match["action"] or "status").lower()),
    )


def _version(digits: str) -> int:
    # Python refuses to read thousands of digits, which is no answer.
    significant = digits.lstrip("0")[:20] or "0"
    if int(significant) > _LARGEST_VERSION:
        raise ServingError.invalid_argument(f"Failed to convert version: {digits} to numeric.")
    return int(significant)


def _decoded(quoted: str) -> str:
    return unquote_to_bytes(quoted).decode("utf-8", "surrogateescape")
