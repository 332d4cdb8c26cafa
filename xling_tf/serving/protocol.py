"""JSON of the server's protocols: requests to arrays, arrays to answers.

Sources: TensorFlow Serving's `g3doc/api_rest.md`; OpenAI's API reference, "Embeddings" and
"Models"; `docs/openapi.json` of Text Embeddings Inference (TEI). OpenAI's lists of tokens are
rejected, because they are ids of OpenAI's models.
"""

import base64
import re
from collections.abc import Mapping
from typing import Any
from unicodedata import normalize

import numpy as np
import orjson
import tensorflow as tf
from google.protobuf.json_format import MessageToDict
from numpy.typing import NDArray
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef, TensorInfo

from xling_tf.client.match import Line, probabilities
from xling_tf.client.texts import is_blank
from xling_tf.client.words import BYTES_PER_TOKEN
from xling_tf.savedmodel.backends import ROLE_SIGNATURES

Tensors = dict[str, np.ndarray]
Vectors = NDArray[np.float32]  # [texts, dim]

# A value of two bytes takes a hundred as a Python object: 32 MiB of brackets would take gigabytes.
# Every comma and opening bracket counts as a value, also inside texts.
MAX_VALUES = 10**6
# The dtypes of inputs that JSON can hold, by TensorFlow's numbers, and the types of values by a
# dtype's kind.
_INTEGERS = (tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64)
_TYPES = (tf.string, tf.bool, tf.float16, tf.float32, tf.float64, *_INTEGERS)
_DTYPES = {dtype.as_datatype_enum: np.dtype(dtype.as_numpy_dtype) for dtype in _TYPES}
_JSON_TYPES = {"b": (bool,), "i": (int,), "u": (int,), "f": (int, float), "O": (str, dict)}
# What each path knows; a model's path knows those of "predict".
_TEI = {*"model inputs dimensions signature_name prompt_name truncate truncation_direction".split()}
_OPENAI = {*"model input dimensions encoding_format user signature_name input_type".split()}
_FIELDS = {
    "predict": {"signature_name", "instances", "inputs"},
    "/v1/embeddings": _OPENAI | {"normalize"},
    **dict.fromkeys(("/", "/embed", "/similarity"), _TEI | {"normalize"}),
    "/rerank": {
        *"model query texts return_text min_probability truncate truncation_direction".split()
    },
}
_HINTS = dict.fromkeys(
    ("dimension", "output_dimension", "output_dimensionality"), "the width is 'dimensions'"
)
_HINTS |= dict.fromkeys(
    ("output_dtype", "embedding_types"), "vectors are floats ('encoding_format')"
)
_ROLES = ROLE_SIGNATURES | {"passage": ROLE_SIGNATURES["document"]}
_ROWS = 100  # that are formatted at a time
# The signatures whose vectors a path needs, unless a request names another one.
_NEEDED = {path: {"serving_default"} for path in ("/embed", "/similarity", "/v1/embeddings")}
_NEEDED |= {"/rerank": {*ROLE_SIGNATURES.values()}}
_TOKEN = re.compile(r"\w+|[^\w\s]")


