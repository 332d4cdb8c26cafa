"""Texts in the forms that libraries give them; every client treats them so."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf

from xling_tf.errors import UserError
from xling_tf.evaluators.encoding import System
from xling_tf.inputs import as_texts, is_single
from xling_tf.sentence_encoder import ResponseEncoder, SentenceEncoder

TEXTS = ["Mañana", "", "\0a"]
UTF8 = [text.encode() for text in TEXTS]
DATASET = tf.data.Dataset.from_tensor_slices(TEXTS)
MANY = {
    "tuple": tuple(TEXTS),
    "generator": (text for text in TEXTS),
    "dict values": dict(enumerate(TEXTS)).values(),
    "bytes": UTF8,
    "NumPy strings": np.array(TEXTS),
    "NumPy strings of any length": np.array(TEXTS, np.dtypes.StringDType()),
    "NumPy bytes": np.array(UTF8, "S"),
    "NumPy objects": np.array(UTF8, object),
    "NumPy scalars": [np.array(text) for text in TEXTS],
    "tensor": tf.constant(TEXTS),
    "tensors": [tf.constant(text) for text in TEXTS],
    "dataset": DATASET,
    "batches": DATASET.batch(2),
    "as_numpy_iterator": DATASET.as_numpy_iterator(),
    "Series": pd.Series(TEXTS, index=[7, 5, 3]),
    "Arrow Series": pd.Series(TEXTS, dtype="string[pyarrow]"),
    "categories": pd.Series(TEXTS, dtype="category"),
    "Index": pd.Index(TEXTS),
    "Arrow": pa.array(TEXTS),
    "Arrow bytes": pa.array(UTF8),
    "Arrow chunks": pa.chunked_array([TEXTS[:1], TEXTS[1:]]),
    "Arrow dictionary": pa.array(TEXTS).dictionary_encode(),
    "Arrow scalars": list(pa.array(TEXTS, pa.large_string())),
    "column of a table": pa.table({"text": TEXTS})["text"],
}
ONE = [
    "Mañana",
    "Mañana".encode(),
    np.array("Mañana"),
    np.str_("Mañana"),
    tf.constant("Mañana"),
    pa.scalar("Mañana"),
]
NONE = {
    "NoneType None": None,
    "float nan": float("nan"),
    "int 3": 3,
    "bytearray": bytearray(b"Hola"),
    "memoryview": memoryview(b"Hola"),
    "function": lambda: "Hola",
    "set": {"Hola"},
    "dict": {"Hola": 1},
    r"DataFrame of shape \[1, 1\]": pd.DataFrame({"Hola": ["Hello"]}),
    r"Table of shape \[1, 1\]": pa.table({"Hola": ["Hello"]}),
    r"ndarray of shape \[1, 1\]": np.array([["Hola"]]),
    r"EagerTensor of shape \[1, 1\]": tf.constant([["Hola"]]),
    "RaggedTensor": tf.ragged.constant([["Hola"], []]),
    "KerasTensor": tf.keras.Input((), dtype="string"),
    r"texts\[1\] is NoneType None": ["Hola", None],
    r"texts\[0\] is float nan": np.array([float("nan"), "Hola"], object),
    r"texts\[1\] is NAType": pd.Series(["Hola", None], dtype="string"),
    r"texts\[1\] is NoneType": pa.array(["Hola", None]),
    r"texts\[0\] is list .* flatten": [["Hola"]],
    r"texts\[0\] is ndarray": DATASET.batch(3).batch(1),
    r"texts\[0\] is tuple": tf.data.Dataset.zip(DATASET, DATASET),
    r"texts\[0\] is float": tf.constant([1.0]),
    "float32": tf.constant(1.0),
    "repeats forever": DATASET.repeat(),
    r"texts\[1\] is bytes .*latin-1": [b"Hola", "Mañana".encode("latin-1")],
    "texts is bytes": "Mañana".encode("latin-1"),
}


@pytest.mark.parametrize("form", MANY)
def test_several_texts_are_a_list_in_their_order(form):
    assert not is_single(MANY[form])
    texts = as_texts(MANY[form], "texts")
    assert texts == TEXTS
    assert all(isinstance(text, str) for text in texts)


def test_one_text_is_no_list_of_letters():
    for text in ONE:
        assert is_single(text)
        assert as_texts(text, "texts") == ["Mañana"]


@pytest.mark.parametrize("message", NONE)
def test_what_is_no_text_is_named(message):
    with pytest.raises(UserError, match=message):
        as_texts(NONE[message], "texts")


def test_in_a_graph_texts_have_no_values_yet():
    encode = tf.function(lambda texts: as_texts(texts, "texts"), autograph=False)
    with pytest.raises(UserError, match=r"SymbolicTensor .* in a graph, call the exported model"):
        encode(tf.constant(TEXTS))


def lengths(texts, *contexts):
    """Stands for a model: a text of n bytes has the vector (n, -n)."""
    rows = [[len(text), -len(text)] for text in (texts.numpy() if hasattr(texts, "numpy") else texts)]
    return np.array(rows, np.float32).reshape(-1, 2)


def test_every_client_takes_one_text_as_one():
    encoder, system = SentenceEncoder(lengths), System(name="lengths", sentences=lengths)
    for text in ("Hola", b"Hola", tf.constant("Hola")):
        assert encoder.encode(text).tolist() == [4, -4]
        assert encoder.encode_documents(text, "en").tolist() == [4, -4]
        assert system(text).tolist() == system.encode_responses(text, text).tolist() == [4, -4]
        for context in (None, text):
            answers = ResponseEncoder(lengths, takes_contexts=True)
            assert answers.encode(text, context).tolist() == [4, -4]
            assert answers.encode([text, "a"], context).tolist() == [[4, -4], [1, -1]]
    assert encoder.encode("a \ud83d b").tolist() == system("a \ud83d b").tolist() == [5, -5]
    assert encoder.encode_documents("a \udc00.", "en").tolist() == [4, -4]
    assert encoder.encode([]).shape == encoder.encode_documents([], "en").shape == (0, 2)
    assert system(tf.constant(["a", "bc"])).tolist() == [[1, -1], [2, -2]]
    for call in (encoder.encode, system, lambda text: encoder.encode_documents(text, "en")):
        with pytest.raises(UserError, match="NoneType None"):
            call(["a", None])
