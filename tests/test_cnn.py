"""The CNN: against NumPy, by hand, and its average of words."""

import numpy as np
import pytest
import tensorflow as tf
from published_model import SENTENCES, WIDTHS, random_model
from testing import encode
from use_weights import named_layers

from xling_tf.layers.convolution import ConvolutionBranch

TEXTS = [*SENTENCES, "", "😀", "cat", "the red cat " * 300]


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        # One filter that adds up 1 x the first token it sees, 10 x the second and so on, zeros beyond the
        # ends. Of the tokens 1, 2, 3, an even width sees one more on the right: 1 + 10 * 2 = 21,
        # 2 + 10 * 3 = 32, 3; with the token itself added, 22, 34, 6.
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


def test_without_its_convolutions_it_is_an_average_of_words():
    model = random_model()
    encoder, (words, tokens, lengths) = model.encoder, model.tokenizer(tf.constant(TEXTS))
    average = encoder.bow_encoder
    trained = {id(v) for v in average.dense_variables}
    of_branches = [v for branch in encoder.branches for v in branch.trainable_variables]
    assert of_branches
    assert trained == {id(v) for v in encoder.dense_variables} - {id(v) for v in of_branches}
    before = average.encode(average.embed_words(words), tokens, lengths)
    for variable in of_branches:
        variable.assign(tf.zeros_like(variable.value))
    whole = encoder.encode(encoder.embed_words(words), tokens, lengths)
    np.testing.assert_allclose(before, whole, atol=1e-4)


def test_against_numpy():
    model = random_model()
    parts = named_layers(model.encoder).values()
    assert {id(v) for layer in parts for v in layer.weights} == {id(v) for v in model.encoder.dense_variables}
    table = model.encoder.table_variables[0].numpy()
    layers = {name: part.get_weights() for name, part in named_layers(model.encoder).items()}
    for text, vector in zip(TEXTS, encode(model, TEXTS), strict=True):
        np.testing.assert_allclose(encode(model, [text])[0], vector, atol=1e-4)
        pieces_of_text = model.tokenizer.tokenize(tf.constant([text]))[0].numpy()
        np.testing.assert_allclose(numpy_cnn(table[pieces_of_text], layers), vector, atol=1e-4)


def numpy_cnn(tokens, layers):
    """Maps `[tokens, dim]` embeddings to a sentence vector."""

    def dense(inputs, name):
        kernel, bias = layers[name]
        return inputs @ kernel + bias

    def norm(inputs, name):
        scale, offset = layers[name]
        deviation = inputs.std(axis=1, keepdims=True)
        return (inputs - inputs.mean(axis=1, keepdims=True)) / deviation * scale + offset

    def convolve(inputs, width, name):
        kernel, bias = layers[name]
        outputs = np.tile(bias, (len(inputs), 1))
        for place in range(len(inputs)):
            for offset in range(width):
                neighbour = place + offset - (width - 1) // 2
                if 0 <= neighbour < len(inputs):
                    outputs[place] += inputs[neighbour] @ kernel[offset]
        return np.maximum(outputs, 0)

    outputs = [tokens]
    for width in WIDTHS:
        hidden = norm(dense(tokens, f"projection_{width}"), f"norm_{width}")
        for index in range(2):
            hidden = hidden + convolve(hidden, width, f"convolution_{width}_{index}")
        outputs.append(hidden)
    projected = dense(norm(np.concatenate(outputs, axis=1), "norm"), "pooled_projection")
    pooled = projected.sum(axis=0) / len(tokens) ** 0.5
    first = np.maximum(pooled @ layers["first"][0], 0)
    second = np.maximum(pooled @ layers["second_shortcut"][0] + first @ layers["second"][0], 0)
    third = np.maximum(second @ layers["third"][0], 0)
    return np.tanh(second @ layers["output_shortcut"][0] + third @ layers["output_projection"][0])
