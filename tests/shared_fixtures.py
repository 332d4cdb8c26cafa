"""Two logical CPU devices, no state left between tests, and an exported model."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from testing import CARD_FILES, SENTENCES, AtOnce, TrainedModel, batches_at_once, make_model

from xling_tf.evaluators import classification, classifiers
from xling_tf.trainer import input_pipeline, loop, validation

# Devices must be cut up before TensorFlow first uses them.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
# To optimize a graph takes longer than the few steps of a test. Programs that tests start do
# optimize theirs.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


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
    """Makes training compute batches and steps eagerly: tracing a graph takes seconds."""
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
        model, folder = make_model(kind), tmp_path_factory.mktemp("exported") / "tiny"
        model.export(folder, CARD_FILES)
        return model, folder

    return export


@pytest.fixture(scope="session")
def headless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported CNN without heads, exported in half the time; no test changes the folder."""
    model, folder = make_model("cnn"), tmp_path_factory.mktemp("headless") / "model"
    model.heads.clear()
    model.export(folder, {})
    return folder


@pytest.fixture(scope="session")
def hub_model(exports: Callable[[str], tuple[TrainedModel, Path]]) -> TrainedModel:
    """A model of words and n-grams."""
    return exports("words and n-grams")[0]


@pytest.fixture(scope="session")
def hub_folder(exports: Callable[[str], tuple[TrainedModel, Path]]) -> Path:
    """The exported model; no test changes it."""
    return exports("words and n-grams")[1]


@pytest.fixture(scope="session")
def hub_loaded(hub_folder: Path) -> Any:
    """The exported model, loaded."""
    return tf.saved_model.load(str(hub_folder))


@pytest.fixture(scope="session")
def hub_vectors(hub_loaded: Any) -> np.ndarray:
    """Its vectors of `SENTENCES`."""
    return hub_loaded(SENTENCES).numpy()
