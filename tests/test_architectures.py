"""Architectures of other libraries: a table of random models, and what each of them can do here."""

import numpy as np
import pytest
import tensorflow as tf
from programs import run_peers
from raw_files import write_json_files
from testing import require_gradients
from tricky_texts import sample_sentences

import xling_tf
from xling_tf.encoders import modernbert
from xling_tf.encoders.base import build_encoder
from xling_tf.errors import UserError
from xling_tf.exporters.base import export
from xling_tf.importers.bert import read_bert
from xling_tf.model import Model
from xling_tf.tokenizers.base import TokenFeatures

TEXTS = [*sample_sentences()[::40], "", "naïve CAFÉ 日本語 😀", "the cat and the dog " * 9, "a " * 90]
PAIRS = [(text, f"{text} {number}") for number, text in enumerate(sample_sentences()[:16])]
SIZES = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 48}
# Windows of two tokens on each side: texts of more than 16 are computed in blocks.
MODERN = {"model_type": "modernbert", **SIZES, "local_attention": 4}
BIASES = {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "norm_eps": 1e-3}
BASES = {"global_attn_every_n_layers": 2, "global_rope_theta": 500.0, "local_rope_theta": 77.0}
# Settings of transformers, besides the pooling, for random models of each architecture.
ROWS = {
    "modernbert": MODERN,
    "modernbert-biases": {**MODERN, **BIASES, **BASES, "hidden_activation": "silu", "pooling": "cls"},
    "modernbert-global": {**MODERN, "global_attn_every_n_layers": 1, "num_attention_heads": 2},
    "modernbert-wide": {**MODERN, "local_attention": 128, "hidden_activation": "gelu_new", "pooling": "max"},
    "modernbert-itself": {**MODERN, "local_attention": 1, "global_attn_every_n_layers": 9},
}
# Those that are also trained and exported.
TRAINED = ("modernbert", "modernbert-biases")

# Makes the models of rows.json with a tokenizer of texts.json, and the vectors that they give to the texts.
MODELS = """
import json, sys
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

texts = json.loads(Path("texts.json").read_text("utf-8"))
built = Tokenizer(models.WordPiece(unk_token="[UNK]"))
built.normalizer, built.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
marks = ["[UNK]", "[PAD]", "[CLS]", "[SEP]"]
built.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=300, special_tokens=marks))
built.post_processor = processors.TemplateProcessing(
    "[CLS] $A [SEP]", special_tokens=[(mark, built.token_to_id(mark)) for mark in marks[2:]]
)
named = dict(zip(("unk_token", "pad_token", "cls_token", "sep_token"), marks))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=built, model_max_length=60, **named)
for name, settings in json.loads(Path("rows.json").read_text()).items():
    pooling = settings.pop("pooling", "mean")
    config = AutoConfig.for_model(
        settings.pop("model_type"), vocab_size=len(tokenizer), max_position_embeddings=64, pad_token_id=1,
        **settings,
    )
    model = AutoModel.from_config(config)
    torch.manual_seed(1)
    for part, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=float(part.endswith("norm.weight")), std=0.3)
    model.save_pretrained(f"{name}/transformer")
    tokenizer.save_pretrained(f"{name}/transformer")
    module = Transformer(f"{name}/transformer")
    pooled = SentenceTransformer(modules=[module, Pooling(32, pooling)], device="cpu")
    pooled.save(name)
    np.save(f"{name}/vectors.npy", pooled.encode(texts))
"""
# Encodes the texts with the models in folders.
ENCODE = """
import json, sys
import numpy as np
from sentence_transformers import SentenceTransformer

texts = json.load(open("texts.json"))
for folder in sys.argv[1:]:
    np.save(f"{folder}.npy", SentenceTransformer(folder, device="cpu").encode(texts))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Holds a folder of sentence-transformers for each row, with the vectors of the texts."""
    path = write_json_files(tmp_path_factory.mktemp("models"), texts=TEXTS, rows=ROWS)
    run_peers(path, MODELS)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_vectors_are_those_of_its_library(name, folder):
    model, expected = Model.from_pretrained(folder / name), np.load(folder / name / "vectors.npy")
    vectors = model(TEXTS).numpy()
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    # A text has one vector, alone or among longer texts.
    np.testing.assert_allclose(np.concatenate([model([text]) for text in TEXTS]), vectors, atol=1e-5)
    assert np.abs(expected[0] - expected[1]).max() > 0.01


