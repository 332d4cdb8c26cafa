"""SavedModels whose answers can be worked out by hand, for our server and for the real one.

`python tests/serving_models.py DIR` lays out DIR/<model>/<version>/ and DIR/models.config, for

    docker run --rm -p 8501:8501 -v "$PWD/DIR:/models" tensorflow/serving \
        --model_config_file=/models/models.config --allow_version_labels_for_unavailable_models
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf

LABELS = {"half_plus": {"stable": 1, "canary 2/3": 2}}
_FLOATS = tf.TensorSpec([None], tf.float32)
_TEXTS = tf.TensorSpec([None], tf.string)


class HalfPlus(tf.Module):
    """x / 2 + 1 + the number of the version, so that an answer tells which version gave it."""

    def __init__(self, version: int) -> None:
        super().__init__()
        self.added = tf.Variable(1.0 + version)

    @tf.function
    def serving_default(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x / 2 + self.added}

    @tf.function
    def double(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x / 2 + tf.cast(self.added, tf.float64)}

    @tf.function
    def matrix(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x / 2 + self.added}

    @tf.function
    def divided(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x / (self.added * 0)}


class Several(tf.Module):
    """Several inputs and outputs, and all the types."""

    @tf.function
    def serving_default(self, factor: tf.Tensor, pair: tf.Tensor) -> dict[str, tf.Tensor]:
        scaled = tf.cast(factor, tf.float32)[:, None] * pair
        return {"scaled": scaled, "total": tf.reduce_sum(scaled, 1)}

    @tf.function
    def plus_one(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x + 1}

    @tf.function
    def negated(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.logical_not(x)}

    @tf.function
    def total(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.reduce_sum(x, 1)}

    @tf.function
    def scalar(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x * 2}

    @tf.function
    def batch_sizes(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"all": x, "first": x[:1]}

    @tf.function
    def complex(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.complex(x, x)}


class Texts(tf.Module):
    """Strings to strings."""

    @tf.function
    def serving_default(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"quoted": tf.strings.join(["<", text, ">"])}

    @tf.function
    def binary(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"text_bytes": text}

    @tf.function
    def both(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"length": tf.strings.length(text), "text_bytes": text}

    @tf.function
    def joined(self, left: tf.Tensor, right: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"joined": tf.strings.join([left, right], "+")}


def _half_plus(version: int) -> tuple[tf.Module, Mapping[str, object]]:
    model = HalfPlus(version)
    signatures = {
        "serving_default": model.serving_default.get_concrete_function(x=_FLOATS),
        "double": model.double.get_concrete_function(x=tf.TensorSpec([None], tf.float64)),
        "matrix": model.matrix.get_concrete_function(x=tf.TensorSpec([None, None], tf.float32)),
        "divided": model.divided.get_concrete_function(x=_FLOATS),
    }
    return model, signatures


def _several() -> tuple[tf.Module, Mapping[str, object]]:
    model = Several()
    pairs = tf.TensorSpec([None, 2], tf.float32)
    signatures = {
        "serving_default": model.serving_default.get_concrete_function(
            factor=tf.TensorSpec([None], tf.int32), pair=pairs
        ),
        "negated": model.negated.get_concrete_function(x=tf.TensorSpec([None], tf.bool)),
        "total": model.total.get_concrete_function(x=pairs),
        "scalar": model.scalar.get_concrete_function(x=tf.TensorSpec([], tf.float32)),
        "batch_sizes": model.batch_sizes.get_concrete_function(x=_FLOATS),
        "complex": model.complex.get_concrete_function(x=_FLOATS),
    }
    for dtype in (tf.int64, tf.uint8, tf.uint32, tf.uint16):
        spec = tf.TensorSpec([None], dtype)
        signatures[dtype.name] = model.plus_one.get_concrete_function(x=spec)
    return model, signatures


def _texts() -> tuple[tf.Module, Mapping[str, object]]:
    model = Texts()
    signatures = {
        name: getattr(model, name).get_concrete_function(text=_TEXTS)
        for name in ("serving_default", "binary", "both")
    }
    signatures["joined"] = model.joined.get_concrete_function(left=_TEXTS, right=_TEXTS)
    return model, signatures


def lay_out(folder: Path) -> None:
    """Writes the models' versions and the real server's configuration."""
    models = {
        "half_plus/1": _half_plus(1),
        "half_plus/2": _half_plus(2),
        "several/1": _several(),
        "texts/1": _texts(),
    }
    for place, (model, signatures) in models.items():
        tf.saved_model.save(model, str(folder / place), signatures=signatures)
    (folder / "models.config").write_text(_config(sorted({name.split("/")[0] for name in models})))


def _config(names: list[str]) -> str:
    entries = []
    for name in names:
        labels = LABELS.get(name, {})
        versions = " ".join(f"versions: {version}" for version in labels.values())
        policy = f"model_version_policy {{ specific {{ {versions} }} }}" if labels else ""
        named = " ".join(
            f'version_labels {{ key: "{label}" value: {version} }}'
            for label, version in labels.items()
        )
        entries.append(
            f'  config {{ name: "{name}" base_path: "/models/{name}" '
            f'model_platform: "tensorflow" {policy} {named} }}\n'
        )
    return "model_config_list {\n" + "".join(entries) + "}\n"


if __name__ == "__main__":
    lay_out(Path(sys.argv[1]))
