"""Two logical CPU devices for every test, and no state that one test leaves to the next."""

from collections.abc import Iterator

import keras
import pytest
import tensorflow as tf

# Devices must be cut up before TensorFlow first uses them.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)


@pytest.fixture(autouse=True)
def _fresh_keras() -> Iterator[None]:
    keras.utils.set_random_seed(1)
    yield
    keras.config.set_dtype_policy("float32")
