"""Exports with smaller tables, and to other libraries: the vectors are the SavedModel's."""

import dataclasses
import json
import re
import shutil
from functools import cache
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from programs import LOADERS, PEERS, ROOT, run_python, the_error
from testing import SENTENCES, add_noise, tiny_config, tiny_model
from tricky_texts import FRAGMENTS

from xling_tf.config import BertConfig, ModelInfo, WordPieceConfig, WordsConfig
from xling_tf.corpora.trained_on import TRAINED_ON, TrainedOn
from xling_tf.encoders.base import encoder_settings
from xling_tf.errors import UserError
from xling_tf.evaluators.embedders import open_embedder
from xling_tf.exporters import base, model2vec, sentence_transformers
from xling_tf.exporters.base import OriginalModel, export, sample_texts
from xling_tf.exporters.tokenizer_json import UNKNOWN_WORD, tokenizer_json
from xling_tf.model import Model
from xling_tf.savedmodel.encoder import QuantizedTable, restored_tables
from xling_tf.savedmodel.saved_models import load_saved_model
from xling_tf.tokenizers.treebank import EMPTY_TOKEN
from xling_tf.tokenizers.wordpiece import WordPieceTokenizer
from xling_tf.tokenizers.words import WordTokenizer
from xling_tf.weights import read_weights

tokenizers = pytest.importorskip("tokenizers")

SAMPLE = sample_texts(None, ("en", "es"))
# model2vec cuts texts at a number of characters too, so that sentences may have many tokens here.
STATIC = (
    "encoder.kind=static",
    "encoder.embedding_dim=6",
    "encoder.hidden_dim=8",
    "tokenizer.max_tokens=256",
)
PIECES = ("tokenizer.kind=sentencepiece", "tokenizer.num_pieces=400", "tokenizer.max_tokens=32")
# Words that a model does not know are lost in these exports; these models know the sample's.
MODELS = {
    "words": ("tokenizer.max_tokens=32",),
    "static words": STATIC,
    "static pieces": (*PIECES, *STATIC),
}
MARKED = (*PIECES, *STATIC, "tokenizer.sentence_marks=true")


def make_bert() -> Model:
    """A BERT of words of the sample, with two dense layers and a prompt."""
    words = sorted({word for text in SAMPLE for word in text.lower().split() if word.isalpha()})
    letters = sorted({letter for text in SAMPLE for letter in text.lower() if not letter.isspace()})
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [*marks, *letters, *(f"##{letter}" for letter in letters), *words]
    tokenizer = WordPieceTokenizer(
        dict.fromkeys(vocabulary), WordPieceConfig(max_tokens=24, lowercase=True)
    )
    config = BertConfig(
        **{
            "embedding_dim": 8,
            "intermediate_dim": 16,
            "num_layers": 2,
            "num_heads": 2,
            "max_positions": 32,
        },
        pooling="max",
        **{"dense_dims": (12, 6), "dense_activations": ("tanh", "linear")},
    )
    info = ModelInfo(
        prompts={"query": "query: ", "document": "text: "}, default_prompt_name="query"
    )
    return Model(tokenizer, encoder_settings(config, tokenizer), info)


@pytest.fixture(scope="module")
def folder_of(exports, tmp_path_factory):
    """Exports a model of a kind when it is first asked for."""

    @cache
    def make(kind: str) -> Path:
        if kind == "cnn":
            return exports(kind)[1]
        keras.utils.set_random_seed(1)
        texts = {"en": SAMPLE[::2], "es": SAMPLE[1::2]}
        model = make_bert() if kind == "bert" else tiny_model(tiny_config(*MODELS[kind]), texts)
        model.heads.clear()  # exporters leave them out, and to export them takes half the time
        add_noise(model.weights.values())
        folder = tmp_path_factory.mktemp("models") / kind.replace(" ", "-")
        model.export(folder, {})
        return folder

    return make


