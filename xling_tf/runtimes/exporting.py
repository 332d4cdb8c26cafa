"""Exported models to LiteRT and ONNX."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from xling_tf.errors import UserError
from xling_tf.files import replacing_folder
from xling_tf.runtimes.card import card
from xling_tf.runtimes.encoder import load
from xling_tf.runtimes.format import MODEL_FILES, SETTINGS, library
from xling_tf.runtimes.graph import ExportedModel, Graph
from xling_tf.runtimes.text_files import write_text_files

# What the exporting library has to offer: reductions and layer norms as ONNX Runtime fuses them.
_OPSET = 18
# Texts that the written model must encode as the exported one does: words known and unknown, contractions,
# numbers, scripts without spaces, marks, symbols, a blank one.
_PROBES = (
    "Don't go there, Ana: it's 10:30 already...",
    "¿Dónde está la biblioteca? «Allí», dijo.",
    "Grundstücksverkehrsgenehmigungszuständigkeit 1,234.5 U.S. 'quoted'",
    "我今天去公园散步。東京タワーへ行きました。",
    "สวัสดีครับ שלום مرحبا नमस्ते 😀👍🏽 x²≠½",
    " \t ",
)
_TOLERANCE = 1e-4


def export_litert(model: Path, output: Path) -> None:
    """Writes an exported model for LiteRT (the former TensorFlow Lite), of its built-in operations.

    Args:
        model: Folder of an exported model.
        output: Folder to write, new or of such an export, which it replaces.

    Raises:
        UserError: `model` is no export of xling_tf, `output` is something else, or a package is missing.
    """
    _export(model, output, "litert", _to_litert)


def export_onnx(model: Path, output: Path) -> None:
    """Writes an exported model for ONNX Runtime and whatever else reads ONNX.

    Args:
        model: Folder of an exported model.
        output: Folder to write, new or of such an export, which it replaces.

    Raises:
        UserError: `model` is no export of xling_tf, `output` is something else, or a package is missing.
    """
    _export(model, output, "onnx", _to_onnx)


def _export(model: Path, output: Path, runtime: str, convert: Callable[[Graph], bytes]) -> None:
    _require_replaceable(output)
    exported = ExportedModel.open(model)
    with replacing_folder(output) as temporary:
        (temporary / MODEL_FILES[runtime]).write_bytes(convert(exported.graph))
        settings = write_text_files(exported, runtime, temporary)
        (temporary / "README.md").write_text(card(settings), encoding="utf-8")
        _require_equal(exported, temporary, model)


def _to_litert(graph: Graph) -> bytes:
    function = tf.function(
        lambda *inputs: graph.encode(graph.tables, *inputs), input_signature=graph.signature
    )
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(graph, folder, signatures=function.get_concrete_function())
        return tf.lite.TFLiteConverter.from_saved_model(folder).convert()


def _to_onnx(graph: Graph) -> bytes:
    """Converts with the tables as inputs, which they are no longer then: constants are copied often."""
    tables = {f"table_{index}": table for index, table in enumerate(graph.tables)}
    specs = [tf.TensorSpec(table.shape, name=name) for name, table in tables.items()]
    proto, _ = library("tf2onnx.convert", "tf2onnx").from_function(
        tf.function(lambda *inputs: graph.encode(inputs[: len(specs)], *inputs[len(specs) :])),
        input_signature=(*specs, *graph.signature),
        opset=_OPSET,
    )
    kept = [value for value in proto.graph.input if value.name not in tables]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    from_array = library("onnx.numpy_helper", "onnx").from_array
    proto.graph.initializer.extend(from_array(t.numpy(), name) for name, t in tables.items())
    return proto.SerializeToString()


def _require_equal(exported: ExportedModel, written: Path, model: Path) -> None:
    """Tries what was written, before it takes its place.

    The tokens are those of this version's rules, which an older model may not have.
    """
    expected = exported.encode(tf.constant(_PROBES)).numpy()
    difference = float(np.abs(load(written).encode(_PROBES) - expected).max())
    if not difference <= _TOLERANCE:
        raise UserError(
            f"the vectors of {model} are expected from the converted model, but differ by {difference:.2g}: "
            "it was exported by a version with other rules for tokens; export it anew"
        )


def _require_replaceable(path: Path) -> None:
    is_empty = path.is_dir() and not any(path.iterdir())
    if path.exists() and not is_empty and not (path / SETTINGS).is_file():
        raise UserError(
            f"the output must be a new folder or a model for another runtime, which it replaces, but {path} "
            "is something else; give another"
        )
