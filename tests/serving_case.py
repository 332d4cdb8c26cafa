"""One row of the protocol's table: a request, its exact answer, and where that is written."""

import json
from typing import Literal, NamedTuple

# Paths in TensorFlow Serving's repository, of which the table names the function or the test.
API_REST = "g3doc/api_rest.md"
JSON_TENSOR = "tensorflow_serving/util/json_tensor.cc"
JSON_TENSOR_TEST = "tensorflow_serving/util/json_tensor_test.cc"
REST_UTIL = "tensorflow_serving/model_servers/http_rest_api_util.cc"
REST_HANDLER = "tensorflow_serving/model_servers/http_rest_api_handler.cc"
REST_HANDLER_TEST = "tensorflow_serving/model_servers/http_rest_api_handler_test.cc"
SERVER_CORE = "tensorflow_serving/model_servers/server_core.cc"
MODEL_STATUS = "tensorflow_serving/model_servers/get_model_status_impl.cc"
MANAGER = "tensorflow_serving/core/basic_manager.cc"
HTTP_REQUEST = "tensorflow_serving/util/net_http/server/internal/evhttp_request.cc"
CLASSIFIER = "tensorflow_serving/servables/tensorflow/classifier.cc"
REGRESSOR = "tensorflow_serving/servables/tensorflow/regressor.cc"
READER = "rapidjson/reader.h"
WRITER = "rapidjson/writer.h"
PRETTY_WRITER = "rapidjson/prettywriter.h"


class Case(NamedTuple):
    """A request and its answer.

    Attributes:
        name: Says what is special about it.
        method: Of HTTP.
        path: Percent-encoded.
        body: Of the request.
        status: Of the answer.
        answer: Its body.
        source: File and function, test or section of TensorFlow Serving that says so.
        compare: "bytes"; "json" where the order of keys is that of a hash table; "subset" where
            the answer has more keys that depend on TensorFlow; "status" where the text is ours.
        on_real: Whether a real server survives it.
    """

    name: str
    method: str
    path: str
    body: bytes
    status: int
    answer: bytes
    source: str
    compare: Literal["bytes", "json", "subset", "status"] = "bytes"
    on_real: bool = True


def error(message: str) -> bytes:
    """An error's body, as PrettyWriter prints it."""
    return b'{\n    "error": %b\n}' % json.dumps(message, ensure_ascii=False).encode()


def predict(name: str, target: str, body: str | bytes, answer: str, source: str, **more) -> Case:
    """A prediction that succeeds; `target` is "model" or "model/signature"."""
    return _predict(name, target, body, 200, answer.encode(), source, **more)


def refused(
    name: str, target: str, body: str | bytes, message: str, source: str, status: int = 400, **more
) -> Case:
    """A prediction that is refused with a message."""
    return _predict(name, target, body, status, error(message), source, **more)


def _predict(name, target, body, status, answer, source, **more) -> Case:
    model, _, signature = target.partition("/")
    raw = body.encode() if isinstance(body, str) else body
    if signature:
        raw = b'{"signature_name": "%b", %b' % (signature.encode(), raw.lstrip().removeprefix(b"{"))
    path = f"/v1/models/{model}:predict"
    return Case(name, "POST", path, raw, status, answer, source, **more)