@pytest.mark.parametrize("bigrams", [False, True])
@pytest.mark.parametrize("lowercase", [False, True])
def test_words_are_those_of_the_tokenizers_library(lowercase, bigrams):
    vocabulary = [
        EMPTY_TOKEN,
        "hola",
        "don",
        "n't",
        ",",
        "北",
        "é",
        "'",
        "1,234",
        ".",
        "he",
        "'s",
        "...",
    ]
    inside = WordTokenizer(
        vocabulary,
        WordsConfig(lowercase=lowercase, bigrams=bigrams, ngram_sizes=(), num_oov_buckets=1),
    )
    outside = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(inside)))
    fragments = [fragment for fragment in FRAGMENTS if fragment != "\ud800"]
    texts = [*SAMPLE, *SENTENCES, *fragments, " ".join(fragments), "".join(fragments), "x. " * 100]
    ids = inside.tokenize(tf.constant(texts))
    expected = ids.with_values(inside.word_ids(ids.values)).to_list()
    expected = [row if text else [] for text, row in zip(texts, expected, strict=True)]
    found = [encoding.ids for encoding in outside.encode_batch(texts)]
    if bigrams:  # texts of Chinese, Japanese, Thai ... have unknown words
        unspaced = re.compile("[\u0e00-\u17ff\u3040-\u9fff\uff66-\uff9f𠀀-𱍊]")
        rows = list(zip(texts, found, expected, strict=True))
        assert all(len(vocabulary) in ids for text, ids, _ in rows if unspaced.search(text))
        _, found, expected = zip(*(row for row in rows if not unspaced.search(row[0])), strict=True)
        assert len(found) > 100
    assert found == expected
    assert outside.token_to_id(UNKNOWN_WORD) == len(vocabulary)


def test_an_export_replaces_an_earlier_one_and_nothing_else(folder_of, tmp_path):
    folder, output = folder_of("static words"), tmp_path / "output"
    for _ in range(2):
        export(folder, "keras", output)
    assert {path.name for path in tmp_path.iterdir()} == {"output"}
    with pytest.raises(UserError, match="`output` must be a new folder"):
        export(folder, "keras", folder)
    with pytest.raises(UserError, match="`output` must name a folder"):
        export(folder, "keras", Path())
    with pytest.raises(UserError, match="there is no such folder"):
        export(folder, "keras", output, data=tmp_path / "data")


def test_wheels_and_their_cards_join_what_is_in_a_folder(folder_of, tmp_path):
    output = tmp_path / "dist"
    output.mkdir()
    (output / "README.md").write_text("Mine.")
    for name in ("first", "second"):
        path = export(folder_of("static pieces"), "wheel", output, name=name)
        assert path == output / f"{name}-1-py3-none-any.whl"
    wheels = {f"{name}-1-py3-none-any.whl" for name in ("first", "second")}
    assert {path.name for path in output.iterdir()} == {
        *wheels,
        "README.md",
        "first.md",
        "second.md",
    }
    assert (output / "README.md").read_text() == "Mine."
    assert "import first" in (output / "first.md").read_text()
    with pytest.raises(UserError, match="is in the format savedmodel"):
        export(folder_of("static pieces"), "wheel", folder_of("static words"), name="first")


@pytest.mark.parametrize(
    ("form", "missing", "extra"),
    [
        ("onnx", "tf2onnx", "export"),
        ("sentence-transformers", "tokenizers", "export"),
        ("litert", "ai_edge_litert", "export"),
        ("wheel", "wordfreq", "data"),
    ],
)
def test_a_missing_package_is_told_before_the_model_is_loaded(
    form, missing, extra, folder_of, tmp_path, monkeypatch
):
    folder = folder_of("static words")
    monkeypatch.setattr(base, "find_spec", lambda name: None if name == missing else object())
    monkeypatch.setattr(base, "load_saved_model", lambda folder: pytest.fail("it was loaded"))
    with pytest.raises(UserError, match=rf"xling_tf\[{extra}\]"):
        export(folder, form, tmp_path / "output")
    assert not (tmp_path / "output").exists() or not any((tmp_path / "output").iterdir())


def test_models_of_other_libraries_and_exports_to_other_formats_are_not_replaced(
    folder_of, tmp_path
):
    output = tmp_path / "output"
    (output / "onnx").mkdir(parents=True)
    for name in (
        "config.json",
        "modules.json",
        "model.safetensors",
        "onnx/model.onnx",
        "README.md",
    ):
        (output / name).write_text("{}")
    for form in ("sentence-transformers", "model2vec", "keras"):
        with pytest.raises(UserError, match="holds something else"):
            export(folder_of("static words"), form, output)
    with pytest.raises(UserError, match="holds something else"):
        Model.from_pretrained(folder_of("static words")).save_pretrained(output)
    (output / "README.md").write_text("Exported by xling_tf.")
    with pytest.raises(UserError, match="is in the format sentence-transformers"):
        export(folder_of("static words"), "model2vec", output)
    # LiteRT's and ONNX Runtime's folders differ in the model's file alone.
    shutil.rmtree(output)
    export(folder_of("static words"), "onnx", output)
    with pytest.raises(UserError, match="holds something else"):
        export(folder_of("static words"), "litert", output)


