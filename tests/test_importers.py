"""Models of other libraries, by their files: static ones, wheels, and what is refused."""

import gzip
import io
import json
import stat
import tarfile
import zipfile

import numpy as np
import pytest
from programs import ROOT, run_peers, run_program
from raw_files import write_json_files
from safetensors.numpy import save_file
from test_bert import CONFIG, write
from test_bert import tensors as bert_tensors
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

import xling_tf
from xling_tf.errors import UserError
from xling_tf.exporters.base import export
from xling_tf.importers.base import read_base_model, read_licence, read_similarity
from xling_tf.model import Model, import_model
from xling_tf.savedmodel.saved_models import LIMITS, find_model, is_foreign, licence_files

SAMPLE = ROOT / "xling_tf" / "corpora" / "sample" / "parallel" / "everyday.en-fr.tsv"
# Rows of a table, with their vectors in two dimensions.
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "dog", "run", "##s", "."]
TABLE = np.array(
    [[9, 9], [8, 8], [7, 7], [6, 6], [1, 0], [0, 1], [4, 0], [0, 4], [2, 2]], np.float32
)
STATIC = [{"idx": 0, "path": "", "type": "sentence_transformers.models.StaticEmbedding"}]


def unit(vector):
    return np.asarray(vector) / np.linalg.norm(vector)


