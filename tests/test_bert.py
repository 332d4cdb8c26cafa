"""BERT by hand, and from whole and damaged folders of transformers and sentence-transformers."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from raw_files import write_json_files
from safetensors.numpy import save_file
from testing import require_gradients

from xling_tf.encoders.base import build_encoder
from xling_tf.encoders.bert import BertEncoder
from xling_tf.encoders.modernbert import ModernBertEncoder
from xling_tf.errors import UserError
from xling_tf.importers.bert import read_bert
from xling_tf.tokenizers.base import TokenFeatures
from xling_tf.weights import assign_weights, named_weights

DIM, INTERMEDIATE, WORDS, POSITIONS = 4, 8, 9, 12
CONFIG = {
    **{
        "model_type": "bert",
        "vocab_size": WORDS,
        "hidden_size": DIM,
        "intermediate_size": INTERMEDIATE,
    },
    **{"num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": POSITIONS},
    **{"hidden_act": "gelu", "layer_norm_eps": 0.0},
}


def tensors(scale=1.0, prefix=""):
    """Random tensors of a BERT; norms change nothing else."""
    random, drawn = np.random.default_rng(1), {}
    for name, rows in (("word", WORDS), ("position", POSITIONS), ("token_type", 2)):
        drawn[f"embeddings.{name}_embeddings.weight"] = random.normal(size=(rows, DIM))
    norms = ["embeddings.LayerNorm"]
    for layer in ("encoder.layer.0", "encoder.layer.1"):
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
        dense = {f"attention.self.{part}": (DIM, DIM) for part in ("query", "key", "value")}
        dense |= {"attention.output.dense": (DIM, DIM), "intermediate.dense": (INTERMEDIATE, DIM)}
        for name, shape in (dense | {"output.dense": (DIM, INTERMEDIATE)}).items():
            drawn[f"{layer}.{name}.weight"] = scale * random.normal(size=shape)
            drawn[f"{layer}.{name}.bias"] = scale * random.normal(size=shape[0])
    for name in norms:
        drawn |= {f"{name}.weight": np.ones(DIM), f"{name}.bias": np.zeros(DIM)}
    return {prefix + name: array.astype(np.float32) for name, array in drawn.items()}


def write(folder, arrays, config=CONFIG, **files):
    write_json_files(folder, config=config, **files)
    save_file(arrays, folder / "model.safetensors")
    return folder


def read(folder, **decided):
    settings, weights = read_bert(folder)
    num_words = len(weights["encoder/embedding/words/table"])
    encoder = build_encoder({"num_words": num_words, **settings, **decided})
    assign_weights(named_weights(encoder, "encoder"), weights, str(folder))
    return encoder


def encode(encoder, ids):
    """Encodes sentences of rows of the table."""
    words, places = np.unique(np.concatenate(ids), return_inverse=True)
    lengths = np.array([len(row) for row in ids], np.int32)
    rows = tf.RaggedTensor.from_row_lengths(places.astype(np.int32), lengths)
    return encoder(TokenFeatures(words.astype(np.int32), rows.to_tensor(), lengths)).numpy()


def modules(*kinds):
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense"}
    return [
        {"idx": idx, "path": paths.get(kind, kind), "type": f"sentence_transformers.models.{kind}"}
        for idx, kind in enumerate(kinds)
    ]


def test_layers_that_add_nothing_leave_the_mean_of_the_normalised_embeddings(tmp_path):
    arrays = tensors(scale=0)
    words, places, kinds, *_ = arrays.values()  # the tables
    ids = [2, 4, 5, 6, 7, 8, 3]
    rows = words[ids] + places[:7] + kinds[0]
    normalised = (rows - rows.mean(1, keepdims=True)) / rows.std(1, keepdims=True)
    folder = write(tmp_path, arrays)
    assert encode(read(folder), [ids])[0] == pytest.approx(normalised.mean(0), abs=1e-5)
    for pooling, expected in {"cls": normalised[0], "max": normalised.max(0)}.items():
        encoder = read(folder, pooling=pooling)
        assert encode(encoder, [ids, [1], [*ids, 1]])[0] == pytest.approx(expected, abs=1e-5)


def test_a_sentence_has_one_vector_whatever_its_company_and_another_one_in_another_order(tmp_path):
    encoder = read(write(tmp_path, tensors()))
    (alone,) = encode(encoder, [[2, 4, 5, 3]])
    together = encode(encoder, [[2, 4, 5, 3], [2, 4, 1, 5, 4, 8, 8, 3], [2], [2, 5, 4, 3]])
    assert together[0] == pytest.approx(alone, abs=1e-5)
    assert np.isfinite(together).all()
    assert np.abs(together[0] - together[3]).max() > 1e-3


@pytest.mark.parametrize("length", [6, 12])  # at once, and in blocks, as of more than 8 windows
def test_a_local_layer_of_modernbert_sees_half_of_its_window_on_each_side(length):
    # A window of 2 is one token on each side. The first layer, which attends to the whole text,
    # adds nothing here, and the second, local one the mean of what it sees: its queries are zeros.
    # Of the tokens a a a b a ..., which norms leave alone, token 2 becomes a + (2 a + b) / 3, so a
    # fifth as much b as a, as token 4 does; token 3 itself becomes b + (2 a + b) / 3, twice as much
    # b; and the others see no b.
    a, b = np.array([1, -1, 1, -1], np.float32), np.array([1, 1, -1, -1], np.float32)
    sizes = {
        "embedding_dim": DIM,
        "num_heads": 2,
        "intermediate_dim": INTERMEDIATE,
        "num_layers": 2,
    }
    encoder = ModernBertEncoder(num_words=9, max_tokens=16, local_attention=2, **sizes)
    encoder.build_variables()
    for block in encoder.blocks:
        for layer in (block.query_key_value, block.attention_output, block.output_projection):
            layer.kernel.assign(np.zeros(layer.kernel.shape))
    local = encoder.blocks[1]
    local.query_key_value.kernel.assign(np.eye(DIM, 3 * DIM, 2 * DIM))
    local.attention_output.kernel.assign(np.eye(DIM))
    inputs = np.array([[a, a, a, b, *[a] * (length - 4)]])
    hidden, _ = encoder.hidden_states(inputs, np.array([length], np.int32))
    shares = (hidden.numpy()[0] @ b) / (hidden.numpy()[0] @ a)
    assert shares == pytest.approx([0, 0, 1 / 5, 2, 1 / 5, *[0] * (length - 5)], abs=1e-5)


def test_gradients_reach_every_variable():
    keras.config.set_dtype_policy("mixed_bfloat16")
    sizes = {"embedding_dim": 8, "intermediate_dim": 12, "num_layers": 1, "num_heads": 2}
    dense = {"dense_dims": (5,), "dense_activations": ("tanh",)}
    encoder = BertEncoder(num_words=9, max_tokens=6, **sizes, **dense)
    encoder.build_variables()
    features = TokenFeatures(
        np.array([3, 5, 8], np.int32),
        np.array([[0, 1, 2], [2, 0, 0]], np.int32),
        np.array([3, 1], np.int32),
    )
    outputs = require_gradients(encoder, features, training=True)
    assert (outputs.dtype, outputs.shape, encoder.hidden_dim) == (tf.float32, (2, 5), 5)
    # By hand: tables 9*8 and 512*8, norms 3*16, query, key and value 8*24 + 24, output 8*8 + 8,
    # feed-forward 8*12 + 12 + 12*8 + 8, dense 8*5 + 5.
    assert encoder.count_params() == 72 + 4096 + 48 + 216 + 72 + 212 + 45


def test_names_with_prefixes_and_layers_of_pretraining(tmp_path):
    plain = encode(read(write(tmp_path / "plain", tensors())), [[2, 4, 3]])
    more = {"cls.predictions.bias": np.zeros(WORDS, np.float32)}
    for prefix in ("bert.", "0.auto_model.", "0.auto_model.bert."):
        arrays = tensors(prefix=prefix) | {
            f"{prefix}embeddings.position_ids": np.arange(POSITIONS)[None]
        }
        arrays |= {f"{prefix}pooler.dense.bias": np.zeros(DIM, np.float32), **more}
        renamed = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma"): a for name, a in arrays.items()
        }
        assert (
            encode(read(write(tmp_path / prefix, renamed)), [[2, 4, 3]]).tolist() == plain.tolist()
        )


def test_the_length_is_that_of_sentence_transformers_within_the_positions(tmp_path):
    def max_tokens(**files):
        return read_bert(write(tmp_path, tensors(), **files))[0]["max_tokens"]

    assert max_tokens() == POSITIONS
    assert max_tokens(tokenizer_config={"model_max_length": 1e30}) == POSITIONS
    assert max_tokens(tokenizer_config={"model_max_length": 7}) == 7
    assert max_tokens(sentence_bert_config={"max_seq_length": None}) == 7
    assert max_tokens(sentence_bert_config={"max_seq_length": 5}) == 5
    with pytest.raises(UserError, match="positions for 12 tokens"):
        read(tmp_path, max_tokens=13)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("gelu", "gelu"),
        ("gelu_python", "gelu"),
        ("relu", "relu"),
        ("silu", "silu"),
        ("swish", "silu"),
        *[
            (name, "gelu_tanh")
            for name in ("gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh")
        ],
    ],
)
def test_activations_have_several_names(theirs, ours, tmp_path):
    folder = write(tmp_path, tensors(), {**CONFIG, "hidden_act": theirs})
    assert read_bert(folder)[0]["activation"] == ours


@pytest.mark.parametrize(
    ("padding", "first"), [({}, 2), ({"pad_token_id": 1}, 2), ({"pad_token_id": 0}, 1)]
)
def test_the_positions_of_a_roberta_begin_after_the_id_of_its_padding(padding, first, tmp_path):
    arrays = tensors()
    _, places, kinds, *_ = arrays.values()
    settings, weights = read_bert(
        write(tmp_path, arrays, {**CONFIG, "model_type": "roberta", **padding})
    )
    assert settings["max_positions"] == settings["max_tokens"] == POSITIONS - first
    assert weights["encoder/positions"].tolist() == (places[first:] + kinds[0]).tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mpnet"}, "model_type .* one of bert, camembert, .* got 'mpnet'"),
        ({"position_embedding_type": "relative_key"}, "must be absolute, got relative_key"),
        ({"is_decoder": True}, "is_decoder .* must be False, got True"),
        ({"hidden_act": "laplace"}, "hidden_act .* got 'laplace'"),
        ({"num_hidden_layers": 1}, r"unexpected: encoder\.layer\.1\..* and 13 more"),
    ],
)
def test_configs_that_do_not_fit_are_refused(changes, message, tmp_path):
    with pytest.raises(UserError, match=message):
        read(write(tmp_path, tensors(), {**CONFIG, **changes}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hidden_size", 1_000_000),
        ("hidden_size", 1e6),
        ("hidden_size", 8),  # the tables have 4 numbers
        ("intermediate_size", 10**9),
        ("intermediate_size", 9),
        ("intermediate_size", "8"),
        ("max_position_embeddings", 1e12),
        ("max_position_embeddings", 10**12),
        ("max_position_embeddings", 13),
        ("num_attention_heads", 2.0),
        ("num_attention_heads", True),
        ("num_attention_heads", None),
        ("num_hidden_layers", 10**9),
        ("num_hidden_layers", -1),
    ],
)
def test_sizes_are_integers_and_those_of_the_tensors_before_a_layer_is_made(name, value, tmp_path):
    with pytest.raises(UserError) as caught:
        read_bert(write(tmp_path, tensors(), {**CONFIG, name: value}))
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("pad", [-5, 10**9])
def test_the_first_position_is_one_of_the_table(pad, tmp_path):
    config = {**CONFIG, "model_type": "roberta", "pad_token_id": pad}
    with pytest.raises(UserError, match="positions"):
        read_bert(write(tmp_path, tensors(), config))


TWO = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}
NO_PROMPT = {"pooling_mode": "mean", "include_prompt": False}


@pytest.mark.parametrize(
    ("kinds", "pooling", "message"),
    [
        ("Transformer LSTM Pooling", {}, "got Transformer, LSTM, Pooling"),
        ("Transformer Pooling", TWO, "one pooling of all tokens, .* got cls, mean"),
        ("Transformer Pooling", {"pooling_mode_lasttoken": True}, "got pooling_mode_lasttoken"),
        ("Transformer Pooling", NO_PROMPT, "got mean without the prompt"),
        (
            "Transformer Pooling Dense",
            {"pooling_mode": "mean"},
            "activation_function .* got 'Mish'",
        ),
    ],
)
def test_modules_that_are_not_there_are_refused(kinds, pooling, message, tmp_path):
    dense = {"in_features": 4, "out_features": 2, "activation_function": "torch.nn.Mish"}
    files = {"1_Pooling/config": pooling, "2_Dense/config": dense}
    with pytest.raises(UserError, match=message):
        read_bert(write(tmp_path, tensors(), modules=modules(*kinds.split()), **files))


def test_modules_that_do_nothing_after_training_are_left_out(tmp_path):
    kinds = ("Transformer", "Dropout", "Pooling", "Dropout", "Normalize", "Normalize")
    # Without a mode, sentence-transformers averages.
    folder = write(tmp_path, tensors(), modules=modules(*kinds), **{"1_Pooling/config": {}})
    vectors, expected = (
        encode(read(at), [[2, 4, 3]]) for at in (folder, write(tmp_path / "x", tensors()))
    )
    assert vectors.tolist() == expected.tolist()
