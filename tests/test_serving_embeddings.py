"""OpenAI's and TEI's embeddings protocols by their clients; API keys and origins; OpenAPI."""

import json
import math

import jsonschema
import openai
import pytest
import tensorflow as tf
from huggingface_hub import InferenceClient
from serving_models import save
from serving_servers import server_in_thread

PATH = "/v1/embeddings"


def vectors(inputs: tf.Tensor) -> dict[str, tf.Tensor]:
    """(3, 4, 12) / 13 for every text; zeros for none."""
    is_text = tf.cast(tf.strings.length(inputs) > 0, tf.float32)
    return {"outputs": is_text[:, None] * tf.constant([[3.0, 4.0, 12.0]]) / 13}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "m"
    texts = {"inputs": tf.TensorSpec([None], tf.string)}
    signatures = {
        "serving_default": (vectors, texts),
        "raw": (lambda inputs: {"outputs": 13 * vectors(inputs)["outputs"]}, texts),
        "question_encoder": (lambda inputs: {"outputs": -vectors(inputs)["outputs"]}, texts),
        "response_encoder": (
            lambda input: {"outputs": 2 * vectors(input)["outputs"]},
            {"input": texts["inputs"]},
        ),
        "lengths": (lambda inputs: {"outputs": tf.strings.length(inputs)}, texts),
        "mean": (lambda inputs: {"outputs": vectors(inputs)["outputs"][:1]}, texts),
    }
    save(tf.Module(), signatures, folder / "1")
    config = {"tokenizer": {"max_tokens": 20}, "info": {"match": {"answer": [0.5, 0.0]}}}
    (folder / "1" / "config.json").write_text(json.dumps(config))
    access = {"api_key": "secret", "origins": ["https://a.example"]}
    with server_in_thread({"m": folder}, **access) as server:
        yield server


@pytest.fixture
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="secret", max_retries=0)


def test_openais_client_reads_the_vectors(client):
    # Without a format, the client asks for base64 and decodes it.
    answer = client.embeddings.create(model="m", input=["Hola, mundo.", ""])
    assert [each.embedding for each in answer.data] == [
        pytest.approx([3 / 13, 4 / 13, 12 / 13]),
        [0, 0, 0],
    ]
    assert [each.index for each in answer.data] == [0, 1]
    assert (answer.model, answer.usage.total_tokens) == ("m", 4)
    (one,) = client.embeddings.create(
        model="m", input="Hola", encoding_format="float", dimensions=2
    ).data
    assert one.embedding == pytest.approx([0.6, 0.8])  # (3, 4) / 5
    nulls = dict.fromkeys(("dimensions", "encoding_format", "signature_name", "user"))
    (same,) = client.embeddings.create(model="m", input="Hola", extra_body=nulls).data
    assert same.embedding == pytest.approx([3 / 13, 4 / 13, 12 / 13])
    extra = {"signature_name": "question_encoder"}
    (question,) = client.embeddings.create(model="m", input="Hola", extra_body=extra).data
    assert question.embedding == pytest.approx([-3 / 13, -4 / 13, -12 / 13])


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"input": None}, openai.BadRequestError, "a text or several"),
        ({"input": [[1, 2]]}, openai.BadRequestError, "check_embedding_ctx_length=False"),
        ({"model": "stranger"}, openai.NotFoundError, "stranger"),
        ({"dimensions": 4}, openai.BadRequestError, "at most 3"),
        ({"extra_body": {"encoding_format": []}}, openai.BadRequestError, "float or base64"),
        *(
            (
                {"input": ["a", "b"], "extra_body": {"signature_name": name}},
                openai.BadRequestError,
                "not return vectors",
            )
            for name in ("lengths", "mean")
        ),
    ],
)
def test_mistakes_are_refused(client, changes, error, message):
    with pytest.raises(error, match=message):
        client.embeddings.create(**({"model": "m", "input": "a"} | changes))