def write_static(folder, tensors, *, modules=STATIC, **config):
    """Writes a folder as model2vec or sentence-transformers do."""
    folder.mkdir(exist_ok=True)
    tokenizer = Tokenizer(
        models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file(tensors, folder / "model.safetensors")
    contents = {"modules": modules, "config": config}
    return write_json_files(
        folder, **{name: content for name, content in contents.items() if content}
    )


@pytest.fixture
def model2vec(tmp_path):
    """The folder of a model of model2vec."""
    return write_static(tmp_path / "m", {"embeddings": TABLE}, model_type="model2vec")


def test_static_models_are_averages_without_marks_around_the_sentence(tmp_path):
    # StaticEmbedding averages unknown tokens too; model2vec leaves them out.
    st = Model.from_pretrained(write_static(tmp_path / "st", {"embedding.weight": TABLE}))
    m2v = Model.from_pretrained(
        write_static(tmp_path / "m2v", {"embeddings": TABLE}, model_type="model2vec", max_length=3)
    )
    texts = ["A dog runs", "cat dogs"]
    expected = [unit([1 + 0 + 4 + 0, 0 + 1 + 0 + 4]), unit([8 + 0 + 0, 8 + 1 + 4])]
    np.testing.assert_allclose(st(texts), expected, atol=1e-6)
    np.testing.assert_allclose(m2v(texts), [unit([1 + 0 + 4, 1]), unit([0, 1 + 4])], atol=1e-6)
    assert m2v.tokenizer.config.max_tokens == 3  # "##s" is cut off
    assert m2v.config()["encoder"]["kind"] == "static"


def test_the_padding_to_no_length_of_model2vecs_distill_is_none(model2vec):
    path = model2vec / "tokenizer.json"
    tokenizer = json.loads(path.read_text("utf-8"))
    padding = {"direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    padding |= {"strategy": {"Fixed": 0}, "pad_to_multiple_of": None}
    path.write_text(json.dumps(tokenizer | {"padding": padding}), "utf-8")
    vectors = Model.from_pretrained(model2vec)(["A dog"]).numpy()
    np.testing.assert_allclose(vectors, [unit([1, 1])], atol=1e-6)
    padding["strategy"] = {"Fixed": 4}
    path.write_text(json.dumps(tokenizer | {"padding": padding}), "utf-8")
    with pytest.raises(UserError, match="the padding must be"):
        Model.from_pretrained(model2vec)


def test_the_length_from_which_model2vec_cuts_texts_is_told(tmp_path, caplog):
    folder = write_static(tmp_path, {"embeddings": TABLE}, model_type="model2vec", max_length=4)
    with caplog.at_level("INFO", logger="absl"):
        Model.from_pretrained(folder)
    # The lengths of WORDS are 1, 1, 3, 3, 3, 5, 5, 5 and 5.
    assert "first 12 characters of a text, this model its first 4 tokens" in caplog.text


def test_a_vocabulary_of_fewer_vectors_than_tokens_is_written_out(tmp_path):
    rows, factors = np.array([0, 0, 0, 0, 1, 2, 1, 2, 0]), np.arange(9).astype(np.float16)
    for kind in (np.float16, np.int8):
        table = np.array([[9, 9], [3, 0], [0, 5]], kind)
        tensors = {"embeddings": table, "mapping": rows, "weights": factors}
        model = Model.from_pretrained(write_static(tmp_path, tensors, normalize=False))
        # a is 4 times the first vector, dog 5 times the second; run and ##s 6 and 7 times.
        expected = [unit([4 * 3 + 6 * 3, 5 * 5 + 7 * 5])]
        np.testing.assert_allclose(model(["a dog runs"]), expected, atol=1e-6)


def test_tables_beyond_any_model_are_refused_before_they_are_made(tmp_path, monkeypatch):
    monkeypatch.setitem(LIMITS, "values", 17)
    tensors = {"embeddings": TABLE, "mapping": np.arange(9)}
    with pytest.raises(UserError, match="at most 17 numbers, but has 9 rows of 2"):
        Model.from_pretrained(write_static(tmp_path, tensors, model_type="model2vec"))
    wide = {"embedding.weight": np.ones((9, 1 + LIMITS["dimensions"]), np.float16)}
    with pytest.raises(UserError, match=r"the width .* from 1 to 16384, got 16385"):
        Model.from_pretrained(write_static(tmp_path, wide))
    short = {"embedding.weight": TABLE[:8]}
    with pytest.raises(UserError, match=r"from 0 to 7, .* '\.' is 8"):
        Model.from_pretrained(write_static(tmp_path, short))


def test_a_wheel_becomes_an_export_with_its_licence_and_comes_back(model2vec, tmp_path):
    folder = model2vec
    card = (
        "---\nlanguage:\n- multilingual\n- en\n- pt-br\nlicense: mit\nbase_model: a/b\n---\n# M\n"
    )
    (folder / "README.md").write_text(card)
    (folder / "NOTICE").write_text("By us.")
    prompts = {"prompts": {"query": "a ", "passage": "dog "}, "default_prompt_name": None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    wheel = tmp_path / "words-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in folder.iterdir():
            archive.write(path, f"words/data/{path.name}")
    run = run_program(tmp_path, "export/import_model.py", str(wheel), "--output=exported")
    assert all(fact in run.output for fact in ("static", "9 words", "licence mit"))
    model = Model.from_pretrained(tmp_path / "exported")
    assert model.info.languages == ("en", "pt-br")
    assert model.info.prompts == prompts["prompts"]
    assert model.info.description == "words, imported"
    assert (tmp_path / "exported" / "NOTICE").read_text() == "By us."
    assert "`words`" in (tmp_path / "exported" / "README.md").read_text()
    np.testing.assert_allclose(model(["a dog"]), Model.from_pretrained(wheel)(["a dog"]), atol=1e-6)
    # It comes back from an export to its library.
    export(tmp_path / "exported", "model2vec", tmp_path / "back")
    back, texts = Model.from_pretrained(tmp_path / "back"), ["a dog", "dog runs the dog", "a a."]
    np.testing.assert_allclose(back(texts), model(texts), atol=1e-5)
    assert back.info.languages == model.info.languages
    for read in (read_licence, read_base_model):
        assert read(tmp_path / "back") == read(tmp_path / "exported") != ""
    assert (tmp_path / "back" / "NOTICE").read_text() == "By us."


def test_other_models_are_refused_in_one_line(tmp_path):
    folder = tmp_path / "m"

    def require_refused(message, path=folder):
        with pytest.raises(UserError, match=message) as caught:
            Model.from_pretrained(path)
        assert "\n" not in str(caught.value)

    with_dense = [
        *STATIC,
        {"path": "1", "type": "x.models.Dropout"},
        {"path": "2", "type": "x.models.Dense"},
    ]
    for tensors, modules, message in (
        ({"other": TABLE}, STATIC, "a file lacks something or was changed .'embedding.weight'"),
        ({"embeddings": TABLE[:5]}, STATIC, "ids must be from 0 to 4, .* that of 'dog' is 5"),
        (
            {"embeddings": np.where(TABLE == 7, np.nan, TABLE)},
            STATIC,
            "must be finite, but encoder/",
        ),
        (
            {"embeddings": TABLE},
            with_dense,
            "nothing but Normalize after StaticEmbedding, got Dense",
        ),
    ):
        write_static(folder, tensors, modules=modules)
        assert is_foreign(folder)
        require_refused(message)
    with pytest.raises(UserError, match=r"import it with xling-tf import .*m"):
        xling_tf.load(folder)
    require_refused(r"has no config\.json, only m", tmp_path)
    write_static(folder, {"embeddings": TABLE})
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    require_refused(
        r"in model\.safetensors, but there are only .*; write a copy of the model in that format"
    )
    for path in folder.iterdir():
        path.unlink()
    (folder / "pytorch_model.bin").touch()
    require_refused(r"with config\.json and model\.safetensors, but .* has only pytorch_model\.bin")
    with zipfile.ZipFile(tmp_path / "x-1.whl", "w") as archive:
        archive.writestr("x/__init__.py", "")
    require_refused("expected a wheel with a model in it", tmp_path / "x-1.whl")
    assert not is_foreign(tmp_path)


def test_static_models_need_no_list_of_modules(tmp_path):
    folder = write_static(
        tmp_path / "m", {"embeddings": TABLE}, model_type="model2vec", modules=None
    )
    np.testing.assert_allclose(Model.from_pretrained(folder)(["a dog"]), [unit([1, 1])], atol=1e-6)


@pytest.mark.parametrize(
    ("section", "changes"),
    [
        ("encoder", {"hidden_dim": 2.0}),
        ("encoder", {"embedding_dim": "2"}),
        ("encoder", {"hidden_dim": True}),
        ("tokenizer", {"max_tokens": "8"}),
        ("tokenizer", {"lowercase": "no"}),
        ("info", {"languages": "en"}),
        ("info", {"prompts": {"query": 3}}),
        ("info", {"similarity": {"scale": "1"}}),
        ("info", {"similarity": 3}),
        ("heads", {"inference": {"x": 7}}),
        ("heads", {"inference": {"x": "y"}}),
        ("heads", {"inference": [7]}),
    ],
)
def test_settings_of_another_type_are_told_in_one_line(model2vec, tmp_path, section, changes):
    folder = tmp_path / "saved"
    Model.from_pretrained(model2vec).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config[section] |= changes
    write_json_files(folder, config=config)
    with pytest.raises(UserError) as caught:
        Model.from_pretrained(folder)
    assert "\n" not in str(caught.value)


def test_a_setting_of_another_type_in_a_bert_is_told_in_one_line(tmp_path):
    for changes in ({"layer_norm_eps": "1e-12"}, {"layer_norm_eps": None}):
        config = {**CONFIG, **changes}
        folder = write(tmp_path / "m", bert_tensors(), config)
        (folder / "vocab.txt").write_text("\n".join(WORDS), "utf-8")
        with pytest.raises(UserError, match="epsilon"):
            Model.from_pretrained(folder)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_archives_with_links_are_refused(tmp_path, kind):
    for target in ("config.json", "..", "/etc"):
        with tarfile.open(tmp_path / "m.tar", "w") as file:
            config = tarfile.TarInfo("m/config.json")
            config.size = 2
            file.addfile(config, io.BytesIO(b"{}"))
            link = tarfile.TarInfo("m/link")
            link.type, link.linkname = kind, target
            file.addfile(link)
        find_model.__globals__["_unpacked"].cache_clear()
        with pytest.raises(UserError, match=r"m\.tar .* 'm/link' is a link"):
            find_model(tmp_path / "m.tar")


def test_zip_archives_with_links_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as file:
        link = zipfile.ZipInfo("m/link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        file.writestr(link, "/etc/passwd")
    with pytest.raises(UserError, match="is a link"):
        find_model(tmp_path / "m.zip")


def make_archive(path, sizes):
    """Writes an archive of members of zeros, of the format of its name."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for number, size in enumerate(sizes):
                with file.open(f"m/{number}", "w") as member:
                    for _ in range(0, size, 1 << 20):
                        member.write(bytes(min(size, 1 << 20)))
        return path
    with tarfile.open(path, f"w:{path.suffix.removeprefix('.tar').lstrip('.')}") as file:
        for number, size in enumerate(sizes):
            member = tarfile.TarInfo(f"m/{number}")
            member.size = size
            file.addfile(member, io.BytesIO(bytes(size)))
    return path


@pytest.mark.parametrize("name", ["m.zip", "m.tar", "m.tar.gz", "m.tar.bz2", "m.tar.xz"])
def test_archives_that_unpack_to_too_much_are_refused_before_they_do(tmp_path, monkeypatch, name):
    # Three files of 40,000 bytes: within the limit of a file, but not together.
    make_archive(tmp_path / name, [40_000] * 3)
    assert len([*find_model(tmp_path / name).iterdir()]) == 3
    monkeypatch.setitem(LIMITS, "unpacked bytes", 100_000)
    find_model.__globals__["_unpacked"].cache_clear()
    with pytest.raises(UserError, match="at most 100,000 bytes"):
        find_model(tmp_path / name)
    monkeypatch.setitem(LIMITS, "unpacked bytes", 1_000_000)
    monkeypatch.setitem(LIMITS, "members", 2)
    with pytest.raises(UserError, match="at most 2 files"):
        find_model(tmp_path / name)


@pytest.mark.parametrize("name", ["m.zip", "m.tar.gz"])
def test_a_small_archive_of_many_zeros_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr("xling_tf.savedmodel.saved_models._SMALL", 1 << 20)
    # Zeros become a thousandth when compressed.
    make_archive(tmp_path / name, [1 << 22])
    with pytest.raises(UserError, match="must unpack to at most 1,048,576 bytes"):
        find_model(tmp_path / name)


def test_headers_of_a_tar_and_what_follows_its_end_count_as_well(tmp_path, monkeypatch):
    monkeypatch.setitem(LIMITS, "unpacked bytes", 1 << 20)
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 22  # tarfile reads such a header into memory
    with gzip.open(tmp_path / "header.tar.gz", "wb") as file:
        file.write(header.tobuf() + bytes(1 << 22))
    make_archive(tmp_path / "m.tar", [10])
    with gzip.open(tmp_path / "end.tar.gz", "wb") as file:
        file.write((tmp_path / "m.tar").read_bytes() + bytes(1 << 22))
    for name in ("header", "end"):
        with pytest.raises(UserError, match="at most 1,048,576 bytes"):
            find_model(tmp_path / f"{name}.tar.gz")


def test_licences_that_are_links_to_outside_are_not_copied(model2vec, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "m" / "texts").mkdir()
    (tmp_path / "m" / "texts" / "notice").write_text("By us.")
    (model2vec / "LICENSE").symlink_to(tmp_path / "secret")
    (model2vec / "NOTICE").symlink_to("texts/notice")
    import_model(model2vec, tmp_path / "exported")
    assert [path.name for path in licence_files(tmp_path / "exported")] == ["NOTICE"]
    # Hugging Face's cache has links alone.
    snapshot = tmp_path / "models--a--b" / "snapshots" / "0123"
    for folder in (snapshot, tmp_path / "models--a--b" / "blobs"):
        folder.mkdir(parents=True)
    (tmp_path / "models--a--b" / "blobs" / "89").write_text("MIT License")
    (snapshot / "LICENSE").symlink_to("../../blobs/89")
    (snapshot / "NOTICE").symlink_to(tmp_path / "secret")
    assert [path.name for path in licence_files(snapshot)] == ["LICENSE"]


@pytest.mark.parametrize("is_absolute", [False, True])
def test_files_outside_a_model_are_not_read(model2vec, tmp_path, is_absolute):
    other = write_static(tmp_path / "other", {"embeddings": TABLE})
    outside = str(other) if is_absolute else "../other"
    write_json_files(model2vec, modules=[{**STATIC[0], "path": outside}])
    with pytest.raises(UserError, match="files in that folder"):
        Model.from_pretrained(model2vec)
    index = {"weight_map": {"embeddings": f"{outside}/model.safetensors"}}
    write_json_files(model2vec, **{"modules": STATIC, "model.safetensors.index": index})
    with pytest.raises(UserError, match="files in that folder"):
        Model.from_pretrained(model2vec)


def test_an_adapter_is_refused_with_and_without_its_base_model(tmp_path):
    folder = tmp_path / "m"
    write_static(folder, {"embeddings": TABLE}, modules=[{**STATIC[0], "path": "0_Static"}])
    write_json_files(folder / "0_Static", adapter_config={"peft_type": "LORA"})
    alone = write_json_files(tmp_path, adapter_config={"peft_type": "LORA"})
    for path in (folder, alone):
        with pytest.raises(UserError, match=r"adapter_config\.json is of an adapter; merge it"):
            Model.from_pretrained(path)
    with pytest.raises(UserError, match="model of another library"):
        xling_tf.load(alone)


def test_prompts_are_texts_without_special_tokens_which_are_named_for_texts(model2vec, caplog):
    content = json.loads((model2vec / "tokenizer.json").read_text("utf-8"))
    added = [{"id": row, "content": WORDS[row], "special": True} for row in (0, 3, 5)]
    write_json_files(model2vec, tokenizer={**content, "added_tokens": added})

    def with_prompts(default=None, **prompts):
        settings = {"prompts": prompts, "default_prompt_name": default}
        return Model.from_pretrained(
            write_json_files(model2vec, config_sentence_transformers=settings)
        )

    for prompt, message in (("dog: ", "the special token dog"), (["a "], "prompt cannot be")):
        with pytest.raises(UserError, match=message):
            with_prompts(query=prompt)
    for default, expected in ((None, None), ("query", "query"), ("document", None)):
        with caplog.at_level("WARNING"):
            info = with_prompts(default, query="a ", document="").info
        assert (info.prompts, info.default_prompt_name) == ({"query": "a "}, expected)
    assert "are read as text here: dog" in caplog.text
    with pytest.raises(UserError, match=r"default_prompt_name .* got 'passage'"):
        with_prompts("passage", query="a ")


def test_vectors_that_were_not_compared_by_cosines(tmp_path, caplog):
    normalize = {"idx": 1, "path": "1", "type": "sentence_transformers.models.Normalize"}
    dropout = {"idx": 2, "path": "2", "type": "sentence_transformers.models.Dropout"}
    for name, modules, measure in (
        ("jaccard", STATIC, None),
        ("dot", [*STATIC, normalize, dropout], "cosine"),
        ("euclidean", STATIC, "euclidean"),
    ):
        folder = write_static(tmp_path / "m", {"embedding.weight": TABLE}, modules=modules)
        write_json_files(folder, config_sentence_transformers={"similarity_fn_name": name})
        if measure:
            assert read_similarity(folder) == measure
        else:
            with pytest.raises(UserError, match=r"similarity_fn_name .* got 'jaccard'"):
                Model.from_pretrained(folder)
    with caplog.at_level("WARNING"):
        import_model(folder, tmp_path / "exported")
    assert "by euclidean" in caplog.text
    assert "by euclidean" in (tmp_path / "exported" / "README.md").read_text("utf-8")


# Makes static models with random vectors, and saves them with the vectors that they give to texts.
STATIC_MODELS = """
import json, sys
from pathlib import Path

import numpy as np
from model2vec import StaticModel
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

folder = Path(sys.argv[1])
texts = json.loads((folder / "texts.json").read_text("utf-8"))
random = np.random.default_rng(1)

wordpiece = Tokenizer(models.WordPiece(unk_token="[UNK]"))
wordpiece.normalizer = normalizers.BertNormalizer(lowercase=True)
wordpiece.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=special)
wordpiece.train_from_iterator(texts[::2], trainer)
unigram = Tokenizer(models.Unigram())
unigram.pre_tokenizer = pre_tokenizers.Metaspace()
special = ["<s>", "<unk>", "</s>"]
trainer = trainers.UnigramTrainer(vocab_size=200, unk_token="<unk>", special_tokens=special)
unigram.train_from_iterator(texts[::2], trainer)

for name, tokenizer in {"wordpiece": wordpiece, "unigram": unigram}.items():
    count = tokenizer.get_vocab_size()
    table = random.normal(size=(count, 16)).astype(np.float32)
    rounded = (30 * table).clip(-127, 127)
    models = {
        "float32": StaticModel(table, tokenizer, normalize=True),
        "float16": StaticModel(table.astype(np.float16), tokenizer, normalize=True),
        "int8": StaticModel(rounded.astype(np.int8), tokenizer, normalize=True),
        "mapped": StaticModel(
            table[:20], tokenizer, normalize=True,
            weights=random.uniform(size=count), token_mapping=random.integers(0, 20, count),
        ),
    }
    for kind, model in models.items():
        at = folder / f"{name}-{kind}"
        model.save_pretrained(at)
        loaded = StaticModel.from_pretrained(at, force_download=False)
        np.save(at / "vectors.npy", loaded.encode(texts).astype(np.float32))
    embedding = StaticEmbedding(tokenizer, embedding_weights=table)
    model = SentenceTransformer(modules=[embedding, Normalize()])
    model.save(str(folder / f"{name}-st"))
    np.save(folder / f"{name}-st" / "vectors.npy", model.encode(texts))
"""


@pytest.mark.slow
def test_static_models_give_the_vectors_of_their_libraries(tmp_path):
    texts = [line.split("\t")[0] for line in SAMPLE.read_text("utf-8").splitlines()][:200]
    texts += ["naïve CAFÉ", "zzz 日本語 !?", "a" * 40]
    (tmp_path / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    run_peers(tmp_path, STATIC_MODELS, str(tmp_path))
    paths = sorted(tmp_path.glob("*/vectors.npy"))
    assert len(paths) == 10
    for path in paths:
        vectors, expected = Model.from_pretrained(path.parent)(texts), np.load(path)
        # model2vec averages in float16.
        tolerance = 2e-3 if path.parent.name.endswith("float16") else 1e-5
        np.testing.assert_allclose(vectors, expected, atol=tolerance, err_msg=path.parent.name)
