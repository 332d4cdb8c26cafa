"""The protocol's table: which model, which version, which action; and requests that are none."""

import json
from typing import Any

from serving_case import (
    API_REST,
    CLASSIFIER,
    HTTP_REQUEST,
    JSON_TENSOR,
    MANAGER,
    MODEL_STATUS,
    REGRESSOR,
    REST_HANDLER,
    REST_HANDLER_TEST,
    REST_UTIL,
    SERVER_CORE,
    Case,
    error,
)

_BODY = b'{"instances": [1]}'
_EXAMPLES = b'{"examples": [{"x": 1.0}]}'


def _malformed(
    method: str, path: str, source: str = f"{REST_HANDLER_TEST}: UnsupportedApiCalls"
) -> Case:
    answer = error(f"Malformed request: {method} {path}")
    return Case(f"malformed {method} {path}", method, path, b"", 400, answer, source)


def _post(name: str, target: str, body: bytes, status: int, message: str, source: str) -> Case:
    return Case(name, "POST", f"/v1/models/{target}", body, status, error(message), source)


def _get(name: str, target: str, status: int, message: str, source: str) -> Case:
    return Case(name, "GET", f"/v1/models/{target}", b"", status, error(message), source)


def _states(*versions: int) -> bytes:
    ok = {"error_code": "OK", "error_message": ""}
    states = [{"version": str(v), "state": "AVAILABLE", "status": ok} for v in versions]
    # Protobuf indents by one blank and ends the line.
    return (json.dumps({"model_version_status": states}, indent=1) + "\n").encode()


