"""The protocol's table: JSON that is refused for what it says."""

from serving_case import (
    JSON_TENSOR,
    JSON_TENSOR_TEST,
    REST_HANDLER,
    REST_HANDLER_TEST,
    Case,
    refused,
)

_TYPE = f"{JSON_TENSOR}: AddValueToTensor, TypeError"
_FILL = f"{JSON_TENSOR}: FillTensorProto"
_INSTANCES = f"{JSON_TENSOR}: FillTensorMapFromInstancesList"
_FORMAT = f"{JSON_TENSOR}: FillPredictRequestFromJson, FormatError"
_ELEMENT = "Failed to process element: 0 of 'instances' list. Error: INVALID_ARGUMENT: "


KEYS = [
    refused(
        "neither key", "half_plus", '{"foo": 1}', "Missing 'inputs' or 'instances' key", _FORMAT
    ),
    refused(
        *("both keys", "half_plus", '{"instances": [1], "inputs": [1]}'),
        'JSON Value: {\n    "instances": [\n        1\n    ],\n    "inputs": [\n        1\n    ]\n} '
        "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist ",
        f"{JSON_TENSOR_TEST}: SingleUnnamedTensorErrors",
    ),
    refused(
        *("no instances", "half_plus", '{"instances": []}'),
        "JSON Value: {\n    \"instances\": []\n} No values in 'instances' array",
        _FORMAT,
    ),
    refused(
        *("instances no list", "half_plus", '{"instances": {"x": -1.5e-9}}'),
        'JSON Value: {\n    "instances": {\n        "x": -1.5e-9\n    }\n} '
        "Excepting 'instances' to be an list/array",
        _FORMAT,
    ),
    refused(
        *("signature no string", "half_plus", '{"signature_name": 100}'),
        'JSON Value: {\n    "signature_name": 100\n} not formatted correctly. '
        "'signature_name' key must be a string value.",
        f"{REST_HANDLER_TEST}: PredictRequestErrors",
    ),
    refused(
        *("unknown signature", "half_plus/foo", '{"instances": [1]}'),
        'Serving signature name: "foo" not found in signature def',
        f"{REST_HANDLER}: GetInfoMap",
    ),
]


def _element(name: str, target: str, element: str, message: str, source: str = _TYPE) -> Case:
    return refused(name, target, f'{{"instances": [{element}]}}', _ELEMENT + message, source)


def _wrong(value: str, kind: str, wanted: str) -> str:
    return f"JSON Value: {value} Type: {kind} is not of expected type: {wanted}"


TYPES = [
    _element(
        *("text for float", "half_plus", '"x"', _wrong('"x"', "String", "float")),
        f"{REST_HANDLER_TEST}: PredictRequestErrors",
    ),
    _element("null for float", "half_plus", "null", _wrong("null", "Null", "float")),
    _element("true for float", "half_plus", "true", _wrong("true", "True", "float")),
    _element("number for text", "texts", "0.1", _wrong("0.1", "Number", "string")),
    _element("false for text", "texts", "false", _wrong("false", "False", "string")),
    _element("decimal for int64", "several/int64", "1.0", _wrong("1.0", "Number", "int64")),
    _element(
        *("beyond int64", "several/int64", "9223372036854775808"),
        _wrong("9223372036854775808", "Number", "int64"),
    ),
    _element("negative for uint32", "several/uint32", "-1", _wrong("-1", "Number", "uint32")),
    _element("number for bool", "several/negated", "1", _wrong("1", "Number", "bool")),
    _element(
        *("object for float", "half_plus", '{"b64": "eA=="}'),
        _wrong('{\n    "b64": "eA=="\n}', "Object", "float"),
        _FILL,
    ),
    _element(
        *("too precise for float", "half_plus", "16777217"),
        "Cannot convert JSON value: 16777217 to float without loss of precision.",
        f"{JSON_TENSOR_TEST}: SingleUnnamedTensorErrors",
    ),
    _element(
        *("too large for float", "half_plus", "1e39"),
        "Cannot convert JSON value: 1e+39 to float without loss of precision.",
        f"{JSON_TENSOR}: IsLosslessDecimal",
    ),
    _element(
        *("too precise for double", "half_plus/double", "9007199254740993"),
        "Cannot convert JSON value: 9007199254740993 to double without loss of precision.",
        f"{JSON_TENSOR_TEST}: SingleUnnamedTensorErrors",
    ),
    refused(
        *("type without JSON, row", "several/uint16", '{"instances": [1]}'),
        "Failed to process element: 0 of 'instances' list. Error: UNIMPLEMENTED: Conversion of JSON "
        "Value: 1 to type: uint16",
        f"{JSON_TENSOR}: AddValueToTensor, default",
    ),
    refused(
        *("type without JSON, column", "several/uint16", '{"inputs": [1]}'),
        "Conversion of JSON Value: 1 to type: uint16",
        f"{JSON_TENSOR}: AddValueToTensor, default; http_server.cc: ToHTTPStatusCode",
        status=501,
    ),
    refused(
        *("answer without JSON", "several/complex", '{"instances": [1]}'),
        "Failed to write JSON value for tensor type: complex64",
        f"{JSON_TENSOR_TEST}: FromJsonSingleTensorErrors",
    ),
    _element(
        *("no base64", "texts", '{"b64": "a"}', "Unable to base64 decode"),
        f"{JSON_TENSOR}: JsonDecodeBase64Object",
    ),
    _element(
        *("object for text", "texts", '[{"b64": 1}]'),
        'JSON Value: {\n    "b64": 1\n} not formatted correctly for base64 data',
        f"{JSON_TENSOR}: Base64FormatError",
    ),
    refused(
        *("text for float, column", "half_plus", '{"inputs": ["x"]}'),
        *(_wrong('"x"', "String", "float"), _TYPE),
    ),
]

