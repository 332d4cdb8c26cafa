"""The protocol's table against our server, and with `-m tf_serving --server URL` a real one."""

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from serving_case import Case
from serving_cases import CASES
from small_server import small_server

from xling_tf.serving.config import Limits


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where our server answers for the models of serving_models.py."""
    with small_server(tmp_path_factory.mktemp("models"), Limits()) as (host, port):
        yield f"http://{host}:{port}"


def answer_to(address: str, case: Case) -> tuple[int, str | None, bytes]:
    """Sends a request as it is; gives the status, the type and the body of the answer."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        connection.request(case.method, case.path, case.body)
        response = connection.getresponse()
        return response.status, response.getheader("Content-Type"), response.read()
    finally:
        connection.close()


def contains(whole: Any, part: Any) -> bool:
    if isinstance(part, dict):
        return all(key in whole and contains(whole[key], part[key]) for key in part)
    return whole == part


def check(address: str, case: Case) -> bytes:
    """Compares an answer with the table's; gives its body."""
    status, kind, body = answer_to(address, case)
    if case.compare == "bytes":
        assert (status, body.decode()) == (case.status, case.answer.decode()), case.source
    elif case.compare == "json":
        assert (status, json.loads(body)) == (case.status, json.loads(case.answer)), case.source
    elif case.compare == "subset":
        assert status == case.status
        assert contains(json.loads(body), json.loads(case.answer)), body
    else:
        assert status == case.status, body
    assert kind == "application/json"
    return body


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_our_server_answers_to_the_byte(address: str, case: Case) -> None:
    body = json.loads(check(address, case))
    assert ("error" in body) == (case.status != 200)


@pytest.mark.tf_serving
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_real_server_answers_so_too(request: pytest.FixtureRequest, case: Case) -> None:
    server = request.config.getoption("--server")
    if server is None:
        pytest.skip("--server http://host:port of a TensorFlow Serving is not given")
    if not case.on_real:
        pytest.skip("it would not survive")
    check(server, case)


def test_every_case_of_the_table_has_its_source() -> None:
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)
    for case in CASES:
        file, _, place = case.source.partition(": ")
        assert file.endswith((".cc", ".h", ".md")), case.name
        assert place, case.name
