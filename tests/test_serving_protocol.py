"""The REST protocol: a table of requests and answers, properties of JSON, and hostile requests."""

import csv
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hostile_bytes import FEW, damaged, odd_json
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from serving_models import lay_out
from serving_servers import Reply, server_in_thread
from tensorflow.core.protobuf.meta_graph_pb2 import TensorInfo

from xling_tf.serving.protocol import MAX_VALUES, format_outputs, parse_request, to_inputs

# A request of TensorFlow Serving's `g3doc/api_rest.md` or a mistaken one, the status of its answer,
# and the answer: JSON; after "⊇", JSON that it contains; for an error, nothing.
with (Path(__file__).parent / "serving_protocol.tsv").open(encoding="utf-8", newline="") as file:
    TABLE = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
TEXTS = "/v1/models/texts:predict"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    lay_out(folder)
    models = {name: folder / name for name in ("half_plus", "several", "texts")}
    with server_in_thread(models, body_bytes=2**20, client_seconds=0.3) as server:
        yield server


@pytest.fixture(autouse=True)
def _nothing_fails(caplog):
    yield
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def contains(whole: Any, part: Any) -> bool:
    if isinstance(part, dict):
        return all(key in whole and contains(whole[key], part[key]) for key in part)
    return whole == part


def agrees(reply: Reply, row: dict[str, str]) -> bool:
    if (reply.status, reply.kind) != (int(row["status"]), "application/json"):
        return False
    if reply.status != 200:
        return list(reply.json) == ["error"] and reply.json["error"] != ""
    if row["answer"].startswith("⊇"):
        return contains(reply.json, json.loads(row["answer"][1:]))
    # As text: 3 is not 3.0.
    return json.dumps(reply.json) == json.dumps(json.loads(row["answer"]))


def test_the_server_answers_as_the_table_says(server):
    replies = [server.ask(row["path"], row["body"] or None, row["method"]) for row in TABLE]
    pairs = zip(TABLE, replies, strict=True)
    assert {row["name"]: reply for row, reply in pairs if not agrees(reply, row)} == {}


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b'{"instances": ["' + b"a" * 2**20 + b'"]}', {}, 413),
        (b'{"instances": ["' + b"a" * (2**20 - 20) + b'"]}', {}, 200),
        (b"[" * (MAX_VALUES + 1), {}, 413),
        (json.dumps({"instances": [""] * 100_000}).encode(), {}, 413),
        (b'{"instances": ["a"]}', {"Content-Encoding": "gzip"}, 415),
        (b"{", {"Content-Length": "9"}, 408),
        ('{"inputs": ["ñandú"]}'.encode("latin-1"), {}, 400),
        (b"[" * 100_000, {}, 400),
        (b'{"inputs": [' + b"9" * 5000 + b"]}", {}, 400),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict | int) else "",
)
def test_bodies_of_any_size_and_bytes(server, body, headers, status):
    reply = server.ask(TEXTS, body, **headers)
    assert reply.status == status
    assert list(reply.json) == (["predictions"] if status == 200 else ["error"])


def bodies(good: bytes) -> st.SearchStrategy[bytes]:
    """Bodies like a good one, and unlike any."""
    nested = st.integers(1, 5000).map(
        lambda n: b'{"instances": ' + b"[" * n + b"1" + b"]" * n + b"}"
    )
    return damaged(good) | odd_json(good) | nested | st.binary(max_size=200)


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
def test_any_body_is_answered_or_refused(server, request):
    name, body = request
    reply = server.ask(f"/v1/models/{name}:predict", body)
    assert reply.status == 200 or 400 <= reply.status < 500
    assert (list(reply.json) == ["error"]) == (reply.status != 200) or b"error" not in reply.body
    for leak in (b"Traceback", b"site-packages", b".py", b"object at 0x"):
        assert leak not in reply.body


ARRAYS = hnp.arrays(
    st.sampled_from(["f4", "f8", "i4", "i8", "u8", "?"]),
    hnp.array_shapes(min_dims=1, max_dims=4, max_side=3),
).filter(lambda array: np.isfinite(array).all())


@settings(FEW, max_examples=50)
@given(ARRAYS, st.booleans())
def test_a_written_array_is_read_as_the_same_array(array, row_form):
    answer = format_outputs({"x": array}, row_form)
    body = answer.replace(b"predictions", b"instances").replace(b"outputs", b"inputs")
    info = TensorInfo(
        dtype=tf.as_dtype(array.dtype).as_datatype_enum, tensor_shape={"unknown_rank": True}
    )
    inputs, read_row_form = to_inputs(parse_request(body), {"x": info})
    assert (read_row_form, inputs["x"].dtype) == (row_form, array.dtype)
    np.testing.assert_array_equal(inputs["x"], array)
