"""OpenAI's embeddings protocol, by its own client, and what is refused."""

import base64
import json
import time
from collections.abc import Iterator

import numpy as np
import openai
import pytest
import tensorflow as tf
from serving_models import save
from serving_servers import Server, server_in_thread

from xling_tf.serving.batching import BatchingParameters
from xling_tf.serving.models import ModelConfig

PATH = "/v1/embeddings"


def vectors(inputs: tf.Tensor) -> dict[str, tf.Tensor]:
    """(3, 4, 12) / 13 for every text; zeros for none."""
    is_text = tf.cast(tf.strings.length(inputs) > 0, tf.float32)
    return {"outputs": is_text[:, None] * tf.constant([[3.0, 4.0, 12.0]]) / 13}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder, texts = tmp_path_factory.mktemp("models") / "m", {"inputs": tf.TensorSpec([None], tf.string)}
    signatures = {
        "serving_default": (vectors, texts),
        "question_encoder": (lambda inputs: {"outputs": -vectors(inputs)["outputs"]}, texts),
        "lengths": (lambda inputs: {"outputs": tf.strings.length(inputs)}, texts),
    }
    save(tf.Module(), signatures, folder / "1")
    access = {"api_key": "secret", "origins": ["https://a.example"]}
    batching = BatchingParameters(max_batch_size=3, max_enqueued_batches=2)
    with server_in_thread([ModelConfig("m", folder)], batching=batching, **access) as server:
        yield server


@pytest.fixture
def client(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="secret", max_retries=0)


def test_openais_client_reads_the_vectors(client: openai.OpenAI) -> None:
    # It asks for base64 and decodes it, where no format is named.
    answer = client.embeddings.create(model="m", input=["Hola, mundo.", ""])
    assert [each.embedding for each in answer.data] == [pytest.approx([3 / 13, 4 / 13, 12 / 13]), [0, 0, 0]]
    assert [each.index for each in answer.data] == [0, 1]
    assert (answer.model, answer.usage.total_tokens) == ("m", 4)
    (one,) = client.embeddings.create(model="m", input="Hola", encoding_format="float", dimensions=2).data
    assert one.embedding == pytest.approx([0.6, 0.8])  # (3, 4) / 5
    (raw,) = client.embeddings.create(model="m", input="a", encoding_format="base64").data
    floats = np.frombuffer(base64.b64decode(raw.embedding), "<f4")
    assert floats.tolist() == pytest.approx([3 / 13, 4 / 13, 12 / 13])
    extra = {"signature_name": "question_encoder"}
    (question,) = client.embeddings.create(model="m", input="Hola", extra_body=extra).data
    assert question.embedding == pytest.approx([-3 / 13, -4 / 13, -12 / 13])


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"input": [[1, 2]]}, openai.BadRequestError, "check_embedding_ctx_length=False"),
        ({"input": []}, openai.BadRequestError, "list of texts"),
        ({"model": "stranger"}, openai.NotFoundError, "stranger"),
        ({"dimensions": 4}, openai.BadRequestError, "at most 3"),
        ({"dimensions": 0}, openai.BadRequestError, "at least 1"),
        ({"encoding_format": "int8"}, openai.BadRequestError, "float or base64"),
        ({"extra_body": {"encoding_format": []}}, openai.BadRequestError, "float or base64"),
        ({"extra_body": {"signature_name": "lengths"}}, openai.BadRequestError, "no vectors"),
        ({"extra_body": {"signature_name": "none"}}, openai.BadRequestError, "not found"),
    ],
)
def test_what_is_refused(
    client: openai.OpenAI, changes: dict[str, object], error: type[openai.APIStatusError], said: str
) -> None:
    with pytest.raises(error, match=said):
        client.embeddings.create(**{"model": "m", "input": "a", **changes})  # type: ignore[arg-type]


def test_openais_client_lists_the_models(client: openai.OpenAI, server: Server) -> None:
    (model,) = client.models.list(extra_query={"limit": 5}).data
    assert (model.id, model.object, model.owned_by) == ("m", "model", "xling_tf")
    assert abs(model.created - time.time()) < 3600  # It was exported by this test.
    assert client.embeddings.create(model=model.id, input="a").data
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("stranger")
    key = {"Authorization": "Bearer secret"}
    assert "model_version_status" in server.ask("/v1/models/m", **key).json
    for path in ("/v1/models/", "/V1/Models", "/v1/models?a=b"):
        assert server.ask(path, **key).json["data"][0]["id"] == "m"
    head = server.ask("/v1/models", method="HEAD", **key)
    assert (head.status, head.body) == (200, b"")
    assert server.ask("/v1/models", "{}", **key).status == 400
    refused = server.ask("/v1/models")
    assert (refused.status, refused.json["error"]["type"]) == (401, "invalid_request_error")


