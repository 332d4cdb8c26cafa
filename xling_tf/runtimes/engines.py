"""What computes a model's numbers: LiteRT's interpreter or ONNX Runtime."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.errors import UserError
from xling_tf.runtimes.format import MODEL_FILES, library

Run = Callable[[dict[str, np.ndarray]], np.ndarray]


def open_engine(runtime: str, folder: Path) -> Run:
    """Opens the model of a folder in its runtime: inputs by name to `[batch, dim]` float32.

    Raises:
        UserError: The runtime is not installed, or cannot read the model.
    """
    path = folder / MODEL_FILES[runtime]
    module, package, open_model = _ENGINES[runtime]
    engine = library(module, package)
    try:
        return open_model(engine, str(path))
    except Exception as error:  # each runtime has its own kinds, some of them bare
        raise UserError(
            f"{path} is expected to be a model that {package} reads, but: "
            f"{' '.join(str(error).split())[:200]}; export it anew"
        ) from error


def _open_litert(engine: Any, path: str) -> Run:
    interpreter = engine.Interpreter(model_path=path, num_threads=os.cpu_count())
    runner = interpreter.get_signature_runner()

    def run(inputs: dict[str, np.ndarray]) -> np.ndarray:
        return runner(**inputs)["outputs"]

    return run


def _open_onnx(engine: Any, path: str) -> Run:
    session = engine.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(inputs: dict[str, np.ndarray]) -> np.ndarray:
        return session.run(["outputs"], inputs)[0]

    return run


_ENGINES: Mapping[str, tuple[str, str, Callable[[Any, str], Run]]] = {
    "litert": ("ai_edge_litert.interpreter", "ai-edge-litert", _open_litert),
    "onnx": ("onnxruntime", "onnxruntime", _open_onnx),
}
