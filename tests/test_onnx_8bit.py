"""ONNX models in 8 bits: what is rounded, and that texts do not change each other's vectors."""

import keras
import numpy as np
import pytest
from testing import add_noise, tiny_config, tiny_model
from tricky_texts import sample_sentences

from xling_tf.config import BertConfig, ModelInfo, ModernBertConfig, WordPieceConfig
from xling_tf.encoders.base import encoder_settings
from xling_tf.exporters import sentence_transformers
from xling_tf.exporters.base import OriginalModel
from xling_tf.exporters.onnx_8bit import quantize
from xling_tf.model import Model
from xling_tf.tokenizers.wordpiece import WordPieceTokenizer

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

SHORT = ["uno", "dos tres"]
LONG = [
    f"{sentence} {sentence}"[: 60 + 3 * i] for i, sentence in enumerate(sample_sentences()[:32])
]
SIZES = {"embedding_dim": 32, "intermediate_dim": 64, "num_layers": 2, "num_heads": 4}
CONFIGS = {
    "bert": BertConfig(**SIZES, max_positions=48),
    "modernbert": ModernBertConfig(**SIZES, local_attention=8),
}
SLOW = pytest.mark.slow
PIECES = ("tokenizer.kind=sentencepiece", "tokenizer.num_pieces=900", "tokenizer.max_tokens=48")


def make_graph(node, outputs, weights, *inputs):
    """The content of an ONNX file that computes one node, with float inputs of these ranks."""
    helper, (kind, names, attributes) = onnx.helper, node
    values = [
        helper.make_tensor_value_info(name, kind_of, [None] * rank)
        for name, kind_of, rank in [*inputs, ("y", onnx.TensorProto.FLOAT, outputs)]
    ]
    graph = helper.make_graph(
        [helper.make_node(kind, names, ["y"], **attributes)],
        "g",
        values[:-1],
        values[-1:],
        [onnx.numpy_helper.from_array(np.float32(w), name) for name, w in weights.items()],
    )
    opset = helper.make_opsetid("", 18)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9).SerializeToString()


def compute(content, **inputs):
    onnx.checker.check_model(content)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(["y"], inputs)[0]


FLOATS, IDS = ("x", 1, 3), ("ids", 7, 1)


def test_products_derived_by_hand():
    # The scales of columns are 1 and .01; their numbers are 95, 32 and -127, 50.
    weights = {"w": [[95, -1.27], [32, 0.5]]}
    content = quantize(make_graph(("MatMul", ["x", "w"], {}), 3, weights, FLOATS))
    # The scales of rows are 1, .0002 and any; their numbers are 127, 51 and 127, -50 and 0, 0.
    rows = np.float32([[127, 50.6], [0.0254, -0.01], [0, 0]])
    expected = [
        [127 * 95 + 51 * 32, 0.01 * (-127 * 127 + 51 * 50)],
        [0.0002 * (127 * 95 - 50 * 32), 0.0002 * 0.01 * (-127 * 127 - 50 * 50)],
        [0, 0],
    ]
    assert compute(content, x=rows[None])[0] == pytest.approx(np.array(expected), rel=1e-6)
    for row, vector in zip(rows, expected, strict=True):
        assert compute(content, x=row[None, None])[0, 0] == pytest.approx(vector, rel=1e-6)


@pytest.mark.parametrize("kind", ["MatMul", "Gather"])
def test_a_file_has_a_quarter_of_the_bytes(kind):
    node, of = (
        ((kind, ["x", "w"], {}), FLOATS) if kind == "MatMul" else ((kind, ["w", "ids"], {}), IDS)
    )
    content = make_graph(node, 3 if of == FLOATS else 2, {"w": np.ones((300, 300))}, of)
    assert len(quantize(content)) == pytest.approx(len(content) / 4, rel=0.05)


def test_the_sums_of_two_neighbouring_products_fit_16_bits():
    weights = np.random.default_rng(0).normal(size=(51, 20))
    weights[:, 0] = 1
    content = quantize(make_graph(("MatMul", ["x", "w"], {}), 3, {"w": weights}, FLOATS))
    tensors = map(onnx.numpy_helper.to_array, onnx.load_from_string(content).graph.initializer)
    (numbers,) = (tensor.astype(int) for tensor in tensors if tensor.dtype == np.int8)
    assert (np.abs(numbers).max(axis=0) >= 64).all()
    for sign in (1, -1):
        largest = np.maximum(sign * numbers, 0)
        assert 255 * (largest[:50:2] + largest[1::2]).max() < 2**15