SHAPES = [
    refused(
        *("sizes differ", "half_plus/matrix", '{"instances": [[1, 2], [3, 4, 5]]}'),
        "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: "
        "Expecting tensor size: 2 but got: 3",
        f"{JSON_TENSOR_TEST}: SingleUnnamedTensorErrors",
    ),
    refused(
        *("shapes differ", "half_plus/matrix", '{"instances": [[1, 2], [[3, 4]]]}'),
        "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: "
        "Expecting shape [2] but got: [1,2]",
        f"{JSON_TENSOR_TEST}: SingleUnnamedTensorErrors",
    ),
    _element(
        *("ragged", "half_plus/matrix", "[[1, 2], [3]]"),
        "Encountered list at unexpected size: 1 at level: 1 expected size: 2",
        _FILL,
    ),
    _element(
        *("deeper", "half_plus/matrix", "[1, [2]]"),
        "Encountered list at unexpected level: 1 expected < 1",
        _FILL,
    ),
    refused(
        *("less deep", "half_plus/matrix", '{"inputs": [[1], 2]}'),
        "JSON Value: 2 found at incorrect level: 2 in the JSON DOM. Expected at level: 2",
        _FILL,
    ),
    refused(
        *("list among objects", "half_plus", '{"instances": [{"x": 1}, 2]}'),
        "Expecting object but got list at item 1 of input list",
        f"{JSON_TENSOR_TEST}: MultipleNamedTensorErrors",
    ),
    refused(
        *("object among lists", "half_plus", '{"instances": [1, {"x": 2}]}'),
        "Expecting value/list but got object at item 1 of input list",
        f"{JSON_TENSOR_TEST}: MultipleNamedTensorErrors",
    ),
    refused(
        *("plain list for several", "several", '{"instances": [1]}'),
        "instances is a plain list, but expecting list of objects as multiple input tensors required "
        "as per tensorinfo_map",
        _INSTANCES,
    ),
    refused(
        *("plain column for several", "several", '{"inputs": [1]}'),
        "inputs is a plain value/list, but expecting an object as multiple input tensors required as "
        "per tensorinfo_map",
        f"{JSON_TENSOR}: FillTensorMapFromInputsMap",
    ),
    refused(
        *("input missing, column", "several", '{"inputs": {"factor": [1]}}'),
        "Missing named input: pair in 'inputs' object.",
        f"{JSON_TENSOR}: FillTensorMapFromInputsMap",
    ),
    refused(
        *("input missing, row", "several", '{"instances": [{"factor": 1}]}'),
        "Failed to process element: 0 of 'instances' list. JSON object: {\n    \"factor\": 1\n} keys "
        "must be equal to: factor,pair",
        _INSTANCES,
    ),
    refused(
        *("unknown input", "several", '{"instances": [{"foo": 1, "factor": 1, "pair": [1, 2]}]}'),
        "Failed to process element: 0 key: foo of 'instances' list. Error: INVALID_ARGUMENT: JSON "
        "object: does not have named input: foo",
        f"{JSON_TENSOR}: AddInstanceItem",
    ),
    # Which of the two outputs is named depends on the order of a hash table.
    refused(
        *("batch sizes of outputs", "several/batch_sizes", '{"instances": [1, 2]}'),
        "Tensor name: first has inconsistent batch size: 1 expecting: 2",
        f"{JSON_TENSOR_TEST}: FromJsonMultipleNamedTensorsErrors",
        compare="status",
    ),
    # The text is that of the kernel which notices.
    refused(
        *("rows that do not fit", "several"),
        '{"inputs": {"factor": [1, 2], "pair": [[1, 2], [3, 4], [5, 6]]}}',
        "",
        "tensorflow_serving/servables/tensorflow/predict_util.cc: RunPredict",
        compare="status",
    ),
]

REFUSAL_CASES = [*KEYS, *TYPES, *SHAPES]
