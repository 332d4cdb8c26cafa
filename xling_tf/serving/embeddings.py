"""OpenAI's protocol: `POST /v1/embeddings`, JSON to texts and vectors to JSON, and `GET /v1/models`.

Source: OpenAI's API reference, "Create embeddings" and "List models". Lists of tokens, which the former also
takes, are refused, since they are ids of OpenAI's models.
"""

import base64
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from xling_tf.serving.protocol import ServingError

PATH = "/v1/embeddings"
MODELS_PATH = "/v1/models"
_TOKEN = re.compile(r"\w+|[^\w\s]")


class EmbeddingRequest(NamedTuple):
    """What a client asks for.

    Attributes:
        model: Name of a served model.
        texts: To be encoded.
        dimensions: Numbers of a vector that are kept; None: all.
        as_base64: Whether vectors are answered as the bytes of little-endian float32, in base64.
        signature: The model's; ours beside the protocol's, as `question_encoder`. Empty: the default one.
    """

    model: str
    texts: list[str]
    dimensions: int | None
    as_base64: bool
    signature: str = ""


def read_request(document: Mapping[str, Any]) -> EmbeddingRequest:
    """Reads a request's JSON object; a `ServingError` says what is wrong with it.

    Example:
        >>> read_request({"model": "en-es", "input": "Hola", "dimensions": 64})
        EmbeddingRequest(model='en-es', texts=['Hola'], dimensions=64, as_base64=False, signature='')
    """
    model, texts = document.get("model"), document.get("input")
    dimensions, encoding = document.get("dimensions"), document.get("encoding_format", "float")
    if not isinstance(model, str):
        raise ServingError("'model' is expected: the name of a served model")
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise ServingError(
            "'input' is expected to be a text or a list of texts (tokens are not understood: LangChain sends "
            "texts with check_embedding_ctx_length=False)"
        )
    if dimensions is not None and (type(dimensions) is not int or dimensions < 1):
        raise ServingError("'dimensions' is expected to be a number of at least 1")
    if encoding not in ("float", "base64", None):
        raise ServingError("'encoding_format' is expected to be float or base64")
    signature = document.get("signature_name", "")
    return EmbeddingRequest(model, texts, dimensions, encoding == "base64", signature)


def format_embeddings(asked: EmbeddingRequest, vectors: NDArray[np.float32]) -> bytes:
    """The answer with `[texts, dim]` vectors; those that are cut are brought to unit length again.

    Tokens are counted as words and marks: the protocol has no place for "unknown".

    Example:
        >>> asked = EmbeddingRequest("en-es", ["Hola."], 1, as_base64=False)
        >>> print(format_embeddings(asked, np.array([[0.6, 0.8]], np.float32)).decode())
        {"object":"list","data":[{"object":"embedding","index":0,"embedding":[1.0]}],"model":"en-es","usage":{"prompt_tokens":2,"total_tokens":2}}
    """
    if asked.dimensions is not None:
        if asked.dimensions > vectors.shape[1]:
            raise ServingError(
                f"'dimensions' is expected to be at most {vectors.shape[1]}, the vectors' width"
            )
        vectors = vectors[:, : asked.dimensions]
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    rows: Any = np.ascontiguousarray(vectors, "<f4")
    if asked.as_base64:
        rows = [base64.b64encode(row.tobytes()).decode() for row in rows]
    count = sum(len(_TOKEN.findall(text)) for text in asked.texts)
    answer = {
        "object": "list",
        "data": [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)],
        "model": asked.model,
        "usage": {"prompt_tokens": count, "total_tokens": count},
    }
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def format_models(created: Mapping[str, int]) -> bytes:
    """The list of the models, by their names and the times at which they were exported (Unix seconds)."""
    models = [
        {"id": name, "object": "model", "created": seconds, "owned_by": "xling_tf"}
        for name, seconds in created.items()
    ]
    return orjson.dumps({"object": "list", "data": models})


def format_error(message: str, status: int) -> bytes:
    """The body of an answer that is an error, as OpenAI's clients read it."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    text = message.encode("utf-8", "replace").decode()
    return orjson.dumps({"error": {"message": text, "type": kind, "param": None, "code": None}})