def _signature(alias: str, dtype: str) -> dict[str, Any]:
    shape = {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
    return {
        "inputs": {alias: {"dtype": dtype, "tensor_shape": shape}},
        "method_name": "tensorflow/serving/predict",
    }


def _metadata(model: str, version: str, **signatures: Any) -> bytes:
    spec = {"name": model, "signature_name": "", "version": version}
    metadata = {"signature_def": {"signature_def": signatures}}
    return json.dumps({"model_spec": spec, "metadata": metadata}).encode()


STATES = [
    Case(
        *("status", "GET", "/v1/models/texts", b"", 200, _states(1)),
        f"{API_REST}: Model status API; {REST_UTIL}: ToJsonString",
    ),
    Case(
        *("status of all", "GET", "/v1/models/half_plus", b"", 200, _states(2, 1)),
        f"{MODEL_STATUS}: GetModelStatusWithModelSpec; VersionMap of servable_state_monitor.h",
    ),
    Case(
        *("status of one", "GET", "/v1/models/half_plus/versions/1", b"", 200, _states(1)),
        f"{REST_HANDLER_TEST}: GetStatus",
    ),
    Case(
        *("status of any case", "GET", "/V1/MODELS/texts", b"", 200, _states(1)),
        f"{REST_UTIL}: kModelStatusApiRegex, (?i)",
    ),
    Case(
        *("metadata", "GET", "/v1/models/texts/metadata", b"", 200),
        _metadata("texts", "1", serving_default=_signature("text", "DT_STRING")),
        f"{REST_HANDLER_TEST}: GetModelMetadata",
        compare="subset",
    ),
    Case(
        *("metadata of a version", "GET", "/v1/models/half_plus/versions/1/metadata", b"", 200),
        _metadata("half_plus", "1", double=_signature("x", "DT_DOUBLE")),
        f"{REST_UTIL}: ToJsonString",
        compare="subset",
    ),
    Case(
        *("metadata of a label", "GET", "/v1/models/half_plus/labels/stable/metadata", b"", 200),
        _metadata("half_plus", "1", serving_default=_signature("x", "DT_FLOAT")),
        "tensorflow_serving/model_servers/http_rest_api_util_test.cc: TestParseModelInfoForGet",
        compare="subset",
    ),
]

NOT_FOUND = [
    _post(
        *("unknown model", "half:predict", _BODY, 404),
        *("Servable not found for request: Latest(half)", f"{API_REST}: Example"),
    ),
    _post(
        *("unknown version", "half_plus/versions/7:predict", _BODY, 404),
        "Servable not found for request: Specific(half_plus, 7)",
        f"{MANAGER}: GetUntypedServableHandle",
    ),
    _post(
        *("names have cases", "Half_plus:predict", _BODY, 404),
        "Servable not found for request: Latest(Half_plus)",
        f"{MANAGER}: GetUntypedServableHandle",
    ),
    _post(
        *("unknown label", "half_plus/labels/foo:predict", _BODY, 400),
        "Unrecognized servable version label: foo",
        f"{REST_HANDLER_TEST}: PredictRequestErrors; {SERVER_CORE}: GetModelVersionForLabel",
    ),
    _post(
        *("path trick", "..%2F..%2Fetc%2Fpasswd:predict", _BODY, 404),
        "Servable not found for request: Latest(../../etc/passwd)",
        f"{REST_UTIL}: DecodeArg",
    ),
    _post(
        *("zero byte in a name", "half%00plus:predict", _BODY, 404),
        "Servable not found for request: Latest(half\0plus)",
        f"{REST_UTIL}: DecodeArg, outlength",
    ),
    _post(
        *("JSON is read before the model is sought", "half:predict", b"{", 400),
        "JSON Parse error: Missing a name for object member. at offset: 1",
        f"{REST_HANDLER}: ProcessPredictRequest",
    ),
    _get(
        *("status of an unknown model", "half", 404, "Could not find any versions of model half"),
        f"{MODEL_STATUS}: GetModelStatusWithModelSpec",
    ),
    _get(
        *("status of an unknown version", "half_plus/versions/7", 404),
        *(
            "Could not find version 7 of model half_plus",
            f"{MODEL_STATUS}: GetModelStatusWithModelSpec",
        ),
    ),
    _get(
        *("metadata of an unknown model", "half/metadata", 404),
        "Servable not found for request: Latest(half)",
        f"{REST_HANDLER}: ProcessModelMetadataRequest",
    ),
    _get(
        *("a query belongs to the name", "texts?a=b", 404),
        "Could not find any versions of model texts?a=b",
        f"{HTTP_REQUEST}: uri_path",
    ),
]

MALFORMED = [
    Case(
        *("no name", "GET", "/v1/models", b"", 400, error("Missing model name in request.")),
        f"{REST_HANDLER_TEST}: UnsupportedApiCalls",
    ),
    _malformed("GET", "/v1/foo"),
    _malformed("POST", "/v1/foo"),
    _malformed("POST", "/v1/models"),
    _malformed("GET", "/v1/models/debug/model_name"),
    _malformed("GET", "/v1/models/half_plus:predict"),
    _malformed("POST", "/v1/models/half_plus", f"{REST_UTIL}: kPredictionApiGegex"),
    _malformed("POST", "/v1/models/half_plus/metadata"),
    _malformed("POST", "/v1/models/half_plus/version/1:predict"),
    _malformed("POST", "/v1/models/half_plus/versions/HELLO:regress"),
    _malformed(
        "POST", "/v1/models/half_plus/versions/-1:predict", f"{REST_UTIL}: kPredictionApiGegex"
    ),
    _malformed("POST", "/v1/models/half_plus/versions/1/labels/stable:regress"),
    _malformed("POST", "/v1/models/half_plus:explain", f"{REST_UTIL}: kPredictionApiGegex"),
    _malformed("POST", "/v1/models/half_plus:predict?a=b", f"{HTTP_REQUEST}: uri_path"),
    _malformed("GET", "/v1/models/half_plus/", f"{REST_UTIL}: kModelStatusApiRegex"),
    _malformed("PUT", "/v1/models/half_plus:predict", f"{REST_HANDLER}: ProcessRequest"),
    _malformed("DELETE", "/v1/models/half_plus", f"{REST_HANDLER}: ProcessRequest"),
    # The real server's body is empty: it returns before it writes one. The document promises one.
    Case(
        *(
            "version beyond int64",
            "POST",
            "/v1/models/half_plus/versions/18446744073709551615:predict",
        ),
        *(_BODY, 400, error("Failed to convert version: 18446744073709551615 to numeric.")),
        f"{REST_HANDLER_TEST}: UnsupportedApiCalls",
        compare="status",
    ),
]

EXAMPLES = [
    _post(
        *("no examples", "half_plus:classify", b'{"foo": 1}', 400),
        "JSON Value: {\n    \"foo\": 1\n} When method is classify, key 'examples' is expected and was "
        "not found",
        f"{JSON_TENSOR}: FillClassifyRegressRequestFromJson",
    ),
    _post(
        *("examples no list", "half_plus:regress", b'{"examples": 1}', 400),
        "JSON Value: {\n    \"examples\": 1\n} Expecting 'examples' value to be an list/array",
        f"{JSON_TENSOR}: FillClassifyRegressRequestFromJson",
    ),
    _post(
        *("empty examples", "half_plus:classify", b'{"examples": []}', 400),
        "JSON Value: {\n    \"examples\": []\n} 'examples' value is an empty array",
        f"{JSON_TENSOR}: FillClassifyRegressRequestFromJson",
    ),
    _post(
        *("example no object", "half_plus:regress", b'{"examples": [1]}', 400),
        "Example must be JSON object but got JSON Number",
        f"{JSON_TENSOR}: MakeExampleFromJsonObject",
    ),
    _post(
        *("model for examples", "half:classify", _EXAMPLES, 404),
        *(
            "Servable not found for request: Latest(half)",
            f"{REST_HANDLER}: ProcessClassifyRequest",
        ),
    ),
    _post(
        *("signature for examples", "half_plus:classify"),
        b'{"signature_name": "foo", "examples": [{"x": 1}]}',
        *(400, "No signature was found with the name: foo"),
        f"{CLASSIFIER}: GetClassificationSignatureDef",
    ),
    _post(
        *("classify with two inputs", "several:classify", _EXAMPLES, 400),
        *("Expected one input Tensor.", f"{CLASSIFIER}: PreProcessClassification"),
    ),
    _post(
        *("regress with two outputs", "texts:regress"),
        b'{"signature_name": "both", "examples": [{"text": "a"}]}',
        *(400, "Expected one output Tensor.", f"{REGRESSOR}: PreProcessRegression"),
    ),
]

PATH_CASES = [*STATES, *NOT_FOUND, *MALFORMED, *EXAMPLES]
