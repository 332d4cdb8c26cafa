import json
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from xling_tf.serving.decimals import decimal, decimals
from xling_tf.serving.errors import ServingError
from xling_tf.serving.examples import refuse_examples
from xling_tf.serving.json_reading import MAX_CAREFUL, read
from xling_tf.serving.json_writing import MAX_PRINTED, printed
from xling_tf.serving.paths import parse_path
from xling_tf.serving.predict import PredictRequest, format_predict, parse_predict
from xling_tf.serving.signatures import Signature, TensorInfo
from xling_tf.serving.status import VersionStatus, format_error, format_metadata, format_status

PREDICT = "tensorflow/serving/predict"
few = settings(max_examples=50, deadline=None, derandomize=True)
TYPES = {
    "DT_FLOAT": np.float32,
    "DT_DOUBLE": np.float64,
    "DT_INT32": np.int32,
    "DT_INT64": np.int64,
    "DT_UINT64": np.uint64,
    "DT_BOOL": np.bool_,
}


def one(dtype: str, alias: str = "x") -> Signature:
    tensor = {alias: TensorInfo(f"{alias}:0", dtype, None)}
    return Signature(PREDICT, tensor, tensor)


def parse(body: bytes, dtype: str = "DT_FLOAT") -> PredictRequest:
    return parse_predict(body, {"serving_default": one(dtype)})


def message_of(body: bytes, dtype: str = "DT_FLOAT") -> str:
    with pytest.raises(ServingError) as refused:
        parse(body, dtype)
    assert refused.value.status == 400
    error = json.loads(format_error(refused.value.message))
    assert list(error) == ["error"]
    return error["error"]


def refusal_of(request: Callable[[], object]) -> ServingError | None:
    try:
        request()
    except ServingError as error:
        return error
    return None


@st.composite
def arrays(draw: st.DrawFn) -> tuple[str, np.ndarray]:
    dtype = draw(st.sampled_from(sorted(TYPES)))
    shape = hnp.array_shapes(min_dims=1, max_dims=4, max_side=3)
    return dtype, draw(hnp.arrays(TYPES[dtype], shape))


@few
@given(arrays(), st.booleans())
def test_what_is_written_is_read_as_the_same_array(drawn, row_form: bool) -> None:
    dtype, array = drawn
    answer = format_predict({"x": array}, one(dtype), row_form)
    values = json.loads(answer)["predictions" if row_form else "outputs"]
    np.testing.assert_array_equal(np.array(values, array.dtype), array)
    body = answer.replace(b'"predictions"', b'"instances"').replace(b'"outputs"', b'"inputs"')
    request = parse(body, dtype)
    assert request.row_form == row_form
    assert request.inputs["x"].dtype == array.dtype
    np.testing.assert_array_equal(request.inputs["x"], array)


@few
@given(st.lists(st.binary(max_size=8), min_size=1), st.booleans())
def test_bytes_come_back_through_base64(texts: list[bytes], row_form: bool) -> None:
    array = np.empty(len(texts), object)
    array[:] = texts
    signature = one("DT_STRING", "x_bytes")
    answer = format_predict({"x_bytes": array}, signature, row_form)
    body = answer.replace(b'"predictions"', b'"instances"').replace(b'"outputs"', b'"inputs"')
    request = parse_predict(body, {"serving_default": signature})
    assert request.inputs["x_bytes"].tolist() == texts


@few
@given(st.lists(st.text(), min_size=1), st.booleans())
def test_texts_come_back_whether_or_not_they_are_escaped(texts: list[str], escaped: bool) -> None:
    body = json.dumps({"instances": texts}, ensure_ascii=escaped).encode()
    request = parse(body, "DT_STRING")
    assert request.inputs["x"].tolist() == [text.encode() for text in texts]
    answer = format_predict(request.inputs, one("DT_STRING"), True)
    assert json.loads(answer) == {"predictions": texts}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@few
@given(json_values)
def test_both_readers_agree_and_a_printed_value_is_the_value(value) -> None:
    body = json.dumps(value).encode()
    assert read(body) == value
    # A zero byte ends a document: only our own parser knows that.
    assert read(body + b"\0") == value
    if not isinstance(value, float) and "Infinity" not in body.decode():
        assert json.loads(printed(value)) == value


