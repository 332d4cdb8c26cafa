"""Exporters of a model to the formats that other programs load: a file for each format."""

from collections.abc import Collection, Mapping

from xling_tf.client.runtimes import MODEL_FILES
from xling_tf.client.settings import RUNTIME_SETTINGS
from xling_tf.client.word_averages import WEIGHTS
from xling_tf.errors import UserError, require_known
from xling_tf.files import SAVED_MODEL

# For each format, "module:function" of its exporter, and a file that its folders have; a folder's
# format is the first whose file it has. Exporters take an `OriginalModel`, a folder and options,
# write the folder, and return texts and a function that encodes them with what was written; None
# if vectors are meant to differ. Packages have no such file: the function `pack` of the module with
# the format's name packs what the exporter wrote, and other files in the output stay.
FORMATS: Mapping[str, tuple[str, str]] = {
    "savedmodel": ("savedmodel:export", SAVED_MODEL),
    "litert": ("litert_onnx:export_litert", MODEL_FILES["litert"]),
    "onnx": ("litert_onnx:export_onnx", MODEL_FILES["onnx"]),
    "sentence-transformers": ("sentence_transformers:export", "onnx/model.onnx"),
    "model2vec": ("model2vec:export", "modules.json"),
    "numpy": ("wheel:export_numpy", RUNTIME_SETTINGS),
    "keras": ("base:export_keras", WEIGHTS),
    "wheel": ("wheel:export_runtime", ""),
    "npm": ("wheel:export_numpy", ""),
}
# For each option of an export, its formats; other options are for all formats.
_FORMATS_OF = {
    "tables": ("savedmodel",),
    "match": ("savedmodel",),
    **dict.fromkeys(("name", "version"), ("wheel", "npm")),
    **dict.fromkeys(("dim", "bits", "megabytes"), ("numpy", "wheel", "npm")),
}


def require_format(to: str, options: Collection[str]) -> None:
    """Raises a `UserError` unless there is a format, and it has these options."""
    require_known("`to`", to, FORMATS)
    for option in options:
        if to not in (expected := _FORMATS_OF.get(option, (to,))):
            raise UserError(f"`{option}` needs `to` {' or '.join(expected)}, got {to}")
