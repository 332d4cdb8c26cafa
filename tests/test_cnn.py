"""The CNN: convolutions and averages of words by hand; test_published.py has published vectors."""

import numpy as np
import pytest
import tensorflow as tf
from published_model import SENTENCES, random_model
from testing import encode

from xling_tf.importers.published import named_layers
from xling_tf.layers.convolution import ConvolutionBranch

TEXTS = [*SENTENCES, "", "😀", "cat", "the red cat " * 300]


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        # One filter that adds up 1 x the first token it sees, 10 x the second and so on, zeros
        # beyond the ends. Of the tokens 1, 2, 3, an even width sees one more on the right:
        # 1 + 10 * 2 = 21, 2 + 10 * 3 = 32, 3; with the token itself added, 22, 34, 6.
        (2, [22.0, 34.0, 6.0]),
        # 10 * 1 + 100 * 2 = 210, 1 + 20 + 300 = 321, 2 + 30 = 32; with the token, 211, 323, 35.
        (3, [211.0, 323.0, 35.0]),
        # 100 * 1 + 1000 * 2 + 10000 * 3 = 32100, 10 + 200 + 3000 = 3210, 1 + 20 + 300 = 321.
        (5, [32101.0, 3212.0, 324.0]),
    ],
)
def test_a_convolution_sees_its_neighbours_and_nothing_beyond_the_ends(width, expected):
    branch = ConvolutionBranch(1, width, 1)
    # What stands behind the end is no zero, and must not be seen.
    inputs = np.array([[1.0, 2.0, 3.0, 7.0, 9.0]], np.float32)[..., None]
    mask = np.array([[True, True, True, False, False]])[..., None]
    branch(inputs, mask)
    kernel = 10.0 ** np.arange(width).reshape(width, 1, 1)
    branch.set_weights([kernel, np.zeros(1)])
    assert branch(inputs, mask)[0, :3, 0].numpy().tolist() == expected


def test_a_text_has_one_vector_whatever_its_company_and_each_variable_a_name():
    model = random_model()
    for text, vector in zip(TEXTS, encode(model, TEXTS), strict=True):
        np.testing.assert_allclose(encode(model, [text])[0], vector, atol=1e-4)
    named = [
        variable for layer in named_layers(model.encoder).values() for variable in layer.weights
    ]
    assert {id(variable) for variable in named} == {id(v) for v in model.encoder.dense_variables}


def test_without_its_convolutions_it_is_an_average_of_words():
    model = random_model()
    encoder, (words, tokens, lengths) = model.encoder, model.tokenizer(tf.constant(TEXTS))
    average = encoder.average_part
    trained = {id(v) for v in average.dense_variables}
    of_branches = [v for branch in encoder.branches for v in branch.trainable_variables]
    assert of_branches
    assert trained == {id(v) for v in encoder.dense_variables} - {id(v) for v in of_branches}
    before = average.encode(average.embed_words(words), tokens, lengths)
    for variable in of_branches:
        variable.assign(tf.zeros_like(variable.value))
    whole = encoder.encode(encoder.embed_words(words), tokens, lengths)
    np.testing.assert_allclose(before, whole, atol=1e-4)