def test_openais_client_lists_the_models(client, server):
    (model,) = client.models.list(extra_query={"limit": 5}).data
    assert (model.id, model.object, model.owned_by) == ("m", "model", "xling_tf")
    # TensorFlow Serving's status has the same path.
    (status,) = client.models.retrieve("m").model_dump().pop("model_version_status")
    assert status["state"] == "AVAILABLE"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("stranger")
    assert server.ask("/v1/models").json["error"]["type"] == "invalid_request_error"


def test_keys_and_origins_are_required(server):
    assert server.ask("/v1/models", Authorization="BEARER \t secret ").status == 200
    for wrong in ("secret", "Basic secret", "Bearer Secret", "Bearer secret x", "Bearer sécret"):
        reply = server.ask("/v1/models/m/metadata", Authorization=wrong)
        assert (reply.status, reply.headers["WWW-Authenticate"]) == (401, "Bearer")
    stranger = openai.OpenAI(base_url=f"{server.url}/v1", api_key="other", max_retries=0)
    with pytest.raises(openai.AuthenticationError, match="API key"):
        stranger.embeddings.create(model="m", input="a")
    assert server.predict(["a"]).status == 401
    assert server.ask("/healthz").status == 200
    for path in (
        "/page/../v1/models",
        "/v1/models/m:predict",
        "/V1/MODELS/",
        PATH,
        "/openapi.json",
    ):
        for method in ("GET", "POST"):
            reply = server.ask(path, method=method)
            assert reply.status in (401, 404, 405)
            assert b'"m"' not in reply.body
    asking = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    statuses = [
        server.ask(PATH, method="OPTIONS", Origin=origin, **asking).status
        for origin in ("https://a.example", "https://b.example")
    ]
    assert statuses == [200, 400]


def test_hugging_faces_client_reads_vectors_and_similarities(server):
    client = InferenceClient(server.url, provider="hf-inference", token="secret")
    assert client.feature_extraction("Hola").tolist() == [pytest.approx([3 / 13, 4 / 13, 12 / 13])]
    assert client.feature_extraction("Hola", normalize=False).tolist() == [[3, 4, 12]]
    assert client.feature_extraction("Hola", dimensions=2)[0].tolist() == pytest.approx([0.6, 0.8])
    assert client.sentence_similarity("Hola", ["Hello", ""]) == pytest.approx([1, 0])
    # Spaces and a character without width are no text, though the signature gives them a vector.
    assert client.feature_extraction([" \u200b", "a"]).tolist() == [[0, 0, 0], pytest.approx(HOLA)]
    assert client.get_endpoint_info()["model_id"] == "m"
    for change in (
        {"normalize": 1},
        {"inputs": []},
        {"inputs": {"sentences": []}},
        {"prompt_name": "a"},
    ):
        reply = server.ask(
            "/embed", json.dumps({"inputs": ["a"]} | change), Authorization="Bearer secret"
        )
        assert (reply.status, list(reply.json)) == (400, ["error"])


HOLA = [3 / 13, 4 / 13, 12 / 13]


