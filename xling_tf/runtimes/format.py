"""What a folder for another runtime consists of, and how its settings are read."""

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from xling_tf.errors import UserError

SETTINGS = "runtime.json"
FORMAT = 1  # raised when older programs would read a folder wrongly
WORDS = "vocabulary.txt"
PIECES = "sentencepiece.model"
# The model's file, by runtime.
MODEL_FILES = {"litert": "model.tflite", "onnx": "model.onnx"}


def read_settings(folder: Path) -> Mapping[str, Any]:
    """Reads the settings of a folder that `export_litert` or `export_onnx` has written.

    Raises:
        UserError: It is none, or of a newer version.
    """
    try:
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"a model for another runtime is expected, with {SETTINGS}, but {folder} has none that can be "
            "read; make one with export/main.py --litert or --onnx"
        ) from error
    if settings.get("format") != FORMAT:
        raise UserError(
            f"{folder / SETTINGS} is expected in format {FORMAT}, but is in {settings.get('format')}; "
            "export the model anew, or use the version of xling_tf that has made it"
        )
    return settings


def library(module: str, package: str) -> Any:
    """Imports a module of a package that only other runtimes need.

    Raises:
        UserError: The package is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UserError(
            f"other runtimes need {package}, which is not installed; install the extra with: "
            "pip install 'xling_tf[runtimes]' (in a checkout: pip install -e '.[runtimes]')"
        ) from error