@few
@given(st.binary(max_size=60), st.sampled_from(["DT_FLOAT", "DT_STRING", "DT_INT32"]))
def test_any_bytes_are_answered_or_refused(tail: bytes, dtype: str) -> None:
    for body in (tail, b'{"instances": [' + tail, b'{"inputs": {"x": ' + tail + b"}}"):
        refusal = refusal_of(lambda body=body: parse(body, dtype))
        if refusal is not None:
            assert refusal.status == 400
            json.loads(format_error(refusal.message))


def test_six_digits_read_through_a_double_are_the_float() -> None:
    # A decimal that is rounded to a double and then to a float is rounded right unless the double
    # lies in the middle of two floats: its lowest 29 bits are then 1 and zeros. None does.
    for places in range(1, 10):
        doubles = np.arange(1, 10**6) / 10.0**places
        assert not np.any(doubles.view(np.uint64) & np.uint64(2**29 - 1) == 2**28)


@few
@given(hnp.arrays(np.float32, (3, 5), elements=st.floats(width=32)))
def test_many_numbers_have_the_digits_of_one(values: np.ndarray) -> None:
    rows = [",".join(decimal(value, single=True) for value in row) for row in values.tolist()]
    assert decimals(values) == "".join(f"{row};" for row in rows).encode()


def test_common_numbers_have_the_digits_of_one() -> None:
    random = np.random.default_rng(0)
    scales = 10.0 ** random.integers(-6, 6, 20_000)
    values = (random.normal(size=20_000) * scales).astype(np.float32)
    # Those that six digits suffice for, and the ends of what is written in one go.
    rounded = np.array([f"{value:.4g}" for value in values[:5000]], np.float32)
    ends = np.array([0.0, -0.0, 1e-4, 9.9999e-5, 9999.999, 1e4, 1, 10, 100, 0.001], np.float32)
    values = np.concatenate([values, rounded, ends])
    texts = [decimal(value, single=True) for value in values.tolist()]
    assert decimals(values[None]).decode()[:-1].split(",") == texts


def test_no_depth_breaks_the_reader() -> None:
    for body in (b"[" * 100_000, b'{"a":' * 100_000, b'{"instances": ' + b"[" * 100_000):
        assert message_of(body).startswith("JSON Parse error: ")
    # As deep as NumPy's arrays may be, and one deeper; the batch is a dimension too.
    nested = b"[" * 63 + b"1" + b"]" * 63
    assert parse(b'{"instances": [' + nested + b"]}").inputs["x"].ndim == 64
    assert "tensor parsing error: x" in message_of(b'{"instances": [[' + nested + b"]]}")


def test_large_bodies_are_read_and_their_mistakes_told_in_short() -> None:
    text = "é" * (5 * 2**20)
    request = parse(json.dumps({"inputs": text}, ensure_ascii=False).encode(), "DT_STRING")
    assert request.inputs["x"].item() == text.encode()
    # A number in a large body that no double holds is infinite; in a small one it is refused.
    many = b'{"inputs": [1e999' + b", 1.0" * MAX_CAREFUL + b"]}"
    assert parse(many).inputs["x"][0] == math.inf
    assert "Number too big" in message_of(b'{"inputs": [1e999]}')
    assert message_of(many[:-1]) == "JSON Parse error: Unspecific syntax error."
    lone = b'{"inputs": ["\\ud800"' + b', "a"' * MAX_CAREFUL + b"]}"
    assert message_of(lone, "DT_STRING") == "JSON Parse error: Unspecific syntax error."


def test_a_refused_value_is_shown_up_to_a_limit() -> None:
    message = message_of(b'{"instances": ["' + b"a" * 10**6 + b'"]}')
    assert len(message) < MAX_PRINTED + 200
    assert message.endswith(" Type: String is not of expected type: float")


