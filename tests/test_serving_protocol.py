"""The REST protocol: a table of requests and answers, what JSON can hold, and requests that mean harm.

With `-m tf_serving --server http://host:port` the table is held to a real TensorFlow Serving, which serves
the models of serving_models.py.
"""

import csv
import gzip
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from hostile_bytes import FEW
from hostile_requests import bodies, paths
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from serving_models import LABELS, lay_out
from serving_servers import Reply, Server, server_in_thread
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf.meta_graph_pb2 import TensorInfo

from xling_tf.serving.app import Limits
from xling_tf.serving.models import ModelConfig
from xling_tf.serving.protocol import (
    MAX_VALUES,
    ServingError,
    format_outputs,
    parse_path,
    parse_request,
    to_inputs,
)

# A request, the status of its answer, and the answer: JSON; after "⊇", JSON that it contains; of an error,
# what its message names. The last column is where TensorFlow Serving's source or documents say so.
with (Path(__file__).parent / "serving_protocol.tsv").open(encoding="utf-8", newline="") as file:
    TABLE = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
TEXTS = "/v1/models/texts:predict"
LIMITS = Limits(body_bytes=2**20, client_seconds=0.3)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    lay_out(folder)
    names = ("half_plus", "several", "texts")
    models = [ModelConfig(name, folder / name, LABELS.get(name, {})) for name in names]
    with server_in_thread(models, LIMITS) as server:
        yield server


@pytest.fixture(autouse=True)
def _nothing_fails(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def contains(whole: Any, part: Any) -> bool:
    if isinstance(part, dict):
        return all(key in whole and contains(whole[key], part[key]) for key in part)
    return whole == part


def check(reply: Reply, row: dict[str, str], text: bool = True) -> None:
    assert (reply.status, reply.kind) == (int(row["status"]), "application/json"), reply
    if reply.status != 200:
        (message,) = reply.json.values()
        assert reply.json.keys() == {"error"}
        assert message
        assert not text or all(words in message for words in row["answer"].split(" … ")), message
    elif row["answer"].startswith("⊇"):
        assert contains(reply.json, json.loads(row["answer"][1:]))
    else:
        # As text: NaN is not equal to itself, and 3 is not 3.0.
        assert json.dumps(reply.json) == json.dumps(json.loads(row["answer"])), row["source"]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["name"])
def test_the_server_answers_as_the_table_says(server: Server, row: dict[str, str]) -> None:
    check(server.ask(row["path"], row["body"] or None, row["method"]), row)


@pytest.mark.tf_serving
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["name"])
def test_a_real_server_answers_so_too(request: pytest.FixtureRequest, row: dict[str, str]) -> None:
    url = request.config.getoption("--server")
    if url is None:
        pytest.skip("--server http://host:port of a TensorFlow Serving is not given")
    server = Server(urlsplit(url).port or 8501)
    check(server.ask(row["path"], row["body"] or None, row["method"]), row, text=False)


@pytest.mark.parametrize(
    ("path", "body", "answer"),
    [
        ("half_plus", b'\r\n\t {"instances" : [ 1.0 ] } \n', [3.5]),
        ("half_plus", b'\xef\xbb\xbf{"instances": [1.0]}', [3.5]),
        ("half_plus", b'{"instances": [1.0]}\0garbage', [3.5]),
        ("texts", b'{"signature_name":"binary","instances":["\xff\xc3"]}', [{"b64": "/8M="}]),
        ("texts", b'{"instances": ["\xff"]}', ["<�>"]),
        ("texts", b'{"instances": ["\\ud800"]}', "surrogate"),
        ("texts", b'{"instances": ["\n"]}', "JSON Parse error"),
        ("texts", b'{"signature_name": "\\ud800\\u0000"}', "not found in signature def"),
        ("half_plus", b" \n ", "JSON Parse error"),
        ("half_plus", b"[" * 100_000, "JSON Parse error"),
        ("half_plus", b'{"instances": [' + b"9" * 5000 + b"]}", "JSON Parse error"),
        ("half_plus", b'{"instances": [' + b"9" * 400 + b"]}", "not of expected type: float32"),
        ("half_plus", b'{"inputs": ' + b"[" * 65 + b"]" * 65 + b"}", "tensor parsing error"),
        ("half_plus", b'{"instances": [[1.0, 2.0]]}', "must have shape (None,), not (1, 2)"),
    ],
)
def test_bytes_at_the_edges_of_json(server: Server, path: str, body: bytes, answer: Any) -> None:
    reply = server.ask(f"/v1/models/{path}:predict", body)
    if isinstance(answer, str):
        assert reply.status == 400
        assert answer in reply.json["error"]
    else:
        assert (reply.status, reply.json) == (200, {"predictions": answer})


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b'{"instances": ["' + b"a" * 2**20 + b'"]}', 413, "at most 1048576 bytes"),
        (b'{"instances": ["' + b"a" * (2**20 - 20) + b'"]}', 200, ""),
        (b"[" * (MAX_VALUES + 1), 413, "at most 1000000 values"),
        (json.dumps({"instances": [""] * 100_000}).encode(), 429, "task size is 100000"),
    ],
    ids=["bytes", "just fits", "values", "rows"],
)
def test_what_is_too_much_is_refused(server: Server, body: bytes, status: int, text: str) -> None:
    reply = server.ask(TEXTS, body)
    assert reply.status == status
    assert text in reply.json.get("error", "")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (gzip.compress(b'{"instances": ["a"]}'), 200),
        (gzip.compress(b"0" * 10**8), 413),
        (b"not packed", 400),
    ],
    ids=["good", "bomb", "not packed"],
)
def test_packed_bodies(server: Server, body: bytes, status: int) -> None:
    assert server.ask(TEXTS, body, headers={"Content-Encoding": "gzip"}).status == status