@pytest.mark.slow
def test_it_is_trained_saved_and_exported_back(folder, tmp_path):
    write_json_files(tmp_path, texts=TEXTS)
    for name in TRAINED:
        tuned = tmp_path / "tuned" / name
        xling_tf.fine_tune(folder / name, PAIRS, output=tuned, steps=3)
        model = Model.from_pretrained(tuned)
        vectors = model(TEXTS).numpy()
        assert np.abs(vectors - Model.from_pretrained(folder / name)(TEXTS)).max() > 1e-4
        model.save_pretrained(tmp_path / "saved" / name)
        for form in ("sentence-transformers", "onnx"):  # which compare their vectors with the model's
            export(tuned, form, tmp_path / form / name)
        for loaded in (tmp_path / "saved" / name, tmp_path / "sentence-transformers" / name):
            np.testing.assert_allclose(Model.from_pretrained(loaded)(TEXTS), vectors, atol=1e-5)
        runtime = xling_tf.load(tmp_path / "onnx" / name)
        np.testing.assert_allclose(runtime.encode(TEXTS), vectors, atol=1e-5)
    run_peers(tmp_path, ENCODE, *(f"sentence-transformers/{name}" for name in TRAINED))
    for name in TRAINED:
        vectors = Model.from_pretrained(tmp_path / "tuned" / name)(TEXTS)
        written = np.load(tmp_path / "sentence-transformers" / f"{name}.npy")
        np.testing.assert_allclose(written, vectors, atol=1e-5, err_msg=name)


def encoder_of(**settings):
    sizes = {"embedding_dim": 8, "intermediate_dim": 12, "num_layers": 3, "num_heads": 2}
    encoder = build_encoder({"kind": "modernbert", "num_words": 9, "max_tokens": 64, **sizes, **settings})
    random = np.random.default_rng(1)
    for variable in encoder.variables:
        variable.assign(variable + random.normal(0, 0.3, variable.shape))
    return encoder


FEATURES = TokenFeatures(
    np.arange(9, dtype=np.int32),
    np.random.default_rng(1).integers(0, 9, (3, 37)).astype(np.int32),
    np.array([37, 20, 1], np.int32),
)


@pytest.mark.parametrize("window", [1, 2, 8])
def test_blocks_have_the_outputs_and_gradients_of_all_pairs_at_once(window, monkeypatch):
    encoder, results = encoder_of(local_attention=window), []
    for windows in (99, 2):
        monkeypatch.setattr(modernbert, "_WINDOWS", windows)
        with tf.GradientTape() as tape:
            outputs = tf.function(encoder)(FEATURES, training=True)
            loss = tf.reduce_sum(outputs**2)
        variables = encoder.dense_variables
        results.append([outputs, *tape.gradient(loss, variables)])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_gradients_reach_every_variable_of_a_modernbert():
    encoder = encoder_of(norm_bias=True, attention_bias=True, mlp_bias=True)
    outputs = require_gradients(encoder, FEATURES, training=True)
    assert (outputs.dtype, outputs.shape) == (tf.float32, (3, 8))
    # By hand: table 9*8, first and last norm 2*16, norms of two of three attentions; queries, keys and values
    # 8*24 + 24, output 8*8 + 8, norm 16, feed-forward 8*24 + 24 and 12*8 + 8.
    assert encoder.count_params() == 72 + 32 + 2 * 16 + 3 * (216 + 72 + 16 + 216 + 104)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"model_type": "mpnet", **SIZES, "hidden_act": "gelu"},
            "most like those of bert; .*importers/bert.py",
        ),
        (
            {**MODERN, "model_type": "gemma3_text", "hidden_activation": "gelu"},
            "most like those of modernbert",
        ),
        ({**MODERN, "layer_types": ["sliding_attention"] * 4}, "layer_types must have full_attention first"),
        ({**MODERN, "rope_scaling": {"type": "yarn"}}, "rope_scaling .* must be None, got {'type': 'yarn'}"),
    ],
)
def test_what_is_not_known_is_refused_with_what_is_nearest(config, message, tmp_path):
    with pytest.raises(UserError, match=message):
        read_bert(write_json_files(tmp_path, config=config))
