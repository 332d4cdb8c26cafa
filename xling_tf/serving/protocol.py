"""TensorFlow Serving's REST protocol: paths, JSON to tensors and back, status, metadata, errors.

Sources: TensorFlow Serving's `g3doc/api_rest.md`, `model_servers/http_rest_api_util.cc` (paths) and
`util/json_tensor.cc` (JSON). Status codes and JSON values are the same; whitespace differs.
"""

import base64
import json
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

import numpy as np
import orjson
import tensorflow as tf
from google.protobuf.json_format import MessageToDict
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef, TensorInfo

Tensors = dict[str, np.ndarray]

MAX_VERSION = 2**63 - 1
# A value of two bytes takes a hundred as a Python object: 32 MiB of brackets would take gigabytes.
# Every comma and opening bracket counts as a value, also inside texts.
MAX_VALUES = 10**6
# The types of inputs that JSON can hold, beside strings.
_INPUT_TYPES = {"bool", "int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"}
_INPUT_TYPES |= {"float32", "float64"}

_VERSION = r"(?:/versions/0*(?P<version>\d{1,20})|/labels/(?P<label>[^/:]+))?"
_POST = rf"/v1/models/(?P<model>[^/:]+){_VERSION}:(?P<action>classify|regress|predict)"
_GET = rf"/v1/models(?:/(?P<model>[^/:]+))?{_VERSION}(?:/(?P<action>metadata))?"
_PATHS = {
    "POST": re.compile(_POST, re.IGNORECASE | re.ASCII),
    "GET": re.compile(_GET, re.IGNORECASE | re.ASCII),
}


class ServingError(Exception):
    """A request is rejected: the client gets `{"error": message}` with the HTTP status."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class Target(NamedTuple):
    """The model and action of a request: "predict", "classify", "regress", "status" or "metadata"."""

    model: str
    version: int | None
    label: str | None
    action: str


def parse_path(method: str, path: str) -> Target:
    """Parses a percent-encoded path with its query; raises a `ServingError` if it is malformed."""
    match = _PATHS[method].fullmatch(path) if method in _PATHS else None
    if match is None:
        raise ServingError(f"Malformed request: {method} {path}")
    version = None if match["version"] is None else int(match["version"])
    if version is not None and version > MAX_VERSION:
        raise ServingError(f"Failed to convert version: {version} to numeric.")
    if match["model"] is None:
        raise ServingError("Missing model name in request.")
    model, label = (
        name and unquote_to_bytes(name).decode("utf-8", "surrogateescape")
        for name in (match["model"], match["label"])
    )
    return Target(model, version, label, (match["action"] or "status").lower())


def parse_request(body: bytes) -> dict[str, Any]:
    """Reads the JSON object of a request; raises a `ServingError` if the body is anything else.

    As in RapidJSON, NaN and Infinity are numbers, the first of two equal keys wins, and a zero byte ends the
    document. Unlike TensorFlow Serving, this rejects text that is not UTF-8, also in base64, because a model
    would encode another sentence; and a member that is null counts as left out.
    """
    if sum(map(body.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise ServingError(f"A request must have at most {MAX_VALUES} values", 413)
    try:
        text = body.decode("utf-8-sig").partition("\0")[0]
    except UnicodeDecodeError as error:
        raise ServingError(f"JSON Parse error: byte {error.start} of the body is not UTF-8") from None
    if not text:
        raise ServingError("JSON Parse error: The document is empty")
    try:
        document = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise ServingError(f"JSON Parse error: {error}") from None
    if not isinstance(document, dict):
        raise ServingError(f"JSON Value: {_brief(document)} Is not object")
    document = {name: value for name, value in document.items() if value is not None}  # as if left out
    if not isinstance(document.get("signature_name", ""), str):
        raise ServingError("'signature_name' key must be a string value.")
    return document


def to_inputs(document: Mapping[str, Any], infos: Mapping[str, TensorInfo]) -> tuple[Tensors, bool]:
    """Converts the values of a request to arrays by input, with strings as `bytes` in object arrays.

    Returns them, and True if the request has `instances` (rows), False if it has `inputs` (columns).
    """
    row_form = "instances" in document
    if row_form == ("inputs" in document):
        raise ServingError("Expecting only one of 'inputs' or 'instances' keys to exist")
    arrays = {}
    for name, column in (_rows if row_form else _columns)(document, sorted(infos)).items():
        try:
            arrays[name] = _to_array(column, infos[name].dtype)
        except ServingError as error:
            # In rows, every mistake is an invalid argument.
            status = 400 if row_form else error.status
            raise ServingError(f"Failed to process input {name}: {error.message}", status) from None
        shape = tf.TensorShape(infos[name].tensor_shape)
        if not shape.is_compatible_with(arrays[name].shape):
            raise ServingError(f"Input {name} must have shape {shape}, not {arrays[name].shape}")
    return arrays, row_form


def format_outputs(outputs: Tensors, row_form: bool) -> bytes:
    """Formats the answer to a predict request; `row_form` is what `to_inputs` returns.

    Example:
        >>> format_outputs({"outputs": np.array([[0.1, 2]], np.float32)}, row_form=True)
        b'{"predictions":[[0.1,2.0]]}'
    """
    sizes = {array.shape[:1] for array in outputs.values()}
    if row_form and (len(sizes) != 1 or () in sizes):
        raise ServingError(f"Tensors {sorted(outputs)} have an inconsistent batch size")
    values = {alias: _from_array(alias, outputs[alias]) for alias in sorted(outputs)}
    finite = all(np.isfinite(array).all() for array in outputs.values() if array.dtype.kind == "f")
    if not finite:
        values = {alias: np.asarray(value).tolist() for alias, value in values.items()}
    answer: Any = values
    if len(values) == 1:
        (answer,) = values.values()
    elif row_form:
        answer = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    document = {"predictions" if row_form else "outputs": answer}
    if not finite:  # orjson would write null; the protocol has NaN and Infinity.
        return json.dumps(document).encode()
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


def format_status(states: Mapping[int, tuple[str, str, str]], more: Mapping[str, Any]) -> bytes:
    """Formats the answer to `GET /v1/models/m`, largest version first (apis/get_model_status.proto).

    `more` is OpenAI's description of the model, which has the same path.
    """
    statuses = [
        {"version": str(version), "state": state, "status": {"error_code": code, "error_message": text}}
        for version, (state, code, text) in sorted(states.items(), reverse=True)
    ]
    return orjson.dumps({"model_version_status": statuses, **more})


def format_metadata(model: str, version: int, signatures: Mapping[str, SignatureDef]) -> bytes:
    """Formats the answer to `GET /v1/models/m/metadata`."""
    options = {"preserving_proto_field_name": True, "always_print_fields_with_no_presence": True}
    definitions = {name: MessageToDict(signature, **options) for name, signature in signatures.items()}
    specification = {"name": model, "signature_name": "", "version": str(version)}
    metadata = {"signature_def": {"signature_def": definitions}}
    return orjson.dumps({"model_spec": specification, "metadata": metadata})


def _double(digits: str) -> float:
    if math.isinf(number := float(digits)):
        raise ValueError("Number too big to be stored in double")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=lambda pairs: dict(reversed(pairs)), parse_float=_double)


def _is_base64(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("b64"), str)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and not _is_base64(value)


def _rows(document: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """The columns of `instances`, which is a plain list, or objects with exactly the signature's keys."""
    instances = document["instances"]
    if not isinstance(instances, list):
        raise ServingError("Expecting 'instances' to be a list/array")
    if not instances:
        raise ServingError("No values in 'instances' array")
    if not any(map(_is_object, instances)):
        if len(names) != 1:
            raise ServingError(f"instances is a plain list, but expecting objects with keys {names}")
        return {names[0]: instances}
    for index, instance in enumerate(instances):
        if not _is_object(instance) or sorted(instance) != names:
            expected = f"an object with the keys {','.join(names)}, but is {_brief(instance)}"
            raise ServingError(f"Failed to process element: {index} of 'instances' must be {expected}")
    return {name: [instance[name] for instance in instances] for name in names}