def test_what_a_format_cannot_express_is_refused(hub_folder, tmp_path):
    with pytest.raises(
        UserError, match=r"an average of word vectors.* has the encoder transformer"
    ):
        export(hub_folder, "model2vec", tmp_path / "output")
    with pytest.raises(UserError, match="`tables` needs `to` savedmodel"):
        export(hub_folder, "onnx", tmp_path / "output", tables="int8")
    with pytest.raises(UserError, match="did you mean onnx"):
        export(hub_folder, "onxx", tmp_path / "output")
    assert not [*tmp_path.iterdir()]


def test_bigrams_cannot_be_expressed_for_languages_that_need_them(tmp_path):
    model = tiny_model(tiny_config(*STATIC, "tokenizer.bigrams=true"), [EMPTY_TOKEN, "a", "我爱"])
    model.info = dataclasses.replace(model.info, languages=["en", "zh_TW"])
    for module in (model2vec, sentence_transformers):
        with pytest.raises(UserError, match="bigrams, and the model has them for zh"):
            module.export(OriginalModel(tmp_path, model, model, None), tmp_path / "output")


def test_marks_around_sentences_cannot_be_expressed(tmp_path):
    model = tiny_model(tiny_config(*MARKED), {"en": SAMPLE[::2], "es": SAMPLE[1::2]})
    with pytest.raises(UserError, match="no special tokens"):
        model2vec.export(OriginalModel(tmp_path, model, model, None), tmp_path / "output")


def test_unknown_words_count_for_nothing_in_a_table_of_words(tmp_path):
    # StaticEmbedding of sentence-transformers adds the row of unknown words, which must be zeros.
    settings = ("tokenizer.ngram_sizes=", "tokenizer.num_oov_buckets=1", *STATIC)
    model = tiny_model(tiny_config(*settings), [EMPTY_TOKEN, "hola", "don"])
    add_noise(model.weights.values())
    model2vec.export(
        OriginalModel(tmp_path, model, lambda texts: model(list(texts)).numpy(), None), tmp_path
    )
    table = read_weights(tmp_path / "model.safetensors")["embeddings"]
    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    assert not table[vocabulary[UNKNOWN_WORD]].any()
    # A word has the projection of its row.
    rows, kernel, bias = (variable.numpy() for variable in model.encoder.variables)
    for word, row in (("hola", 1), ("don", 2)):
        assert table[vocabulary[word]] == pytest.approx(rows[row] @ kernel + bias, abs=1e-6)


def test_special_tokens_are_those_of_the_vocabulary(tmp_path):
    # [PAD] is the first of make_bert's marks.
    assert sentence_transformers._write_tokenizer(tmp_path, make_bert()) == 0
    roles = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    assert json.loads((tmp_path / "special_tokens_map.json").read_text()) == roles


@pytest.mark.parametrize(("error", "is_refused"), [(5e-5, False), (2e-4, True), (np.nan, True)])
def test_an_export_whose_vectors_are_others_is_refused(
    error, is_refused, folder_of, tmp_path, monkeypatch
):
    encode_by = base.encode_by
    monkeypatch.setattr(
        base, "encode_by", lambda saved: lambda texts: encode_by(saved)(texts) + error
    )
    if is_refused:
        with pytest.raises(UserError, match="vectors differ"):
            export(folder_of("static words"), "keras", tmp_path / "output")
    else:
        export(folder_of("static words"), "keras", tmp_path / "output")
    assert (tmp_path / "output").exists() == (not is_refused)


def test_flags_that_do_not_fit_are_refused(tmp_path):
    for flags, message in {
        ("--to=onnx",): "--to needs --output",
        (
            "--to=onnx",
            "--output=out",
            "--match=answer=x.tsv",
        ): "--match needs --to savedmodel",
    }.items():
        run = run_python(tmp_path, str(ROOT / "export" / "main.py"), "--model=m", *flags)
        assert message in the_error(run)


def outputs(folder):
    """What its signatures give for sentences."""
    model = open_embedder(str(folder))
    sides = model.encode_questions(SENTENCES), model.encode_responses(SENTENCES, SENTENCES)
    return model(SENTENCES), *sides, model.infer(SENTENCES, SENTENCES[::-1])


