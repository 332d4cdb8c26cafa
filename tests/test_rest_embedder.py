"""Embedders behind TensorFlow Serving's REST protocol: our server, and one that fails on demand."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow_hub as hub
from serving_servers import app_in_thread, server_in_thread
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from testing import SENTENCES

import xling_tf
from xling_tf.errors import UserError
from xling_tf.evaluators import embedders
from xling_tf.evaluators.embedders import open_embedder
from xling_tf.evaluators.encoding import BatchLimits

MODEL = "/v1/models/en-es"
UNAVAILABLE = (503, b'{"error": "still loading"}')


def vector(text):
    return [len(text), 0.5]


class FakeServer:
    """Serves one model as TensorFlow Serving does; `faults`, statuses and contents, come first."""

    def __init__(self):
        self.faults, self.requests, self.vector = [], [], vector
        self.outputs = lambda vectors: vectors
        paths = {f"{MODEL}/metadata": self.metadata, f"{MODEL}:predict": self.predict}
        self.app = Starlette(
            routes=[Route(path, do, methods=["GET", "POST"]) for path, do in paths.items()]
        )

    async def metadata(self, request):
        signatures = {"serving_default": {"inputs": {"inputs": None}}}
        spec = {"name": "en-es", "signature_name": "", "version": "3"}
        answer = {"model_spec": spec, "metadata": {"signature_def": {"signature_def": signatures}}}
        return JSONResponse(answer)

    async def predict(self, request):
        self.requests.append(body := await request.json())
        outputs = self.outputs([self.vector(text) for text in body["inputs"]["inputs"]])
        good = (200, json.dumps({"outputs": outputs}).encode())
        status, content = self.faults.pop(0) if self.faults else good
        length = len(content) + 9 * content.endswith(b" ")  # of a cut answer
        return Response(content, status, {"Content-Length": str(length)})


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(embedders, "_RETRIES", embedders._RETRIES.new(backoff_factor=0.001))
    server = FakeServer()
    with app_in_thread(server.app) as port:
        server.url = f"http://127.0.0.1:{port}{MODEL}"
        yield server


@pytest.mark.slow
def test_live_is_loaded_is_rest(hub_model, hub_folder):
    turned = SENTENCES[::-1]

    def of_module(module):
        sides = module.question_encoder(SENTENCES), module.response_encoder(SENTENCES)
        return module(SENTENCES), *sides, module.inference(SENTENCES, turned)

    def of_embedder(embedder):
        sides = embedder.encode_questions(SENTENCES), embedder.encode_responses(SENTENCES, turned)
        return embedder(SENTENCES), *sides, embedder.infer(SENTENCES, turned)

    ours = dataclasses.replace(open_embedder(str(hub_folder)), batch_limits=BatchLimits(4))
    assert (ours.name, ours.description["config"]["encoder"]["kind"]) == ("tiny", "transformer")
    client = xling_tf.load(hub_folder)
    sides = (
        client.encode_query(SENTENCES),
        client.encode_document(SENTENCES, batch_size=4),
    )
    inferred = client.call("inference", premise=SENTENCES, hypothesis=turned, batch_size=4)
    found = [of_module(hub.load(str(hub_folder))), of_embedder(ours)]
    with server_in_thread({"m": hub_folder}) as server:
        found.append(of_embedder(open_embedder(f"rest:{server.url}/v1/models/m/")))
        found.append([server.predict(SENTENCES).json["predictions"]])
    expected = of_module(hub_model.module())
    for answers in found:
        for vectors, live in zip(answers, expected, strict=False):
            np.testing.assert_allclose(vectors, live, atol=1e-6)
    np.testing.assert_allclose(inferred, expected[-1], atol=1e-6)
    assert SENTENCES[-1] == ""  # to which the client gives zeros
    for vectors, live in zip((client.encode(SENTENCES), *sides), expected, strict=False):
        np.testing.assert_allclose(vectors[:-1], live[:-1], atol=1e-6)
        assert not vectors[-1].any()


def test_requests_have_the_longest_text_first_and_answers_may_have_more_outputs(server):
    embedder = open_embedder(f"rest:{server.url}")
    server.requests.clear()
    assert embedder(["a", "bcd"]).tolist() == [[1, 0.5], [3, 0.5]]
    assert server.requests == [
        {"signature_name": "serving_default", "inputs": {"inputs": ["bcd", "a"]}}
    ]
    assert embedder.name == "en-es-rest"
    assert embedder.description == {"kind": "REST", "url": server.url, "version": "3"}
    server.outputs = lambda vectors: {"logits": [[9.0]], "outputs": vectors}
    assert embedder(["abc"]).tolist() == [[3, 0.5]]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (UNAVAILABLE, r"answered 503: .*still loading"),
        ((200, b'{"outputs": [[1.0, '), "failed several times: .*IncompleteRead"),
    ],
)
def test_temporary_faults_are_retried_and_lasting_ones_reported(fault, message, server):
    embedder = open_embedder(f"rest:{server.url}")
    server.faults = [fault, fault]
    assert embedder(["ab"]).tolist() == [[2, 0.5]]
    assert server.faults == []
    server.faults = [(400, b'{"error": "JSON Parse error: x"}'), fault]
    with pytest.raises(UserError, match=r"answered 400: .*JSON Parse error: x"):
        embedder(["ab"])
    server.requests.clear()
    server.faults = [fault] * 100
    with pytest.raises(UserError, match=f"^{server.url}:predict .*{message}"):
        embedder(["ab"])
    assert len(server.requests) == 7


def test_the_checksum_depends_on_the_vectors_but_not_their_last_digits(server):
    checksum = open_embedder(f"rest:{server.url}").checksum
    server.vector = lambda text: [number + 1e-6 for number in vector(text)]
    assert open_embedder(f"rest:{server.url}").checksum == checksum
    server.vector = lambda text: [number + 0.01 for number in vector(text)]
    assert open_embedder(f"rest:{server.url}").checksum != checksum


def test_what_gives_no_vectors_is_rejected(server):
    for url, message in (
        (f"{server.url}x", "answered 404"),
        (f"http://127.0.0.1:9{MODEL}", r"failed several times: .*start the server"),
        ("http://host/v1/models/x:predict", "http://host:port/v1/models/name"),
    ):
        with pytest.raises(UserError, match=message):
            open_embedder(f"rest:{url}")
    embedder = open_embedder(f"rest:{server.url}")
    for answer in (b"[]", b'{"outputs": [["a"], ["b"]]}'):
        server.faults = [(200, answer)]
        with pytest.raises(UserError, match="must answer as TensorFlow Serving does, but gave"):
            embedder(["a", "b"])
