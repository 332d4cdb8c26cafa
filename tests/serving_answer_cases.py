"""The protocol's table: predictions that succeed."""

from serving_case import (
    API_REST,
    JSON_TENSOR,
    JSON_TENSOR_TEST,
    PRETTY_WRITER,
    READER,
    REST_HANDLER_TEST,
    REST_UTIL,
    WRITER,
    Case,
    predict,
)

ROW = '{\n    "predictions": [%s\n    ]\n}'
COLUMN = '{\n    "outputs": [\n        %s\n    ]\n}'
_WRITE_DECIMAL = f"{JSON_TENSOR}: WriteDecimal"
_ADD_VALUE = f"{JSON_TENSOR}: AddValueToTensor"


def _via(name: str, path: str, answer: str, source: str) -> Case:
    body = b'{"instances": [1.0, 2.0, 5.0]}'
    return Case(name, "POST", path, body, 200, (ROW % answer).encode(), source)


# half_plus: version 1 answers x / 2 + 2, version 2, the latest, x / 2 + 3.
WAYS = [
    _via("latest", "/v1/models/half_plus:predict", "3.5, 4.0, 5.5", f"{API_REST}: Example"),
    _via(
        *("version", "/v1/models/half_plus/versions/1:predict", "2.5, 3.0, 4.5"),
        f"{API_REST}: Predict API, URL",
    ),
    _via(
        *("label", "/v1/models/half_plus/labels/stable:predict", "2.5, 3.0, 4.5"),
        f"{REST_HANDLER_TEST}: Predict",
    ),
    _via(
        *("label decoded", "/v1/models/half_plus/labels/canary%202%2F3:predict", "3.5, 4.0, 5.5"),
        "tensorflow_serving/model_servers/http_rest_api_util_test.cc: TestParseModelInfoForPost",
    ),
    _via(
        *("name decoded", "/v1/models/half%5Fplus:predict", "3.5, 4.0, 5.5"),
        f"{REST_UTIL}: DecodeArg",
    ),
    _via(
        *("case of the path", "/V1/Models/half_plus/VERSIONS/1:Predict", "2.5, 3.0, 4.5"),
        f"{REST_UTIL}: kPredictionApiGegex, (?i)",
    ),
    _via(
        *("version with zeros", "/v1/models/half_plus/versions/001:predict", "2.5, 3.0, 4.5"),
        f"{REST_UTIL}: ParseModelInfo, absl::SimpleAtoi",
    ),
]

