import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from published_model import (
    SENTENCES,
    pieces,
    published_table,
    random_layers,
    save_published,
    small_config,
)

from xling_tf.errors import UserError
from xling_tf.layers.pooling import unit_length
from xling_tf.published.pieces import find_pieces
from xling_tf.published.saved_model import model_of_saved_model
from xling_tf.published.variables import read_variables

SMALL = small_config()
OTHERS = [*SENTENCES, "The red cat and my dog", "", "😀", "zzz 今天"]


def require_equal(folder, config=SMALL):
    """Our model gives the SavedModel's vectors, of sentences that it was not chosen by too."""
    model = model_of_saved_model(folder, config)
    vectors = unit_length(model.encoder(model.preprocessor(tf.constant(OTHERS))))
    expected = tf.saved_model.load(str(folder))(tf.constant(OTHERS))
    # The published encoders have an unknown piece in an empty text, tensorflow-text has none.
    present = [index for index, text in enumerate(OTHERS) if text]
    np.testing.assert_allclose(vectors.numpy()[present], expected.numpy()[present], atol=1e-5)
    assert model.preprocessor.vocabulary == pieces()


def test_names_like_the_published_ones(tmp_path):
    save_published(tmp_path / "model", random_layers())
    require_equal(tmp_path / "model")


@pytest.mark.slow
def test_convolutions_that_are_products(tmp_path):
    # Kernels of width 2 then have the shape of what projects to them.
    save_published(tmp_path / "model", random_layers(widths=[2]), flat_kernels=True)
    require_equal(tmp_path / "model", small_config(widths=[2]))


@pytest.mark.slow
def test_names_that_tell_nothing_in_another_order(tmp_path):
    layers = random_layers()
    # Of each set of equal shapes two change places; the vectors tell.
    order = list(layers)
    for one, other in (("norm_2", "norm_5"), ("first", "second_shortcut")):
        a, b = order.index(one), order.index(other)
        order[a], order[b] = other, one
    save_published(tmp_path / "model", layers, order=order)
    require_equal(tmp_path / "model")


@pytest.mark.slow
def test_pieces_in_an_asset(tmp_path):
    save_published(tmp_path / "model", random_layers(), as_asset=True)
    assert (tmp_path / "model" / "assets" / "published.model").read_bytes() == pieces()
    require_equal(tmp_path / "model")


def test_parts_are_put_together(tmp_path):
    layers = random_layers()
    save_published(tmp_path / "model", layers)
    table, found = read_variables(tmp_path / "model")
    np.testing.assert_array_equal(table, published_table())
    kernels = {layer.name: layer.arrays for layer in found}
    kernel = kernels["EncoderDNN/DNN/ResidualHidden_0/dense"][0]
    np.testing.assert_array_equal(kernel, layers["first"][0])
    scale, offset = kernels["EncoderCNN/width_3/layer_norm"]
    np.testing.assert_array_equal(scale, layers["norm_3"][0])
    np.testing.assert_array_equal(offset, layers["norm_3"][1])


def test_other_shapes_are_told(tmp_path):
    save_published(tmp_path / "model", random_layers())
    config = small_config()
    wider = dataclasses.replace(config, encoder=dataclasses.replace(config.encoder, num_filters=6))
    with pytest.raises(UserError, match=r"3 x \[8, 6\] \[6\].*are expected.* 3 x \[8, 4\] \[4\]"):
        model_of_saved_model(tmp_path / "model", wider)


def test_another_table_is_told(tmp_path):
    save_published(tmp_path / "model", random_layers())
    config = small_config()
    wider = dataclasses.replace(
        config, encoder=dataclasses.replace(config.encoder, embedding_dim=9)
    )
    with pytest.raises(UserError, match=r"a row of 9 for each .* the shape \[\d+, 8\]"):
        model_of_saved_model(tmp_path / "model", wider)


@pytest.mark.slow
def test_another_computation_is_told(tmp_path):
    # What would be a residual connection is none here.
    save_published(tmp_path / "model", random_layers(widths=[2]), residual=False)
    with pytest.raises(
        UserError, match=r"the best one reaches 0\.\d+ \(projection_2 = EncoderCNN/"
    ):
        model_of_saved_model(tmp_path / "model", small_config(widths=[2]))


def test_folders_that_hold_no_such_model(tmp_path):
    with pytest.raises(
        UserError, match=r"exported model is expected, but .*missing has no saved_model"
    ):
        model_of_saved_model(tmp_path / "missing", small_config())
    root = tf.train.Checkpoint()
    root.variables = [tf.Variable([1.0, 2.0], name="vector")]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def encode(inputs):
        return tf.ones([tf.size(inputs), 1]) * root.variables[0]

    root.__call__ = encode
    tf.saved_model.save(root, str(tmp_path / "other"), signatures=encode)
    with pytest.raises(UserError, match="its 1 variables are no matrices: vector"):
        model_of_saved_model(tmp_path / "other", small_config())


def test_a_graph_without_pieces_is_told(tmp_path):
    save_published(tmp_path / "model", random_layers(), as_asset=True)
    (tmp_path / "model" / "assets" / "published.model").write_bytes(b"no pieces")
    saved = tmp_path / "model" / "saved_model.pb"
    saved.write_bytes(saved.read_bytes().replace(b"SentencepieceOp", b"TentencepieceOp"))
    with pytest.raises(UserError, match=r"none can be used \(assets/published\.model: "):
        find_pieces(tmp_path / "model", small_config().text)
