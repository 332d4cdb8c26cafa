"""BERT, (XLM-)RoBERTa, CamemBERT, DistilBERT, ModernBERT, as sentence-transformers saves them."""

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xling_tf.errors import UserError, require_known
from xling_tf.importers.saved_files import read_settings, read_tensors
from xling_tf.importers.sentence_transformers import read_max_tokens, read_modules
from xling_tf.savedmodel.saved_models import LIMITS
from xling_tf.weights import Weights, require_shapes

WORDS, POSITIONS, TYPES = (
    f"embeddings.{name}_embeddings.weight" for name in ("word", "position", "token_type")
)


class Family(NamedTuple):
    """Where models of one family keep what an encoder needs."""

    sizes: Mapping[str, str]  # our settings, and their names in `config.json`
    layer: str  # start of the names of a block's tensors
    # Our layers in a block, and the layers that each concatenates.
    parts: Mapping[str, tuple[str, ...]]
    kind: str = "bert"  # of our encoder
    architecture: str = "BertModel"  # of the exported model
    # As `sizes`; where `config.json` has none, our default is theirs.
    options: Mapping[str, str] = {"epsilon": "layer_norm_eps"}
    # Settings that change what the layers compute, with the value they need.
    required: Mapping[str, Any] = {}
    tables: tuple[str, ...] = (WORDS, POSITIONS, TYPES)  # the last two may be missing
    # Norms outside blocks: our names and theirs.
    norms: Mapping[str, str] = {"embedding_norm": "embeddings.LayerNorm"}
    first_is_normed: bool = False  # the first block's input is normalised already
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
        "attention/query_key_value": tuple(
            f"attention.self.{name}" for name in ("query", "key", "value")
        ),
        "attention/output": ("attention.output.dense",),
        "attention_norm": ("attention.output.LayerNorm",),
        "intermediate": ("intermediate.dense",),
        "output": ("output.dense",),
        "feedforward_norm": ("output.LayerNorm",),
    },
    required={
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
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
    required=_BERT.required,
    tables=(WORDS, POSITIONS),
)
_SAME_NAMES = (
    "global_attn_every_n_layers local_attention global_rope_theta local_rope_theta attention_bias "
    "mlp_bias norm_bias"
).split()
_MODERNBERT = Family(
    sizes={**_BERT.sizes, "activation": "hidden_activation"},
    options={"epsilon": "norm_eps", **{name: name for name in _SAME_NAMES}},
    layer="layers",
    parts={
        "attention_norm": ("attn_norm",),  # not in the first block
        "query_key_value": ("attn.Wqkv",),
        "attention_output": ("attn.Wo",),
        "feedforward_norm": ("mlp_norm",),
        "intermediate": ("mlp.Wi",),
        "output": ("mlp.Wo",),
    },
    kind="modernbert",
    architecture="ModernBertModel",
    required={"rope_scaling": None},
    tables=("embeddings.tok_embeddings.weight",),
    norms={"embedding_norm": "embeddings.norm", "final_norm": "final_norm"},
    first_is_normed=True,
)
# By `model_type`.
FAMILIES = {
    "bert": _BERT,
    "camembert": _ROBERTA,
    "distilbert": _DISTILBERT,
    "modernbert": _MODERNBERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
}
_ACTIVATIONS = {
    **dict.fromkeys(("gelu", "gelu_python"), "gelu"),
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh"), "gelu_tanh"),
    "relu": "relu",
    **dict.fromkeys(("silu", "swish"), "silu"),
}
_LIMITED = {"num_layers": "layers"}  # the limits of sizes that are no dimensions
_PREFIX = re.compile(r"(?:0\.auto_model\.)?(?:bert\.|roberta\.|distilbert\.|model\.)?")
# Not part of the encoder: the layers of pre-training, and constants.
_IGNORED = re.compile(
    r"pooler\.|lm_head\.|cls\.|head\.|decoder\.|vocab_(?:transform|layer_norm|projector)\."
    r"|embeddings\.\w+_ids$"
)
_OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def read_bert(folder: Path) -> tuple[dict[str, Any], Weights]:
    """Reads the settings of an encoder of `FAMILIES`, and its weights by the names of training.

    The folder has `config.json` and `model.safetensors`, or the `modules.json` that says where they
    are.
    """
    transformer, pooling, dense = read_modules(folder)
    path = transformer / "config.json"
    config = read_settings(path)
    if not (family := FAMILIES.get(config.get("model_type"))):
        raise UserError(_unknown(config, path))
    config = _in_older_names(config)
    for name, value in family.required.items():
        if config.get(name, value) != value:
            raise UserError(f"{name} in {path} must be {value}, got {config[name]}")
    settings = {ours: config[theirs] for ours, theirs in family.sizes.items()}
    settings |= {
        ours: config[theirs] for ours, theirs in family.options.items() if theirs in config
    }
    require_known(f"{family.sizes['activation']} in {path}", settings["activation"], _ACTIVATIONS)
    for ours, theirs in family.sizes.items():
        if ours != "activation":
            require_size(
                f"{theirs} in {path}", config[theirs], LIMITS[_LIMITED.get(ours, "dimensions")]
            )
    offset = config.get("pad_token_id", 1) + 1 if family.has_offset else 0
    most = config["max_position_embeddings"]
    require_size(f"max_position_embeddings in {path}", most, LIMITS["ids"])
    num_positions = most - offset
    require_size(f"the number of positions in {path}", num_positions, most)
    encoder = {
        "kind": family.kind,
        "max_tokens": read_max_tokens(transformer, num_positions),
        **settings,
        "max_positions": num_positions,
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
    _require_sizes_of(tensors, family, settings, most, str(transformer))
    return encoder, arranged(tensors, family, settings, offset) | dense


def require_size(name: str, size: Any, most: int) -> None:
    """Raises a `UserError` unless a size is an integer from 1 to `most`."""
    if type(size) is not int or not 1 <= size <= most:
        raise UserError(
            f"{name} must be an integer from 1 to {most}, got {size!r}; use another copy of the "
            "model"
        )


def _require_sizes_of(
    tensors: Weights, family: Family, settings: Mapping[str, Any], num_positions: int, where: str
) -> None:
    """Checks that an encoder's tensors are there, in its sizes, before it takes memory."""
    names = [*family.tables, *chain.from_iterable(tensor_names(family, settings).values())]
    shapes: dict[str, Sequence[int] | None] = dict.fromkeys(names)
    dim = settings["embedding_dim"]
    for name in family.tables:
        rows = num_positions if name == POSITIONS else len(np.atleast_1d(tensors.get(name, ())))
        shapes[name] = (rows, dim)
    (last,) = family.parts["output"]
    for index in range(settings["num_layers"]):
        shapes[f"{family.layer}.{index}.{last}.weight"] = (dim, settings["intermediate_dim"])
    require_shapes(shapes, tensors, where)


def _unknown(config: Mapping[str, Any], path: Path) -> str:
    """Says that an architecture is unknown, and which known one shares most settings' names."""
    names = {
        name: {*family.sizes.values(), *family.options.values()}
        for name, family in FAMILIES.items()
    }
    nearest = max(names, key=lambda name: len(names[name] & config.keys()))
    return (
        f"model_type in {path} must be one of {', '.join(FAMILIES)}, got "
        f"{config.get('model_type')!r}, whose settings are most like those of {nearest}; if it "
        "has the same layers, add a row with the names of its tensors to FAMILIES in "
        "xling_tf/importers/bert.py"
    )


def _in_older_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings as transformers before 5 writes them; only ModernBERT's differ."""
    older = dict(config)
    if types := config.get("layer_types"):
        every = next((i for i, k in enumerate(types) if i and k == "full_attention"), len(types))
        if types != [
            "sliding_attention" if i % every else "full_attention" for i in range(len(types))
        ]:
            raise UserError(
                f"layer_types must have full_attention first, and every n layers, got {types}"
            )
        older["global_attn_every_n_layers"] = every
    for kind, name in {"full_attention": "global", "sliding_attention": "local"}.items():
        if rope := (config.get("rope_parameters") or {}).get(kind):
            if rope.get("rope_type", "default") != "default":
                older["rope_scaling"] = rope["rope_type"]
            older[f"{name}_rope_theta"] = rope["rope_theta"]
    return older


def tensor_names(family: Family, settings: Mapping[str, Any]) -> dict[str, list[str]]:
    """Maps each of our weights, except for tables, to the tensors that it is concatenated from."""
    layers: dict[str, Sequence[str]] = {
        f"encoder/{ours}": [theirs] for ours, theirs in family.norms.items()
    }
    for index in range(settings["num_layers"]):
        for ours, theirs in family.parts.items():
            layers[f"encoder/block_{index}/{ours}"] = [
                f"{family.layer}.{index}.{part}" for part in theirs
            ]
    if family.first_is_normed:
        layers.pop("encoder/block_0/attention_norm", None)
    names = {}
    for ours, parts in layers.items():
        is_norm = ours.endswith("norm")
        is_attention = bool(re.search(r"/query_key_value|/attention", ours))
        weight, bias = ("gamma", "beta") if is_norm else ("kernel", "bias")
        setting = "norm_bias" if is_norm else "attention_bias" if is_attention else "mlp_bias"
        names[f"{ours}/{weight}"] = [f"{part}.weight" for part in parts]
        if settings.get(setting, setting not in family.options):
            names[f"{ours}/{bias}"] = [f"{part}.bias" for part in parts]
    return names


def arranged(
    tensors: Weights, family: Family, settings: Mapping[str, Any], offset: int = 0
) -> Weights:
    """Names and arranges tensors as the encoder does: its matrices multiply from the right."""
    words, *others = (tensors[name] for name in family.tables)
    weights = {"encoder/embedding/words/table": words}
    if others:
        positions, *types = others
        weights["encoder/positions"] = positions[offset:] + (types[0][0] if types else 0)
    for name, parts in tensor_names(family, settings).items():
        weights[name] = np.concatenate([tensors[part].T for part in parts], axis=-1)
    return weights
