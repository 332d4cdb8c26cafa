"""The options of sentence-transformers, which `SentenceEncoder` accepts if they change nothing."""

import sys
from collections.abc import Container, Mapping
from typing import Any

from xling_tf.errors import UserError
from xling_tf.inputs import describe
from xling_tf.savedmodel.calls import device

# The values that change nothing, beside None, False and empty ones, which mean that an option is not used.
_ACCEPTED: Mapping[str, Container[Any]] = {
    "backend": ("torch",),
    "chunk_size": range(1, sys.maxsize),
    "output_value": ("sentence_embedding",),
    "similarity_fn_name": ("cosine",),
    "trust_remote_code": (True,),
}


def require_unused(options: Mapping[str, Any]) -> None:
    """Raises a `UserError` for an option with a value that would change something, or that is no option."""
    for name, value in options.items():
        if name == "device" and value is not None:
            is_allowed = str(value).removesuffix(":0") == device()
        elif name == "output_value":  # None stands for all outputs
            is_allowed = value in _ACCEPTED[name]
        else:
            is_unused = value is None or value is False or value in ({}, [], ())
            is_allowed = is_unused or value in _ACCEPTED.get(name, ())
        if not is_allowed:
            raise UserError(f"{name}={describe(value)} is not supported; leave it out")
