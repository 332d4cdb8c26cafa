"""BERT, RoBERTa, XLM-RoBERTa, CamemBERT and DistilBERT, as sentence-transformers save them."""

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xling_tf.errors import UserError, require_known
from xling_tf.importers.sentence_transformers import (
    read_max_tokens,
    read_modules,
    read_settings,
    read_tensors,
)
from xling_tf.weights import Weights, require_shapes


class Family(NamedTuple):
    """Where models of one family keep what an encoder needs."""

    sizes: Mapping[str, str]  # our settings, and their names in `config.json`
    layer: str  # start of the names of a block's tensors
    parts: Mapping[str, tuple[str, ...]]  # our layers in a block, and the layers that each concatenates
    has_types: bool = True  # embeddings of segments
    has_offset: bool = False  # the first position is that after the padding's id, as in fairseq


_BERT = Family(
    sizes={
        "embedding_dim": "hidden_size",
        "intermediate_dim": "intermediate_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "activation": "hidden_act",
    },
    layer="encoder.layer",
    parts={
        "attention/query_key_value": tuple(f"attention.self.{name}" for name in ("query", "key", "value")),
        "attention/output": ("attention.output.dense",),
        "attention_norm": ("attention.output.LayerNorm",),
        "intermediate": ("intermediate.dense",),
        "output": ("output.dense",),
        "feedforward_norm": ("output.LayerNorm",),
    },
)
_ROBERTA = _BERT._replace(has_offset=True)
_DISTILBERT = Family(
    sizes={
        "embedding_dim": "dim",
        "intermediate_dim": "hidden_dim",
        "num_layers": "n_layers",
        "num_heads": "n_heads",
        "activation": "activation",
    },
    layer="transformer.layer",
    parts={
        "attention/query_key_value": tuple(f"attention.{name}_lin" for name in "qkv"),
        "attention/output": ("attention.out_lin",),
        "attention_norm": ("sa_layer_norm",),
        "intermediate": ("ffn.lin1",),
        "output": ("ffn.lin2",),
        "feedforward_norm": ("output_layer_norm",),
    },
    has_types=False,
)
WORDS, POSITIONS, TYPES = (
    f"embeddings.{name}_embeddings.weight" for name in ("word", "position", "token_type")
)
# By `model_type`.
FAMILIES = {
    "bert": _BERT,
    "camembert": _ROBERTA,
    "distilbert": _DISTILBERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
}
_ACTIVATIONS = {
    **dict.fromkeys(("gelu", "gelu_python"), "gelu"),
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh"), "gelu_tanh"),
    "relu": "relu",
    **dict.fromkeys(("silu", "swish"), "silu"),
}
# Settings that change what the layers compute, with the value that they must have.
_REQUIRED = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
_PREFIX = re.compile(r"(?:0\.auto_model\.)?(?:bert\.|roberta\.|distilbert\.)?")
# Not part of the encoder: the layers of pre-training, and constants.
_IGNORED = re.compile(
    r"pooler\.|lm_head\.|cls\.|vocab_(?:transform|layer_norm|projector)\.|embeddings\.\w+_ids$"
)
_OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def read_bert(folder: Path) -> tuple[dict[str, Any], Weights]:
    """Reads the settings of a `BertEncoder` and its weights, by the names of training.

    The folder has `config.json` and `model.safetensors`, or the `modules.json` that says where they are.
    """
    transformer, pooling, dense = read_modules(folder)
    path = transformer / "config.json"
    config = read_settings(path)
    if config.get("model_type") not in FAMILIES:  # suggests no similar name: that is another model
        raise UserError(
            f"model_type in {path} must be one of {', '.join(FAMILIES)}, got {config.get('model_type')!r}; "
            "models of other architectures cannot be imported"
        )
    family = FAMILIES[config["model_type"]]
    for name, value in _REQUIRED.items():
        if config.get(name, value) != value:
            raise UserError(f"{name} in {path} must be {value}, got {config[name]}")
    settings = {ours: config[theirs] for ours, theirs in family.sizes.items()}
    require_known(f"{family.sizes['activation']} in {path}", settings["activation"], _ACTIVATIONS)
    offset = config.get("pad_token_id", 1) + 1 if family.has_offset else 0
    num_positions = config["max_position_embeddings"] - offset
    encoder = {
        "kind": "bert",
        "max_tokens": read_max_tokens(transformer, num_positions),
        **settings,
        "max_positions": num_positions,
        "epsilon": config.get("layer_norm_eps", 1e-12),
        "activation": _ACTIVATIONS[settings["activation"]],
        **pooling,
    }
    tensors = {}
    for name, array in read_tensors(transformer).items():
        name = _PREFIX.sub("", name, count=1)
        for old, new in _OLD_NAMES.items():
            name = name.replace(old, new)
        if not _IGNORED.match(name):
            tensors[name] = array.astype(np.float32, copy=False)
    parts = tensor_names(family, settings["num_layers"]).values()
    tables = [WORDS, POSITIONS, *([TYPES] if family.has_types else [])]
    require_shapes(dict.fromkeys([*tables, *chain.from_iterable(parts)]), tensors, str(transformer))
    return encoder, arranged(tensors, family, settings["num_layers"], offset) | dense


def tensor_names(family: Family, num_layers: int) -> dict[str, list[str]]:
    """Maps each of our weights, except for tables, to the tensors that it is concatenated from."""
    layers: dict[str, Sequence[str]] = {"encoder/embedding_norm": ["embeddings.LayerNorm"]}
    for index in range(num_layers):
        for ours, theirs in family.parts.items():
            layers[f"encoder/block_{index}/{ours}"] = [f"{family.layer}.{index}.{part}" for part in theirs]
    names = {}
    for ours, parts in layers.items():
        weight, bias = ("gamma", "beta") if ours.endswith("norm") else ("kernel", "bias")
        names[f"{ours}/{weight}"] = [f"{part}.weight" for part in parts]
        names[f"{ours}/{bias}"] = [f"{part}.bias" for part in parts]
    return names


def arranged(tensors: Weights, family: Family, num_layers: int, offset: int = 0) -> Weights:
    """Names and arranges tensors as the encoder does: its matrices multiply from the right."""
    positions = tensors[POSITIONS][offset:]
    if family.has_types:
        positions = positions + tensors[TYPES][0]
    weights = {"encoder/embedding/words/table": tensors[WORDS], "encoder/positions": positions}
    for name, parts in tensor_names(family, num_layers).items():
        weights[name] = np.concatenate([tensors[part].T for part in parts], axis=-1)
    return weights