def _columns(document: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """The columns of `inputs`, which is an object of tensors, or the only tensor."""
    columns = document["inputs"]
    if not _is_object(columns):
        if len(names) != 1:
            raise ServingError(f"inputs is a plain value/list, but expecting an object of {names}")
        return {names[0]: columns}
    for name in names:
        if name not in columns:
            raise ServingError(f"Missing named input: {name} in 'inputs' object.")
    return {name: columns[name] for name in names}


def _to_array(value: Any, tf_type: int) -> np.ndarray:
    """Converts a value or nested lists of values to an array."""
    array = np.array(value, object)
    elements = array.ravel().tolist()
    if any(type(element) is list for element in elements):
        raise ServingError("tensor parsing error: expecting lists of equal length, at most 64 deep")
    dtype = np.dtype(tf.dtypes.as_dtype(tf_type).as_numpy_dtype)
    if dtype.kind == "O":
        elements = [_to_bytes(element) for element in elements]
    elif dtype.name not in _INPUT_TYPES:
        raise ServingError(f"Conversion of JSON Value to type: {dtype}", 501)
    elif wrong := [element for element in elements if not _fits(element, dtype)]:
        raise ServingError(f"JSON Value: {_brief(wrong[0])} is not of expected type: {dtype}")
    flat = np.empty(len(elements), dtype)
    flat[:] = elements
    return flat.reshape(array.shape)


def _fits(value: Any, dtype: np.dtype) -> bool:
    """True if a value has a type that holds it as exactly as the protocol demands."""
    if dtype.kind == "b":
        return type(value) is bool
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return type(value) is int and limits.min <= value <= limits.max
    if type(value) is float:
        return not math.isfinite(value) or abs(value) <= float(np.finfo(dtype).max)
    return type(value) is int and abs(value) < 2 ** (np.finfo(dtype).nmant + 1)


def _to_bytes(value: Any) -> bytes:
    try:
        if type(value) is str:
            return value.encode()
        if _is_base64(value):
            # Whitespace is skipped, padding is optional (absl/strings/escaping.h).
            text = "".join(value["b64"].split()).rstrip("=.")
            decoded = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
            decoded.decode()  # raises an error for bytes that are no text
            return decoded
    except UnicodeDecodeError:
        raise ServingError("The bytes in b64 are not UTF-8; convert the text") from None
    except UnicodeEncodeError:
        raise ServingError("JSON Parse error: The surrogate pair in string is invalid.") from None
    except ValueError:
        raise ServingError("Unable to base64 decode") from None
    raise ServingError(f"JSON Value: {_brief(value)} is not of expected type: string")


def _brief(value: Any) -> str:
    """Describes a value of a request in an error message."""
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    return json.dumps(value)[:100]


def _from_array(alias: str, array: np.ndarray) -> Any:
    """Converts an array for orjson; bytes become text, or base64 if the output's name ends in `_bytes`."""
    if array.dtype.kind == "O":
        texts = [value.decode("utf-8", "replace") for value in array.flat]
        if alias.endswith("_bytes"):
            texts = [{"b64": base64.b64encode(value).decode()} for value in array.flat]
        return np.array(texts, object).reshape(array.shape).tolist()
    if array.dtype.kind not in "biuf":
        raise ServingError(f"Failed to write JSON value for tensor type: {array.dtype}")
    return np.asarray(array, order="C")[()]
