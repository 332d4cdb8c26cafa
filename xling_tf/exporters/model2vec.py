"""The folder of model2vec and of sentence-transformers' StaticEmbedding: a vector for each word."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from xling_tf.client.batches import Encode
from xling_tf.errors import library
from xling_tf.exporters.base import OriginalModel, compare_unknown_words, reject
from xling_tf.exporters.sentence_transformers import vocabulary_rows, write_modules
from xling_tf.exporters.tokenizer_json import require_no_bigrams, tokenizer_json
from xling_tf.files import write_json
from xling_tf.weights import read_weights, write_weights

_CARD = """# A static sentence encoder for model2vec

Maps sentences to {dim}-dimensional vectors of unit length: the average of their words' vectors.
Exported by xling_tf.

    from model2vec import StaticModel
    StaticModel.from_pretrained(".").encode(["Hola", "Hello"])      # float32 [2, {dim}]

    from sentence_transformers import SentenceTransformer
    SentenceTransformer(".").encode(["Hola", "Hello"])
{prompts}{cost}"""


def export(source: OriginalModel, folder: Path) -> tuple[Sequence[str], Encode]:
    """Writes a table of projected words, in which n-grams are included, and a tokenizer."""
    model, encoder = source.model, source.model.encoder
    rules = model.tokenizer.rules()
    if rules.get("begin") or rules.get("end"):
        reject(source, "model2vec", "no special tokens around sentences")
    require_no_bigrams(model.tokenizer, model.info.languages)
    description = tokenizer_json(model.tokenizer)
    # The average of projected words is the projected average.
    vectors = encoder.project(tf.constant(vocabulary_rows(model))).numpy()
    tokens = description["model"]
    unknown = tokens["unk_id"] if "unk_id" in tokens else tokens["vocab"][tokens["unk_token"]]
    # model2vec leaves out unknown words; StaticEmbedding counts them, which a row of zeros undoes.
    vectors[unknown] = 0
    write_weights(folder / "model.safetensors", {"embeddings": vectors[: len(tokens["vocab"])]})
    write_json(folder / "tokenizer.json", description)
    lengths = dict.fromkeys(("max_length", "seq_length"), model.tokenizer.config.max_tokens)
    config = {
        "model_type": "model2vec",
        "normalize": True,
        "hidden_dim": encoder.hidden_dim,
        **lengths,
    }
    write_json(folder / "config.json", config)
    write_modules(folder, {"": "StaticEmbedding", "1_Normalize": "Normalize"})
    tokenizer, encode = _load(folder, unknown, source.prompt)
    cost, texts = compare_unknown_words(source, tokenizer, unknown, encode)
    (folder / "README.md").write_text(
        _CARD.format(dim=encoder.hidden_dim, prompts=source.about_prompts, cost=cost),
        encoding="utf-8",
    )
    return texts, encode


def _load(folder: Path, unknown: int, prompt: str) -> tuple[Any, Encode]:
    """Returns the tokenizer, and a function that encodes as model2vec does."""
    tokenizers = library("tokenizers", "tokenizers", "export")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    table = read_weights(folder / "model.safetensors")["embeddings"]

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        encodings = tokenizer.encode_batch([prompt + t for t in texts], add_special_tokens=False)
        rows = [table[[row for row in encoding.ids if row != unknown]] for encoding in encodings]
        sums = np.reshape([words.sum(axis=0) for words in rows], [-1, table.shape[1]])
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        return (sums / np.maximum(lengths, 1e-12)).astype(np.float32)

    return tokenizer, encode
