"""A model with signatures that our code does not know."""

import model_checks
import pytest
import tensorflow as tf
from serving_models import save
from test_check import Whole

import xling_tf
from xling_tf.errors import UserError

TEXTS = ["a good day", "bad", ""]


def sentiment(text):
    good = tf.cast(tf.strings.regex_full_match(text, ".*good.*"), tf.float32)
    return {"outputs": tf.stack([good, 1 - good], axis=1)}


def described(text, unit):
    lengths = tf.strings.length(text)
    return {"label": tf.strings.join([tf.strings.as_string(lengths), unit], " "), "length": lengths}


def test_the_client_calls_any_signature(tmp_path):
    strings, model = tf.TensorSpec([None], tf.string), Whole()
    signatures = {
        "serving_default": (model.serve, {"inputs": strings}),
        "sentiment": (sentiment, {"text": strings}),
        "described": (described, {"text": strings, "unit": strings}),
    }
    save(model, signatures, tmp_path)
    encoder = xling_tf.load(tmp_path)
    assert encoder.call("sentiment", text=TEXTS, batch_size=2).tolist() == [[1, 0], [0, 1], [0, 1]]
    assert encoder.call("sentiment", text="good").tolist() == [1, 0]
    assert encoder.call("sentiment", text=[]).shape == (0, 2)
    answer = encoder.call("described", text=TEXTS, unit="bytes")
    assert answer["label"] == ["10 bytes", "3 bytes", "0 bytes"]
    assert answer["length"].tolist() == [10, 3, 0]
    for name, inputs, message in (
        ("sentiment", {"texts": TEXTS}, "takes text: string, but got texts"),
        ("sentiment", {}, "but got nothing"),
        ("described", {"text": TEXTS, "unit": ["a", "b"]}, "got 2 for 3"),
        ("inference", {"premise": "a"}, "no signature inference.* it has described, sentiment"),
    ):
        with pytest.raises(UserError, match=message):
            encoder.call(name, **inputs)
    with pytest.raises(UserError, match="no signature raw"):
        encoder.encode(TEXTS, normalize_embeddings=False)
    outcome = model_checks.run_check(
        model_checks.has_signatures_that_can_be_served, model_checks.Subject(tmp_path, num_texts=100)
    )
    assert outcome["measured"]["signatures"] == "serving_default, sentiment, described", outcome
