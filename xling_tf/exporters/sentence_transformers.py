"""A folder for sentence-transformers, Text Embeddings Inference, fastembed, Transformers.js."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from xling_tf.client.batches import Encode
from xling_tf.client.piece_models import UNIGRAM, model_proto
from xling_tf.client.runtimes import VECTORS, open_model
from xling_tf.config import SentencePieceConfig, WordPieceConfig
from xling_tf.errors import library
from xling_tf.exporters.base import PROBES, OriginalModel, compare_unknown_words
from xling_tf.exporters.litert_onnx import TOKENS, embed_ids, ids_and_lengths, to_onnx
from xling_tf.exporters.onnx_8bit import quantize
from xling_tf.exporters.tokenizer_json import UNKNOWN_WORD, require_no_bigrams, tokenizer_json
from xling_tf.files import write_json
from xling_tf.importers.bert import FAMILIES, POSITIONS, TYPES, Family, tensor_names
from xling_tf.importers.sentence_transformers import ACTIVATIONS, POOLINGS
from xling_tf.layers.pooling import unit_length
from xling_tf.model import Model
from xling_tf.savedmodel.encoder import KNOWN_WORDS, WORD_TABLE, ExportedEncoder
from xling_tf.tokenizers.base import Tokenizer
from xling_tf.weights import Weights, arrays, write_weights

_CARD = """# A sentence encoder for sentence-transformers

Maps sentences to {dim}-dimensional vectors of unit length. Exported by xling_tf.

    from sentence_transformers import SentenceTransformer
    model = SentenceTransformer("."{backend})
    model.encode(["Hola", "Hello"])                 # float32 [2, {dim}]

`onnx/model.onnx` maps `input_ids` and `attention_mask`, int64 `[batch, tokens]`, to
`sentence_embedding`, float32 `[batch, {dim}]`; `tokenizer.json` is read by the `tokenizers`
library. {states}
`onnx/model_quantized.onnx` does the same in 8 bits; its vectors have a mean cosine of {cosine:.4f}
to those of `model.onnx`, and do not depend on the other texts of a batch.
{prompts}{cost}"""
_REPEATED = (
    "`last_hidden_state` repeats the\nvector at every token, so that every pooling returns it."
)
_STATES = "`last_hidden_state` has the\noutputs of the last block."
_PROMPTED = "`encode_query` and `encode_document` of sentence-transformers put it there.\n"
# transformers' names of our activations.
_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "relu": "relu", "silu": "silu"}
# Special pieces of an XLM-RoBERTa: the first four, and the last.
_XLM_ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
# The first of these that the vocabulary has.
_SPECIAL = {
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]", "<s>", "<bos>"),
    "sep_token": ("[SEP]", "</s>", "<eos>"),
    "pad_token": ("[PAD]", "<pad>", "</s>", "[UNK]"),
}


def export(source: OriginalModel, folder: Path) -> tuple[Sequence[str], Encode]:
    """Writes ONNX model, tokenizer, settings; for a `transformers_family` also torch's weights."""
    model, encoder = source.model, source.model.encoder
    require_no_bigrams(model.tokenizer, model.info.languages)
    config = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "hidden_size": encoder.hidden_dim,
        "vocab_size": model.tokenizer.num_words,
        "max_position_embeddings": model.tokenizer.config.max_tokens,
        "transformers_version": "5.0.0",
    }
    pooling, pooled_dim = "cls", encoder.hidden_dim
    modules = ["Transformer", "Pooling", "Normalize"]
    if family := FAMILIES.get(encoder.transformers_family):
        for table in (family.sizes, family.options):
            config |= {theirs: getattr(encoder, ours) for ours, theirs in table.items()}
        config |= {
            "model_type": encoder.transformers_family,
            "architectures": [family.architecture],
            family.sizes["activation"]: _ACTIVATIONS[encoder.activation],
            "max_position_embeddings": encoder.max_positions,
            "type_vocab_size": 2,  # keras-hub expects two
        }
        write_weights(folder / "model.safetensors", _tensors(model, family))
        pooling, pooled_dim = encoder.pooling, encoder.embedding_dim
        modules[2:2] = ["Dense"] * len(encoder.dense)
    config["pad_token_id"] = _write_tokenizer(folder, model)
    write_json(folder / "config.json", config)
    write_json(
        folder / "sentence_bert_config.json", {"max_seq_length": model.tokenizer.config.max_tokens}
    )
    names = [f"{index}_{name}" if index else "" for index, name in enumerate(modules)]
    write_modules(folder, dict(zip(names, modules, strict=True)))
    switches = {switch: name == pooling for name, switch in POOLINGS.items()}
    write_json(
        folder / "1_Pooling" / "config.json", {"word_embedding_dimension": pooled_dim, **switches}
    )
    for index, layer in enumerate(encoder.dense if family else ()):
        _write_dense(folder / names[2 + index], layer, encoder.dense_activations[index])
    (folder / names[-1]).mkdir()
    settings = {**source.prompts, "similarity_fn_name": "cosine"}
    write_json(folder / "config_sentence_transformers.json", settings)

    tokenizer, encode, cosine = _write_onnx(source, folder)
    texts, cost = list(PROBES), ""
    if model.tokenizer.known_words:
        unknown = tokenizer.token_to_id(UNKNOWN_WORD)
        cost, texts = compare_unknown_words(source, tokenizer, unknown, encode)
    card = _CARD.format(
        dim=encoder.hidden_dim,
        backend="" if family else ', backend="onnx"',
        states=_STATES if family else _REPEATED,
        cosine=cosine,
        prompts=source.about_prompts and source.about_prompts + _PROMPTED,
        cost=cost,
    )
    (folder / "README.md").write_text(card, encoding="utf-8")
    return texts, encode


