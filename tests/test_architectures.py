"""Architectures of other libraries: a table of random models, and what each of them can do here."""

import io

import keras_hub
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from programs import run_peers
from raw_files import write_json_files
from testing import add_noise, require_gradients
from tricky_texts import sample_sentences

import xling_tf
from xling_tf.client.piece_models import CONTROL, model_proto
from xling_tf.config import SentencePieceConfig
from xling_tf.encoders import modernbert
from xling_tf.encoders.base import build_encoder
from xling_tf.errors import UserError
from xling_tf.exporters import sentence_transformers
from xling_tf.exporters.base import export
from xling_tf.exporters.tokenizer_json import tokenizer_json
from xling_tf.importers.bert import FAMILIES, read_bert
from xling_tf.model import Model
from xling_tf.tokenizers.base import TokenFeatures
from xling_tf.tokenizers.sentencepiece import SentencePieceTokenizer

TEXTS = [
    *sample_sentences()[::40],
    "",
    "naïve CAFÉ 日本語 😀",
    "the cat and the dog " * 9,
    "a " * 90,
]
PAIRS = [(text, f"{text} {number}") for number, text in enumerate(sample_sentences()[:16])]
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
BERT = {"model_type": "bert", **SIZES}
ROBERTA = {**SIZES, "type_vocab_size": 1}
DISTILBERT = {"model_type": "distilbert", "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}
DISTILUSE = [(32, 20, "Tanh", True)]
TWO = [(32, 24, "GELU", False), (24, 9, "Identity", True)]
# Windows of two tokens on each side: texts of more than 16 are computed in blocks.
MODERN = {"model_type": "modernbert", **SIZES, "num_hidden_layers": 4, "local_attention": 4}
SHORT = {**MODERN, "num_hidden_layers": 2, "pieces": "bpe"}
BIASES = {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "norm_eps": 1e-3}
BASES = {"global_attn_every_n_layers": 2, "global_rope_theta": 500.0, "local_rope_theta": 77.0}
# Settings of transformers for random models of each architecture; pooling and dense layers, if they
# are other than an average; the form of the weights; and the pieces of the tokenizer, if they are
# not WordPiece's.
ROWS = {
    "bert": BERT,
    "bert-cls-dense": {**BERT, "pooling": "cls", "dense": DISTILUSE},
    "bert-tanh": {**BERT, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "pooling": "max"},
    "bert-sharded": {**BERT, "hidden_act": "relu", "dense": TWO, "max_shard_size": "10kB"},
    "bert-float16": {**BERT, "dtype": "float16"},
    "xlm-roberta": {
        "model_type": "xlm-roberta",
        **ROBERTA,
        "num_attention_heads": 2,
        "pieces": "unigram",
    },
    "xlm-roberta-bfloat16": {"model_type": "xlm-roberta", **SIZES, "dtype": "bfloat16"},
    "roberta": {"model_type": "roberta", **ROBERTA, "layer_norm_eps": 1e-5, "pooling": "cls"},
    "camembert": {"model_type": "camembert", **ROBERTA},
    "distilbert": {**DISTILBERT, "dense": DISTILUSE},
    "modernbert": MODERN,
    "modernbert-biases": {
        **SHORT,
        **BIASES,
        **BASES,
        "hidden_activation": "silu",
        "pooling": "cls",
    },
    "modernbert-global": {**MODERN, "global_attn_every_n_layers": 1, "num_attention_heads": 2},
    "modernbert-wide": {
        **MODERN,
        "local_attention": 128,
        "hidden_activation": "gelu_new",
        "pooling": "max",
    },
    "modernbert-itself": {**MODERN, "local_attention": 1, "global_attn_every_n_layers": 9},
}
TRAINED = "modernbert-biases"  # the row that is also trained and exported

# Makes the models of rows.json with a tokenizer of texts.json, and the vectors that they give to
# the texts.
MODELS = """
import json
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

texts = json.loads(Path("texts.json").read_text("utf-8"))
built = Tokenizer(models.WordPiece(unk_token="[UNK]"))
built.normalizer = normalizers.BertNormalizer()
built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
roles = {"unk_token": "[UNK]", "cls_token": "[CLS]", "pad_token": "[PAD]", "sep_token": "[SEP]"}
special = [*roles.values(), "[MASK]"]
built.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=300, special_tokens=special))
built.post_processor = processors.TemplateProcessing(
    "[CLS] $A [SEP]", special_tokens=[(token, row) for row, token in enumerate(special)]
)
words = PreTrainedTokenizerFast(tokenizer_object=built, model_max_length=60, **roles)
roles = {"unk_token": "<unk>", "cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>"}
for name, row in json.loads(Path("rows.json").read_text()).items():
    folder, transformer = Path(name), f"{name}/transformer"
    tokenizer = words
    if pieces := row.pop("pieces", None):
        file = f"{pieces}.json"
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=file, model_max_length=60, **roles)
    pooling, dense = row.pop("pooling", "mean"), row.pop("dense", [])
    dtype, size = getattr(torch, row.pop("dtype", "float32")), row.pop("max_shard_size", "1GB")
    sizes = dict(vocab_size=len(tokenizer), max_position_embeddings=64)
    sizes["pad_token_id"] = tokenizer.pad_token_id
    model = AutoModel.from_config(AutoConfig.for_model(row.pop("model_type"), **sizes, **row))
    torch.manual_seed(1)
    for part, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=float(part.endswith("norm.weight")), std=0.3)
    model.to(dtype).save_pretrained(transformer, max_shard_size=size)
    tokenizer.save_pretrained(transformer)
    encoder = Transformer(transformer, model_kwargs=dict(dtype=torch.float32))
    modules = [encoder, Pooling(32, pooling)]
    for inputs, outputs, activation, bias in dense:
        modules.append(Dense(inputs, outputs, bias, getattr(torch.nn, activation)()))
    pooled = SentenceTransformer(modules=modules, device="cpu")
    pooled.save(name)
    # The transformer's weights as they were saved: in shards, or in 16 bits.
    (folder / "model.safetensors").unlink()
    for path in Path(transformer).glob("model*"):
        path.rename(folder / path.name)
    np.save(folder / "vectors.npy", pooled.encode(texts))
"""
# Encodes the texts with an exported model.
ENCODE = """
import json, numpy as np
from sentence_transformers import SentenceTransformer

texts = json.load(open("texts.json"))
np.save("vectors.npy", SentenceTransformer("sentence-transformers", device="cpu").encode(texts))
"""


def learn_pieces(kind, rules="nmt_nfkc"):
    """A tokenizer with XLM-RoBERTa's special pieces and rules, or Gemma's, which also has bytes."""
    model = io.BytesIO()
    options = {"bos_id": 0, "pad_id": 1, "eos_id": 2, "unk_id": 3, "vocab_size": 600}
    if kind == "bpe":
        spaces = dict.fromkeys(("add_dummy_prefix", "remove_extra_whitespaces"), False)
        rules, options = "identity", {**options, "byte_fallback": True, **spaces}
    sentencepiece.SentencePieceTrainer.train(
        **{"sentence_iterator": iter(TEXTS), "model_writer": model, "model_type": kind, **options},
        **{"hard_vocab_limit": False, "minloglevel": 2, "normalization_rule_name": rules},
    )
    proto = model_proto(model.getvalue())
    proto.pieces.add(piece="<mask>", type=CONTROL)
    config = SentencePieceConfig(sentence_marks=True, max_tokens=60)
    return SentencePieceTokenizer(proto.SerializeToString(), config)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Holds a folder of sentence-transformers for each row, with the vectors of the texts."""
    pieces = {kind: tokenizer_json(learn_pieces(kind)) for kind in ("unigram", "bpe")}
    path = write_json_files(tmp_path_factory.mktemp("models"), texts=TEXTS, rows=ROWS, **pieces)
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
    alone = [model([text])[0] for text in TEXTS[-6:]]
    np.testing.assert_allclose(alone, vectors[-6:], atol=1e-5)
    assert np.abs(expected[0] - expected[1]).max() > 1e-3


def test_each_family_has_a_row():
    assert {row["model_type"] for row in ROWS.values()} == {*FAMILIES}


@pytest.mark.slow
def test_it_is_trained_saved_and_exported_back(folder, tmp_path):
    tuned, saved, exported = (
        tmp_path / name for name in ("tuned", "saved", "sentence-transformers")
    )
    xling_tf.fine_tune(folder / TRAINED, PAIRS, output=tuned, steps=3)
    model = Model.from_pretrained(tuned)
    vectors = model(TEXTS).numpy()
    assert np.abs(vectors - Model.from_pretrained(folder / TRAINED)(TEXTS)).max() > 1e-4
    model.save_pretrained(saved)
    export(tuned, exported.name, exported)  # compares the vectors of its ONNX model
    for loaded in (saved, exported):
        np.testing.assert_allclose(Model.from_pretrained(loaded)(TEXTS), vectors, atol=1e-5)
    write_json_files(tmp_path, texts=TEXTS)
    run_peers(tmp_path, ENCODE)
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), vectors, atol=1e-5)


@pytest.mark.slow
# keras-hub leaves a file open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["bert", "xlm-roberta"])
def test_keras_hub_loads_what_is_exported(name, folder, tmp_path):
    model = Model.from_pretrained(folder / name)
    model.export(tmp_path / "model", {})
    export(tmp_path / "model", "sentence-transformers", tmp_path / "exported")
    embedder = keras_hub.models.TextEmbedder.from_preset(str(tmp_path / "exported"))
    texts = [text for text in TEXTS if text.isascii()]  # keras-hub keeps accents
    vectors = embedder.predict(texts, verbose=0)
    np.testing.assert_allclose(vectors, model(texts), atol=1e-3)  # and approximates the activation


def test_transformers_is_told_of_an_xlm_roberta_only_if_its_rules_are_those_of_one(tmp_path):
    write = sentence_transformers._write_vocabulary
    assert write(tmp_path, learn_pieces("unigram")) == {"tokenizer_class": "XLMRobertaTokenizer"}
    assert (
        write(tmp_path, learn_pieces("bpe"))
        == write(tmp_path, learn_pieces("unigram", "identity"))
        == {}
    )


def encoder_of(**settings):
    sizes = {"embedding_dim": 8, "intermediate_dim": 12, "num_layers": 3, "num_heads": 2}
    encoder = build_encoder(
        {"kind": "modernbert", "num_words": 9, "max_tokens": 64, **sizes, **settings}
    )
    add_noise(encoder.variables, 0.3)
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
    # By hand: table 9*8, first and last norm 2*16, norms of two of three attentions; queries, keys
    # and values 8*24 + 24, output 8*8 + 8, norm 16, feed-forward 8*24 + 24 and 12*8 + 8.
    assert encoder.count_params() == 72 + 32 + 2 * 16 + 3 * (216 + 72 + 16 + 216 + 104)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"model_type": "mpnet", **SIZES, "hidden_act": "gelu"},
            "like those of bert; .*importers/bert.py",
        ),
        (
            {**MODERN, "model_type": "gemma3_text", "hidden_activation": "gelu"},
            "like those of modernbert",
        ),
        (
            {**MODERN, "layer_types": ["sliding_attention"] * 4},
            "layer_types must have full_attention first",
        ),
        (
            {**MODERN, "rope_scaling": {"type": "yarn"}},
            "rope_scaling .* must be None, got {'type': 'yarn'}",
        ),
    ],
)
def test_what_is_not_known_is_refused_with_what_is_nearest(config, message, tmp_path):
    with pytest.raises(UserError, match=message):
        read_bert(write_json_files(tmp_path, config=config))
