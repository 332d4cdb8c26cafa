"""A model with signatures that our code does not know: called by the client, and checked."""

from typing import Any

import check
import pytest
import tensorflow as tf
from serving_models import save
from test_check import Whole

import xling_tf
from xling_tf.errors import UserError

TEXTS = ["a good day", "bad", ""]
STRINGS = tf.TensorSpec([None], tf.string)


class Sentiment(Whole):
    """Gives vectors of length 3, and classifies texts by the word "good"."""

    def raw(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"outputs": 3 * self(inputs)}

    def sentiment(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        good = tf.cast(tf.strings.regex_full_match(text, ".*good.*"), tf.float32)
        return {"outputs": tf.stack([good, 1 - good], axis=1)}

    def described(self, text: tf.Tensor, unit: tf.Tensor) -> dict[str, tf.Tensor]:
        lengths = tf.strings.length(text)
        return {"label": tf.strings.join([tf.strings.as_string(lengths), unit], " "), "length": lengths}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path, model = tmp_path_factory.mktemp("exported") / "sentiment", Sentiment()
    signatures: dict[str, Any] = {
        "serving_default": (model.serve, {"inputs": STRINGS}),
        "raw": (model.raw, {"inputs": STRINGS}),
        "sentiment": (model.sentiment, {"text": STRINGS}),
        "described": (model.described, {"text": STRINGS, "unit": STRINGS}),
    }
    save(model, signatures, path)
    return path


def test_the_client_calls_any_signature(folder):
    encoder = xling_tf.load(folder)
    assert encoder.call("sentiment", text=TEXTS, batch_size=2).tolist() == [[1, 0], [0, 1], [0, 1]]
    assert encoder.call("sentiment", text="good").tolist() == [1, 0]
    assert encoder.call("sentiment", text=[]).shape == (0, 2)
    described = encoder.call("described", text=TEXTS, unit="bytes")
    assert described["label"] == ["10 bytes", "3 bytes", "0 bytes"]
    assert described["length"].tolist() == [10, 3, 0]
    for name, inputs, message in (
        ("sentiment", {"texts": TEXTS}, "takes text: string, but got texts"),
        ("sentiment", {}, "but got nothing"),
        ("described", {"text": TEXTS, "unit": ["a", "b"]}, "got 2 for 3"),
        ("inference", {"premise": "a"}, "no signature inference.* it has described, raw"),
    ):
        with pytest.raises(UserError, match=message):
            encoder.call(name, **inputs)


def test_raw_vectors_have_the_encoders_own_lengths(folder, tmp_path):
    encoder = xling_tf.load(folder)
    units = encoder.encode(TEXTS)
    raw = encoder.encode(TEXTS, normalize_embeddings=False)
    assert raw == pytest.approx(3 * units, abs=1e-6)
    assert encoder.encode(TEXTS[0], normalize_embeddings=False, truncate_dim=2) == pytest.approx(raw[0, :2])
    model = Whole()
    save(model, {"serving_default": (model.serve, {"inputs": STRINGS})}, tmp_path)
    with pytest.raises(UserError, match="no signature raw"):
        xling_tf.load(tmp_path).encode(TEXTS, normalize_embeddings=False)


def test_it_passes_the_check_of_signatures(folder):
    outcome = check.run_check(check.has_signatures_that_can_be_served, check.Subject(folder, num_texts=100))
    assert outcome["measured"]["signatures"] == "serving_default, raw, sentiment, described", outcome