def _write_onnx(source: OriginalModel, folder: Path) -> tuple[Any, Encode, float]:
    """Writes the model exactly and in 8 bits; returns tokenizer, encoder, their mean cosine."""
    graph = _Graph(source.model)
    (folder / "onnx").mkdir()
    exact, quantized = (folder / "onnx" / name for name in ("model.onnx", "model_quantized.onnx"))
    content = to_onnx(graph.encode, graph.tables, TOKENS)
    exact.write_bytes(content)
    quantized.write_bytes(quantize(content))
    tokenizer, encode = open_model(exact, folder / "tokenizer.json")
    _, encode_quantized = open_model(quantized, folder / "tokenizer.json")
    cosine = float(np.mean(np.sum(encode(PROBES) * encode_quantized(PROBES), axis=1)))
    return tokenizer, lambda texts: encode([source.prompt + text for text in texts]), cosine


class _Graph:
    """The graph of the ONNX model, from ids to vectors."""

    def __init__(self, model: Model) -> None:
        self._body = model.encoder
        self.tables = [table.value for table in model.encoder.table_variables]
        self._embed: Callable[..., tf.Tensor] = partial(embed_ids, model.encoder)
        if model.tokenizer.known_words:
            self.tables = [tf.Variable(vocabulary_rows(model))]
            if model.tokenizer.num_ngrams:  # the rows include them
                self._embed = lambda tables, ids: tf.gather(tables[0], ids)
        rules = model.tokenizer.rules()
        empty = 0 if model.tokenizer.known_words else rules["empty"]
        begin, end = rules.get("begin", ()), rules.get("end", ())
        self._empty = [] if empty is None else [*begin, empty, *end]

    def encode(
        self, tables: Sequence[tf.Tensor], input_ids: tf.Tensor, mask: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """`sentence_embedding`, `[batch, dim]`, and `last_hidden_state`, `[batch, tokens, any]`."""
        body, (ids, lengths) = self._body, ids_and_lengths(input_ids, mask)
        if body.transformers_family:
            states, is_token = body.hidden_states(self._embed(tables, ids), lengths)
            vectors = unit_length(body.pool(states, is_token))
            return {"last_hidden_state": states, VECTORS: vectors}
        if self._empty:
            # Here an empty text has a token, in addition to marks.
            is_empty = lengths < len(self._empty)
            lengths = tf.where(is_empty, len(self._empty), lengths)
            width = tf.maximum(tf.shape(ids)[1], len(self._empty))
            ids, empty = (
                tf.pad(rows, [[0, 0], [0, width - tf.shape(rows)[1]]])
                for rows in (ids, tf.constant([self._empty]))
            )
            ids = tf.where(is_empty[:, None], empty, ids)[:, : tf.reduce_max(lengths)]
        vectors = unit_length(body.encode_tokens(self._embed(tables, ids), lengths))
        width = tf.maximum(tf.shape(input_ids)[1], 1)
        return {
            "last_hidden_state": tf.tile(vectors[:, None], [1, width, 1]),
            VECTORS: vectors,
        }


def vocabulary_rows(model: Model) -> NDArray[np.float32]:
    """A model's table; in that of words, the row after the known ones stands for all others."""
    num_known = len(model.tokenizer.known_words)
    if model.tokenizer.num_ngrams:
        served = ExportedEncoder(model.tokenizer, model.encoder).named_weights
        known = served[KNOWN_WORDS].numpy()
        return np.concatenate([known, np.zeros_like(known[:1])])
    table = model.encoder.embedding.words.table.numpy()
    if num_known:
        table[num_known] = table[num_known:].mean(axis=0)
    return table


def write_modules(folder: Path, kinds: Mapping[str, str]) -> None:
    """Writes modules.json: the kinds of the modules by their paths."""
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": path,
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, (path, kind) in enumerate(kinds.items())
    ]
    write_json(folder / "modules.json", modules)


