"""What sentence-transformers keeps beside a transformer: pooling, dense layers, maximum length, prompts."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xling_tf.errors import UserError, require_known
from xling_tf.files import first_names, read_json
from xling_tf.weights import Weights, read_weights, require_shapes

# Its names of poolings, and ours.
POOLINGS = {
    "mean": "mean",
    "cls": "cls",
    "max": "max",
    "weightedmean": "weighted_mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "lasttoken": "last",
}
# Until its version 5, a pooling was one of several switches.
POOLING_SWITCHES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_lasttoken": "lasttoken",
}
# torch's activation functions, and ours.
ACTIVATIONS = {"Tanh": "tanh", "Identity": "linear", "GELU": "gelu", "ReLU": "relu", "SiLU": "silu"}
_MODULES = ("Transformer", "Pooling", "Dense", "Normalize")


class Modules(NamedTuple):
    """The modules around a transformer.

    Attributes:
        transformer: Folder of the transformer's config, weights and tokenizer.
        settings: `pooling`, `dense_dims` and `dense_activations` of `BertConfig`.
        weights: Weights of the dense layers, by the names of training.
    """

    transformer: Path
    settings: dict[str, Any]
    weights: Weights


def read_modules(folder: Path) -> Modules:
    """Reads `modules.json` and what it names; without the file, tokens are averaged.

    Args:
        folder: Folder of a model of sentence-transformers or transformers.

    Returns:
        The modules. `Normalize` is left out, as exported models return unit vectors anyway.

    Raises:
        UserError: A file is missing or damaged, or describes modules that are not supported.
    """
    path = folder / "modules.json"
    modules = read_settings(path) if path.exists() else []
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    for kind, module in zip(kinds, modules, strict=True):
        if kind not in _MODULES or not module["type"].startswith("sentence_transformers."):
            raise UserError(f"{path} expects modules of {', '.join(_MODULES)}, got {module['type']}")
    order = [_MODULES.index(kind) for kind in kinds]
    if modules and (order != sorted(order) or kinds.count("Transformer") != 1 or kinds.count("Pooling") != 1):
        raise UserError(
            f"{path} expects a Transformer, a Pooling, Dense layers and Normalize, got {', '.join(kinds)}"
        )
    paths: dict[str, list[Path]] = {kind: [] for kind in _MODULES}
    for kind, module in zip(kinds, modules, strict=True):
        paths[kind].append(folder / module["path"])
    settings: dict[str, Any] = {"pooling": "mean", "dense_dims": (), "dense_activations": ()}
    if paths["Pooling"]:
        settings["pooling"] = _pooling(paths["Pooling"][0] / "config.json")
    weights: Weights = {}
    for index, path in enumerate(paths["Dense"]):
        activation, kernel, bias = _dense(path)
        weights |= {f"encoder/dense_{index}/kernel": kernel, f"encoder/dense_{index}/bias": bias}
        settings["dense_dims"] += (len(bias),)
        settings["dense_activations"] += (activation,)
    return Modules(paths["Transformer"][0] if modules else folder, settings, weights)


def read_max_tokens(transformer: Path, num_positions: int) -> int:
    """Returns the maximum number of tokens of a sentence, at most `num_positions`; special tokens count."""
    for name, key in (
        ("sentence_bert_config.json", "max_seq_length"),
        ("tokenizer_config.json", "model_max_length"),
    ):
        path = transformer / name
        if path.exists() and (max_tokens := read_settings(path).get(key)):
            return int(min(max_tokens, num_positions))
    return num_positions


def read_prompts(folder: Path) -> tuple[dict[str, str], str | None]:
    """Returns the prompts by name, without empty ones, and the name of the default prompt."""
    path = folder / "config_sentence_transformers.json"
    settings = read_settings(path) if path.exists() else {}
    prompts = {name: prompt for name, prompt in (settings.get("prompts") or {}).items() if prompt}
    default = settings.get("default_prompt_name")
    return prompts, default if default in prompts else None


def read_settings(path: Path) -> Any:
    """Returns the content of a JSON file that the model needs.

    Raises:
        UserError: The file is missing or damaged.
    """
    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} must be a JSON file, but cannot be read ({error}); download it again"
        ) from error


def read_tensors(folder: Path) -> Weights:
    """Returns the tensors of `model.safetensors`, or of the shards that its index lists, by name.

    Raises:
        UserError: A file is missing or damaged, or there are only weights of another format.
    """
    index = folder / "model.safetensors.index.json"
    files = (
        sorted(set(read_settings(index)["weight_map"].values())) if index.exists() else ["model.safetensors"]
    )
    try:
        return {name: array for file in files for name, array in read_weights(folder / file).items()}
    except FileNotFoundError as error:
        raise UserError(
            f"the weights of {folder} are expected in {', '.join(files)}, but there are only "
            f"{first_names(sorted(path.name for path in folder.iterdir()))}; write a copy of the model in "
            "that format, in Python: from sentence_transformers import SentenceTransformer; "
            "SentenceTransformer(MODEL).save('converted'), where MODEL is its name at Hugging Face, or its "
            "folder with pytorch_model.bin"
        ) from error


def _pooling(path: Path) -> str:
    settings = read_settings(path)
    modes = settings.get("pooling_mode") or [
        mode for key, mode in POOLING_SWITCHES.items() if settings.get(key)
    ]
    modes = [modes] if isinstance(modes, str) else modes
    if len(modes) != 1 or not settings.get("include_prompt", True):
        described = ", ".join(modes) + ("" if settings.get("include_prompt", True) else " without the prompt")
        raise UserError(f"{path} expects one pooling of all tokens, got {described or 'none'}")
    require_known(f"pooling_mode in {path}", modes[0], POOLINGS)
    return POOLINGS[modes[0]]


def _dense(folder: Path) -> tuple[str, Any, Any]:
    """Returns the activation, the kernel and the bias of a dense layer."""
    path = folder / "config.json"
    settings = read_settings(path)
    name = settings.get("activation_function", "Tanh").rpartition(".")[2]
    require_known(f"activation_function in {path}", name, ACTIVATIONS)
    inputs, outputs = settings["in_features"], settings["out_features"]
    keys = ("module_input_name", "module_output_name")
    if settings.get("use_residual") or any(
        settings.get(key) not in (None, "sentence_embedding") for key in keys
    ):
        raise UserError(f"{path} expects a plain layer on sentence vectors, without a residual connection")
    tensors = read_tensors(folder)
    shapes = {"linear.weight": (outputs, inputs), "linear.bias": (outputs,)}
    if not settings.get("bias", True):
        del shapes["linear.bias"]
    require_shapes(shapes, tensors, str(folder))
    bias = tensors.get("linear.bias", np.zeros(outputs))
    return ACTIVATIONS[name], tensors["linear.weight"].astype(np.float32).T, bias.astype(np.float32)
