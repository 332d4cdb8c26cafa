import json
from unittest.mock import MagicMock

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from tensorflow.python.grappler.tf_optimizer import OptimizeGraph
from testing import require_gradients

from xling_tf.encoders.transformer import TransformerEncoder
from xling_tf.layers.base import LayerNorm, float32_copy, softmax
from xling_tf.layers.convolution import ConvolutionBranch, NormalizedProjection, ResidualFeedforward
from xling_tf.layers.embeddings import (
    EmbeddingTable,
    WordEmbedding,
    sinusoidal_positions,
    sum_groups,
)
from xling_tf.layers.pooling import MASKED, masked_max, masked_mean, token_mask, unit_length
from xling_tf.layers.towers import InferenceHead, Tower
from xling_tf.layers.transformer import SelfAttention, TransformerBlock

RANDOM = np.random.default_rng(0)
TOKENS = RANDOM.normal(size=(3, 5, 8)).astype(np.float32)
ROWS = RANDOM.normal(size=(4, 8)).astype(np.float32)
LENGTHS = np.array([5, 2, 3])
BIAS = np.where(np.arange(5) < LENGTHS[:, None], 0, -3e4)[:, None, None, :].astype(np.float32)
MASK = (np.arange(5) < LENGTHS[:, None])[..., None]
IDS = np.array([1, 0, 3], np.int32)


def block(**options):
    return TransformerBlock(8, 2, 12, **options)


