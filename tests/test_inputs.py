"""Texts in the forms of common libraries, for every client."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf
from testing import encode_responses

from xling_tf.client.texts import as_texts, is_single
from xling_tf.errors import UserError
from xling_tf.evaluators.encoding import Embedder
from xling_tf.sentence_encoder import SentenceEncoder

TEXTS = ["Mañana", "", "\0a"]
UTF8 = [text.encode() for text in TEXTS]
DATASET = tf.data.Dataset.from_tensor_slices(TEXTS)
MANY = {
    "tuple": tuple(TEXTS),
    "generator": (text for text in TEXTS),
    "NumPy strings of any length": np.array(TEXTS, np.dtypes.StringDType()),
    "NumPy objects": np.array(UTF8, object),
    "tensor": tf.constant(TEXTS),
    "dataset": DATASET,
    "batches": DATASET.batch(2),
    "Series": pd.Series(TEXTS, index=[7, 5, 3]),
    "Arrow chunks": pa.chunked_array([TEXTS[:1], TEXTS[1:]]),
    "column of a table": pa.table({"text": TEXTS})["text"],
}
ONE = ["Mañana", "Mañana".encode(), np.str_("Mañana"), tf.constant("Mañana"), pa.scalar("Mañana")]
NONE = {
    "NoneType None": None,
    "bytearray": bytearray(b"Hola"),
    "set": {"Hola"},
    r"DataFrame of shape \[1, 1\]": pd.DataFrame({"Hola": ["Hello"]}),
    "RaggedTensor": tf.ragged.constant([["Hola"], []]),
    "KerasTensor": tf.keras.Input((), dtype="string"),
    r"texts\[0\] is float nan": np.array([float("nan"), "Hola"], object),
    r"texts\[1\] is NAType": pd.Series(["Hola", None], dtype="string"),
    r"texts\[0\] is list .* flatten": [["Hola"]],
    "repeats forever": DATASET.repeat(),
    r"texts\[1\] is bytes .*latin-1": [b"Hola", "Mañana".encode("latin-1")],
}


@pytest.mark.parametrize("form", MANY)
def test_several_texts_are_a_list_in_their_order(form):
    assert not is_single(MANY[form])
    texts = as_texts(MANY[form], "texts")
    assert texts == TEXTS
    assert all(isinstance(text, str) for text in texts)


def test_one_text_is_not_a_list_of_letters():
    for text in ONE:
        assert is_single(text)
        assert as_texts(text, "texts") == ["Mañana"]


@pytest.mark.parametrize("message", NONE)
def test_other_values_are_named_in_the_error(message):
    with pytest.raises(UserError, match=message):
        as_texts(NONE[message], "texts")


def test_a_tensor_in_a_graph_has_no_text():
    def encode(text):
        for value in (text, [text]):
            with pytest.raises(
                UserError, match="in a graph, call the exported model itself or KerasEncoder"
            ):
                SentenceEncoder(lengths).encode(value)
        return text

    assert len([*DATASET.map(encode)]) == len(TEXTS)


def lengths(texts, *contexts):
    """Stands for a model: a text of n bytes has the vector (n, -n)."""
    rows = [[len(text.encode()), -len(text.encode())] for text in texts]
    return np.array(rows, np.float32).reshape(-1, 2)


def test_every_client_takes_one_text_as_one():
    encoder, system = SentenceEncoder(lengths), Embedder(name="lengths", sentences=lengths)
    for text in ("Hola", b"Hola", tf.constant("Hola")):
        assert encoder.encode(text).tolist() == [4, -4]
        assert system(text).tolist() == system.encode_responses(text, text).tolist() == [4, -4]
        for context in (None, text):
            assert encode_responses(lengths, text, context).tolist() == [4, -4]
            vectors = encode_responses(lengths, [text, "a"], context)
            assert vectors.tolist() == [[4, -4], [1, -1]]
    assert encoder.encode([]).shape == (0, 2)
    assert system(tf.constant(["a", "bc"])).tolist() == [[1, -1], [2, -2]]
    for call in (encoder.encode, system):
        with pytest.raises(UserError, match="NoneType None"):
            call(["a", None])


def test_an_embedder_names_the_inputs_that_do_not_fit():
    system = Embedder(name="all", sentences=lengths, responses=lengths, inference=lengths)
    with pytest.raises(UserError, match="as many hypotheses as premises, but got 2 for 1"):
        system.infer(["a"], ["b", "c"])
    with pytest.raises(UserError, match=r"hypotheses must be strings, but hypotheses\[0\] is int"):
        system.infer(["a"], [1])
