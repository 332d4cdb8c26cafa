"""Vectors of users, nearest neighbours, semantic search, paraphrases, translations, int8 and bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xling_tf.errors import UserError
from xling_tf.search import neighbours
from xling_tf.search.neighbours import (
    as_vectors,
    cosine_similarity,
    index_kind,
    nearest,
    truncated,
    unit_vectors,
)
from xling_tf.search.quantization import Int8Ranges, quantize
from xling_tf.search.semantic import (
    bitext_mining,
    community_detection,
    mine_by_margin,
    paraphrase_mining_embeddings,
    quantized_search,
    semantic_search,
)


def units(*degrees):
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def normal(count, dim=8, seed=0):
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)


def ids(hits):
    return [[hit["corpus_id"] for hit in row] for row in hits]


# --- vectors


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


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["Hola"], "encode texts first"),
        (np.zeros((2, 2), np.int8), "int8 of shape .* dequantize codes first"),
        ([[1.0], [1.0, 2.0]], "of one length"),
        ([[1.0, 0.0], [0.0, np.nan], [np.inf, 0.0]], "finite vectors, but row 1 has"),
    ],
)
def test_what_is_no_vectors_is_named(wrong, message):
    with pytest.raises(UserError, match=f"corpus must be .*{message}"):
        as_vectors(wrong, "corpus")


# --- neighbours


def test_nearest_with_ties_and_fewer_candidates():
    candidates = np.array([[0, 1], [1, 0], [1, 0]], np.float32)
    scores, indices = nearest(np.array([[1.0, 0.0]]), candidates, 4)
    assert indices.tolist() == [[1, 2, 0, -1]]
    assert scores.tolist() == [[1, 1, 0, -np.inf]]


def test_chunks_make_no_difference(monkeypatch):
    queries, candidates = normal(10, 4), normal(23, 4, seed=1)
    whole = nearest(queries, candidates, 5)
    monkeypatch.setattr(neighbours, "_CHUNK", 3)
    assert nearest(queries, candidates, 5).indices.tolist() == whole.indices.tolist()


def test_clusters_find_nearly_all_that_the_exact_search_finds():
    assert (index_kind(200_000), index_kind(200_001)) == ("flat", "ivf")
    vectors = unit_vectors(normal(4000, 16), "v")
    exact = nearest(vectors[:200], vectors, 10, kind="flat").indices
    found = nearest(vectors[:200], vectors, 10, kind="ivf").indices
    recall = np.mean([len({*a} & {*b}) / 10 for a, b in zip(exact, found, strict=True)])
    assert recall >= 0.9


# --- semantic search


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 12), st.integers(0, 5))
@settings(max_examples=20, deadline=None)
def test_hits_are_those_of_all_cosines(num_queries, num_corpus, top_k, seed):
    queries, corpus = normal(num_queries, seed=seed), normal(num_corpus, seed=seed + 1)
    cosines = cosine_similarity(queries, corpus)
    expected = np.argsort(-cosines, axis=1, kind="stable")[:, :top_k].tolist()
    assert ids(semantic_search(queries, corpus, top_k)) == expected


@pytest.mark.parametrize("num_queries", [1, 40])  # FAISS has one way for few and one for many
def test_of_equal_ones_the_first_come_first(num_queries):
    corpus = np.tile(units(0, 90), (50, 1))
    found = ids(semantic_search(np.tile(units(0), (num_queries, 1)), corpus, top_k=5))
    assert found == [[0, 2, 4, 6, 8]] * num_queries


def test_nothing_is_found_in_nothing():
    assert semantic_search(np.zeros((0, 2)), units(0)) == []
    assert semantic_search(units(0, 1), []) == [[], []]
    assert quantized_search(QUERIES[:2], INT8[:0], "int8") == [[], []]
    assert quantized_search(QUERIES[:0], BITS, "ubinary") == []
    assert bitext_mining([], units(0)) == bitext_mining(units(0), np.zeros((0, 2))) == []
    assert paraphrase_mining_embeddings(units(0)) == paraphrase_mining_embeddings([]) == []


# --- paraphrases and translations


@given(st.integers(0, 12), st.integers(1, 12), st.integers(1, 80), st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_paraphrases_are_the_best_of_all_pairs(count, top_k, max_pairs, seed):
    vectors = normal(count, seed=seed)
    cosines = cosine_similarity(vectors, vectors)
    best = np.argsort(-(cosines - 9 * np.eye(count)), axis=1)[:, :top_k].tolist()
    near = {(min(i, j), max(i, j)) for i in range(count) for j in best[i] if i != j}
    expected = sorted(near, key=lambda pair: -cosines[pair])[:max_pairs]
    pairs = paraphrase_mining_embeddings(vectors, top_k=top_k, max_pairs=max_pairs)
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


def test_margins_are_those_of_every_cosine_computed():
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(60, 8))
    sides = [np.concatenate([shared, rng.normal(size=(20, 8))]) + 3 for _ in range(2)]
    sides = [side + rng.normal(size=side.shape) / 2 for side in sides]
    sides = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides]
    cosines = sides[0] @ sides[1].T
    nearest = [np.argsort(-c, axis=1)[:, :4] for c in (cosines, cosines.T)]
    means = [
        np.take_along_axis(c, near, axis=1).mean(axis=1)
        for c, near in zip((cosines, cosines.T), nearest, strict=True)
    ]
    margins = cosines / ((means[0][:, None] + means[1][None, :]) / 2)
    # Every sentence's best neighbour by margin, then the best pairs one after the other.
    candidates = {(row, max(near, key=lambda c: margins[row, c])) for row, near in enumerate(nearest[0])}
    candidates |= {(max(near, key=lambda r: margins[r, c]), c) for c, near in enumerate(nearest[1])}
    pairs = []
    for source, target in sorted(candidates, key=lambda pair: -margins[pair]):
        if all(source != first and target != second for first, second in pairs):
            pairs.append((source, target))
    mined = mine_by_margin(*(side.astype(np.float32) for side in sides))
    assert [tuple(row) for row in mined.rows.tolist()] == pairs
    assert mined.margins == pytest.approx([margins[pair] for pair in pairs], abs=1e-5)


# --- int8 and bits

RANDOM = np.random.default_rng(0)
# Clusters, so that neighbours are told apart by more than chance.
CORPUS = np.repeat(RANDOM.normal(size=(50, 64)), 20, axis=0) + RANDOM.normal(size=(1000, 64)) * 0.5
CORPUS = (CORPUS / np.linalg.norm(CORPUS, axis=1, keepdims=True)).astype(np.float32)
QUERIES = CORPUS[::50] + RANDOM.normal(size=(20, 64)).astype(np.float32) * 0.02
INT8, BITS = quantize(CORPUS, "int8"), quantize(CORPUS, "ubinary")


def recall(hits):
    pairs = zip(ids(hits), ids(semantic_search(QUERIES, CORPUS)), strict=True)
    return np.mean([len(set(some) & set(others)) / 10 for some, others in pairs])


@pytest.mark.parametrize("ranges", [None, Int8Ranges.calibrated(CORPUS)])
def test_int8_finds_nearly_all_by_either_range(ranges):
    codes = quantize(CORPUS, "int8", ranges=ranges)
    # By the codes alone too: what each one stands for has its own step.
    for oversampling in (1, 10):
        found = quantized_search(QUERIES, codes, "int8", ranges=ranges, oversampling=oversampling)
        assert recall(found) > 0.95


@pytest.mark.parametrize(("precision", "codes"), [("int8", INT8), ("ubinary", BITS)])
def test_all_candidates_rescored_in_floats_are_the_exact_search(precision, codes):
    exact = semantic_search(QUERIES, CORPUS)
    found = quantized_search(
        QUERIES, codes, precision, oversampling=100, rescore_with=CORPUS.astype(np.float64) * 3
    )
    assert ids(found) == ids(exact)
    scores, expected = ([[hit["score"] for hit in row] for row in rows] for rows in (found, exact))
    assert scores == pytest.approx(np.array(expected), abs=1e-6)


def test_the_score_of_bits_derived_by_hand():
    # A query of eight equal numbers and the signs + + + + + + - -: (6 - 2) / 8.
    vectors = np.array([[1.0] * 6 + [-1.0] * 2])
    for precision in ("binary", "ubinary"):
        ((hit,),) = quantized_search([0.5] * 8, quantize(vectors, precision), precision)
        assert hit["score"] == pytest.approx(0.5)


def test_of_equal_codes_the_first_come_first():
    codes = quantize(np.ones((40, 8)), "int8")
    assert ids(quantized_search([1.0] * 8, codes, "int8", 3, oversampling=1)) == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("codes", "precision", "options", "message"),
    [
        (CORPUS, "float32", {}, "got 'float32'; use semantic_search"),
        (CORPUS, "int8", {}, "must be int8 .* but are float32"),
        (INT8[:, :32], "int8", {}, r"\[1000, 64\] .*64 dimensions, .*\[1000, 32\]"),
        (BITS, "ubinary", {"rescore_with": CORPUS[:9]}, "rescore_with must"),
    ],
)
def test_what_does_not_suit_is_named(codes, precision, options, message):
    with pytest.raises(UserError, match=message):
        quantized_search(QUERIES, codes, precision, **options)


def test_communities_are_near_their_first_one_and_share_nobody():
    # Angles in degrees: 0, 10, 20 and 30 are within 20 of 10 and of 20; 90 and 95 are near each other.
    vectors = units(0, 10, 20, 30, 90, 95, 180)
    threshold = float(np.cos(np.radians(20.5)))
    assert community_detection(vectors, threshold, min_community_size=2) == [[1, 0, 2, 3], [4, 5]]
    assert community_detection(vectors, threshold, min_community_size=3) == [[1, 0, 2, 3]]
    assert community_detection(np.zeros((0, 2)), min_community_size=1) == []
    vectors = normal(40, dim=3) / np.linalg.norm(normal(40, dim=3), axis=1, keepdims=True)
    for first, *others in community_detection(vectors, 0.6, min_community_size=2):
        assert (vectors[others] @ vectors[first] >= 0.6 - 1e-6).all()