# Constructor, inputs, shape of the output, and whether it is float32 under any policy.
LAYERS = {
    "block": (lambda: block(norm_first=False), (TOKENS, BIAS), (3, 5, 8), False),
    "block, norm first": (lambda: block(norm_first=True), (TOKENS, BIAS), (3, 5, 8), False),
    "tower": (lambda: Tower((5, 7)), (ROWS,), (4, 7), True),
    "table": (lambda: EmbeddingTable(4, 6, stddev=1.0), (IDS,), (3, 6), True),
    "words": (lambda: WordEmbedding(4, 6, stddev=0.5), (IDS,), (3, 6), True),
    "words and n-grams": (
        lambda: WordEmbedding(4, 6, num_ngrams=9),
        (IDS, np.array([8, 2, 2, 0], np.int32), np.array([0, 0, 1, 2], np.int32)),
        (3, 6),
        True,
    ),
    "inference head": (lambda: InferenceHead(6), (ROWS, ROWS[::-1]), (4, 3), True),
    "convolutions": (lambda: ConvolutionBranch(8, 3, 2), (TOKENS, MASK), (3, 5, 8), False),
    "projection": (lambda: NormalizedProjection(7), (ROWS,), (4, 7), False),
    "feed-forward": (lambda: ResidualFeedforward(5, 6), (ROWS,), (4, 6), True),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_contract_of_layers(name):
    keras.config.set_dtype_policy("mixed_bfloat16")
    make, inputs, shape, always_float32 = LAYERS[name]
    layer = make()
    outputs = require_gradients(layer, *inputs)
    assert tuple(outputs.shape) == shape
    assert outputs.dtype == ("float32" if always_float32 else layer.compute_dtype)
    assert np.isfinite(ops.convert_to_numpy(ops.cast(outputs, "float32"))).all()
    assert layer.trainable_variables
    assert {variable.dtype for variable in layer.variables} == {"float32"}
    # Layers are made anew of their config.
    copy = type(layer).from_config(json.loads(json.dumps(layer.get_config())))
    copy(*inputs)
    copy.set_weights(layer.get_weights())
    assert copy.name == layer.name
    np.testing.assert_array_equal(*(ops.cast(made(*inputs), "float32") for made in (layer, copy)))


def test_a_residual_tower_starts_as_its_input_and_adds_to_it():
    tower = Tower((5, 3), residual=True)
    assert tower(ROWS).numpy().tolist() == ROWS[:, :3].tolist()
    first, _, last, bias = tower.get_weights()
    tower.set_weights([first, np.zeros(5), last + 1, bias])
    expected = ROWS[:, :3] + np.tanh(np.tanh(ROWS @ first).sum(axis=1, keepdims=True))
    assert tower(ROWS).numpy() == pytest.approx(expected, abs=1e-6)
    assert float32_copy(tower)(ROWS).numpy() == pytest.approx(expected, abs=1e-6)


def test_attention_by_hand():
    # Two tokens [1, 0] and [0, 2] with q = k = v. For the first: scores 1 / sqrt(2) and 0, so it
    # keeps w = e^0.7071 / (e^0.7071 + 1) = 0.66976 of itself: [w, 2 (1 - w)]. For the second:
    # scores 0 and 4 / sqrt(2), so it keeps v = e^2.8284 / (e^2.8284 + 1) = 0.94419: [1 - v, 2 v].
    layer = SelfAttention(2, 1)
    inputs, bias = np.array([[[1, 0], [0, 2]]], np.float32), np.zeros((1, 1, 1, 2))
    layer(inputs, bias)
    layer.query_key_value.set_weights([np.tile(np.eye(2), (1, 3)), np.zeros(6)])
    layer.output_projection.set_weights([np.eye(2), np.zeros(2)])
    w = np.exp(2**-0.5) / (np.exp(2**-0.5) + 1)
    v = np.exp(8**0.5) / (np.exp(8**0.5) + 1)
    expected = np.array([[w, 2 * (1 - w)], [1 - v, 2 * v]])
    assert layer(inputs, bias).numpy()[0] == pytest.approx(expected, abs=1e-5)


def test_heads_of_width_two_by_hand():
    # Head 0 reads the tokens [1, 0] and [0, 2] of the test above, and gives what it gives there:
    # its scores are divided by sqrt(2), the width of a head, not of the whole. Head 1 reads [2, 0]
    # and [2, 0], which are alike, so it gives [2, 0]. Query, key and value are side by side, each
    # with head after head.
    layer = SelfAttention(4, 2)
    inputs, bias = np.array([[[1, 0, 2, 0], [0, 2, 2, 0]]], np.float32), np.zeros((1, 1, 1, 2))
    layer(inputs, bias)
    layer.query_key_value.set_weights([np.tile(np.eye(4), (1, 3)), np.zeros(12)])
    layer.output_projection.set_weights([np.eye(4), np.zeros(4)])
    w = np.exp(2**-0.5) / (np.exp(2**-0.5) + 1)
    v = np.exp(8**0.5) / (np.exp(8**0.5) + 1)
    expected = np.array([[w, 2 * (1 - w), 2, 0], [1 - v, 2 * v, 2, 0]])
    assert layer(inputs, bias).numpy()[0] == pytest.approx(expected, abs=1e-5)


def test_a_token_alone_attends_to_itself_without_a_warning():
    # The shape of the only key is known here, as it is for users who encode a text of one word.
    layer = SelfAttention(2, 1)
    inputs, bias = np.array([[[3, -5]]], np.float32), np.zeros((1, 1, 1, 1))
    layer(inputs, bias)
    layer.query_key_value.set_weights([np.tile(np.eye(2), (1, 3)), np.zeros(6)])
    layer.output_projection.set_weights([np.eye(2), np.zeros(2)])
    assert layer(inputs, bias).numpy().tolist() == [[[3, -5]]]


def test_the_softmax_is_along_its_axis():
    # e^0 : e^log 3 is 1 : 3; along the other axis, equal scores have equal shares.
    scores = tf.constant([[0, np.log(3)], [0, np.log(3)]], tf.float32)
    assert softmax(scores).numpy() == pytest.approx(np.array([[0.25, 0.75]] * 2))
    assert softmax(scores, axis=0).numpy() == pytest.approx(np.full((2, 2), 0.5))


@pytest.mark.parametrize("bow_residual", [True, False])
def test_words_positions_and_context_of_the_transformer_by_hand(bow_residual):
    # Without blocks, a text of one word is the word's vector plus its position, [0, 1, 0, 1] (sines
    # and cosines of 0). With the residual, the word [3, 4, 0, 0] has entries of a mean square of 1,
    # so it is divided by sqrt(25 / 4) = 2.5: [1.2, 2.6, 0, 1] with the position. The context is
    # 4^-.5 of that, here through the identity, and is added to the word at unit length:
    # [.6, 1.3, 0, .5] + [.6, .8, 0, 0]. Without the residual, words are multiplied by sqrt(4).
    sizes = {"num_words": 2, "max_tokens": 3, "embedding_dim": 4, "hidden_dim": 4, "num_heads": 1}
    encoder = TransformerEncoder(**sizes, num_ngrams=0, num_layers=0, bow_residual=bow_residual)
    encoder.build_variables()
    encoder.static.input_projection.set_weights([np.eye(4), np.zeros(4)])
    if bow_residual:
        encoder.context_projection.set_weights([np.eye(4), np.zeros(4)])
    word, other = [3, 4, 0, 0], [7, -7, 7, -7]
    # The other vectors are padding.
    inputs, lengths = np.array([[word, other]], np.float32), np.array([1])
    expected = [1.2, 2.1, 0, 0.5] if bow_residual else [6, 9, 0, 1]
    assert encoder.encode_tokens(inputs, lengths).numpy()[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("norm_first", "expected"),
    [(True, [[1, 3, 1, 3], [7, 5, 5, 7]]), (False, [[-1, 1, -1, 1], [1, -1, -1, 1]])],
)
def test_where_the_norms_stand(norm_first, expected):
    # [1, 3, 1, 3] has mean 2 and deviation 1: normalised it is [-1, 1, -1, 1]. With sub-layers that
    # give zeros, norms inside the branches leave the residual stream as it is; those after the sums
    # do not.
    inputs, bias = np.array([[[1, 3, 1, 3], [7, 5, 5, 7]]], np.float32), np.zeros((1, 1, 1, 2))
    layer = TransformerBlock(4, 2, 6, norm_first=norm_first)
    layer(inputs, bias)
    for projection in (layer.attention.output_projection, layer.output_projection):
        projection.set_weights([np.zeros_like(weight) for weight in projection.get_weights()])
    assert layer(inputs, bias).numpy()[0] == pytest.approx(np.array(expected), abs=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_layer_norm_is_that_of_keras_and_by_hand(dtype):
    # [1, 3, 1, 3] has mean 2 and deviation 1: [-1, 1, -1, 1] times gamma, plus beta.
    gamma, beta = np.array([1, 2, 3, 4], np.float32), np.array([0, 0, 0, 5], np.float32)
    inputs = tf.constant([[1, 3, 1, 3], [1e4, 1e4, 1e4, 1e4], [0.5, -7, 2, 3]], tf.float32)
    ours, theirs = (
        kind(epsilon=1e-6, dtype=dtype) for kind in (LayerNorm, keras.layers.LayerNormalization)
    )
    for layer in (ours, theirs):
        layer.build(inputs.shape)
        layer.set_weights([gamma, beta])
    outputs = ours(inputs)
    assert outputs.dtype == theirs.compute_dtype
    assert outputs[0].numpy().tolist() == pytest.approx([-1, 2, -3, 9], rel=1e-5)
    assert outputs[1].numpy().tolist() == beta.tolist()  # Keras' own gives 4 for the 5
    expected = tf.cast(theirs(inputs[2]), tf.float32).numpy()
    assert tf.cast(outputs[2], tf.float32).numpy() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LayerNorm(epsilon=1e-6),
        *(lambda width=width: ConvolutionBranch(8, width, 2) for width in (2, 3, 5)),
    ],
)
def test_gradients_in_training_are_those_of_tensorflow(make):
    layer = make()
    arguments = [MASK] if isinstance(layer, ConvolutionBranch) else []
    layer(TOKENS, *arguments)
    layer.set_weights([RANDOM.normal(size=weight.shape) for weight in layer.get_weights()])
    inputs = tf.constant(TOKENS)
    weights = [weight.value for weight in layer.trainable_weights]

    @tf.function
    def step(training):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(inputs, *arguments, training=training)
            loss = tf.reduce_sum(tf.square(outputs) * ROWS[0])
        return outputs, *tape.gradient(loss, [inputs, *weights])

    for expected, found in zip(step(training=False), step(training=True), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("gpus", "is_of_cudnn"), [([], False), (["GPU:0"], True)])
