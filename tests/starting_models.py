"""Tiny models of every kind, exported, for tests of trainings that start from them."""

from pathlib import Path

import keras
import numpy as np
from testing import TINY, TrainedModel, build_model

from xling_tf.config import ExperimentConfig
from xling_tf.model import Model
from xling_tf.settings import apply_overrides

TEXTS = (
    "the cat sleeps on the mat",
    "el gato duerme en la alfombra",
    "a dog runs through the garden",
    "un perro corre por el jardín",
    "where is the station",
    "dónde está la estación",
)
KINDS = {
    "words and n-grams": (),
    "cnn": (
        *("tokenizer.kind=sentencepiece", "tokenizer.num_pieces=60", "tokenizer.sentence_marks=true"),
        *("tokenizer.max_tokens=12", "encoder.kind=cnn", "encoder.num_filters=4", "encoder.hidden_dim=8"),
        *("encoder.embedding_dim=6", "encoder.intermediate_dim=12", "encoder.num_layers=1"),
    ),
}


def tiny_config(kind: str) -> ExperimentConfig:
    """The settings of a kind."""
    return apply_overrides(TINY, KINDS[kind])


def make_model(kind: str, *, seed: int = 1) -> TrainedModel:
    """A model in which no weight is 0 or 1."""
    keras.utils.set_random_seed(seed)
    model = build_model(tiny_config(kind), {"en": TEXTS[::2], "es": TEXTS[1::2]})
    random = np.random.default_rng(seed)
    for variable in model.weights.values():
        variable.assign(variable + random.normal(0, 0.1, variable.shape))
    return model


def export_model(model: Model, folder: Path) -> Path:
    """Exports a model as a training does."""
    model.export(folder, {})
    return folder


def encode(model: Model, texts: list[str]) -> np.ndarray:
    """Unit vectors by the model in training."""
    return model(texts).numpy()