@pytest.mark.parametrize(
    ("path", "change", "status", "word"),
    [
        (PATH, {"output_dimension": 2}, 400, "dimensions"),
        (PATH, {"dimension": 2}, 400, "dimensions"),
        (PATH, {"output_dtype": "int8"}, 400, "floats"),
        (PATH, {"inputs": "a"}, 400, "inputs"),
        (PATH, {"input_type": "clustering"}, 400, "input_type"),
        (PATH, {"input_type": "query", "signature_name": "raw"}, 400, "input_type"),
        (PATH, {"input": {"source_sentence": "a", "sentences": ["b"]}}, 400, "a text or several"),
        ("/embed", {"truncation_direction": "Left"}, 400, "truncation_direction"),
        ("/embed", {"truncation_direction": "left"}, 400, "truncation_direction"),
        ("/embed", {"truncation_direction": "Right"}, 200, ""),
        ("/embed", {"signature_name": "question_encoder", "normalize": False}, 400, "normalize"),
        ("/embed", {"prompt_name": "query", "normalize": False}, 400, "normalize"),
        ("/embed", {"input": "a"}, 400, "input"),
        (
            "/embed",
            {"inputs": {"source_sentence": "a", "sentences": ["b"]}},
            400,
            "a text or several",
        ),
        ("/embed", {"parameters": {"truncation_direction": "Left"}}, 400, "truncation_direction"),
        ("/embed", {"parameters": {"foo": 1}}, 400, "foo"),
        ("/embed", {"truncate": False}, 200, ""),
        ("/embed", {"truncate": False, "inputs": ["a", "b" * 18]}, 200, ""),
        # 19 bytes may be 19 tokens and two marks; of 800 bytes and more the model reads 800.
        ("/embed", {"truncate": False, "inputs": ["a", "b" * 19]}, 400, "20 tokens"),
        ("/embed", {"truncate": False, "inputs": ["a", "b" * 800]}, 400, "20 tokens"),
        ("/embed", {"truncate": False, "inputs": ["a", "b" * 801]}, 413, "20 tokens"),
        # 1,200 bytes, which NFC makes 800.
        ("/embed", {"truncate": False, "inputs": ["e\u0301" * 400]}, 400, "20 tokens"),
        ("/rerank", {"query": "a", "texts": ["b" * 801], "truncate": False}, 413, "20 tokens"),
        ("/embed", {"inputs": [""] * 10_001}, 413, "10000 rows"),
        ("/similarity", {"inputs": ["a"]}, 400, "source_sentence"),
        ("/similarity", {"inputs": "a"}, 400, "source_sentence"),
        (
            "/similarity",
            {"inputs": {"source_sentence": "a", "sentences": ["b"]}, "normalize": False},
            400,
            "norm",
        ),
        ("/v1/models/m:predict", {"instances": ["a"], "parameters": {}}, 400, "parameters"),
        ("/rerank", {"raw_scores": True}, 400, "raw_scores"),
        ("/rerank", {"query": "a"}, 400, "texts"),
    ],
)
def test_what_is_not_supported_is_refused_by_its_name(server, path, change, status, word):
    body = (
        {"input": "a"} if path == PATH else {"inputs": "a"} if path == "/embed" else {}
    ) | change
    reply = server.ask(path, json.dumps(body), Authorization="Bearer secret")
    assert (reply.status, word in reply.body.decode()) == (status, True)


@pytest.mark.parametrize(("role", "sign"), [("query", -1), ("passage", 2), ("document", 2)])
def test_the_role_of_texts_chooses_the_signature(server, client, role, sign):
    (one,) = client.embeddings.create(model="m", input="Hola", extra_body={"input_type": role}).data
    assert one.embedding == pytest.approx([sign * value for value in HOLA])
    body = json.dumps({"inputs": "Hola", "prompt_name": role})
    (vector,) = server.ask("/embed", body, Authorization="Bearer secret").json
    assert vector == pytest.approx([math.copysign(value, sign) for value in HOLA])


def test_texts_are_ranked_by_questions_and_responses(server):
    body = {"query": "Hola", "texts": ["one", "", "two"], "return_text": True}
    ranked = server.ask("/rerank", json.dumps(body), Authorization="Bearer secret").json
    # A question's vector is the opposite of all responses but the empty one's, which is zero.
    assert [(each["index"], each["text"]) for each in ranked] == [(1, ""), (0, "one"), (2, "two")]
    assert [each["score"] for each in ranked] == pytest.approx([0, -1, -1])