def test_convolutions_have_the_gradient_of_cudnn_on_a_gpu(gpus, is_of_cudnn, monkeypatch):
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: gpus)
    branch, mask = ConvolutionBranch(4, 3, 1), tf.ones((2, 5, 1))

    @tf.function(input_signature=[tf.TensorSpec([2, 5, 4])])
    def gradients(inputs: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(branch(inputs, mask, training=True))
        return tape.gradient(loss, branch.trainable_variables)

    graph = gradients.get_concrete_function().graph.as_graph_def()
    assert ("Conv2DBackpropFilter" in str(graph)) == is_of_cudnn


def test_masked_mean_by_hand():
    inputs = np.array([[[1, 2], [3, 4], [100, 100]], [[5, 6], [7, 7], [8, 8]]], np.float32)
    mask = np.array([[True, True, False], [True, False, False]])
    assert masked_mean(inputs, mask).numpy().tolist() == [[2, 3], [5, 6]]
    # In bfloat16 a sum of 512 ones stops growing at 256.
    ones = ops.cast(np.ones((1, 512, 1)), "bfloat16")
    assert masked_mean(ones, np.ones((1, 512), bool)).numpy().tolist() == [[1.0]]


def test_padding_is_no_token_and_has_no_share_in_the_maximum():
    inputs = np.array(
        [[[1, -2], [3, -4], [100, 100]], [[-5, -6], [7, 7], [8, 8]], [[9, 9]] * 3], np.float32
    )
    mask = token_mask(inputs, np.array([2, 1, 0], np.int32))
    assert mask.numpy().tolist() == [[True, True, False], [True, False, False], [False] * 3]
    # The maximum of [1, -2] and [3, -4]; of [-5, -6] alone, though padding is above it, and so are
    # zeros.
    assert masked_max(inputs, mask).numpy().tolist() == [[3, -2], [-5, -6], [MASKED, MASKED]]


def test_unit_length_has_a_finite_gradient_at_zero():
    inputs = tf.Variable(tf.zeros((1, 3)))
    with tf.GradientTape() as tape:
        outputs = tf.reduce_sum(unit_length(inputs))
    assert np.isfinite(tape.gradient(outputs, inputs).numpy()).all()


def test_sinusoidal_positions():
    table = sinusoidal_positions(50, 6)
    assert (table.shape, table.dtype) == ((50, 6), np.float32)
    # Vaswani et al. 2017, sec. 3.5: PE(pos, 2i) = sin(pos / 10000^(2i / dim)), and PE(pos, 2i + 1)
    # is its cosine.
    for position in (0, 1, 7, 49):
        for i in range(3):
            angle = position / 10_000 ** (2 * i / 6)
            expected = [np.sin(angle), np.cos(angle)]
            assert table[position, 2 * i : 2 * i + 2] == pytest.approx(expected, abs=1e-6)
    # Of an odd width, the last number is a sine.
    assert sinusoidal_positions(2, 3)[1] == pytest.approx(
        [np.sin(1), np.cos(1), np.sin(10_000 ** (-2 / 3))]
    )


def test_a_replica_reads_rows_of_its_table_not_the_whole():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        table = EmbeddingTable(9, 4, stddev=1.0)
    read = tf.function(lambda ids: strategy.run(table, (ids,)))
    ids = tf.constant([5, 7])
    np.testing.assert_array_equal(read(ids), tf.gather(tf.identity(table.table.value), ids))
    operations = {
        operation.type for operation in read.get_concrete_function(ids).graph.get_operations()
    }
    assert "ResourceGather" in operations
    assert "ReadVariableOp" not in operations


def test_the_optimizer_of_graphs_leaves_the_look_up_of_rows():
    table, spec = EmbeddingTable(9, 2, stddev=1.0), tf.TensorSpec([None], tf.int32)
    table.build(())
    sums = tf.function(lambda ids, groups: table.sum_rows(ids, groups, 2)).get_concrete_function(
        spec, spec
    )
    with sums.graph.as_default():
        exported = tf.compat.v1.train.export_meta_graph()
    exported.collection_def["train_op"].node_list.value.append(sums.outputs[0].op.name)
    optimized = OptimizeGraph(tf.compat.v1.ConfigProto(), exported)
    assert "ReadVariableOp" not in str(optimized)


@pytest.mark.parametrize("training", [False, True])
def test_sums_of_rows_and_their_gradients_by_hand(training, monkeypatch):
    rows = tf.constant([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]])
    with tf.GradientTape() as tape:
        tape.watch(rows)
        sums = sum_groups(rows, tf.constant([2, 0, 2]), tf.constant([0, 0, 2]), 3, training)
        loss = tf.reduce_sum(sums * [[1.0], [5.0], [3.0]])
    assert sums.numpy().tolist() == [[101, 202], [0, 0], [100, 200]]
    # Row 0 is in sum 0, row 1 in none, row 2 in sums 0 and 2.
    assert tape.gradient(loss, rows).numpy().tolist() == [[1, 1], [0, 0], [4, 4]]
    # Of no groups there are no sums; a GPU's kernel is not asked for them, because it fails.
    monkeypatch.setattr(tf.sparse, "segment_sum", watched := MagicMock(wraps=tf.sparse.segment_sum))
    none = tf.zeros([0], tf.int32)
    assert sum_groups(rows, none, none, 0, training).shape == (0, 2)
    assert all(call.kwargs["num_segments"] > 0 for call in watched.mock_calls)


