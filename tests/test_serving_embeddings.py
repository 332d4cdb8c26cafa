"""OpenAI's embeddings protocol, by its own client, and what is refused."""

import base64
from collections.abc import Iterator

import numpy as np
import openai
import pytest
import tensorflow as tf
from serving_models import save
from serving_servers import Server, server_in_thread

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
    with server_in_thread([ModelConfig("m", folder)], **access) as server:
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
        ({"extra_body": {"signature_name": "lengths"}}, openai.BadRequestError, "no vectors"),
        ({"extra_body": {"signature_name": "none"}}, openai.BadRequestError, "not found"),
    ],
)
def test_what_is_refused(
    client: openai.OpenAI, changes: dict[str, object], error: type[openai.APIStatusError], said: str
) -> None:
    with pytest.raises(error, match=said):
        client.embeddings.create(**{"model": "m", "input": "a", **changes})  # type: ignore[arg-type]


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
