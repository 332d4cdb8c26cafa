"""Tiny models of every kind, exported, for tests of trainings that start from them."""

import dataclasses
from pathlib import Path

import keras
import numpy as np
from testing import TINY

from xling_tf.config import ExperimentConfig, apply_overrides, to_json
from xling_tf.hub import module as hub
from xling_tf.model import Model
from xling_tf.text.preprocessor import fit_text

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
        *("text.tokenizer=sentencepiece", "text.sentencepiece_size=60", "text.sentence_marks=true"),
        *("encoder.kind=cnn", "encoder.num_filters=4"),
    ),
}


def tiny_config(kind: str) -> ExperimentConfig:
    """The settings of a kind."""
    return apply_overrides(TINY, KINDS[kind])


def make_model(kind: str, *, seed: int = 1) -> Model:
    """A model in which no weight is 0 or 1."""
    config = tiny_config(kind)
    text, vocabulary = fit_text(config.text, {"en": TEXTS[::2], "es": TEXTS[1::2]})
    keras.utils.set_random_seed(seed)
    model = Model.build(dataclasses.replace(config, text=text), vocabulary)
    random = np.random.default_rng(seed)
    for variable in (*model.encoder.variables, *model.head_variables):
        variable.assign(variable + random.normal(0, 0.1, variable.shape))
    return model


def export_model(model: Model, folder: Path) -> Path:
    """Exports it as a training does."""
    hub.export(model.hub_module(), folder, {"config.json": to_json(model.config)})
    return folder


def encode(model: Model, texts: list[str]) -> np.ndarray:
    """Unit vectors by the model in training."""
    vectors = model.encoder(model.preprocessor(np.array(texts, object))).numpy()
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