def test_a_body_that_does_not_come_is_not_waited_for(server: Server) -> None:
    reply = server.ask(TEXTS, b"{", headers={"Content-Length": "9"})
    assert (reply.status, list(reply.json)) == (408, ["error"])


TEMPLATES = [
    ("half_plus", b'{"instances": [1.0, 2.5]}'),
    ("several", b'{"instances": [{"factor": 2, "pair": [1.0, 2.0]}]}'),
    ("several", b'{"signature_name": "negated", "inputs": {"x": [true, false]}}'),
    ("several", b'{"signature_name": "uint8", "inputs": [1, 2]}'),
    ("several", b'{"signature_name": "scalar", "inputs": 1.5}'),
    ("texts", b'{"instances": ["a", {"b64": "YQ=="}]}'),
    ("texts", b'{"signature_name": "joined", "inputs": {"left": ["a"], "right": ["b"]}}'),
]


@settings(FEW, max_examples=150)
@given(request=st.sampled_from(TEMPLATES).flatmap(lambda t: st.tuples(st.just(t[0]), bodies(t[1]))))
def test_any_body_is_answered_or_refused(server: Server, request: tuple[str, bytes]) -> None:
    name, body = request
    answered_or_refused(server.ask(f"/v1/models/{name}:predict", body))


@settings(FEW, max_examples=150)
@given(path=paths("texts"), method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "OPTIONS"]))
def test_any_path_is_answered_or_refused(server: Server, path: bytes, method: str) -> None:
    # What is no HTTP at all is uvicorn's to answer.
    if all(33 <= byte < 127 for byte in path):
        reply = server.ask(path.decode(), b'{"instances": ["a"]}', method)
        if reply.kind == "application/json":
            answered_or_refused(reply)


def answered_or_refused(reply: Reply) -> None:
    assert reply.status == 200 or 400 <= reply.status < 500 or reply.status == 501
    assert (list(reply.json) == ["error"]) == (reply.status != 200) or b"error" not in reply.body
    for leak in (b"Traceback", b"site-packages", b".py", b"object at 0x"):
        assert leak not in reply.body


few = settings(max_examples=50, deadline=None, derandomize=True)
TYPES = {"FLOAT": "f4", "DOUBLE": "f8", "INT32": "i4", "INT64": "i8", "UINT64": "u8", "BOOL": "?"}


def info(dtype: str) -> TensorInfo:
    made = TensorInfo(dtype=types_pb2.DataType.Value(f"DT_{dtype}"))
    made.tensor_shape.unknown_rank = True
    return made


@st.composite
def arrays(draw: st.DrawFn) -> tuple[str, np.ndarray]:
    dtype = draw(st.sampled_from(sorted(TYPES)))
    shape = hnp.array_shapes(min_dims=1, max_dims=4, max_side=3)
    return dtype, draw(hnp.arrays(np.dtype(TYPES[dtype]), shape))


@few
@given(arrays(), st.booleans())
def test_what_is_written_is_read_as_the_same_array(drawn: tuple[str, np.ndarray], row_form: bool) -> None:
    dtype, array = drawn
    answer = format_outputs({"x": array}, row_form)
    body = answer.replace(b"predictions", b"instances").replace(b"outputs", b"inputs")
    inputs, read_row_form = to_inputs(parse_request(body), {"x": info(dtype)})
    assert (read_row_form, inputs["x"].dtype) == (row_form, array.dtype)
    np.testing.assert_array_equal(inputs["x"], array)


@few
@given(st.lists(st.binary(max_size=8), min_size=1), st.lists(st.text(), min_size=1))
def test_bytes_and_texts_come_back(raw: list[bytes], texts: list[str]) -> None:
    answer = format_outputs({"x_bytes": np.array([*raw, None], object)[:-1]}, True)
    body = answer.replace(b"predictions", b"instances")
    inputs, _ = to_inputs(parse_request(body), {"x": info("STRING")})
    assert inputs["x"].tolist() == raw
    for escaped in (True, False):
        body = json.dumps({"inputs": texts}, ensure_ascii=escaped).encode()
        inputs, _ = to_inputs(parse_request(body), {"x": info("STRING")})
        assert json.loads(format_outputs(inputs, True)) == {"predictions": texts}


@pytest.mark.parametrize(("shape", "text"), [((0,), "[]"), ((2, 0), "[[],[]]"), ((1, 0, 3), "[[]]")])
def test_lists_may_be_empty_at_any_depth(shape: tuple[int, ...], text: str) -> None:
    answer = format_outputs({"x": np.zeros(shape, np.float32)}, False)
    assert json.loads(answer) == {"outputs": json.loads(text)}


def test_versions_of_any_length_are_numbers_or_refused() -> None:
    path = "/v1/models/m/versions/"
    assert parse_path("GET", path + "0" * 5000 + "7").version == 7
    assert parse_path("GET", f"{path}{2**63 - 1}").version == 2**63 - 1
    for digits in (str(2**63), "9" * 5000, "0" * 30 + "9" * 30):
        with pytest.raises(ServingError, match=f"Failed to convert version: {digits} to numeric"):
            parse_path("GET", path + digits)