def test_unlikely_and_blank_texts_are_left_out_of_a_ranking(server):
    key = {"Authorization": "Bearer secret"}
    body = {"query": "Hola", "texts": ["one", "", "two"]}

    def ranked(**fields):
        return server.ask("/rerank", json.dumps(body | fields), **key)

    # Log odds of -0.5 - log(3) / 2 are odds of exp(-0.5) / sqrt(3).
    odds = math.exp(-0.5) / math.sqrt(3)
    likely = ranked(min_probability=0.2).json
    assert [each["index"] for each in likely] == [0, 2]
    assert likely[0]["probability"] == pytest.approx(odds / (1 + odds))
    assert ranked(min_probability=0.3).json == []
    assert ranked(min_probability=1.5).status == 400
    # A blank query has no answer.
    assert ranked(min_probability=0, query=" ").json == []


def test_openais_errors_have_codes(server, client):
    for call in (
        lambda: client.models.retrieve("nope"),
        lambda: client.embeddings.create(model="nope", input="a"),
    ):
        with pytest.raises(openai.NotFoundError, match="nope") as error:
            call()
        assert (error.value.code, error.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(model="m", input="a", dimensions=0)
    assert refused.value.param == "dimensions"
    reply = server.ask("/v1/models/m:predict", Authorization="Bearer secret")
    assert (reply.status, reply.headers["Allow"]) == (405, "POST")
    info = server.ask("/info", Authorization="Bearer secret").json
    assert (info["max_input_length"], info["match"]) == (20, {"answer": [0.5, 0.0]})


def test_the_examples_of_the_openapi_document_work(server):
    key = {"Authorization": "Bearer secret"}
    api = server.ask("/openapi.json", **key).json
    assert api["components"]["schemas"]["Model"]["enum"] == ["m"]
    for path, operations in api["paths"].items():
        body, operation = None, operations.get("post", operations.get("get"))
        if "requestBody" in operation:
            content = operation["requestBody"]["content"]["application/json"]
            jsonschema.validate(
                content["example"], content["schema"] | {"components": api["components"]}
            )
            body = json.dumps(content["example"])
        assert server.ask(path.replace("{model}", "m"), body, **key).status == 200


def test_the_openapi_document_has_no_paths_of_vectors_that_a_model_does_not_give(tmp_path):
    texts = {"inputs": tf.TensorSpec([None], tf.string)}
    two = {name: tf.TensorSpec([None], tf.string) for name in ("a", "b")}
    lengths = (lambda inputs: {"outputs": tf.strings.length(inputs)}, texts)
    pairs = (lambda a, b: {"outputs": vectors(a)["outputs"] + vectors(b)["outputs"]}, two)
    roles = {"question_encoder": (vectors, texts), "response_encoder": (vectors, texts)}
    of_vectors = {"/embed", "/similarity", "/v1/embeddings", "/rerank"}
    for name, signatures, expected in (
        ("lengths", {"serving_default": lengths} | roles, {"/rerank"}),
        ("pairs", {"serving_default": pairs}, set()),
        ("one", {"serving_default": (vectors, texts)}, of_vectors - {"/rerank"}),
    ):
        save(tf.Module(), signatures, tmp_path / name / "1")
        with server_in_thread({"m": tmp_path / name}) as small:
            paths = {*small.ask("/openapi.json").json["paths"]}
        assert (paths & of_vectors, "/v1/models/{model}:predict" in paths) == (expected, True)


def test_the_openapi_document_has_the_fields_that_the_paths_take(server):
    key = {"Authorization": "Bearer secret"}
    paths = server.ask("/openapi.json", **key).json["paths"]
    for path in ("/embed", "/similarity", "/rerank", "/v1/embeddings"):
        schema = paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        refusal = server.ask(path, '{"unknown": 1}', **key).json["error"]
        text = refusal if isinstance(refusal, str) else refusal["message"]
        # A comparison refuses `normalize` in its own words.
        fields = {*text.partition("expected ")[2].split(", ")} - (
            {"normalize"} if path == "/similarity" else set()
        )
        assert {*schema["properties"]} == fields
