"""An exported model as a Keras layer: the same vectors, trained or frozen, saved and exported."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from testing import SENTENCES

from xling_tf import KerasEncoder
from xling_tf.errors import UserError

TEXTS = tf.constant(SENTENCES)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras' own, of any layer
def test_the_layer_learns_and_is_saved_and_exported_with_its_model(
    hub_folder, hub_vectors, tmp_path
):
    encoder = KerasEncoder(hub_folder)
    model = keras.Sequential([encoder, keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    assert encoder(TEXTS).numpy() == pytest.approx(hub_vectors, abs=1e-6)
    batches = tf.data.Dataset.from_tensor_slices((SENTENCES, np.arange(len(SENTENCES)))).batch(4)
    losses = model.fit(batches, shuffle=False, epochs=3, verbose=0).history["loss"]
    assert losses == sorted(losses, reverse=True)
    assert np.abs(encoder(TEXTS) - hub_vectors).max() > 1e-3
    expected = model.predict(np.array(SENTENCES, object), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")(TEXTS)
    model.export(tmp_path / "exported", verbose=False)
    exported = tf.saved_model.load(str(tmp_path / "exported"))
    np.testing.assert_allclose((loaded, exported.serve(TEXTS)), (expected, expected), atol=1e-6)


def test_a_frozen_layer_has_nothing_to_train(hub_folder):
    encoder = KerasEncoder(hub_folder, trainable=False)
    model = keras.Sequential([keras.Input((), dtype="string"), encoder, keras.layers.Dense(1)])
    assert len(model.trainable_variables) == 2
    encoder.trainable = True
    assert len(model.trainable_variables) > 2


@pytest.mark.parametrize("shape", [(None,), (2, 3)])
def test_every_text_of_a_row_gets_a_vector(shape, hub_folder, hub_vectors):
    inputs = keras.Input(shape, dtype="string")
    model = keras.Model(inputs, KerasEncoder(hub_folder)(inputs))
    dim = hub_vectors.shape[-1]
    assert model.output.shape == (None, *shape, dim)
    assert model.output.dtype == "float32"
    rows = tf.reshape(TEXTS, [-1, *(size or 3 for size in shape)])
    assert model(rows).numpy() == pytest.approx(hub_vectors.reshape(*rows.shape, dim), abs=1e-6)
    if None in shape:  # a row of one text is not a column here
        assert model(TEXTS[:, None]).shape == (len(SENTENCES), 1, dim)


def test_other_inputs_than_strings_are_refused(hub_folder):
    encoder = KerasEncoder(hub_folder)
    with pytest.raises(ValueError, match='dtype="string"'):
        encoder(keras.Input(()))
    for inputs in ([1, 2], ["Hola", None], tf.ragged.constant([["a"], []])):
        with pytest.raises(UserError, match="expected strings"):
            encoder(inputs)