def test_products_in_branches_are_those_outside():
    helper, product = onnx.helper, ("MatMul", ["x", "w"], {})
    weights = {"w": np.random.default_rng(0).normal(size=(8, 6))}
    outside = make_graph(product, 3, weights, FLOATS)
    branches = {}
    for name in ("then", "else"):
        value = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        node = helper.make_node("MatMul", ["x", "w"], [name])
        branches[f"{name}_branch"] = helper.make_graph([node], name, [], [value])
    node = ("If", ["is_one"], branches)
    inside = quantize(make_graph(node, 3, weights, FLOATS, ("is_one", onnx.TensorProto.BOOL, 0)))
    inputs = np.random.default_rng(1).normal(size=(2, 3, 8)).astype(np.float32)
    expected = compute(quantize(outside), x=inputs)
    assert not np.array_equal(expected, compute(outside, x=inputs))
    for is_one in (True, False):
        np.testing.assert_array_equal(compute(inside, x=inputs, is_one=np.array(is_one)), expected)
    assert "w" not in {tensor.name for tensor in onnx.load_from_string(inside).graph.initializer}


def test_rows_of_a_table_derived_by_hand():
    # The scales are .01 and 1 / 127; their numbers are 127, -50 and 127, 38.
    weights = {"table": [[1.27, -0.5], [1, 0.3], [0, 0]]}
    content = quantize(make_graph(("Gather", ["table", "ids"], {}), 2, weights, IDS))
    expected = np.array([[1, 38 / 127], [0, 0], [1.27, -0.5]])
    assert compute(content, ids=np.array([1, 2, 0])) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("node", "outputs", "shapes"),
    [
        (("Conv", ["x", "w"], {"kernel_shape": [2]}), 3, {"w": (4, 3, 2)}),
        (("LSTM", ["x", "w", "r"], {"hidden_size": 2}), 4, {"w": (1, 8, 3), "r": (1, 8, 2)}),
    ],
)
def test_weights_that_are_multiples_of_their_scales_are_kept(node, outputs, shapes):
    random, weights = np.random.default_rng(0), {}
    for name, shape in shapes.items():
        weights[name] = random.integers(-126, 127, shape) / 100
        weights[name][..., 0] = 1.27
    exact = make_graph(node, outputs, weights, FLOATS)
    inputs = random.normal(size=(2, 3, 3)).astype(np.float32)
    expected, content = compute(exact, x=inputs), quantize(exact)
    assert compute(content, x=inputs) == pytest.approx(expected, abs=1e-5)
    tensors = map(onnx.numpy_helper.to_array, onnx.load_from_string(content).graph.initializer)
    assert sum(tensor.dtype == np.int8 for tensor in tensors) == len(weights)


def make_model(kind):
    """An encoder of pieces with random weights."""
    keras.utils.set_random_seed(1)
    if kind in CONFIGS:
        words = sorted({word for text in [*SHORT, *LONG] for word in text.split()})
        marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        vocabulary = dict.fromkeys([*marks, *words])
        tokenizer = WordPieceTokenizer(vocabulary, WordPieceConfig(max_tokens=48))
        model = Model(tokenizer, encoder_settings(CONFIGS[kind], tokenizer), ModelInfo())
    else:
        settings = (*PIECES, f"encoder.kind={kind}")
        model = tiny_model(tiny_config(*settings), {"en": sample_sentences()})
    add_noise(model.weights.values(), 0.01)
    return model


@pytest.mark.parametrize(
    "kind",
    [
        "bert",
        "cnn",
        *(pytest.param(kind, marks=SLOW) for kind in ("modernbert", "transformer", "lstm")),
    ],
)
def test_the_vector_of_a_text_is_the_same_beside_any_texts(kind, tmp_path):
    model = make_model(kind)
    source = OriginalModel(tmp_path, model, lambda texts: model(list(texts)).numpy(), None)
    sentence_transformers.export(source, tmp_path)
    from xling_tf.client.runtimes import open_model

    files = [tmp_path / "onnx" / name for name in ("model.onnx", "model_quantized.onnx")]
    (_, exact), (_, encode) = (open_model(file, tmp_path / "tokenizer.json") for file in files)
    texts = [*SHORT, *LONG[:2]]
    vectors = exact(texts)
    assert np.min(vectors @ vectors.T) < 0.99  # the texts differ
    for text, vector in zip(texts, vectors, strict=True):
        alone = encode([text])[0]
        assert alone @ vector > 0.999
        for others in (SHORT, LONG):
            # Sums of float32 numbers over more padding may be added in another order.
            assert encode([text, *others])[0] == pytest.approx(alone, abs=1e-6)
