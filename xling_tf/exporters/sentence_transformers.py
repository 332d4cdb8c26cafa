"""The folder that sentence-transformers, Text Embeddings Inference, fastembed and Transformers.js load."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from xling_tf.encoders.bert import BertEncoder
from xling_tf.encoders.serving import KNOWN_WORDS, ServingEncoder
from xling_tf.errors import library
from xling_tf.exporters.base import PROBES, Encode, Source, cost_of_unknown_words
from xling_tf.exporters.runtimes import embed_ids, to_onnx
from xling_tf.exporters.tokenizer_json import UNKNOWN_WORD, tokenizer_json
from xling_tf.importers.bert import FAMILIES
from xling_tf.importers.sentence_transformers import ACTIVATIONS, POOLING_SWITCHES, POOLINGS
from xling_tf.layers.pooling import unit_length
from xling_tf.model import Model
from xling_tf.tokenizers.words import WordTokenizer
from xling_tf.weights import Weights, arrays, write_weights

_CARD = """# A sentence encoder for sentence-transformers

Maps sentences to {dim}-dimensional vectors of unit length.

    from sentence_transformers import SentenceTransformer
    model = SentenceTransformer("."{backend})
    model.encode(["Hola", "Hello"])                 # float32 [2, {dim}]

`onnx/model.onnx` maps `input_ids` and `attention_mask`, int64 `[batch, tokens]`, to `sentence_embedding`,
float32 `[batch, {dim}]`; `tokenizer.json` is read by the `tokenizers` library. {states}
{cost}"""
_REPEATED = "`last_hidden_state` repeats the\nvector at every token, so that every pooling returns it."
_STATES = "`last_hidden_state` has the\noutputs of the last block."
_MODULE = "sentence_transformers.models."
# transformers' names of our activations.
_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "relu": "relu", "silu": "silu"}
# The first of these that the vocabulary has.
_SPECIAL = {
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]", "<s>"),
    "sep_token": ("[SEP]", "</s>"),
    "pad_token": ("[PAD]", "<pad>", "</s>", "[UNK]"),
}


def export(source: Source, folder: Path) -> tuple[Sequence[str], Encode]:
    """Writes an ONNX model, a tokenizer and settings; of the encoder `bert`, also weights for torch.

    Args:
        source: The model.
        folder: Folder to write.

    Returns:
        Texts, and a function that encodes them with the `tokenizers` library and ONNX Runtime.
    """
    model, encoder = source.model, source.model.encoder
    config = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "hidden_size": encoder.hidden_dim,
        "vocab_size": model.tokenizer.num_words,
        "max_position_embeddings": model.tokenizer.config.max_tokens,
    }
    pooling, pooled_dim = "cls", encoder.hidden_dim
    modules = ["Transformer", "Pooling", "Normalize"]
    if is_bert := isinstance(encoder, BertEncoder):
        config |= {theirs: getattr(encoder, ours) for ours, theirs in FAMILIES["bert"].sizes.items()}
        config |= {
            "hidden_act": _ACTIVATIONS[encoder.activation],
            "layer_norm_eps": encoder.epsilon,
            "max_position_embeddings": encoder.max_positions,
            "type_vocab_size": 1,
        }
        write_weights(folder / "model.safetensors", _bert_tensors(model))
        pooling, pooled_dim = encoder.pooling, encoder.embedding_dim
        modules[2:2] = ["Dense"] * len(encoder.dense)
    _write_tokenizer(folder, model)
    _write(folder / "config.json", config)
    _write(folder / "sentence_bert_config.json", {"max_seq_length": model.tokenizer.config.max_tokens})
    names = [f"{index}_{name}" if index else "" for index, name in enumerate(modules)]
    paths = [
        {"idx": index, "name": str(index), "path": path, "type": _MODULE + name}
        for index, (name, path) in enumerate(zip(modules, names, strict=True))
    ]
    _write(folder / "modules.json", paths)
    mode = next(theirs for theirs, ours in POOLINGS.items() if ours == pooling)
    switches = {switch: name == mode for switch, name in POOLING_SWITCHES.items()}
    _write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": pooled_dim, **switches})
    for index, layer in enumerate(encoder.dense if is_bert else ()):
        _write_dense(folder / names[2 + index], layer, encoder.dense_activations[index])
    (folder / names[-1]).mkdir()
    info = model.info
    settings = {"prompts": info.prompts, "default_prompt_name": info.default_prompt_name}
    _write(folder / "config_sentence_transformers.json", {**settings, "similarity_fn_name": "cosine"})

    graph = _Graph(model)
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(to_onnx(graph.encode, graph.tables, graph.signature))
    tokenizer, encode = load(folder)
    texts, cost = list(PROBES), ""
    if isinstance(model.tokenizer, WordTokenizer):
        unknown = tokenizer.token_to_id(UNKNOWN_WORD)
        cost = cost_of_unknown_words(source, tokenizer, unknown, encode)
        texts = without_unknown_words(source, tokenizer)
    card = _CARD.format(
        dim=encoder.hidden_dim,
        backend="" if is_bert else ', backend="onnx"',
        states=_STATES if is_bert else _REPEATED,
        cost=cost,
    )
    (folder / "README.md").write_text(card, encoding="utf-8")
    return texts, encode


class _Graph:
    """The graph of the ONNX model.

    Attributes:
        tables: The embedding tables.
        signature: The inputs.
    """

    signature = (
        tf.TensorSpec([None, None], tf.int64, name="input_ids"),
        tf.TensorSpec([None, None], tf.int64, name="attention_mask"),
    )

    def __init__(self, model: Model) -> None:
        self._model = model
        if isinstance(model.tokenizer, WordTokenizer):
            self.tables = [tf.Variable(vocabulary_rows(model))]
        else:
            self.tables = [table.value for table in model.encoder.table_variables]

    def encode(
        self, tables: Sequence[tf.Tensor], input_ids: tf.Tensor, attention_mask: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Computes `sentence_embedding`, `[batch, dim]`, and `last_hidden_state`, `[batch, length, any]`."""
        body = self._model.encoder
        # A text without tokens is one of row 0, which stands for an empty text.
        ids = tf.pad(tf.cast(input_ids * attention_mask, tf.int32), [[0, 0], [0, 1]])
        lengths = tf.maximum(tf.cast(tf.reduce_sum(attention_mask, axis=1), tf.int32), 1)
        ids = ids[:, : tf.reduce_max(lengths)]
        words = tf.gather(tables[0], ids) if ... else embed_ids(body, tables, ids)
