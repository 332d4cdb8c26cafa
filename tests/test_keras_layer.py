"""An export in a Keras model: the same vectors, trained or not, saved and exported with it."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from testing import SENTENCES

from xling_tf import KerasEncoder

TEXTS = tf.constant(SENTENCES)


@pytest.fixture
def model(hub_folder):
    texts = keras.Input((), dtype="string")
    model = keras.Model(texts, keras.layers.Dense(1)(KerasEncoder(hub_folder, name="encoder")(texts)))
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras' own, of any layer
def test_it_learns_and_is_saved_and_exported_with_the_model(model, hub_vectors, tmp_path):
    encoder = model.get_layer("encoder")
    assert encoder(TEXTS).numpy() == pytest.approx(hub_vectors, abs=1e-6)
    losses = model.fit(TEXTS, np.arange(len(SENTENCES)), epochs=3, verbose=0).history["loss"]
    assert losses == sorted(losses, reverse=True)
    assert np.abs(encoder(TEXTS) - hub_vectors).max() > 1e-3
    expected = model(TEXTS).numpy()
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(keras.saving.load_model(tmp_path / "model.keras")(TEXTS), expected)
    model.export(tmp_path / "exported", verbose=False)
    exported = tf.saved_model.load(str(tmp_path / "exported"))
    np.testing.assert_allclose(exported.serve(TEXTS), expected, atol=1e-6)


def test_it_stays_as_it_is_where_it_is_not_to_be_trained(hub_folder, hub_vectors):
    encoder = KerasEncoder(hub_folder, trainable=False)
    model = keras.Sequential([keras.Input((), dtype="string"), encoder, keras.layers.Dense(1)])
    assert len(model.trainable_variables) == 2
    model.compile("adam", "mse")
    model.fit(TEXTS, np.arange(len(SENTENCES)), verbose=0)
    np.testing.assert_allclose(encoder(TEXTS), hub_vectors, atol=1e-6)
    encoder.trainable = True
    assert len(model.trainable_variables) > 2
