"""Vectors in any form and size, neighbours, semantic search, paraphrases and translations."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from xling_tf.client import search
from xling_tf.client.neighbours import (
    Neighbours,
    as_vectors,
    cosine_similarity,
    index_kind,
    nearest,
    truncated,
    unit_vectors,
)
from xling_tf.client.quantization import quantize_units
from xling_tf.client.search import best_pairs, bitext_mining, paraphrase_mining, semantic_search
from xling_tf.errors import UserError


def units(*degrees):
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def normal(count, dim=8, seed=0):
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)


def ids(hits):
    return [[hit["corpus_id"] for hit in row] for row in hits]


def test_cosines_derived_by_hand():
    # |(3, 4)| = 5, |(6, 8)| = 10: (3*8 + 4*6) / 50 = 0.96, and each with itself 1.
    found = cosine_similarity([[3.0, 4.0], [0.0, 0.0]], [[8.0, 6.0], [3.0, 4.0]])
    assert found == pytest.approx(np.array([[0.96, 1.0], [0.0, 0.0]]))
    assert found.dtype == np.float32
    assert cosine_similarity([1.0, 0.0], np.eye(2)).shape == (1, 2)
    assert cosine_similarity([], np.eye(2)).shape == (0, 2)
    # Squares beyond float32 do not overflow, and unit vectors are not copied.
    assert unit_vectors(np.float32([[3e30, 4e30]]), "v")[0] == pytest.approx([0.6, 0.8])
    whole = np.eye(3, dtype=np.float32)
    assert np.shares_memory(unit_vectors(whole, "v"), whole)
    assert truncated([[3.0, 4.0, 12.0]], 2)[0] == pytest.approx([0.6, 0.8])


def test_int8_vectors_and_bits_are_searched_by_cosines_derived_by_hand():
    # int8: n stands for n + 0.5. (0.6 * 99.5 + 0.8 * 0.5) / |(99.5, 0.5)|, 0.6 and 0.8 of
    # |(0.5, -9.5)|; 0 and -1 alone are the zero vector.
    corpus = np.array([[99, 0], [0, -10], [-1, 0]], np.int8)
    (hits,) = semantic_search([3.0, 4.0], corpus)
    expected = {0: 60.1 / np.hypot(99.5, 0.5), 1: (0.3 - 7.6) / np.hypot(0.5, 9.5)}
    assert {hit["corpus_id"]: hit["score"] for hit in hits} == pytest.approx(expected)
    # Bits are 1 or -1: (0.6 + 0.8), (0.6 - 0.8) and (-0.6 + 0.8) of |(1, ..., 1)| = sqrt(8).
    query = [3.0, 0, 0, 0, 0, 0, 0, 4.0]
    bits = np.array([[0b11111110], [0b11111111], [0], [0b00000001]], np.uint8)
    for corpus in (bits, (bits ^ 128).view(np.int8)):
        (hits,) = semantic_search(query, corpus, top_k=9)
        assert [hit["corpus_id"] for hit in hits] == [1, 3, 0]
        assert [hit["score"] * 8**0.5 for hit in hits] == pytest.approx([1.4, 0.2, -0.2])
    assert ids(semantic_search(query, bits[1])) == [[0]]


@pytest.mark.parametrize("precision", ["int8", "ubinary", "binary"])
def test_quantized_vectors_are_searched_part_by_part(precision, monkeypatch):
    vectors = unit_vectors(normal(100, 64), "v")
    corpus = quantize_units(vectors, precision)
    queries = unit_vectors(vectors + 0.02 * normal(100, 64, seed=1), "v")
    whole = semantic_search(queries, corpus, top_k=30)
    assert [row[0]["corpus_id"] for row in whole] == [*range(100)]
    monkeypatch.setattr(search, "_QUANTIZED_AT_ONCE", 7)
    parts = semantic_search(queries, corpus, top_k=30)
    assert ids(parts) == ids(whole)
    for wrong in (corpus[:, :-1], corpus.astype(np.int16), corpus.view(np.uint8)[:, :7]):
        with pytest.raises(UserError):
            semantic_search(queries, wrong)


MATRIX = np.random.default_rng(3).normal(size=(4, 6)).astype(np.float32)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.zeros((2, 2), np.int8), "int8 of shape .* one vector of floats"),
        (pd.Series([MATRIX[0], MATRIX[1, :3]]), "of one length"),
        ("Hola", "encode texts first"),
        ([MATRIX, MATRIX], "one vector of floats a row"),
        ([[1.0, 0.0], [0.0, np.nan], [np.inf, 0.0]], "finite vectors, but row 1 has"),
    ],
)
def test_other_values_than_vectors_are_rejected(wrong, message):
    with pytest.raises(UserError, match=f"corpus must be .*{message}"):
        as_vectors(wrong, "corpus")


@pytest.mark.parametrize(
    "vectors",
    [
        pd.Series(MATRIX.tolist(), index=list("dcba")),
        pd.DataFrame({"vector": list(MATRIX)}),
        pa.chunked_array([pa.FixedSizeListArray.from_arrays(pa.array(MATRIX.ravel()), 6)]),
        pa.table({"vector": MATRIX.tolist()}),
        [*tf.constant(MATRIX)],
    ],
)
def test_rows_in_any_form_are_one_matrix(vectors):
    assert as_vectors(vectors, "corpus") == pytest.approx(MATRIX)


def test_int8_derived_by_hand():
    # Steps of 10 / sqrt(4) / 255 = 0.0196 from -2.5: 0.01 -> 128.01 -> 0; 0.5 -> 153 -> 25.
    codes = quantize_units(np.float32([[0.01, 0.5, -7, 7]]), "int8")
    assert (codes.dtype, codes.tolist()) == (np.int8, [[0, 25, -128, 127]])


def test_bits_derived_by_hand():
    # Positive numbers are 1, zero is not: 10100001 = 161, and 161 - 128 = 33; 01000000 = 64, less
    # 128: -64.
    vectors = np.array([[1, -1, 2, 0, -3, -1, -1, 5], [-1, 1, -1, 0, -3, -1, -1, -5]], np.float32)
    bits, signed = (quantize_units(vectors, precision) for precision in ("ubinary", "binary"))
    assert (bits.tolist(), signed.tolist()) == ([[161], [64]], [[33], [-64]])
    assert (bits.dtype, signed.dtype) == (np.uint8, np.int8)
    with pytest.raises(UserError, match="multiples of 8, got 20; use truncate_dim=16"):
        quantize_units(np.ones((2, 20)), "ubinary")


def test_nearest_with_ties_and_fewer_candidates():
    candidates = np.array([[0, 1], [1, 0], [1, 0]], np.float32)
    scores, indices = nearest(np.array([[1.0, 0.0]]), candidates, 4)
    assert indices.tolist() == [[1, 2, 0, -1]]
    assert scores.tolist() == [[1, 1, 0, -np.inf]]


def test_clusters_find_nearly_all_that_the_exact_search_finds():
    assert (index_kind(200_000), index_kind(200_001)) == ("flat", "ivf")
    vectors = unit_vectors(normal(4000, 16), "v")
    exact = nearest(vectors[:200], vectors, 10, kind="flat").indices
    found = nearest(vectors[:200], vectors, 10, kind="ivf").indices
    recall = np.mean([len({*a} & {*b}) / 10 for a, b in zip(exact, found, strict=True)])
    assert recall >= 0.9


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 12), st.integers(0, 5))
@settings(max_examples=20, deadline=None)
def test_hits_are_those_of_all_cosines(num_queries, num_corpus, top_k, seed):
    queries, corpus = normal(num_queries, seed=seed), normal(num_corpus, seed=seed + 1)
    cosines = cosine_similarity(queries, corpus)
    expected = np.argsort(-cosines, axis=1, kind="stable")[:, :top_k].tolist()
    assert ids(semantic_search(queries, corpus, top_k=top_k)) == expected


@pytest.mark.parametrize("num_queries", [1, 40])  # FAISS has one way for few and one for many
def test_equal_vectors_come_in_their_order(num_queries):
    corpus = np.tile(units(0, 90), (50, 1))
    found = ids(semantic_search(np.tile(units(0), (num_queries, 1)), corpus, top_k=5))
    assert found == [[0, 2, 4, 6, 8]] * num_queries


class Model:
    """A model that records the options of encode, and takes angles or vectors for sentences."""

    def encode(self, sentences, **options):
        self.options = options
        return sentences if isinstance(sentences, np.ndarray) else units(*map(float, sentences))


@pytest.mark.parametrize("name", ["query_chunk_size", "corpus_chunk_size"])
def test_sizes_of_chunks_are_numbers_of_rows_though_they_change_nothing(name):
    assert semantic_search(MATRIX, MATRIX, **{name: 1}) == semantic_search(MATRIX, MATRIX)
    with pytest.raises(UserError, match=f"`{name}` must be an integer of at least 1, got -5"):
        semantic_search(MATRIX, MATRIX, **{name: -5})


def test_arguments_have_the_order_of_sentence_transformers_and_scores_are_cosines():
    model, vectors = Model(), np.float32([[5, 5], [1, 0], [0, 9], [4, -4]])
    (hits,) = semantic_search([1.0, 0.0], vectors, 1, 1, 1)
    assert hits == [{"corpus_id": 1, "score": 1.0}]
    (pair,) = paraphrase_mining(model, ["0", "50", "51"], False, 7, 1, 1, 1, 2, prompt="x: ")
    assert (pair.first, pair.second) == (1, 2)
    assert model.options == {"show_progress_bar": False, "batch_size": 7, "prompt": "x: "}
    for arguments, options, message in (
        ((model, vectors), {"score_function": np.dot}, "score_function is not supported"),
        ((model, vectors), {"max_pairs": 2.5}, "integer of at least 1"),
        (("exported/en-es", model), {}, r"expected a model of xling_tf\.load"),
    ):
        with pytest.raises(UserError, match=message):
            paraphrase_mining(*arguments, **options)


def test_empty_inputs_give_empty_results():
    assert semantic_search(np.zeros((0, 2)), units(0)) == []
    assert semantic_search(units(0, 1), []) == [[], []]
    assert bitext_mining([], units(0)) == bitext_mining(units(0), np.zeros((0, 2))) == []
    assert paraphrase_mining(Model(), ["0"]) == paraphrase_mining(Model(), []) == []


@given(st.integers(0, 12), st.integers(1, 12), st.integers(1, 80), st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_paraphrases_are_the_best_of_all_pairs(count, top_k, max_pairs, seed):
    vectors = normal(count, seed=seed)
    cosines = cosine_similarity(vectors, vectors)
    best = np.argsort(-(cosines - 9 * np.eye(count)), axis=1)[:, :top_k].tolist()
    near = {(min(i, j), max(i, j)) for i in range(count) for j in best[i] if i != j}
    expected = sorted(near, key=lambda pair: -cosines[pair])[:max_pairs]
    pairs = paraphrase_mining(Model(), vectors, top_k=top_k, max_pairs=max_pairs)
    assert [(pair.first, pair.second) for pair in pairs] == expected


def test_translations_derived_by_hand():
    # Sources at 0 and 60 degrees, targets at 90 and 0: margins 1 / ((0.5 + 0.75) / 2) = 1.6 and
    # 0.866 / ((0.683 + 0.433) / 2) = 1.552.
    pairs = bitext_mining(units(0, 60) * 2, units(90, 0))
    assert [(pair.first, pair.second) for pair in pairs] == [(0, 1), (1, 0)]
    assert [pair.score for pair in pairs] == pytest.approx([1.6, 1.552], abs=1e-3)
    # Both sources are nearest to the first target; only the nearer one has it.
    pairs = bitext_mining(units(0, 10), units(1, 80))
    assert [(pair.first, pair.second) for pair in pairs] == [(0, 0), (1, 1)]
    # The mean over the nearest alone is the cosine itself.
    pairs = bitext_mining(units(0, 90), units(10, 80), num_neighbours=1)
    assert [tuple(pair) for pair in pairs] == [(pytest.approx(1.0), n, n) for n in range(2)]


def test_no_margin_is_outside_the_number_of_neighbours_or_of_a_mean_that_is_not_positive():
    # Cosines 1 and -1, of which the mean is 0: no ratio, and no pair. So where the mean is
    # negative.
    assert bitext_mining(units(0, 180), units(0, 180)) == []
    assert bitext_mining(units(0, 10), units(100, 180)) == []
    # Cosines 1 and -.985, of which the mean is .0076: the ratio 132 is cut off at the 2 neighbours.
    pairs = bitext_mining(units(0, 170), units(0, 170))
    assert [tuple(pair) for pair in pairs] == [(2.0, 0, 0), (2.0, 1, 1)]
    # Unrelated vectors among which no cosine is large: 3 of 3 dimensions, 409764 with a floor of
    # 1e-6.
    rng = np.random.default_rng(0)
    for _ in range(300):
        scores = [pair.score for pair in bitext_mining(*rng.normal(size=(2, 3, 3)))]
        assert np.all(np.abs(scores) <= 3)
    # Thresholds of any size: cosines .8 and .9 over means of .325 and .375 are cut off at 2.
    forward = Neighbours(np.float32([[0.8, -0.8], [0.9, 0.5]]), np.int64([[0, 1], [1, 0]]))
    backward = Neighbours(np.float32([[0.8, 0.5], [0.9, -0.8]]), np.int64([[0, 1], [1, 0]]))
    for threshold, count in ((-np.inf, 2), (-5.0, 2), (0.0, 2), (2.0, 2), (2.1, 0), (np.inf, 0)):
        assert len(best_pairs([forward], [backward], threshold)[0]) == count


def test_zero_vectors_of_blank_texts_match_nothing():
    # The first of the corpus has a cosine of 0 to all, which is above that of the opposite vector.
    corpus = np.append(np.zeros((2, 2)), units(180, 0), axis=0)
    assert unit_vectors(corpus, "v").tolist() == corpus.tolist()
    hits = semantic_search(np.append(units(0), np.zeros((1, 2)), axis=0), corpus, top_k=4)
    assert ids(hits) == [[3, 2], []]
    assert semantic_search(units(0, 1), np.zeros((3, 2))) == [[], []]
    pairs = paraphrase_mining(Model(), np.append(np.zeros((2, 2)), units(0, 10, 20), axis=0))
    assert [(pair.first, pair.second) for pair in pairs[:2]] in ([(2, 3), (3, 4)], [(3, 4), (2, 3)])
    assert {row for pair in pairs for row in pair[1:]} == {2, 3, 4}
    pairs = bitext_mining(np.append(np.zeros((1, 2)), units(0, 60), axis=0), corpus[[0, 3]])
    assert [(pair.first, pair.second) for pair in pairs] == [(1, 1)]
    clusters = nearest(np.float32([[1, 0], [0, 0]]), np.float32(corpus), 3, kind="ivf")
    assert clusters.indices[:, 2].tolist() == clusters.indices[1, :2].tolist()[:1] * 2 == [-1, -1]


def test_neighbours_that_the_search_missed_do_not_count():
    # The clusters gave the first sentence one neighbour instead of two: its mean is 0.8, not -inf.
    # The second's is (0.9 + 0.5) / 2; those of the other side are 0.8 and 0.9.
    inf = np.inf
    forward = Neighbours(np.float32([[0.8, -inf], [0.9, 0.5]]), np.int64([[0, -1], [1, 0]]))
    backward = Neighbours(np.float32([[0.8], [0.9]]), np.int64([[0], [1]]))
    scores, firsts, seconds = best_pairs([forward], [backward])
    assert [*zip(firsts.tolist(), seconds.tolist(), strict=True)] == [(1, 1), (0, 0)]
    assert scores == pytest.approx([0.9 / ((0.7 + 0.9) / 2), 0.8 / 0.8], rel=1e-6)