class ServingError(Exception):
    """A request is rejected: the client gets `{"error": message}` with the HTTP status."""

    def __init__(self, message: str, status: int = 400, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param  # the field at fault


def parse_request(body: bytes | bytearray) -> dict[str, Any]:
    """Reads a request's JSON object, without null members, or raises a `ServingError`."""
    if sum(map(body.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise ServingError(f"expected at most {MAX_VALUES} values in a request", 413)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ServingError(f"expected JSON in UTF-8: {error}") from None
    if not isinstance(document, dict):
        raise ServingError("expected a JSON object")
    return {name: value for name, value in document.items() if value is not None}


def dump(document: object) -> bytes:
    """Formats an answer as JSON."""
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


def dump_rows(rows: Any) -> bytes:
    """Formats a list, or an array, as JSON, some rows at a time, so that other threads have their
    turns between them.
    """
    return dump(_in_parts(rows))


def to_inputs(document: Mapping[str, Any], infos: Mapping[str, TensorInfo]) -> tuple[Tensors, bool]:
    """Converts a request's values to arrays by input, with strings as `bytes` in object arrays.

    Returns them, and True if the request has `instances` (rows), False if it has `inputs`
    (columns).
    """
    if ("instances" in document) == ("inputs" in document):
        raise ServingError("expected either 'instances' or 'inputs'")
    rows = document.get("instances")
    if rows is None:
        columns = _by_input(document["inputs"], [*infos])
    elif not isinstance(rows, list) or not rows:
        raise ServingError("'instances' must be a list of at least one")
    else:
        named_rows = [_by_input(row, [*infos]) for row in rows]
        columns = {name: [row[name] for row in named_rows] for name in infos}
    arrays = {name: _to_array(name, columns[name], info) for name, info in infos.items()}
    return arrays, rows is not None


def format_outputs(outputs: Tensors, row_form: bool) -> bytes:
    """Formats the answer to a predict request; `row_form` is what `to_inputs` returns.

    Numbers that are not finite become null.

    Examples:
        >>> format_outputs({"outputs": np.array([[0.1, 2]], np.float32)}, row_form=True)
        b'{"predictions":[[0.1,2.0]]}'
    """
    sizes = {array.shape[:1] for array in outputs.values()}
    if row_form and (len(sizes) != 1 or () in sizes):
        raise ServingError(f"the outputs {sorted(outputs)} are not rows; send 'inputs'")
    values = {name: _from_array(name, outputs[name]) for name in sorted(outputs)}
    answer: Any = values
    if len(values) == 1:
        (answer,) = values.values()
    elif row_form:
        answer = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    if isinstance(answer, list) or np.ndim(answer):
        answer = _in_parts(answer)
    return dump({"predictions" if row_form else "outputs": answer})


def format_status(states: Mapping[int, tuple[str, str, str]], more: Mapping[str, Any]) -> bytes:
    """Formats the answer to `GET /v1/models/m`, by apis/get_model_status.proto, largest first.

    `more` is OpenAI's description of the model, which has the same path.
    """
    statuses = [
        {
            "version": str(version),
            "state": state,
            "status": {"error_code": code, "error_message": text},
        }
        for version, (state, code, text) in sorted(states.items(), reverse=True)
    ]
    return dump({"model_version_status": statuses, **more})


def format_metadata(model: str, version: int, signatures: Mapping[str, SignatureDef]) -> bytes:
    """Formats the answer to `GET /v1/models/m/metadata`."""
    options = {"preserving_proto_field_name": True, "always_print_fields_with_no_presence": True}
    definitions = {n: MessageToDict(signature, **options) for n, signature in signatures.items()}
    specification = {"name": model, "signature_name": "", "version": str(version)}
    metadata = {"signature_def": {"signature_def": definitions}}
    return dump({"model_spec": specification, "metadata": metadata})


def require_fields(document: Mapping[str, Any], path: str) -> None:
    """Raises a `ServingError` that names a field which a path does not know, or does not support.

    A field that is ignored would change what the vectors are, without a word.
    """
    known = _FIELDS.get(path, _FIELDS["predict"])
    for name in document:
        if name not in known:
            hint = _HINTS.get(name, f"expected {', '.join(sorted(known))}")
            raise ServingError(f"{name[:100]!r} is not supported here; {hint}", param=name[:100])


def merge_parameters(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a request with `parameters`' members, where Hugging Face's clients put options."""
    parameters = document.get("parameters", {})
    if not isinstance(parameters, dict) or parameters.keys() & document.keys():
        message = "'parameters' must be an object, whose members do not stand beside it as well"
        raise ServingError(message, param="parameters")
    options = {name: value for name, value in parameters.items() if value is not None}
    return {name: value for name, value in document.items() if name != "parameters"} | options


def count_rows(document: Mapping[str, Any]) -> int:
    """Returns at least how many rows a request to predict has, before arrays are made of them."""
    values = document.get("instances", document.get("inputs"))
    columns = values.values() if isinstance(values, dict) else [values]
    return max((len(column) for column in columns if isinstance(column, list)), default=1)


def to_embed(document: Mapping[str, Any], path: str = "/v1/embeddings") -> dict[str, Any]:
    """Returns a request to OpenAI's path or to TEI's, with its texts as `input`.

    A sentence to compare with others comes first. Raises a `ServingError` if the request is
    malformed.

    Examples:
        >>> to_embed({"input": "Hola", "dimensions": 64})
        {'input': ['Hola'], 'dimensions': 64}
    """
    value, defaults = document.get("input", document.get("inputs")), {}
    match value:
        case str() if path != "/similarity":
            texts = [value]
        case {"source_sentence": source, "sentences": [*sentences], **others} if path in (
            "/",
            "/similarity",
        ):
            if others or "normalize" in document:
                raise ServingError(
                    "a comparison takes source_sentence and sentences, and no 'normalize'"
                )
            texts, defaults = [source, *sentences], {"normalize": True}
        case _ if path == "/similarity":
            raise ServingError("'inputs' must have source_sentence and sentences", param="inputs")
        case _:
            texts = value
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        message = "expected a text or several (LangChain: check_embedding_ctx_length=False)"
        raise ServingError(message, param="inputs" if "inputs" in document else "input")
    _require_options(document)
    return {**defaults, **document, "input": texts}


def _require_options(document: Mapping[str, Any]) -> None:
    """Raises a `ServingError` if an option of a request for vectors has a wrong value."""
    dimensions = document.get("dimensions")
    if dimensions is not None and (type(dimensions) is not int or dimensions < 1):
        raise ServingError("'dimensions' must be an integer of at least 1", param="dimensions")
    if document.get("encoding_format", "float") not in ("float", "base64"):
        raise ServingError("'encoding_format' must be float or base64", param="encoding_format")
    for name in ("normalize", "truncate"):
        if not isinstance(document.get(name, True), bool):
            raise ServingError(f"{name!r} must be true or false", param=name)
    if str(document.get("truncation_direction", "right")).lower() != "right":
        raise ServingError("'truncation_direction' must be Right", param="truncation_direction")


def signature_of(document: Mapping[str, Any]) -> str | None:
    """Returns the signature that a request for vectors asks for, by name or by its texts' role."""
    given = [name for name in ("signature_name", "input_type", "prompt_name") if document.get(name)]
    is_raw = not document.get("normalize", True)
    if len(given) > 1 or (given and is_raw):
        names = [*given, *["normalize"] * is_raw]
        raise ServingError(f"expected one of {names}, not several", param=names[-1])
    if not given:
        return "raw" if is_raw else None
    value = document[given[0]]
    if given == ["signature_name"]:
        return value
    if not isinstance(value, str) or value not in _ROLES:
        raise ServingError(f"{given[0]!r} must be one of {', '.join(_ROLES)}", param=given[0])
    return _ROLES[value]


def require_whole(document: Mapping[str, Any], max_tokens: int | None) -> None:
    """Raises a `ServingError` if a request forbids to cut a text that the model cuts (413), or may
    cut (400).

    The server has no tokenizer, but a text of `n` bytes has at most `n` tokens and two marks, and a
    model reads at most `BYTES_PER_TOKEN` bytes for each token.
    """
    if document.get("truncate", True):
        return
    if max_tokens is None:
        raise ServingError(
            "'truncate' must be true: the model does not say where it cuts", param="truncate"
        )
    longest = 0
    for text in document["input"]:
        size = len(text.encode())
        longest = max(longest, size)
        if size > max_tokens * BYTES_PER_TOKEN < len(normalize("NFC", text).encode()):
            raise ServingError(f"a text has more than {max_tokens} tokens, the maximum", 413)
    if longest + 2 > max_tokens:
        raise ServingError(
            f"the server cannot tell whether a text of {longest} bytes has more than {max_tokens} "
            f"tokens, the maximum; send at most {max_tokens - 2} bytes, or 'truncate': true",
            param="truncate",
        )


def to_vectors(document: Mapping[str, Any], outputs: Tensors) -> Vectors:
    """Returns the vectors of texts, scaled to unit length if dimensions are cut off.

    As in Python, a blank text has the zero vector, which is near no other.
    """
    vectors, dimensions = next(iter(outputs.values())), document.get("dimensions")
    has_text = [not is_blank(text) for text in document["input"]]
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or len(vectors) != len(has_text):
        raise ServingError("this signature does not return vectors of texts")
    if dimensions is not None and dimensions > vectors.shape[1]:
        raise ServingError(f"'dimensions' must be at most {vectors.shape[1]}")
    vectors = np.where(np.array(has_text)[:, np.newaxis], vectors[:, :dimensions], 0)
    if document.get("normalize", dimensions is not None):
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return np.ascontiguousarray(vectors, "<f4")


def to_probability(document: Mapping[str, Any]) -> float | None:
    """Returns the `min_probability` of a request, None if it has none."""
    value = document.get("min_probability")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (is_number and 0 <= value <= 1):
        message = f"expected 'min_probability' from 0 to 1, got {str(value)[:100]}"
        raise ServingError(message, param="min_probability")
    return value


def to_hits(query: NDArray[np.float32], texts: Vectors) -> list[dict[str, Any]]:
    """Returns the number and the cosine of each text, the best first."""
    scores = texts @ query
    best = sorted(range(len(texts)), key=lambda index: -scores[index])
    return [{"index": index, "score": float(scores[index])} for index in best]


def likely_hits(
    hits: list[dict[str, Any]], line: Line | None, minimum: float, has_text: NDArray[np.bool_]
) -> list[dict[str, Any]]:
    """Adds probabilities to all hits of a query, and leaves out blank and less likely ones."""
    if line is None:
        message = "this model has no probability of answers; train, import or calibrate it again"
        raise ServingError(message, param="min_probability")
    likely = probabilities([hit["score"] for hit in hits], line, max(1, len(hits))).tolist()
    return [
        hit | {"probability": probability}
        for hit, probability in zip(hits, likely, strict=True)
        if probability >= minimum and has_text[hit["index"]]
    ]


def format_embeddings(document: Mapping[str, Any], model: str, vectors: Vectors) -> bytes:
    """Formats the answer on OpenAI's path; words and punctuation marks count as tokens."""
    rows: Any = vectors
    if document.get("encoding_format") == "base64":
        rows = [base64.b64encode(row.tobytes()).decode() for row in vectors]
    # One by one, so that other threads have their turns between them.
    count = sum(1 for text in document["input"] for _ in _TOKEN.finditer(text))
    data = [{"object": "embedding", "index": index, "embedding": r} for index, r in enumerate(rows)]
    usage = {"prompt_tokens": count, "total_tokens": count}
    return dump({"object": "list", "data": _in_parts(data), "model": model, "usage": usage})


def describe(name: str, created: int) -> dict[str, Any]:
    """Returns OpenAI's object of a model, given the Unix time of its export."""
    return {"id": name, "object": "model", "created": created, "owned_by": "xling_tf"}


def is_callable(signature: SignatureDef) -> bool:
    """Returns True if all inputs are dense tensors of texts or numbers."""
    return all(info.name and info.dtype in _DTYPES for info in signature.inputs.values())


def without_paths(openapi: bytes, signatures: Mapping[str, SignatureDef]) -> bytes:
    """Returns an OpenAPI document without the paths that need vectors which a model lacks."""
    document = orjson.loads(openapi)
    encoders = {name for name, signature in signatures.items() if _gives_vectors(signature)}
    for path, needed in _NEEDED.items():
        if not needed <= encoders:
            del document["paths"][path]
    return dump(document)


def sample_request(signature_name: str, signature: SignatureDef) -> dict[str, Any]:
    """Returns a request with a row of texts or zeros for each input."""
    inputs = {}
    for name, info in signature.inputs.items():
        dtype, shape = _DTYPES[info.dtype], [max(dim.size, 1) for dim in info.tensor_shape.dim]
        inputs[name] = np.full(shape, "Hello" if dtype.kind == "O" else 0, dtype).tolist()
    return {"signature_name": signature_name, "inputs": inputs}


def _gives_vectors(signature: SignatureDef) -> bool:
    """Returns True if a signature turns texts alone into rows of floats."""
    if [info.dtype for info in signature.inputs.values()] != [tf.string.as_datatype_enum]:
        return False
    output = signature.outputs[min(signature.outputs)]
    return tf.as_dtype(output.dtype).is_floating and tf.TensorShape(
        output.tensor_shape
    ).is_compatible_with([None, None])


def _in_parts(rows: Any) -> list[orjson.Fragment]:
    parts = (rows[start : start + _ROWS] for start in range(0, len(rows), _ROWS))
    return [orjson.Fragment(dump(part)[1:-1]) for part in parts]


def _is_base64(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("b64"), str)


def _by_input(value: Any, names: list[str]) -> Mapping[str, Any]:
    """Returns inputs' values by name, from an object of them or the only input's value."""
    if len(names) == 1 and (not isinstance(value, dict) or _is_base64(value)):
        return {names[0]: value}
    if not isinstance(value, dict) or value.keys() != set(names):
        raise ServingError(f"expected an object with the keys {sorted(names)}")
    return value


def _to_array(name: str, value: Any, info: TensorInfo) -> np.ndarray:
    """Converts a value or nested lists of values to an array for an input."""
    dtype, shape = _DTYPES[info.dtype], tf.TensorShape(info.tensor_shape)
    array = np.array(value, object)
    elements = array.ravel().tolist()
    allowed, expected = _JSON_TYPES[dtype.kind], "string" if dtype.kind == "O" else dtype.name
    if others := sorted({type(e).__name__ for e in elements if type(e) not in allowed}):
        raise ServingError(
            f"input {name} must be {expected}, in lists of equal length, but has {others}"
        )
    if not shape.is_compatible_with(array.shape):
        raise ServingError(f"input {name} must have shape {shape}, not {array.shape}")
    flat = np.empty(len(elements), dtype)
    try:
        with np.errstate(over="raise"):
            flat[:] = [_to_bytes(e) for e in elements] if dtype.kind == "O" else elements
    except ArithmeticError:
        raise ServingError(f"input {name} has a number that is no {expected}") from None
    return flat.reshape(array.shape)


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not _is_base64(value):
        raise ServingError('expected a string, or {"b64": string}')
    try:
        decoded = base64.b64decode(value["b64"], validate=True)
        decoded.decode()  # a model would encode another sentence
    except ValueError:
        raise ServingError("expected UTF-8 text in base64") from None
    return decoded


def _from_array(name: str, array: np.ndarray) -> Any:
    """Converts an array for orjson; bytes become text, or base64 if the name ends in `_bytes`."""
    if array.dtype.kind == "O":
        texts: list[Any] = [value.decode("utf-8", "replace") for value in array.flat]
        if name.endswith("_bytes"):
            texts = [{"b64": base64.b64encode(value).decode()} for value in array.flat]
        return np.array(texts, object).reshape(array.shape).tolist()
    if array.dtype.kind not in "biuf":
        raise ServingError(f"output {name} is {array.dtype}, which JSON cannot hold")
    return np.asarray(array, order="C")[()]
