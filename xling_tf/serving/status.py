"""Answers about models: their versions' states, their signatures, and errors."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from xling_tf.serving.json_writing import string
from xling_tf.serving.signatures import Signature, TensorInfo


class VersionStatus(NamedTuple):
    """The state of one version (apis/get_model_status.proto).

    Attributes:
        version: Its number.
        state: "START", "LOADING", "AVAILABLE", "UNLOADING" or "END".
        error_code: "OK", or the canonical code of what went wrong.
        error_message: Empty when nothing did.
    """

    version: int
    state: str
    error_code: str
    error_message: str


def format_status(versions: Iterable[VersionStatus]) -> bytes:
    """The answer to `GET /v1/models/m`, the newest version first.

    Source: ToJsonString of http_rest_api_util.cc; VersionMap of core/servable_state_monitor.h is
    ordered from the largest version to the smallest.
    """
    states = [
        {
            "version": str(status.version),
            "state": status.state,
            "status": {"error_code": status.error_code, "error_message": status.error_message},
        }
        for status in sorted(versions, reverse=True)
    ]
    return _protobuf_json({"model_version_status": states})


def format_metadata(model: str, version: int, signatures: Mapping[str, Signature]) -> bytes:
    """The answer to `GET /v1/models/m/metadata` (ToJsonString of http_rest_api_util.cc).

    The two messages in it are printed apart and glued together, hence the odd line breaks.
    """
    specification = {"name": model, "signature_name": "", "version": str(version)}
    definitions = {name: _signature_def(signatures[name]) for name in sorted(signatures)}
    return b"".join(
        (
            b'{\n"model_spec":',
            _protobuf_json(specification),
            b',\n"metadata": {"signature_def": ',
            _protobuf_json({"signature_def": definitions}),
            b"}\n}\n",
        )
    )


def format_error(message: str) -> bytes:
    """The body of every answer that is an error (MakeJsonFromStatus of util/json_tensor.cc).

    Args:
        message: Surrogates in it, bytes of the request that are not UTF-8, are replaced: unlike
            TensorFlow Serving's, this JSON can always be read.

    Example:
        >>> print(format_error("Missing model name in request.").decode())
        {
            "error": "Missing model name in request."
        }
    """
    text = message.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return b'{\n    "error": %b\n}' % string(text.encode())


def _signature_def(signature: Signature) -> dict[str, Any]:
    return {
        "inputs": _tensors(signature.inputs),
        "outputs": _tensors(signature.outputs),
        "method_name": signature.method_name,
        "defaults": {},
    }


def _tensors(infos: Mapping[str, TensorInfo]) -> dict[str, Any]:
    return {alias: _tensor_info(infos[alias]) for alias in sorted(infos)}


def _tensor_info(info: TensorInfo) -> dict[str, Any]:
    dimensions = [{"size": str(size), "name": ""} for size in info.shape or ()]
    shape = {"dim": dimensions, "unknown_rank": info.shape is None}
    return {"dtype": info.dtype, "tensor_shape": shape, "name": info.name}


def _protobuf_json(message: dict[str, Any]) -> bytes:
    # Protobuf's printer also escapes what HTML would read as a tag.
    text = json.dumps(message, indent=1, ensure_ascii=False) + "\n"
    escaped = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("\x7f", "\\u007f")
    return escaped.encode("utf-8", "surrogateescape")
