"""SavedModels as systems: ours, and published modules that map strings to vectors.

TensorFlow is imported when one is opened, so that other systems do without it.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.errors import UserError
from xling_tf.evaluators.batching import in_batches
from xling_tf.evaluators.encoding import Encode
from xling_tf.evaluators.system import System
from xling_tf.files import SAVED_MODEL
from xling_tf.hub.saved_models import load_saved_model, one_line
from xling_tf.systems.signatures import Signatures

# Per call; published modules pad a batch to its longest text, and do not divide it.
_MAX_ROWS = 1024
_MAX_CHARACTERS = 2**17
# The model and objects within it take these where it was saved without signatures.
_PARTS = {
    "serving_default": ("inputs",),
    "question_encoder": ("input",),
    "response_encoder": ("input",),
    "inference": ("premise", "hypothesis"),
}


def open_saved_model(folder: Path) -> System:
    """Opens an exported model, or a published TF2 module for TensorFlow Hub.

    Sentences are encoded by the signature `serving_default` or the model as it is called, else by
    `default` or `question_encoder`; questions, responses and inference by the signatures
    `question_encoder` (input), `response_encoder` (input and, where it was trained with one, context)
    and `inference` (premise, hypothesis), or the objects of these names within the model.

    Args:
        folder: With `saved_model.pb`.

    Raises:
        UserError: The folder holds no model, or none that maps strings to vectors.
    """
    model = _LoadedModel(load_saved_model(folder))
    signatures = Signatures(inputs=model.inputs, call=model.call)
    sentences = signatures.sentences()
    if sentences is None:
        raise _no_encoder(folder, "has none that is called or 'serving_default'")
    _require_vectors(folder, sentences)
    return System(
        name=folder.resolve().name,
        sentences=sentences,
        questions=signatures.questions(),
        responses=signatures.responses(),
        inference=signatures.inference(),
        checksum=_checksum(folder),
        description=_description(folder),
    )


class _LoadedModel:
    """A model by its signatures, which work only as long as the model itself is held."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._functions: dict[str, Callable[..., Any]] = dict(model.signatures)
        self.inputs = {
            name: tuple(signature.structured_input_signature[1])
            for name, signature in model.signatures.items()
        }
        for name, inputs in _PARTS.items():
            part = model if name == "serving_default" else getattr(model, name, None)
            if name not in self.inputs and callable(part):
                self._functions[name] = _by_name(part, inputs)
                self.inputs[name] = inputs

    def call(self, name: str, columns: Mapping[str, list[str]]) -> np.ndarray:
        """Calls a signature with any number of rows: `[rows, outputs]`."""
        import tensorflow as tf

        def encode(*batch: list[str]) -> np.ndarray:
            tensors = (tf.constant(texts, tf.string) for texts in batch)
            outputs = self._functions[name](**dict(zip(columns, tensors, strict=True)))
            if isinstance(outputs, Mapping):
                (outputs,) = [outputs["outputs"]] if "outputs" in outputs else outputs.values()
            return np.asarray(outputs)

        return in_batches(encode, *columns.values(), max_rows=_MAX_ROWS, max_length=_MAX_CHARACTERS)


def _by_name(part: Callable[..., Any], inputs: tuple[str, ...]) -> Callable[..., Any]:
    return lambda **texts: part(*(texts[name] for name in inputs))


def _require_vectors(folder: Path, sentences: Encode) -> None:
    """Tries a model on two texts."""
    import tensorflow as tf

    try:
        shape = np.shape(sentences(["one", "two"]))
    except (TypeError, ValueError, tf.errors.OpError) as error:
        raise _no_encoder(folder, f"fails given two: {one_line(error)}") from error
    if len(shape) != 2 or shape[0] != 2:
        raise _no_encoder(folder, f"gave, given two, an array of shape {list(shape)}")


def _no_encoder(folder: Path, came: str) -> UserError:
    return UserError(
        f"{folder} must hold a model that maps strings to vectors, but {came}; give the folder of an "
        "exported sentence encoder (models with SentencePiece need tensorflow-text)"
    )


def _checksum(folder: Path) -> str:
    """Digests what a model's vectors depend on: its graph, variables and assets."""
    digest = hashlib.blake2b(digest_size=16)
    parts = [path for name in ("variables", "assets") for path in (folder / name).rglob("*")]
    for path in sorted([folder / SAVED_MODEL, *filter(Path.is_file, parts)]):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "blake2b").hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return digest.hexdigest()


def _description(folder: Path) -> dict[str, Any]:
    import tensorflow as tf

    description: dict[str, Any] = {
        "kind": "SavedModel",
        "folder": folder.resolve().name,
        "device": "GPU" if tf.config.list_physical_devices("GPU") else "CPU",
    }
    config = folder / "config.json"
    if config.is_file():
        try:
            description["config"] = json.loads(config.read_text(encoding="utf-8"))
        except ValueError as error:
            raise UserError(
                f"{config} must be JSON, but is not ({error}); correct or remove it"
            ) from error
    return description
