"""An average of words from any encoder: which words, their vectors, and what is refused."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from encode_functions import Counting, random_vectors

import xling_tf
from xling_tf.errors import UserError
from xling_tf.evaluators.encoding import Embedder
from xling_tf.trainer import word_distillation as module

# The most frequent ones of each language in turn, without those that both have, as "de" or "in".
WORDS = module.common_words(["es", "de"], [], dataclasses.replace(module._WORDS, common_words=6))


@pytest.fixture
def teacher(monkeypatch):
    """A teacher of 8 numbers, which gets four words at a time."""
    encode = Counting(random_vectors(dim=8))
    embedder = Embedder(name="teacher", sentences=encode)
    monkeypatch.setattr(module, "open_embedder", lambda name: embedder)
    monkeypatch.setattr(module, "_CHUNK", 4)
    monkeypatch.setattr(module, "_WORDS", dataclasses.replace(module._WORDS, common_words=6))
    return encode


def test_words_have_the_teachers_directions_and_frequent_ones_less_weight(teacher, tmp_path):
    encoder = xling_tf.distill("python:a:teacher", ["es", "de"], tmp_path / "model")
    assert teacher.texts == WORDS
    assert len(WORDS) in range(6, 13)
    # The mean of all words counts each by the root of its share, by Zipf's law 1 / rank; a word
    # has the weight 1e-3 / (1e-3 + share).
    vectors = random_vectors(dim=8)(WORDS)
    shares = 1 / np.arange(1, len(WORDS) + 1)
    shares /= shares.sum()
    weighted = vectors - np.average(vectors, axis=0, weights=np.sqrt(shares))
    weighted *= (1e-3 / (1e-3 + shares))[:, None]
    first, last, both = encoder.encode([WORDS[0], WORDS[-1], f"{WORDS[0]} {WORDS[-1].upper()}"])
    for vector, expected in (
        (first, weighted[0]),
        (last, weighted[-1]),
        (both, weighted[[0, -1]].sum(0)),
    ):
        assert vector == pytest.approx(expected / np.linalg.norm(expected), abs=1e-5)
    # Unknown words do not count, alone they are zero, as are blank texts.
    assert encoder.encode(f"zzz {WORDS[0]}") == pytest.approx(first, abs=1e-5)
    assert not encoder.encode(["zzz qqq", ""]).any()


def test_with_little_time_the_most_frequent_words_are_reached(
    teacher, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(module, "_SECONDS", 0)
    caplog.set_level("INFO", logger="absl")
    encoder = xling_tf.distill("python:a:teacher", "es,de", tmp_path / "model")
    assert teacher.texts == WORDS[:4]
    assert f"the 4 most frequent of {len(WORDS)} words" in caplog.text
    assert encoder.encode(WORDS).any(axis=1).tolist() == [True] * 4 + [False] * (len(WORDS) - 4)


def test_minutes_are_those_of_a_training_with_the_encoder_as_its_teacher(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(module, "train", lambda *args, **kwargs: calls.append((args, kwargs)))
    xling_tf.distill("any", ["es", "en", "de"], tmp_path / "m", minutes=2, data=tmp_path)
    assert calls == [
        (
            ("static",),
            {
                "source": "en",
                "target": ["es", "de"],
                "minutes": 2,
                "teacher": "any",
                "data": tmp_path,
                # Not the folder of an earlier training of the same languages.
                "run_dir": Path("runs", "m"),
                "output": tmp_path / "m",
            },
        )
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"languages": "es", "minutes": 1}, "two languages, got es"),
        ({"languages": "es", "data": "."}, "expected `minutes`"),
        ({"languages": ["xx"]}, "frequent words .*, got xx"),
    ],
)
def test_what_cannot_be_done_is_said_before_the_work(arguments, message, teacher, tmp_path):
    with pytest.raises(UserError, match=message):
        xling_tf.distill("any", output=tmp_path / "model", **arguments)
    assert teacher.texts == []
    assert not (tmp_path / "model").exists()
