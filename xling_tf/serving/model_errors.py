"""TensorFlow's errors as the protocol's: their canonical code and what a client may read."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf
from tensorflow.core.protobuf import error_codes_pb2

from xling_tf.serving.errors import ServingError

# ToHTTPStatusCode of TensorFlow Serving's model_servers/http_server.cc, for the codes a model can end with.
_STATUSES = {
    1: 499,
    3: 400,
    4: 504,
    5: 404,
    6: 409,
    7: 403,
    8: 429,
    9: 400,
    10: 409,
    11: 400,
    12: 501,
    14: 503,
}

# TensorFlow puts the nodes' places in the exporting program before the message, and the graph's after.
_PREAMBLE = re.compile(
    r"\A(?:Graph execution error:|Detected at node.*|<stack traces.*|File .*|\s*)\n"
)
_OPERATION = re.compile(r"\s*\[(?:Op:[^\]]*|\[\{\{node .*)\]*\Z")
_PATH = re.compile(r"(?<![\w.>])/(?:[\w.@+-]+/)*[\w.@+-]+")
_LONGEST = 500


@contextmanager
def told_by_tensorflow() -> Iterator[None]:
    """Raises what TensorFlow raises inside the block as a `ServingError`."""
    try:
        yield
    except tf.errors.OpError as error:
        raise ServingError(
            _STATUSES.get(error.error_code, 500), first_line(error.message)
        ) from error
    except (TypeError, ValueError) as error:
        raise ServingError.invalid_argument(first_line(str(error))) from error


def canonical_code(error: BaseException) -> str:
    """The name of an error's code, or of that of its cause: "NOT_FOUND", "DATA_LOSS", ..."""
    for each in (error, error.__cause__):
        if isinstance(each, tf.errors.OpError):
            return str(error_codes_pb2.Code.Name(each.error_code))
        if isinstance(each, FileNotFoundError):
            return "NOT_FOUND"
    return "UNKNOWN"


def first_line(message: str) -> str:
    r"""What went wrong, without TensorFlow's report around it and without paths of this machine.

    Example:
        >>> first_line("Graph execution error:\n\nDetected at node Assert defined at (most recent "
        ...            "call last):\n<stack traces unavailable>\nno row\n\t [[{{node A}}]] [Op:__f]")
        'no row'
        >>> first_line("/models/en-es/3/saved_model.pb; No such file or directory")
        '...; No such file or directory'
    """
    while match := _PREAMBLE.match(message):
        message = message[match.end() :]
    line = _OPERATION.sub("", message.split("\n", 1)[0])
    return _PATH.sub("...", line)[:_LONGEST]