@pytest.mark.slow
def test_with_smaller_tables_every_signature_gives_nearly_what_it_did(hub_folder, tmp_path):
    folder = shutil.copytree(hub_folder, tmp_path / "whole")
    output = tmp_path / "small"
    hashes = TrainedOn.from_hashes([]).to_bytes()
    (folder / TRAINED_ON).write_bytes(hashes)
    export(folder, "savedmodel", output, tables="int8")
    assert (output / TRAINED_ON).read_bytes() == hashes
    whole, small = load_saved_model(folder), load_saved_model(output)
    assert {*small.signatures} == {*whole.signatures}
    for found, expected in zip(outputs(output), outputs(folder), strict=True):
        np.testing.assert_allclose(found, expected, atol=3e-2)
    assert 1 in {variable.dtype.size for variable in small.variables}
    # The tables cannot be trained, everything else can.
    assert len(small.trainable_variables) < len(whole.trainable_variables)
    assert "fewer bytes" in (output / "README.md").read_text()
    # All can be trained again in float32.
    np.testing.assert_allclose(
        Model.from_pretrained(output)(SENTENCES), small(SENTENCES), atol=1e-5
    )
    with pytest.raises(UserError, match="another folder"):
        export(folder, "savedmodel", folder, tables="int8")


@pytest.mark.parametrize("size", [1.0, 1e6, 1e-9])
def test_rows_are_as_near_as_half_a_step_of_127_or_three_digits_of_their_largest_number(size):
    rows = size * np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    rows[3] = 0
    largest = np.abs(rows).max(axis=1, keepdims=True)
    for tables, step in (("int8", 1 / 127), ("float16", 2.0**-10)):
        kept = QuantizedTable(rows, tables)(np.arange(20)).numpy()
        assert (np.abs(kept - rows) <= largest * step / 2 * (1 + 1e-5)).all()


def test_the_scales_of_tables_are_multiplied_and_other_weights_of_that_name_stay():
    exported = {
        "encoder/table": np.array([[127, -64]], np.int8),
        "encoder/table/scales": np.array([[0.5]], np.float32),
        "encoder/norm/scales": np.array([2.0], np.float32),
    }
    restored = restored_tables(exported, None, None)
    assert {name: array.tolist() for name, array in restored.items()} == {
        "encoder/table": [[63.5, -32.0]],  # 127 and -64 times 0.5
        "encoder/norm/scales": [2.0],
    }


# Encodes the texts of texts.json with the model in each folder, whose name begins with the
# library's.
LOADERS_CODE = """
import json, numpy as np
from pathlib import Path

texts = json.load(open("texts.json"))
for path in filter(Path.is_dir, Path().iterdir()):
    if path.name.startswith("model2vec"):
        from model2vec import StaticModel
        model = StaticModel.from_pretrained(path)
    else:
        from sentence_transformers import SentenceTransformer
        # Only a BERT has weights for torch.
        backend = "torch" if (path / "model.safetensors").exists() else "onnx"
        model = SentenceTransformer(str(path), backend=backend, device="cpu")
    np.save(f"{path.name}.npy", np.asarray(model.encode(texts), np.float32))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not LOADERS.exists(), reason="loaders of exports are not there; make .peers/.installed"
)
@pytest.mark.parametrize(
    ("python", "forms"),
    [
        (
            PEERS,
            {
                "bert": "sentence-transformers",
                "static words": "model2vec",
                "static pieces": "model2vec",
            },
        ),
        (LOADERS, {"words": "sentence-transformers", "cnn": "sentence-transformers"}),
    ],
)
def test_other_libraries_give_the_vectors_of_the_model(python, forms, folder_of, tmp_path):
    outputs = {kind: tmp_path / f"{form} {kind}" for kind, form in forms.items()}
    for kind, form in forms.items():
        export(folder_of(kind), form, outputs[kind])
    (tmp_path / "texts.json").write_text(json.dumps(SAMPLE))
    run = run_python(tmp_path, "-c", LOADERS_CODE, python=python)
    assert run.status == 0, run.errors
    for kind, output in outputs.items():
        expected = load_saved_model(folder_of(kind))(tf.constant(SAMPLE)).numpy()
        differences = np.abs(np.load(f"{output}.npy") - expected).max(axis=1)
        if kind == "static pieces":  # model2vec leaves out the piece of unknown characters
            assert 0.99 < np.mean(differences < 1e-5) < 1
        else:
            assert differences.max() < 1e-5, kind
        if kind == "bert":  # and back
            again, model = Model.from_pretrained(output), Model.from_pretrained(folder_of(kind))
            np.testing.assert_allclose(again(SENTENCES), model(SENTENCES), atol=1e-5)
