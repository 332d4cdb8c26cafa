"""Two logical CPU devices for every test, no state left to the next one, and an exported model."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from testing import CARD_FILES, SENTENCES, TINY

from xling_tf.hub import module as hub
from xling_tf.model import Model
from xling_tf.text.tokenization import EMPTY_TOKEN

# Devices must be cut up before TensorFlow first uses them.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `pytest -m tf_serving` needs to be told."""
    parser.addoption("--server", help="http://host:port of a TensorFlow Serving to test")


@pytest.fixture(autouse=True)
def _fresh_keras() -> Iterator[None]:
    keras.utils.set_random_seed(1)
    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture(scope="session")
def hub_model() -> Model:
    """A model with a vocabulary for `SENTENCES`."""
    config = dataclasses.replace(TINY, text=dataclasses.replace(TINY.text, lowercase=True))
    words = ["the", "cat", "el", "gato", "duerme", "is", "sleeping", ".", "hello", "hola", "¿", "?"]
    keras.utils.set_random_seed(3)
    model = Model.build(config, [EMPTY_TOKEN, *words])
    # Zeros where training would have left something else hide what is forgotten.
    random = np.random.default_rng(0)
    for variable in model.encoder.variables:
        variable.assign(variable + random.normal(0, 0.1, variable.shape))
    return model


@pytest.fixture(scope="session")
def hub_module(hub_model: Model) -> hub.HubModule:
    """What is exported; exporting it again traces nothing anew."""
    return hub_model.hub_module()


@pytest.fixture(scope="session")
def hub_folder(hub_module: hub.HubModule, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported model; no test changes it."""
    path = tmp_path_factory.mktemp("exported") / "tiny"
    hub.export(hub_module, path, CARD_FILES)
    return path


@pytest.fixture(scope="session")
def hub_loaded(hub_folder: Path) -> Any:
    """The exported model, loaded."""
    return tf.saved_model.load(str(hub_folder))


@pytest.fixture(scope="session")
def hub_vectors(hub_loaded: Any) -> np.ndarray:
    """Its vectors of `SENTENCES`."""
    return hub_loaded(SENTENCES).numpy()
