"""More pieces for a SentencePiece model: which, where they are used, and the rows they start with."""

import importlib
from itertools import chain

import numpy as np
import pytest
import tensorflow as tf
from test_sentencepiece import BY_LANGUAGE, CONFIG, TEXTS

from xling_tf.text.extension import extend_pieces, extend_rows
from xling_tf.text.sentencepiece import SentencePiecePreprocessor
from xling_tf.text.sentencepiece_fitting import fit_pieces

SUBJECTS = ["The spectrometer", "A gyroscope", "The magnetometer", "Every photodiode"]
ACTIONS = ["needs calibration", "measures wavelengths", "emits Λ photons", "was recalibrated"]
PLACES = ["in the cryostat", "behind the interferometer", "near a gyroscope"]
DOMAIN = [f"{s} {a} {p}." for s in SUBJECTS for a in ACTIONS for p in PLACES]
NUM_OLD, NUM_NEW = 200, 18


def processor(model):
    return importlib.import_module("sentencepiece").SentencePieceProcessor(model_proto=model)


@pytest.fixture(scope="module")
def model():
    return fit_pieces(CONFIG, BY_LANGUAGE)[1]


@pytest.fixture(scope="module")
def extension(model):
    return extend_pieces(model, {"en": iter(DOMAIN)}, NUM_NEW, CONFIG)


@pytest.fixture(scope="module")
def old(model):
    return processor(model)


@pytest.fixture(scope="module")
def new(extension):
    return processor(extension[0])


def test_the_old_pieces_stay_where_they_are(model, extension, old, new):
    assert extension[0].startswith(model)
    assert old.get_piece_size() == NUM_OLD
    assert new.get_piece_size() == NUM_OLD + NUM_NEW
    for row in range(NUM_OLD):
        assert new.id_to_piece(row) == old.id_to_piece(row)
        assert new.get_score(row) == old.get_score(row)


def test_new_pieces_are_spelt_by_their_parents(extension, old, new):
    assert len(extension[1]) == NUM_NEW
    for row, parents in enumerate(extension[1], NUM_OLD):
        piece = new.id_to_piece(row)
        assert old.piece_to_id(piece) == old.unk_id()
        spelt = ["λ" if i == old.unk_id() else old.id_to_piece(i) for i in parents]
        assert "".join(spelt) == piece
        if old.unk_id() not in parents:
            # Each piece that it saves is worth a hundredth more than its parents are together.
            together = sum(map(old.get_score, parents))
            assert new.get_score(row) == pytest.approx(
                together + 0.01 * (len(parents) - 1), abs=1e-4
            )


def test_the_words_of_the_domain_are_among_them(new):
    added = {new.id_to_piece(row) for row in range(NUM_OLD, NUM_OLD + NUM_NEW)}
    assert {"▁gyroscope", "▁spectrometer"} <= added


def test_only_neighbours_are_joined(extension, old, new):
    parents = dict(enumerate(extension[1], NUM_OLD))
    for text in [*TEXTS, *DOMAIN, "gyroscopes and spectrometers"]:
        found = new.encode(text)
        spelt = list(chain.from_iterable(parents.get(row, [row]) for row in found))
        if old.unk_id() not in spelt:
            assert spelt == old.encode(text)
        assert len(found) <= len(old.encode(text))


def test_texts_of_the_domain_are_shorter_and_others_as_they_were(old, new):
    before, after = (sum(len(m.encode(text)) for text in DOMAIN) for m in (old, new))
    assert after < 0.75 * before
    changed = sum(new.encode(text) != old.encode(text) for text in TEXTS)
    assert changed < 0.1 * len(TEXTS)


def test_unknown_characters_become_known(old, new):
    assert old.unk_id() in old.encode("Λ photons")
    assert old.unk_id() not in new.encode("Λ photons")
    assert old.unk_id() in new.encode("Ω")


def test_the_graph_uses_the_new_pieces(extension, new):
    preprocess = SentencePiecePreprocessor(extension[0], CONFIG)
    assert preprocess.num_words == NUM_OLD + NUM_NEW
    for text in [*DOMAIN, *TEXTS[:50]]:
        assert preprocess.tokenize(tf.constant([text])).to_list() == [new.encode(text)[:12]]


def test_the_same_texts_give_the_same_extension(model, extension):
    assert extend_pieces(model, {"en": DOMAIN}, NUM_NEW, CONFIG) == extension


def test_an_extension_can_be_extended(extension, new):
    texts = ["a quokka and a numbat watched the quokka"] * 20
    model, parents = extend_pieces(extension[0], {"en": texts}, 1, CONFIG)
    assert model.startswith(extension[0])
    assert len(parents) == 1
    assert processor(model).id_to_piece(NUM_OLD + NUM_NEW) == "▁quokka"


def test_fewer_than_asked_are_said_with_both_numbers(model, caplog):
    with caplog.at_level("WARNING", logger="absl"):
        extended, parents = extend_pieces(model, {"en": ["quokka quokka"] * 9}, 1000, CONFIG)
    assert 0 < len(parents) < 10
    assert processor(extended).get_piece_size() == NUM_OLD + len(parents)
    (line,) = caplog.messages
    assert "extra_pieces=1000 asks for more" in line
    assert f"{len(parents)} pieces were added to 200" in line


def test_new_rows_are_the_means_of_their_parents():
    # (1 + 3 + 3) / 3 = 7 / 3, (0 + 4 + 4) / 3 = 8 / 3.
    table = np.array([[1, 0], [3, 4]], np.float32)
    rows = extend_rows(table, [[0, 1], [1], [0, 1, 1]])
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, [[1, 0], [3, 4], [2, 2], [3, 4], [7 / 3, 8 / 3]], rtol=1e-6)
    np.testing.assert_array_equal(extend_rows(table, []), table)
