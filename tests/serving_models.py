"""Tiny SavedModels: their answers can be derived by hand, or differ between texts."""

import atexit
import shutil
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import tensorflow as tf

_FLOATS, _MATRIX = tf.TensorSpec([None], tf.float32), tf.TensorSpec([None, None], tf.float32)
_TEXTS, _PAIRS = tf.TensorSpec([None], tf.string), tf.TensorSpec([None, 2], tf.float32)
Signature = tuple[Callable[..., Mapping[str, tf.Tensor]], dict[str, tf.TensorSpec]]


class Versioned(tf.Module):
    """Adds the number of the model's version to the answers."""

    def __init__(self, version: int) -> None:
        super().__init__()
        self.version = tf.Variable(float(version))


def _half_plus(model: Versioned) -> dict[str, Signature]:
    def half(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x / 2 + 1 + tf.cast(model.version, x.dtype)}

    return {
        "serving_default": (half, {"x": _FLOATS}),
        "double": (half, {"x": tf.TensorSpec([None], tf.float64)}),
        "matrix": (half, {"x": _MATRIX}),
        "divided": (lambda x: {"y": x / (model.version * 0)}, {"x": _FLOATS}),
    }


def _lengths(model: Versioned) -> dict[str, Signature]:
    def lengths(inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        good = tf.debugging.assert_none_equal(inputs, "bad", message="the text is bad")
        with tf.control_dependencies([good]):
            return {"outputs": tf.cast(tf.strings.length(inputs), tf.float32) + model.version}

    def count(steps: tf.Tensor) -> dict[str, tf.Tensor]:
        """Counts to a number, which takes time."""
        counted = tf.while_loop(lambda i: i < steps, lambda i: [i + 1], [tf.constant(0, tf.int64)])
        return {"counted": counted[0]}

    steps = tf.TensorSpec([], tf.int64)
    return {"serving_default": (lengths, {"inputs": _TEXTS}), "count": (count, {"steps": steps})}


def _scaled(factor: tf.Tensor, pair: tf.Tensor) -> dict[str, tf.Tensor]:
    scaled = tf.cast(factor, tf.float32)[:, None] * pair
    return {"scaled": scaled, "total": tf.reduce_sum(scaled, 1)}


_SEVERAL: dict[str, Signature] = {
    "serving_default": (_scaled, {"factor": tf.TensorSpec([None], tf.int32), "pair": _PAIRS}),
    "negated": (lambda x: {"y": tf.logical_not(x)}, {"x": tf.TensorSpec([None], tf.bool)}),
    "total": (lambda x: {"y": tf.reduce_sum(x, 1)}, {"x": _PAIRS}),
    "scalar": (lambda x: {"y": x * 2}, {"x": tf.TensorSpec([], tf.float32)}),
    "batch_sizes": (lambda x: {"all": x, "first": x[:1]}, {"x": _FLOATS}),
    "complex": (lambda x: {"y": tf.complex(x, x)}, {"x": _FLOATS}),
} | {
    dtype.name: (lambda x: {"y": x + 1}, {"x": tf.TensorSpec([None], dtype)})
    for dtype in (tf.int64, tf.uint8, tf.uint32)
}
_STRINGS: dict[str, Signature] = {
    "serving_default": (lambda text: {"quoted": "<" + text + ">"}, {"text": _TEXTS}),
    "binary": (lambda text: {"text_bytes": text}, {"text": _TEXTS}),
    "both": (
        lambda text: {"length": tf.strings.length(text), "text_bytes": text},
        {"text": _TEXTS},
    ),
    "joined": (
        lambda left, right: {"joined": left + "+" + right},
        {"left": _TEXTS, "right": _TEXTS},
    ),
}


def save(model: tf.Module, signatures: Mapping[str, Signature], folder: Path) -> None:
    """Exports a model with signatures."""
    concrete: dict[str, Any] = {
        name: tf.function(function).get_concrete_function(**specs)
        for name, (function, specs) in signatures.items()
    }
    tf.saved_model.save(model, str(folder), signatures=concrete)


def lay_out(folder: Path) -> None:
    """Writes the models' versions."""
    for version in (1, 2):
        model = Versioned(version)
        save(model, _half_plus(model), folder / "half_plus" / str(version))
    save(tf.Module(), _SEVERAL, folder / "several" / "1")
    save(tf.Module(), _STRINGS, folder / "texts" / "1")


@cache
def _exported(version: int) -> Path:
    folder = Path(mkdtemp()) / str(version)
    atexit.register(shutil.rmtree, folder.parent)
    model = Versioned(version)
    save(model, _lengths(model), folder)
    return folder


def put_export(folder: Path, version: int, *, wrecked: bool = False) -> Path:
    """Puts an export, perhaps a damaged one, in the place of a folder, in one step."""
    arriving = folder.with_name(f".{folder.name}.arriving")
    shutil.copytree(_exported(version), arriving)
    if wrecked:
        next(arriving.glob("variables/*.data*")).write_bytes(b"")
    if folder.exists():
        folder.rename(folder.with_name(f".{folder.name}.leaving"))
    arriving.rename(folder)
    shutil.rmtree(folder.with_name(f".{folder.name}.leaving"), ignore_errors=True)
    return folder


DIM = 8


def hashed(texts: tf.Tensor) -> tf.Tensor:
    """Returns a unit vector `[texts, DIM]` of each text's hashes."""
    keys = [tf.strings.to_hash_bucket_strong(texts, 1 << 20, [seed, 1]) for seed in range(DIM)]
    vectors = tf.cast(tf.stack(keys, axis=1), tf.float32) / (1 << 20) - 0.5
    return tf.math.l2_normalize(vectors, axis=1)


def save_hashed(folder: Path) -> Path:
    """Saves a model of `hashed`; returns its folder."""
    module, spec = tf.Module(), tf.TensorSpec([None], tf.string)
    module.__call__ = tf.function(hashed, input_signature=[spec], autograph=False)
    tf.saved_model.save(module, str(folder))
    return folder