def test_words_and_ngrams_average_by_hand():
    # Word 0 has n-grams 0 and 1, word 1 has n-gram 1. With the identity in the tanh layer:
    # (word + tanh(sum of n-grams)) / 2.
    layer = WordEmbedding(3, 2, num_ngrams=2)
    ids = (np.array([2, 0], np.int32), np.array([0, 1, 1], np.int32), np.array([0, 0, 1], np.int32))
    layer(*ids)
    layer.words.set_weights([np.array([[1.0, 2.0], [9.0, 9.0], [-4.0, 0.0]])])
    layer.ngrams.set_weights([np.array([[0.25, 1.0], [0.5, -3.0]])])
    layer.combine_ngrams.set_weights([np.eye(2), np.zeros(2)])
    expected = (np.array([[-4, 0], [1, 2]]) + np.tanh([[0.75, -2.0], [0.5, -3.0]])) / 2
    assert layer(*ids).numpy() == pytest.approx(expected, abs=1e-6)


@keras.saving.register_keras_serializable(package="test_layers")
class Gate(keras.layers.Layer):
    """A layer whose inner one takes the global dtype policy instead of its own."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = keras.layers.Dense(1)

    def build(self, shape):
        self.inner.build(shape)

    def call(self, inputs):
        return self.inner(inputs)


def test_a_copy_in_float32_has_inner_layers_in_float32():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        gate = Gate()
        gate.build((None, 2))
        copy = float32_copy(gate)
        assert keras.config.dtype_policy().name == "mixed_bfloat16"
    finally:
        keras.config.set_dtype_policy("float32")
    gate.inner.kernel.assign([[1.0], [1.0]])
    copy.inner.kernel.assign([[1.0], [1.0]])
    # 1 + 2^-10 has 10 bits after the point, and bfloat16 7.
    inputs = [[1.0, 2.0**-10]]
    assert gate(tf.constant(inputs)).numpy().item() == 1.0
    assert copy(tf.constant(inputs)).numpy().item() == 1.0 + 2.0**-10
