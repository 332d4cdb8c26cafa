import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xling_tf.errors import UserError
from xling_tf.search.arrays import (
    as_vectors,
    cosine_similarity,
    require_positive,
    truncated,
    unit_vectors,
)


def test_cosines_derived_by_hand():
    # |(3, 4)| = 5, |(6, 8)| = 10: (3*8 + 4*6) / 50 = 0.96, and each with itself 1.
    found = cosine_similarity([[3.0, 4.0], [0.0, 0.0]], [[8.0, 6.0], [3.0, 4.0]])
    assert found == pytest.approx(np.array([[0.96, 1.0], [0.0, 0.0]]))
    assert found.dtype == np.float32


def test_one_vector_is_a_matrix_of_one_row():
    assert cosine_similarity([1.0, 0.0], np.eye(2)).shape == (1, 2)


@pytest.mark.parametrize("empty", [[], np.zeros((0, 2))])
def test_no_vectors_have_no_cosines(empty):
    assert cosine_similarity(empty, np.eye(2)).shape == (0, 2)
    assert cosine_similarity(np.eye(2), empty).shape == (2, 0)


def test_different_dimensions_are_both_named():
    with pytest.raises(UserError, match=r"a have 2 and b 3; encode both with one model"):
        cosine_similarity(np.eye(2), np.eye(3))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["Hola"], "encode texts first"),
        ("Hola", "encode texts first"),
        (np.zeros((2, 2), np.int8), "int8 of shape .* dequantize codes first"),
        (np.zeros((2, 2, 2)), r"float64 of shape \[2, 2, 2\]"),
        ([[1.0], [1.0, 2.0]], "of one length"),
    ],
)
def test_what_is_no_vectors_is_named(wrong, message):
    with pytest.raises(UserError, match=f"corpus must be .*{message}"):
        as_vectors(wrong, "corpus")


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_the_first_row_that_is_not_finite_is_named(number):
    with pytest.raises(UserError, match="queries must be finite vectors, but row 1 has"):
        unit_vectors([[1.0, 0.0], [0.0, number], [number, 0.0]], "queries")


def test_unit_vectors_are_not_copied_and_others_not_changed():
    units, others = np.eye(3, dtype=np.float32), np.full((2, 2), 2.0)
    assert np.shares_memory(unit_vectors(units, "v"), units)
    assert unit_vectors(others, "v") == pytest.approx(np.full((2, 2), 0.5**0.5))
    assert others.max() == 2


def test_lengths_beyond_float32_do_not_overflow():
    assert unit_vectors(np.array([[3e30, 4e30]], np.float32), "v")[0] == pytest.approx([0.6, 0.8])


@given(st.integers(0, 5), st.integers(1, 6), st.integers(1, 6), st.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_truncated_vectors_are_unit_vectors_of_their_first_dimensions(rows, whole, dim, seed):
    vectors = np.random.default_rng(seed).normal(0, 30, (rows, whole)).astype(np.float32)
    if dim > whole:
        with pytest.raises(UserError, match=rf"at most the {whole} dimensions .* got {dim}"):
            truncated(vectors, dim)
        return
    kept = vectors[:, :dim]
    expected = kept / np.linalg.norm(kept, axis=1, keepdims=True)
    assert truncated(vectors, dim) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("wrong", [0, -1, 1.0, True, "3", None])
def test_counts_are_integers_of_at_least_one(wrong):
    with pytest.raises(UserError, match="top_k must be an integer of at least 1, got"):
        require_positive(wrong, "top_k")


def test_numpy_integers_are_integers():
    require_positive(np.int64(3), "top_k")
