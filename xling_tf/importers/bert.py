"""BERT, RoBERTa, XLM-RoBERTa, CamemBERT and DistilBERT, as sentence-transformers save them."""

import re
from collections.abc import Mapping
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


class _Family(NamedTuple):
    """Where models of one family keep what an encoder needs.

    Attributes:
        sizes: Our settings, and their names in `config.json`.
        layer: Start of the names of a block's tensors.
        dense: Our dense layers in a block, and the tensors that they are made of.
        norms: Our layer norms in a block, and their tensors.
        has_types: True if there are embeddings of segments.
        has_offset: True if the first position is that after the padding's id, as in fairseq.
    """

    sizes: Mapping[str, str]
    layer: str
    dense: Mapping[str, tuple[str, ...]]
    norms: Mapping[str, str]
    has_types: bool
    has_offset: bool


_BERT = _Family(
    sizes={
        "embedding_dim": "hidden_size",
        "intermediate_dim": "intermediate_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "activation": "hidden_act",
    },
    layer="encoder.layer",
    dense={
        "attention/query_key_value": tuple(f"attention.self.{name}" for name in ("query", "key", "value")),
        "attention/output": ("attention.output.dense",),
        "intermediate": ("intermediate.dense",),
        "output": ("output.dense",),
    },
    norms={"attention_norm": "attention.output.LayerNorm", "feedforward_norm": "output.LayerNorm"},
    has_types=True,
    has_offset=False,
)
_ROBERTA = _BERT._replace(has_offset=True)
_DISTILBERT = _Family(
    sizes={
        "embedding_dim": "dim",
        "intermediate_dim": "hidden_dim",
        "num_layers": "n_layers",
        "num_heads": "n_heads",
        "activation": "activation",
    },
    layer="transformer.layer",
    dense={
        "attention/query_key_value": tuple(f"attention.{name}_lin" for name in "qkv"),
        "attention/output": ("attention.out_lin",),
        "intermediate": ("ffn.lin1",),
        "output": ("ffn.lin2",),
    },
    norms={"attention_norm": "sa_layer_norm", "feedforward_norm": "output_layer_norm"},
    has_types=False,
    has_offset=False,
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
    """Reads a model.

    Args:
        folder: Folder with `config.json` and `model.safetensors`, or with the `modules.json` that names it.

    Returns:
        The settings of a `BertEncoder`, and its weights by the names of training.

    Raises:
        UserError: The model is of another architecture, or a file is missing or damaged.
    """
    modules = read_modules(folder)
    path = modules.transformer / "config.json"
    config = read_settings(path)
    if config.get("model_type") not in FAMILIES:  # without suggesting a similar name, which is another model
        raise UserError(
            f"model_type in {path} must be one of {', '.join(FAMILIES)}, got {config.get('model_type')!r}; "
            "models of other architectures cannot be imported"
        )
    family = FAMILIES[config["model_type"]]
    for name, value in _REQUIRED.items():
        if config.get(name, value) != value:
            raise UserError(f"{name} in {path} is expected to be {value}, got {config[name]}")
    names = [*family.sizes.values(), "vocab_size", "max_position_embeddings"]
    if missing := [name for name in names if name not in config]:
        raise UserError(
            f"{path} must be the config of a {config['model_type']}, but has no {', '.join(missing)}"
        )
    settings = {ours: config[theirs] for ours, theirs in family.sizes.items()}
    require_known(f"{family.sizes['activation']} in {path}", settings["activation"], _ACTIVATIONS)
    offset = config.get("pad_token_id", 1) + 1 if family.has_offset else 0
    num_positions = config["max_position_embeddings"] - offset
    encoder = {
        "kind": "bert",
        "num_words": config["vocab_size"],
        "max_tokens": read_max_tokens(modules.transformer, num_positions),
        **settings,
        "max_positions": num_positions,
        "epsilon": config.get("layer_norm_eps", 1e-12),
        "activation": _ACTIVATIONS[settings["activation"]],
        **modules.settings,
    }
    tensors = _tensors(modules.transformer, family, config)
    return encoder, _weights(tensors, family, settings["num_layers"], offset) | modules.weights


def _tensors(folder: Path, family: _Family, config: Mapping[str, Any]) -> Weights:
    """Returns the encoder's tensors in float32, by their names without prefixes."""
    dim, intermediate = (config[family.sizes[name]] for name in ("embedding_dim", "intermediate_dim"))
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], dim),
        "embeddings.position_embeddings.weight": (config["max_position_embeddings"], dim),
    }
    if family.has_types:
        shapes["embeddings.token_type_embeddings.weight"] = (config.get("type_vocab_size", 2), dim)
    norms = ["embeddings.LayerNorm"]
    for layer in range(config[family.sizes["num_layers"]]):
        for ours, parts in family.dense.items():
            rows, columns = {"intermediate": (intermediate, dim), "output": (dim, intermediate)}.get(
                ours, (dim, dim)
            )
            for part in parts:
                shapes[f"{family.layer}.{layer}.{part}.weight"] = (rows, columns)
                shapes[f"{family.layer}.{layer}.{part}.bias"] = (rows,)
        norms += [f"{family.layer}.{layer}.{norm}" for norm in family.norms.values()]
    shapes |= {f"{norm}.{kind}": (dim,) for norm in norms for kind in ("weight", "bias")}
    tensors = {}
    for name, array in read_tensors(folder).items():
        name = _PREFIX.sub("", name, count=1)
        for old, new in _OLD_NAMES.items():
            name = name.replace(old, new)
        if not _IGNORED.match(name):
            tensors[name] = array.astype(np.float32, copy=False)
    require_shapes(shapes, tensors, str(folder))
    return tensors


def _weights(tensors: Weights, family: _Family, num_layers: int, offset: int) -> Weights:
    """Names and arranges tensors as the encoder does, whose matrices multiply from the right."""
    positions = tensors["embeddings.position_embeddings.weight"][offset:]
    if family.has_types:
        positions = positions + tensors["embeddings.token_type_embeddings.weight"][0]
    weights = {
        "encoder/embedding/words/table": tensors["embeddings.word_embeddings.weight"],
        "encoder/positions": positions,
    }
    norms = {"encoder/embedding_norm": "embeddings.LayerNorm"}
    for layer in range(num_layers):
        ours, theirs = f"encoder/block_{layer}", f"{family.layer}.{layer}"
        for name, parts in family.dense.items():
            kernels = [tensors[f"{theirs}.{part}.weight"].T for part in parts]
            weights[f"{ours}/{name}/kernel"] = np.concatenate(kernels, axis=1)
            weights[f"{ours}/{name}/bias"] = np.concatenate(
                [tensors[f"{theirs}.{part}.bias"] for part in parts]
            )
        norms |= {f"{ours}/{name}": f"{theirs}.{norm}" for name, norm in family.norms.items()}
    for name, norm in norms.items():
        weights |= {f"{name}/gamma": tensors[f"{norm}.weight"], f"{name}/beta": tensors[f"{norm}.bias"]}
    return weights