def test_a_value_is_shown_as_rapidjson_writes_it() -> None:
    # Shortest digits; up to 21 places before the point and 6 zeros behind it; integers beyond 64
    # bits are doubles; a NaN inside ends the text.
    numbers = [1e20, 1e21, 1e22, 123456.75, 1e-6, 1e-7, -0.0, 2**64, 2**64 - 1]
    shown = printed(numbers).split()[1:-1]
    expected = ["100000000000000000000.0", "1e21", "1e22", "123456.75", "0.000001", "1e-7", "-0.0"]
    expected += ["18446744073709552000.0", "18446744073709551615"]
    assert [number.rstrip(",") for number in shown] == expected
    assert printed([1, math.nan, 2]) == "[\n    1,\n    "
    assert printed(math.nan) == "NaN"


def test_lookups_that_raise_are_heard_after_the_json() -> None:
    class Missing(dict):
        def __getitem__(self, name: str) -> Signature:
            raise ServingError.not_found("no model")

    with pytest.raises(ServingError, match="no model"):
        parse_predict(b"{}", Missing())
    with pytest.raises(ServingError, match="JSON Parse error"):
        parse_predict(b"{", Missing())
    assert refuse_examples("classify", b"{", Missing()).message.startswith("JSON Parse error")


def test_what_could_be_classified_is_not_implemented() -> None:
    signatures = {"serving_default": one("DT_STRING", "inputs")}
    refusal = refuse_examples("regress", b'{"examples": [{"inputs": "a"}]}', signatures)
    assert (refusal.status, refusal.message) == (501, "This server does not regress; use predict.")


def test_states_and_signatures_are_printed_as_by_protobuf() -> None:
    status = format_status(
        [VersionStatus(1, "END", "NOT_FOUND", "<gone>"), VersionStatus(2, "START", "OK", "")]
    )
    states = json.loads(status)["model_version_status"]
    assert [state["version"] for state in states] == ["2", "1"]
    assert b'"error_message": "\\u003cgone\\u003e"' in status
    metadata = format_metadata("m", 3, {"serving_default": one("DT_FLOAT")})
    specification = (
        b'"model_spec":{\n "name": "m",\n "signature_name": "",\n "version": "3"\n}\n,\n'
    )
    assert metadata.startswith(b"{\n" + specification + b'"metadata": {"signature_def": {\n "sig')
    assert metadata.endswith(b"\n}\n}\n}\n")
    definition = json.loads(metadata)["metadata"]["signature_def"]["signature_def"]
    shape = {"dim": [], "unknown_rank": True}
    tensor = {"dtype": "DT_FLOAT", "tensor_shape": shape, "name": "x:0"}
    assert definition == {
        "serving_default": {
            "inputs": {"x": tensor},
            "outputs": {"x": tensor},
            "method_name": PREDICT,
            "defaults": {},
        }
    }


@few
@given(st.text(), st.sampled_from(["GET", "POST", "PUT"]))
def test_any_path_is_a_target_or_refused(text: str, method: str) -> None:
    for path in (text, f"/v1/models/{text}", f"/v1/models/a{text}:predict"):
        refusal = refusal_of(lambda path=path: parse_path(method, path))
        assert refusal is None or refusal.status == 400


def test_versions_of_any_length_are_numbers_or_refused() -> None:
    path = "/v1/models/m/versions/"
    assert parse_path("GET", path + "0" * 5000 + "7").version == 7
    assert parse_path("GET", f"{path}{2**63 - 1}").version == 2**63 - 1
    for digits in (str(2**63), "9" * 5000, "0" * 30 + "9" * 30):
        refusal = refusal_of(lambda digits=digits: parse_path("GET", path + digits))
        assert refusal is not None
        assert refusal.message == f"Failed to convert version: {digits} to numeric."


def test_answers_that_cannot_be_written_are_errors() -> None:
    signature = one("DT_FLOAT")
    with pytest.raises(ServingError, match="Cannot convert empty tensor map to JSON"):
        format_predict({}, signature, True)
    with pytest.raises(ServingError, match="Tensor name: x has no shape information "):
        format_predict({"x": np.float32(1)}, signature, True)


def test_lists_may_be_empty_at_any_depth() -> None:
    signature = one("DT_FLOAT")
    for shape, values in {(0,): "[]", (2, 0): "[[],[]]", (1, 0, 3): "[[]]"}.items():
        for row_form in (True, False):
            answer = format_predict({"x": np.zeros(shape, np.float32)}, signature, row_form)
            (written,) = json.loads(answer).values()
            assert written == json.loads(values)
