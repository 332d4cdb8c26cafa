"""OpenAI's protocol, `POST /v1/embeddings` and `GET /v1/models`: reads requests and writes answers.

Source: OpenAI's API reference, "Create embeddings", "List models" and "Retrieve model". Lists of tokens are
rejected, because they are ids of OpenAI's models.
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
    """A request to encode texts."""

    model: str
    texts: list[str]
    dimensions: int | None  # to keep; None: all
    as_base64: bool  # True returns vectors as little-endian float32 in base64
    signature: str = ""  # such as "question_encoder", which OpenAI's protocol lacks; empty: the default


def read_request(document: Mapping[str, Any]) -> EmbeddingRequest:
    """Reads the JSON object of a request; raises a `ServingError` if it is malformed.

    Example:
        >>> read_request({"model": "en-es", "input": "Hola", "dimensions": 64})
        EmbeddingRequest(model='en-es', texts=['Hola'], dimensions=64, as_base64=False, signature='')
    """
    model, texts = document.get("model"), document.get("input")
    dimensions, encoding = document.get("dimensions"), document.get("encoding_format", "float")
    if not isinstance(model, str):
        raise ServingError("expected 'model', the name of a served model")
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise ServingError("'input' must be a text or several (LangChain: check_embedding_ctx_length=False)")
    if dimensions is not None and (type(dimensions) is not int or dimensions < 1):
        raise ServingError("'dimensions' must be an integer of at least 1")
    if encoding not in ("float", "base64"):
        raise ServingError("'encoding_format' must be float or base64")
    signature = document.get("signature_name", "")
    return EmbeddingRequest(model, texts, dimensions, encoding == "base64", signature)


def format_embeddings(request: EmbeddingRequest, vectors: NDArray[np.float32]) -> bytes:
    """Formats the answer: vectors `[texts, dim]`, scaled to unit length if dimensions are cut off.

    Words and punctuation marks are counted as tokens.
    """
    if request.dimensions is not None:
        if request.dimensions > vectors.shape[1]:
            raise ServingError(f"'dimensions' must be at most {vectors.shape[1]}")
        vectors = vectors[:, : request.dimensions]
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    rows: Any = np.ascontiguousarray(vectors, "<f4")
    if request.as_base64:
        rows = [base64.b64encode(row.tobytes()).decode() for row in rows]
    count = sum(len(_TOKEN.findall(text)) for text in request.texts)
    answer = {
        "object": "list",
        "data": [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)],
        "model": request.model,
        "usage": {"prompt_tokens": count, "total_tokens": count},
    }
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def format_models(created: Mapping[str, int]) -> bytes:
    """Formats the list of the models, given the Unix times of their exports by name."""
    return orjson.dumps({"object": "list", "data": [describe(*model) for model in created.items()]})


def describe(name: str, created: int) -> dict[str, Any]:
    """Returns OpenAI's object of a model, given the Unix time of its export."""
    return {"id": name, "object": "model", "created": created, "owned_by": "xling_tf"}
