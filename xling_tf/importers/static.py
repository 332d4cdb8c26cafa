"""Import of static models: those of model2vec, and StaticEmbedding of sentence-transformers."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.errors import UserError
from xling_tf.importers.sentence_transformers import read_settings, read_tensors
from xling_tf.importers.tokenizer_files import read_tokenizer
from xling_tf.weights import Weights

# model2vec's default; sentence-transformers does not cut texts, and so has a limit far beyond a sentence's.
_MODEL2VEC_TOKENS, _MAX_TOKENS = 512, 8192


def read_static(folder: Path) -> tuple[Any, dict[str, bytes], dict[str, Any], Weights]:
    """Reads a table of token vectors, which are averaged, from a folder of model2vec or StaticEmbedding."""
    config = read_settings(folder / "config.json", {})
    tensors = read_tensors(folder)
    stored = tensors.get("embeddings", tensors.get("embedding.weight"))
    if stored is None:
        raise UserError(
            f"{folder / 'model.safetensors'} expects a tensor embeddings or embedding.weight, got "
            f"{', '.join(tensors) or 'none'}"
        )
    table = stored.astype(np.float32)
    if "mapping" in tensors:  # of tokens to rows
        table = table[tensors["mapping"]]
    if "weights" in tensors:
        table = table * tensors["weights"].astype(np.float32)[:, None]
    is_model2vec = "embeddings" in tensors
    max_tokens = config.get("max_length", _MODEL2VEC_TOKENS) if is_model2vec else None
    tokenizer, files = read_tokenizer(folder, max_tokens or _MAX_TOKENS)
    if is_model2vec and (unknown := _unknown_row(folder)) is not None:
        # model2vec leaves unknown tokens out, which changes the length of the average alone.
        table[unknown] = 0
    dim = table.shape[1]
    weights = {
        "encoder/embedding/words/table": table,
        "encoder/input_projection/kernel": np.eye(dim, dtype=np.float32),
        "encoder/input_projection/bias": np.zeros(dim, np.float32),
    }
    settings = {"kind": "static", "embedding_dim": dim, "hidden_dim": dim}
    marks: dict[str, Any] = {"sentence_marks": False}
    return dataclasses.replace(tokenizer, **marks), files, settings, weights


def _unknown_row(folder: Path) -> int | None:
    """Returns the id of the token for unknown words in tokenizer.json; None if there is none."""
    content = read_settings(folder / "tokenizer.json")
    model = content["model"]
    if (name := model.get("unk_token")) is None:
        return model.get("unk_id")
    added = {token["content"]: token["id"] for token in content.get("added_tokens", ())}
    return model["vocab"].get(name, added.get(name))