FORMS = [
    predict(
        *("signature named", "half_plus/serving_default", '{"instances": [3.0, 4.0]}'),
        *(ROW % "4.5, 5.0", f"{REST_HANDLER_TEST}: Predict"),
    ),
    predict(
        *("empty signature name", "half_plus", '{"signature_name": "", "instances": [4.0]}'),
        *(ROW % "5.0", "tensorflow_serving/model_servers/http_rest_api_handler.cc: GetInfoMap"),
    ),
    predict(
        *("column", "half_plus", '{"inputs": [3.0, 4.0]}'),
        *(COLUMN % "4.5,\n        5.0", f"{REST_HANDLER_TEST}: Predict"),
    ),
    predict(
        *("column, named", "half_plus", '{"inputs": {"x": [3.0]}}'),
        *(COLUMN % "4.5", f"{JSON_TENSOR_TEST}: SingleUnnamedTensorColumnarFormat"),
    ),
    predict(
        *("row, named", "half_plus", '{"instances": [{"x": 3.0}, {"x": 4.0}]}'),
        *(ROW % "4.5, 5.0", f"{JSON_TENSOR_TEST}: SingleNamedTensorBase64"),
    ),
    predict(
        *("rows of rank 1", "half_plus/matrix", '{"instances": [[1.0, 2.0], [3.0, 4.0]]}'),
        *(ROW % "[3.5, 4.0], [4.5, 5.0]", f"{REST_HANDLER_TEST}: Predict"),
    ),
    predict(
        *("columns of rank 2", "half_plus/matrix", '{"inputs": [[1.0, 2.0], [3.0, 4.0]]}'),
        COLUMN % "[\n            3.5,\n            4.0\n        ],\n        "
        "[\n            4.5,\n            5.0\n        ]",
        f"{PRETTY_WRITER}: PrettyPrefix",
    ),
    predict(
        *("scalar", "several/scalar", '{"inputs": 1.5}', '{\n    "outputs": 3.0\n}'),
        f"{JSON_TENSOR}: AddTensorValues",
    ),
    predict(
        *("no rows in a column", "half_plus", '{"inputs": []}', '{\n    "outputs": []\n}'),
        f"{PRETTY_WRITER}: EndArray",
    ),
    predict(
        "several in rows",
        "several",
        '{"instances": [{"factor": 2, "pair": [1, 0.5]}, {"pair": [1.0, 2.0], "factor": 3}]}',
        ROW % '\n        {\n            "scaled": [2.0, 1.0],\n            "total": 3.0\n        },'
        '\n        {\n            "scaled": [3.0, 6.0],\n            "total": 9.0\n        }',
        f"{JSON_TENSOR_TEST}: FromJsonMultipleNamedTensors",
        compare="json",
    ),
    predict(
        *("several in columns", "several", '{"inputs": {"factor": [2], "pair": [[1, 0.5]]}}'),
        '{"outputs": {"scaled": [[2.0, 1.0]], "total": [3.0]}}',
        f"{JSON_TENSOR_TEST}: FromJsonMultipleNamedTensors",
        compare="json",
    ),
    predict(
        *("other lengths in columns", "several/batch_sizes", '{"inputs": [1, 2]}'),
        *('{"outputs": {"all": [1.0, 2.0], "first": [1.0]}}', f"{API_REST}: Response format"),
        compare="json",
    ),
    predict(
        *("unknown keys are ignored", "half_plus", '{"foo": [{}], "instances": [1.0]}'),
        *(ROW % "3.5", f"{JSON_TENSOR}: FillPredictRequestFromJson"),
    ),
    predict(
        *("the first of two keys counts", "half_plus", '{"instances": [1.0], "instances": [2.0]}'),
        *(ROW % "3.5", "rapidjson/document.h: FindMember"),
    ),
    predict(
        *("blanks", "half_plus", '\r\n\t {"instances" : [ 1.0 ] } \n'),
        *(ROW % "3.5", f"{READER}: SkipWhitespace"),
    ),
    predict(
        *("byte order mark", "half_plus", b'\xef\xbb\xbf{"instances": [1.0]}'),
        *(ROW % "3.5", "rapidjson/encodedstream.h: EncodedInputStream"),
    ),
    predict(
        *("zero byte ends it", "half_plus", b'{"instances": [1.0]}\0garbage'),
        *(ROW % "3.5", "rapidjson/memorystream.h: Peek"),
    ),
]

# several/total adds up two numbers: with a zero, it answers the other one.
DIGITS = [
    predict(
        *("six digits", "several/total"),
        '{"instances": [[9000000, 0], [999999, 0], [0.5, 0], [0.0003, 0], [0.00003, 0]]}',
        ROW % "9e+06, 999999.0, 0.5, 0.0003, 3e-05",
        f"{JSON_TENSOR_TEST}: FromJsonSingleFloatTensorSixDigitPrecision",
    ),
    # 2**24 needs eight digits; 1/3 as a float is 0.3333333432..., 0.1 is 0.100000001..., rounded
    # to six digits it is read as the same float; the largest float is 3.4028234664e38.
    predict(
        *("nine digits", "several/total"),
        '{"instances": [[555557.5, 0], [16777216.0, 0], [0.333333333, 0], [0.1, 0], [3.4028234e38, 0]]}',
        ROW % "555557.5, 16777216.0, 0.333333343, 0.1, 3.40282347e+38",
        _WRITE_DECIMAL,
    ),
    predict(
        *("whole and negative", "several/total", '{"instances": [[3, 0], [-2.5, 0], [1e10, 0]]}'),
        *(ROW % "3.0, -2.5, 1e+10", _WRITE_DECIMAL),
    ),
    predict(
        *("not finite", "several/total"),
        '{"instances": [[NaN, 0], [Infinity, 0], [3, 0], [-Infinity, 0], [Inf, 0], [-Inf, 0]]}',
        ROW % "NaN, Infinity, 3.0, -Infinity, Infinity, -Infinity",
        f"{JSON_TENSOR_TEST}: FromJsonSingleFloatTensorNonFinite",
    ),
    predict(
        *("not finite by the model", "half_plus/divided", '{"instances": [1.0, -1.0]}'),
        *(ROW % "Infinity, -Infinity", _WRITE_DECIMAL),
    ),
    # 0.6666666666666666 / 2 + 3 is the double 3.33333333333333348..., which needs 17 digits.
    predict(
        *("double", "half_plus/double", '{"instances": [0.2, 0.6666666666666666]}'),
        *(ROW % "3.1, 3.3333333333333335", _WRITE_DECIMAL),
    ),
    predict(
        *("int64", "several/int64", '{"instances": [41, -9223372036854775808]}'),
        *(ROW % "42, -9223372036854775807", _ADD_VALUE),
    ),
    predict(
        *("uint32", "several/uint32", '{"instances": [0, 4294967294]}'),
        *(ROW % "1, 4294967295", _ADD_VALUE),
    ),
    predict(*("uint8", "several/uint8", '{"instances": [7]}'), *(ROW % "8", _ADD_VALUE)),
    predict(
        *("bool", "several/negated", '{"instances": [true, false]}'),
        *(ROW % "false, true", f"{API_REST}: JSON mapping"),
    ),
    predict(
        *("whole numbers for floats", "half_plus", '{"instances": [1, 2.0, -16777214]}'),
        *(ROW % "3.5, 4.0, -8388604.0", f"{JSON_TENSOR_TEST}: MixedInputForFloatTensor"),
    ),
]

