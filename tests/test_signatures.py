"""How a SavedModel is called: without new traces, and by signatures that our code does not know."""

import numpy as np
import pytest
import tensorflow as tf
from hashed_model import hashed
from serving_models import save

import xling_tf
from xling_tf.errors import UserError

TEXTS = ["a good day", "bad", ""]


def sentiment(text):
    good = tf.cast(tf.strings.regex_full_match(text, ".*good.*"), tf.float32)
    return {"outputs": tf.stack([good, 1 - good], axis=1)}


def described(text, unit):
    lengths = tf.strings.length(text)
    return {"label": tf.strings.join([tf.strings.as_string(lengths), unit], " "), "length": lengths}


def test_calls_with_lists_and_arrays_of_any_size_trace_nothing(hub_loaded):
    hub_loaded(["a"])
    traces = hub_loaded.__call__.experimental_get_tracing_count()
    for size in range(1, 20):
        hub_loaded([f"a {number}" for number in range(size)])
        hub_loaded(np.full([size, 2], "a", object))
    assert hub_loaded.__call__.experimental_get_tracing_count() == traces


def test_the_client_calls_any_signature(tmp_path):
    strings = tf.TensorSpec([None], tf.string)
    signatures = {
        "serving_default": (lambda inputs: {"outputs": hashed(inputs)}, {"inputs": strings}),
        "sentiment": (sentiment, {"text": strings}),
        "described": (described, {"text": strings, "unit": strings}),
    }
    model = tf.Module()
    model.__call__ = tf.function(hashed, input_signature=[strings])
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
