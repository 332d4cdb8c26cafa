"""Two logical CPU devices, no state left between tests, and an exported model."""

import dataclasses
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from testing import CARD_FILES, SENTENCES, TINY, AtOnce, TrainedModel, batches_at_once, make_model
from testing import build_model as build

from xling_tf.evaluators import classification, classifiers
from xling_tf.savedmodel.module import ExportedModule
from xling_tf.tokenizers.treebank import EMPTY_TOKEN
from xling_tf.trainer import input_pipeline, loop, validation

# Devices must be cut up before TensorFlow first uses them.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)


@pytest.fixture(autouse=True)
def _fresh_keras() -> Iterator[None]:
    keras.utils.set_random_seed(1)
    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture
def small_classifiers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the evaluators' classifiers small and their runs few."""
    monkeypatch.setitem(classifiers.TANH, "hidden", (64, 64))
    monkeypatch.setitem(classifiers.NETWORK, "rate", 0.02)
    monkeypatch.setitem(classifiers.NETWORK, "max_epochs", 30)
    monkeypatch.setitem(classifiers.NETWORK, "weight_decay", (1e-5,))
    monkeypatch.setattr(classification, "_PERCENTAGES", (10, 100))


@pytest.fixture
def without_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes trainings compute each batch and step at once: to trace and optimize a graph takes seconds."""
    at_once = SimpleNamespace(**{**vars(tf), "function": AtOnce})
    for module in (loop, validation):
        monkeypatch.setattr(module, "tf", at_once)
    monkeypatch.setattr(input_pipeline, "make_dataset", batches_at_once)
    monkeypatch.setattr(input_pipeline.TrainingInput, "spec", lambda _: None)


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[TrainedModel, Path]]:
    """Maps a kind to a model and the folder that it was exported to, once; no test changes them."""

    @cache
    def export(kind: str) -> tuple[TrainedModel, Path]:
        model, folder = make_model(kind), tmp_path_factory.mktemp("start") / "model"
        model.export(folder, {})
        return model, folder

    return export


@pytest.fixture(scope="session")
def hub_model() -> TrainedModel:
    """A model with a vocabulary for `SENTENCES`."""
    config = dataclasses.replace(TINY, tokenizer=dataclasses.replace(TINY.tokenizer, lowercase=True))
    words = ["the", "cat", "el", "gato", "duerme", "is", "sleeping", ".", "hello", "hola", "¿", "?"]
    keras.utils.set_random_seed(3)
    model = build(config, [EMPTY_TOKEN, *words])
    # Zeros would hide weights that the export forgets.
    random = np.random.default_rng(0)
    for variable in model.encoder.variables:
        variable.assign(variable + random.normal(0, 0.1, variable.shape))
    return model


@pytest.fixture(scope="session")
def hub_module(hub_model: TrainedModel) -> ExportedModule:
    """The root object of the export; exporting it again traces nothing anew."""
    return hub_model.module()


@pytest.fixture(scope="session")
def hub_folder(
    hub_model: TrainedModel, hub_module: ExportedModule, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The exported model; no test changes it."""
    path = tmp_path_factory.mktemp("exported") / "tiny"
    hub_model.export(path, CARD_FILES, hub_module)
    return path


@pytest.fixture(scope="session")
def hub_loaded(hub_folder: Path) -> Any:
    """The exported model, loaded."""
    return tf.saved_model.load(str(hub_folder))


@pytest.fixture(scope="session")
def hub_vectors(hub_loaded: Any) -> np.ndarray:
    """Its vectors of `SENTENCES`."""
    return hub_loaded(SENTENCES).numpy()
