"""Any bytes at all give a finite unit vector, alone as in a batch, from the graph of an export."""

import numpy as np
import pytest
import tensorflow as tf
from hostile_bytes import FEW
from hypothesis import given, settings
from hypothesis import strategies as st
from testing import tiny_model

MEGABYTES = {
    "marks out of order": "e" + "\u0301\u0316" * 250_000,
    "right to left": "\u202e\u05d0" * 200_000,
    "half characters": b"\xed\xa0\x80" * 350_000,
    "NUL": b"\0" * 1_000_000,
}
# Where one character ends and another begins is what goes wrong.
PIECES = [
    *(
        b"\xed\xa0\x80",
        b"\xed\xb0\x80",
        b"\xff",
        b"\xc0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe6\x88",
        b"\0",
    ),
    *(
        text.encode()
        for text in ("e\u0301", "\u0301\u0316", "\u202e", "אב", "猫", "👩\u200d👧", "\ufeff")
    ),
    *(
        b"hola",
        b" ",
        b"\n",
        b"\t",
        b"\r",
        b"<",
        b"'",
        b"n't",
        b"...",
        b"-",
        b"1,000.5",
        "Ａ".encode(),
    ),
]


@pytest.fixture(scope="module")
def encode():
    """The graph that an export holds, with nothing written to the disk."""
    module = tiny_model().hub_module()
    return tf.function(
        lambda texts: module(texts, False), input_signature=[tf.TensorSpec([None], tf.string)]
    )


def require_unit(vectors: np.ndarray) -> None:
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


@settings(FEW, max_examples=6)
@given(
    texts=st.lists(
        st.one_of(
            st.binary(max_size=60), st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join)
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_bytes_give_a_unit_vector_alone_and_in_a_batch(encode, texts):
    batch = encode(tf.constant(texts)).numpy()
    require_unit(batch)
    for text, vector in zip(texts, batch, strict=True):
        np.testing.assert_allclose(encode(tf.constant([text]))[0], vector, atol=2e-6)


@pytest.mark.parametrize("name", MEGABYTES)
def test_a_hostile_megabyte_gives_one_too(encode, name):
    alone = encode(tf.constant([MEGABYTES[name]])).numpy()
    require_unit(alone)
    batch = encode(tf.constant([b"hola", tf.compat.as_bytes(MEGABYTES[name]), b""])).numpy()
    np.testing.assert_allclose(batch[1], alone[0], atol=2e-6)