STRINGS = [
    predict(
        *("texts", "texts", '{"instances": ["a dog", "una niña", "\\u00e9\\ud83d\\ude00/\\/"]}'),
        *(ROW % '"<a dog>", "<una niña>", "<é😀//>"', f"{API_REST}: Specifying input tensors"),
    ),
    predict(
        *("escapes", "texts", '{"instances": ["\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f\\u007f"]}'),
        ROW % '"<\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001F\x7f>"',
        f"{WRITER}: WriteString",
    ),
    predict(
        *("column of texts", "texts", '{"inputs": ["a"]}', COLUMN % '"<a>"'),
        f"{JSON_TENSOR_TEST}: MultipleNamedTensorColumnarFormat",
    ),
    predict(
        *("base64", "texts", '{"instances": [{"b64": "aGVsbG8="}, {"b64": "d29ybGQ"}, "x"]}'),
        *(
            ROW % '"<hello>", "<world>", "<x>"',
            f"{JSON_TENSOR_TEST}: SingleUnnamedTensorBase64Scalars",
        ),
    ),
    predict(
        *("base64, named", "texts", '{"instances": [{"text": {"b64": "aGVsbG8="}}]}'),
        *(ROW % '"<hello>"', f"{JSON_TENSOR_TEST}: SingleNamedTensorBase64"),
    ),
    predict(
        *("bytes in rows", "texts/binary", '{"instances": ["hello", {"b64": "/w=="}]}'),
        ROW
        % '{\n            "b64": "aGVsbG8="\n        }, {\n            "b64": "/w=="\n        }',
        f"{JSON_TENSOR_TEST}: FromJsonSingleBytesTensor",
    ),
    predict(
        *("bytes in columns", "texts/binary", '{"inputs": ["hello"]}'),
        COLUMN % '{\n            "b64": "aGVsbG8="\n        }',
        f"{API_REST}: Output of binary values",
    ),
    predict(
        *("bytes that are not UTF-8", "texts/binary", b'{"instances": ["\xff\xc3"]}'),
        ROW % '{\n            "b64": "/8M="\n        }',
        f"{READER}: ParseStringToStream, without kParseValidateEncodingFlag",
    ),
    predict(
        *("bytes beside numbers", "texts/both", '{"instances": ["hello"]}'),
        '{"predictions": [{"length": 5, "text_bytes": {"b64": "aGVsbG8="}}]}',
        f"{JSON_TENSOR}: IsNamedTensorBytes",
        compare="json",
    ),
    predict(
        *("two texts", "texts/joined", '{"instances": [{"left": "a", "right": {"b64": "Yg=="}}]}'),
        *(ROW % '"a+b"', f"{API_REST}: Specifying input tensors in row format"),
    ),
    predict(
        *("the first of two named counts", "texts/joined"),
        '{"instances": [{"left": "a", "left": "z", "right": "b"}]}',
        *(
            ROW % '"a+b"',
            f"{JSON_TENSOR}: AddInstanceItem; tensorflow/core/framework/tensor.cc: FromProtoField",
        ),
    ),
]

ANSWER_CASES = [*WAYS, *FORMS, *DIGITS, *STRINGS]
