"""sentence-transformers' additions to a transformer: pooling, dense layers, length, prompts."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.client.texts import require_prompt
from xling_tf.errors import UserError, require_known
from xling_tf.importers.saved_files import (
    MODULES,
    read_saved_modules,
    read_settings,
    read_tensors,
)
from xling_tf.weights import Weights, require_shapes

# Poolings by their names, with sentence-transformers' boolean settings before version 5.
POOLINGS = {
    "mean": "pooling_mode_mean_tokens",
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
}
# torch's activation functions, and ours.
ACTIVATIONS = {"Tanh": "tanh", "Identity": "linear", "GELU": "gelu", "ReLU": "relu", "SiLU": "silu"}
_MODULES = re.compile("(?:Transformer Pooling(?: Dense)*(?: Normalize)*)?")
# The settings of a transformer that are supported; None: any value.
_SETTINGS = dict.fromkeys(("max_seq_length", "do_lower_case", "unpad_inputs", "modality_config"))
_SETTINGS |= {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings"}


def read_modules(folder: Path) -> tuple[Path, dict[str, Any], Weights]:
    """Reads `modules.json` and what it names; without the file, tokens are averaged.

    Returns the folder of the transformer, settings of `BertConfig` for the pooling and the dense
    layers after it, and their weights by the names of training. `Normalize` is left out, as exports
    return unit vectors.
    """
    modules = [module for module in read_saved_modules(folder) if module.kind != "Dropout"]
    kinds = [re.sub(r"^sentence_transformers\.(.*\.)?", "", module.type) for module in modules]
    if not _MODULES.fullmatch(" ".join(kinds)):
        raise UserError(
            f"{folder / MODULES} expects a Transformer, a Pooling, Dense layers and Normalize, got "
            f"{', '.join(kinds)}"
        )
    settings: dict[str, Any] = {"pooling": "mean", "dense_dims": (), "dense_activations": ()}
    transformer, weights = folder, Weights()
    for kind, (_, part) in zip(kinds, modules, strict=True):
        if kind == "Transformer":
            transformer = part
        elif kind == "Pooling":
            settings["pooling"] = _pooling(part / "config.json")
        elif kind == "Dense":
            activation, kernel, bias = _dense(part)
            name = f"encoder/dense_{len(settings['dense_dims'])}"
            weights |= {f"{name}/kernel": kernel, f"{name}/bias": bias}
            settings["dense_dims"] += (len(bias),)
            settings["dense_activations"] += (activation,)
    return transformer, settings, weights


def read_max_tokens(transformer: Path, num_positions: int) -> int:
    """A sentence's maximum number of tokens, at most `num_positions`; special tokens count."""
    settings = read_transformer_settings(transformer)
    config = read_settings(transformer / "tokenizer_config.json", {})
    max_tokens = settings.get("max_seq_length") or config.get("model_max_length") or num_positions
    return int(min(max_tokens, num_positions))


def read_transformer_settings(transformer: Path) -> dict[str, Any]:
    """Returns sentence-transformers' own settings of a transformer; refuses unsupported ones."""
    # Old models have names such as sentence_roberta_config.json.
    path = min(
        transformer.glob("sentence_*_config.json"),
        default=transformer / "sentence_bert_config.json",
    )
    settings: dict[str, Any] = read_settings(path, {})
    for name, value in settings.items():
        if value and _SETTINGS.get(name, None if name in _SETTINGS else "no value") not in (
            None,
            value,
        ):
            raise UserError(
                f"{name} in {path} must be {_SETTINGS.get(name, 'left out')}, got {value!r}"
            )
    return settings


def read_prompts(folder: Path) -> tuple[dict[str, str], str | None]:
    """Returns the prompts by name, without empty ones, and the name of the default prompt."""
    path = folder / "config_sentence_transformers.json"
    settings = read_settings(path, {})
    prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if default is not None:
        require_known(f"default_prompt_name in {path}", default, prompts)
    kept = {name: prompt for name, prompt in prompts.items() if prompt}
    for prompt in kept.values():
        require_prompt(prompt)
    return kept, default if default in kept else None


def _pooling(path: Path) -> str:
    settings = read_settings(path)
    names = {switch: name for name, switch in POOLINGS.items()}
    switches = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value]
    modes = (
        settings.get("pooling_mode")
        or [names.get(switch, switch) for switch in switches]
        or ["mean"]
    )
    modes = [modes] if isinstance(modes, str) else modes
    missing = "" if settings.get("include_prompt", True) else " without the prompt"
    if len(modes) != 1 or modes[0] not in POOLINGS or missing:
        expected = f"one pooling of all tokens, {', '.join(POOLINGS)}"
        raise UserError(f"{path} expects {expected}, got {', '.join(modes)}{missing}")
    return str(modes[0])


def _dense(folder: Path) -> tuple[str, Any, Any]:
    """Returns the activation, the kernel and the bias of a dense layer."""
    path = folder / "config.json"
    settings = read_settings(path)
    package, _, name = settings.get("activation_function", "torch.nn.Tanh").rpartition(".")
    name = name if package.startswith("torch.") else f"{package}.{name}"
    require_known(f"activation_function in {path}", name, ACTIVATIONS)
    inputs, outputs = settings["in_features"], settings["out_features"]
    names = {settings.get(key) for key in ("module_input_name", "module_output_name")}
    if settings.get("use_residual") or names - {None, "sentence_embedding"}:
        raise UserError(
            f"{path} expects a plain layer on sentence vectors, without a residual connection"
        )
    tensors = read_tensors(folder)
    shapes = {"linear.weight": (outputs, inputs), "linear.bias": (outputs,)}
    if not settings.get("bias", True):
        del shapes["linear.bias"]
    require_shapes(shapes, tensors, str(folder))
    bias = tensors.get("linear.bias", np.zeros(outputs))
    return ACTIVATIONS[name], tensors["linear.weight"].astype(np.float32).T, bias.astype(np.float32)
