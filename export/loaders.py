"""Compares exports with their model, each loaded by the library that it is for."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from xling_tf.config import ModelInfo
from xling_tf.errors import UserError
from xling_tf.exporters.base import format_of, sample_texts
from xling_tf.model import read_config
from xling_tf.savedmodel.saved_models import load_saved_model
from xling_tf.settings import from_mapping

# A vector is equal if its cosine to the model's is above this.
_EQUAL = 0.9999
_ROOT = Path(__file__).resolve().parents[1]
_PROGRAM = """
import json, pathlib, sys
import numpy as np
folder, texts, output = sys.argv[1:]
texts = json.loads(pathlib.Path(texts).read_text("utf-8"))
{code}
np.save(output, np.asarray(vectors, np.float32))
"""
# The package of each format, and lines of Python that encode `texts` with the model in `folder`.
_LOADERS: Mapping[str, tuple[str, str]] = {
    "savedmodel": (
        "tensorflow-text",
        "import tensorflow as tf, tensorflow_text\nvectors = tf.saved_model.load(folder)(texts)",
    ),
    "keras": (
        "xling_tf[tensorflow]",
        "import xling_tf\nvectors = xling_tf.Model.from_pretrained(folder)(texts)",
    ),
    "runtimes": (
        "xling_tf[runtime,litert]",
        "from xling_tf.savedmodel.runtimes import load\nvectors = load(folder).encode(texts)",
    ),
    # Only a BERT has weights for torch.
    "sentence-transformers": (
        "sentence-transformers[onnx]",
        """from sentence_transformers import SentenceTransformer
backend = "torch" if pathlib.Path(folder, "model.safetensors").exists() else "onnx"
vectors = SentenceTransformer(folder, backend=backend, device="cpu").encode(texts)""",
    ),
    "model2vec": (
        "model2vec",
        "from model2vec import StaticModel\nvectors = StaticModel.from_pretrained(folder).encode(texts)",
    ),
}


def compare(folder: Path, model: Path, python: str, data: Path | None) -> dict[str, float | int | str]:
    """Compares the vectors of an export with those of the exported model that it was made from.

    The export is loaded in a process of `python`, an interpreter with the library that it is for. Texts are
    those of a folder of corpora, or None for the built-in sample. Raises an `AssertionError` if the vectors
    of more than half of them differ.
    """
    form = format_of(folder)
    package, code = _LOADERS["runtimes" if form in ("litert", "onnx") else form]
    info = from_mapping(ModelInfo, read_config(model)["info"])
    texts = sample_texts(data, info.languages)
    # model2vec does not apply prompts.
    prompt = info.role_prompts["default"] if form == "model2vec" else ""
    with tempfile.TemporaryDirectory() as temporary:
        listed, output = Path(temporary, "texts.json"), Path(temporary, "vectors.npy")
        listed.write_text(json.dumps([prompt + text for text in texts]), encoding="utf-8")
        command = [python, "-c", _PROGRAM.format(code=code), folder, listed, output]
        environment = {**os.environ, "PYTHONPATH": str(_ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
        process = subprocess.run(command, env=environment, capture_output=True, text=True)
        if process.returncode:
            last = (process.stderr.strip().splitlines() or ["no message"])[-1][:300]
            raise UserError(
                f"{folder} cannot be loaded by {python}: {last}; it needs pip install '{package}', or name "
                "another interpreter with --python"
            )
        vectors = np.load(output)
    saved = load_saved_model(model)
    expected = saved(tf.constant(texts)).numpy()
    cosines = np.sum(vectors * expected, axis=1)
    equal = float(np.mean(cosines > _EQUAL))
    # Words outside the vocabulary are lost in some formats, as their cards say.
    if equal < 0.5:
        raise AssertionError(
            f"expected the vectors of {model}, got those of only {equal:.0%} of the texts (a copy with "
            "smaller tables or fewer languages differs by design)"
        )
    return {
        "format": form,
        "texts": len(texts),
        "largest_difference": float(np.abs(vectors - expected).max()),
        "least_cosine": float(cosines.min()),
        "equal": equal,
    }