def _write_tokenizer(folder: Path, model: Model) -> int | None:
    """Writes the tokenizer's files, and returns the id of its padding, if it has any."""
    description = tokenizer_json(model.tokenizer)
    write_json(folder / "tokenizer.json", description)
    tokenizer = library("tokenizers", "tokenizers", "export").Tokenizer.from_str(
        json.dumps(description)
    )
    special = {
        role: token
        for role, tokens in _SPECIAL.items()
        if (token := next((t for t in tokens if tokenizer.token_to_id(t) is not None), None))
    }
    write_json(folder / "special_tokens_map.json", special)
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.tokenizer.config.max_tokens,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
    }
    settings |= special | _write_vocabulary(folder, model.tokenizer)
    write_json(folder / "tokenizer_config.json", settings)
    return tokenizer.token_to_id(special["pad_token"]) if "pad_token" in special else None


def _write_vocabulary(folder: Path, tokenizer: Tokenizer) -> dict[str, Any]:
    """Writes a BERT's or XLM-RoBERTa's vocabulary for keras-hub, and returns its settings."""
    ((name, content),) = tokenizer.files().items()
    if isinstance(tokenizer.config, WordPieceConfig):
        (folder / name).write_bytes(content)
        return {"do_lower_case": tokenizer.config.lowercase}
    if isinstance(tokenizer.config, SentencePieceConfig):
        model = model_proto(content)
        names, rules = [piece.piece for piece in model.pieces], model.normalizer_spec
        # transformers gives this class the rules of XLM-RoBERTa, whatever tokenizer.json says.
        if (
            model.trainer_spec.model_type == UNIGRAM
            and rules.precompiled_charsmap
            and rules.add_dummy_prefix
            and rules.remove_extra_whitespaces
            and names[:4] + names[-1:] == _XLM_ROBERTA
        ):
            begin, _, end, unknown, *pieces = model.pieces
            del model.pieces[:]
            model.pieces.extend([unknown, begin, end, *pieces[:-1]])
            (folder / "sentencepiece.bpe.model").write_bytes(model.SerializeToString())
            return {"tokenizer_class": "XLMRobertaTokenizer"}
    return {}


def _write_dense(folder: Path, layer: Any, activation: str) -> None:
    kernel, bias = (variable.numpy() for variable in (layer.kernel, layer.bias))
    name = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == activation)
    module = "linear" if name == "Identity" else "activation"
    settings = {
        "in_features": kernel.shape[0],
        "out_features": kernel.shape[1],
        "bias": True,
        "activation_function": f"torch.nn.modules.{module}.{name}",
    }
    write_json(folder / "config.json", settings)
    write_weights(folder / "model.safetensors", {"linear.weight": kernel.T, "linear.bias": bias})


def _tensors(model: Model, family: Family) -> Weights:
    """Returns the weights by transformers' names; inverts `importers.bert`."""
    weights = arrays(model.weights)
    table = weights[WORD_TABLE]
    dim = table.shape[1]
    tensors = {family.tables[0]: table}
    if POSITIONS in family.tables:
        tensors |= {POSITIONS: weights["encoder/positions"], TYPES: np.zeros((2, dim), np.float32)}
        # Unused, but without them transformers warns of missing weights.
        tensors["pooler.dense.weight"] = np.zeros((dim, dim), np.float32)
        tensors["pooler.dense.bias"] = np.zeros(dim, np.float32)
    for name, parts in tensor_names(family, model.encoder.get_config()).items():
        for part, array in zip(parts, np.split(weights[name], len(parts), axis=-1), strict=True):
            tensors[part] = array.T
    return tensors