@pytest.mark.parametrize(
    ("encoding", "kind", "status"),
    [
        ("utf-8", "application/json; charset=UTF-8", 200),
        ("utf-8", "application/json; charset=ascii", 200),
        ("utf-8", 'text/plain;Charset="utf8"', 200),
        ("utf-8", "application/x-www-form-urlencoded", 200),  # as curl says
        ("utf-8-sig", "application/json", 200),
        ("utf-8", "application/json; charset=", 200),
        ("latin-1", "application/json; charset=ISO-8859-1", 400),
        ("latin-1", "application/json;CHARSET='latin1'", 400),
        ("utf-8", "application/json; charset=iso-8859-1", 400),
        ("utf-16", "application/json; charset=utf-16", 400),
        ("utf-7", 'application/json; charset = "utf-7"', 400),
        ("utf-8", "application/json; charset=nothing", 400),
        ("utf-8", "application/json; charset=utf-8; charset=latin1", 400),
        ("latin-1", "application/json", 400),
        ("utf-16", "application/json", 400),
    ],
)
def test_bodies_are_in_utf_8_or_refused(server: Server, encoding: str, kind: str, status: int) -> None:
    headers = {"Authorization": "Bearer secret", "Content-Type": kind}
    for path, document in (
        (PATH, '{"model": "m", "input": "ñandú"}'),
        ("/v1/models/m:predict", '{"instances": ["ñandú"]}'),
        ("/v1/models/m:predict", '{"inputs": {"inputs": ["ñandú"]}}'),
    ):
        reply = server.ask(path, document.encode(encoding), **headers)
        assert (reply.status, "UTF-8" in str(reply.json)) == (status, status == 400)


def test_half_a_surrogate_pair_is_refused(server: Server) -> None:
    for half in ("\\ud800", "\\udcff", "\\udcc3\\udcb1"):
        body = f'{{"model": "m", "input": ["a", "{half}"]}}'
        reply = server.ask(PATH, body, Authorization="Bearer secret")
        assert (reply.status, "surrogate" in reply.json["error"]["message"]) == (400, True)


def test_more_texts_than_ever_wait_are_refused_for_good(server: Server, client: openai.OpenAI) -> None:
    assert len(client.embeddings.create(model="m", input=["a"] * 6).data) == 6
    with pytest.raises(openai.APIStatusError, match="at most 6 rows") as error:
        client.embeddings.create(model="m", input=["a"] * 7)
    assert error.value.status_code == 413
    assert "retry-after" not in error.value.response.headers
    body = json.dumps({"instances": ["a"] * 7})
    assert server.ask("/v1/models/m:predict", body, Authorization="Bearer secret").status == 413


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ("Bearer secret", 200),
        ("bearer secret", 200),
        ("BEARER   secret ", 200),
        ("Bearer\tsecret", 200),
        ("secret", 401),
        ("Basic secret", 401),
        ("Bearer", 401),
        ("Bearer ", 401),
        ("Bearer Secret", 401),
        ("Bearer secret x", 401),
        ("Bearersecret", 401),
        ("Bearer sécret", 401),
        ("", 401),
    ],
)
def test_the_key_is_read_from_any_bearer_header(server: Server, given: str, status: int) -> None:
    for path in ("/v1/models", "/v1/models/m", "/v1/models/m/metadata"):
        reply = server.ask(path, Authorization=given)
        assert reply.status == status
        assert reply.headers["WWW-Authenticate"] == (None if status == 200 else "Bearer")


def test_the_key_and_origins_are_asked_for(server: Server) -> None:
    stranger = openai.OpenAI(base_url=f"{server.url}/v1", api_key="other", max_retries=0)
    with pytest.raises(openai.AuthenticationError, match="API key"):
        stranger.embeddings.create(model="m", input="a")
    assert server.predict(["a"]).status == 401
    assert server.ask("/healthz").status == 200
    asking = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    statuses = [
        server.ask(PATH, method="OPTIONS", Origin=origin, **asking).status
        for origin in ("https://a.example", "https://b.example")
    ]
    assert statuses == [200, 400]
