"""Models behind TensorFlow Serving's REST protocol as systems."""

from collections.abc import Iterator

import numpy as np
import pytest
from rest_server import Fault, Server, error, half_an_answer, hang_up, vector

from xling_tf.errors import UserError
from xling_tf.evaluators import systems
from xling_tf.evaluators.systems import open_system


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(systems, "_BACKOFF_SECONDS", 0.001)
    server = Server()
    yield server
    server.stop()


def test_every_role_is_asked_of_its_signature(server: Server) -> None:
    system = open_system(f"rest:{server.url}/")
    server.requests.clear()
    np.testing.assert_array_equal(system(["a", "bcd"]), [[0, 1, 0.5, 0.5], [0, 3, 0.5, 0.5]])
    assert system(["a"]).dtype == np.float32
    assert system.encode_questions(["ab"]).tolist() == [[1, 2, 0.5, 0.5]]
    responses = system.encode_responses(["ab", "c"], ["x", "yyyy"])
    assert responses.tolist() == [[2, 2, 1, 0.5], [2, 1, 4, 0.5]]
    assert system.inference(["a"], ["bb"]).tolist() == [[3, 1, 2, 0.5]]
    # Longest first; plain values of one input, objects of several.
    assert server.requests[0] == {"signature_name": "serving_default", "instances": ["bcd", "a"]}
    assert server.requests[3]["instances"][0] == {"input": "c", "context": "yyyy"}
    assert system.name == "en-es-rest"
    assert system.description == {"kind": "REST", "url": server.url, "version": "3"}


def test_what_the_server_lacks_the_system_lacks(server: Server) -> None:
    server.signatures = {"serving_default": ["inputs"], "response_encoder": ["input"]}
    system = open_system(f"rest:{server.url}")
    assert system.questions is system.inference is None
    assert system.encode_responses(["ab"], ["x"]).tolist() == [[2, 2, 0.5, 0.5]]
    server.vector = lambda name, instance: {"logits": [9.0], "outputs": [1.0, len(instance)]}
    assert system(["abc"]).tolist() == [[1, 3]]
    server.signatures = {"predict_images": ["pixels", "size"]}
    with pytest.raises(UserError, match="'serving_default' with one input, but has predict_images"):
        open_system(f"rest:{server.url}")


def test_requests_are_of_moderate_size_and_answers_in_order(server: Server) -> None:
    system = open_system(f"rest:{server.url}")
    server.requests.clear()
    texts = ["x" * length for length in [*range(1, 301), 100_000, 40_000, 40_000]]
    assert system(texts)[:, 1].tolist() == [*range(1, 301), 100_000, 40_000, 40_000]
    sizes = [len(request["instances"]) for request in server.requests]
    # The long ones alone; at most 128 of the others.
    assert sizes == [1, 1, 1, 128, 128, 44]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (error(503, "still loading"), r"answered 503 .*still loading"),
        (hang_up, r"failed 7 times: .*start the server"),
        (half_an_answer, r"failed 7 times: .*IncompleteRead"),
    ],
)
def test_a_fault_that_passes_is_not_noticed_and_one_that_stays_is_reported(
    fault: Fault, message: str, server: Server
) -> None:
    system = open_system(f"rest:{server.url}")
    server.faults = [fault, fault]
    assert system(["ab"]).tolist() == [[0, 2, 0.5, 0.5]]
    assert server.faults == []
    server.faults = [error(400, "JSON Parse error: x"), fault]
    with pytest.raises(UserError, match=r"answered 400 Bad Request .*JSON Parse error: x"):
        system(["ab"])
    server.requests.clear()
    server.faults = [fault] * 100
    with pytest.raises(UserError, match=f"^{server.url}:predict must .*{message}"):
        system(["ab"])
    assert len(server.requests) == 7


@pytest.mark.parametrize(
    "answer",
    [
        b"no JSON",
        b"[]",
        b'{"predictions": [["a"], ["b"]]}',
        b'{"predictions": [[1.0]]}',
        b'{"predictions": []}',
        pytest.param(b"[" * 100_000, id="brackets without end"),
        pytest.param(b'{"predictions": [[1' + b"0" * 400 + b"]]}", id="beyond all floats"),
    ],
)
def test_answers_that_are_no_vectors_are_refused(answer: bytes, server: Server) -> None:
    system = open_system(f"rest:{server.url}")
    server.faults = [lambda handler: handler.answer(200, answer)]
    with pytest.raises(UserError, match="must answer as TensorFlow Serving does, but gave"):
        system(["a", "b"])


def test_the_checksum_follows_the_vectors_and_not_their_last_digits(server: Server) -> None:
    checksum = open_system(f"rest:{server.url}").checksum
    server.vector = lambda *args: [number + 1e-6 for number in vector(*args)]
    assert open_system(f"rest:{server.url}").checksum == checksum
    server.vector = lambda *args: [number + 0.01 for number in vector(*args)]
    assert open_system(f"rest:{server.url}").checksum != checksum


def test_a_model_that_is_not_there_or_not_ready_is_refused(server: Server) -> None:
    with pytest.raises(UserError, match=r"404 Not Found.*Could not find any versions"):
        open_system(f"rest:{server.url}x")
    server.state = "UNLOADING"
    with pytest.raises(UserError, match=r"available version, but has .*'UNLOADING'.*server's log"):
        open_system(f"rest:{server.url}")


@pytest.mark.parametrize(
    "url",
    [
        *("", "ftp://host/v1/models/x", "http://host:port/v1/models/x", "http://host"),
        *("http://host/v1/models/", "http://host/v1/models/x:predict"),
    ],
)
def test_another_url_is_refused(url: str) -> None:
    with pytest.raises(UserError, match=r"http://host:port/v1/models/name"):
        open_system(f"rest:{url}")
