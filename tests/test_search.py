"""Vectors of users, nearest neighbours, semantic search, paraphrases, translations, int8 and bits."""

import json
from inspect import signature

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import PEERS, run_python

from xling_tf.errors import UserError
from xling_tf.search import mining, neighbours
from xling_tf.search.mining import MiningConfig, mine_hard_negatives
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
    paraphrase_mining,
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


MATRIX = np.random.default_rng(3).normal(size=(4, 6)).astype(np.float32)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["Hola"], "encode texts first"),
        (np.zeros((2, 2), np.int8), "int8 of shape .* dequantize codes first"),
        ([[1.0], [1.0, 2.0]], "of one length"),
        (pd.Series([MATRIX[0], None]), r"of one length, .*row 1 \[\]"),
        (pd.Series([MATRIX[0], MATRIX[1, :3]]), r"of one length, .*row 1 \[3\]"),
        ("Hola", "encode texts first"),
        ({"a": MATRIX[0]}, "values"),
        ([None, None], "float vectors"),
        (np.ma.masked_less(MATRIX, 0.0), "finite vectors"),
        ([[], []], r"shape \[2, 0\]"),
        ([MATRIX, MATRIX], "one vector a row"),
        (tf.ragged.constant([[1.0], [1.0, 2.0]]), "float vectors"),
        ([[1.0, 0.0], [0.0, np.nan], [np.inf, 0.0]], "finite vectors, but row 1 has"),
    ],
)
def test_what_is_no_vectors_is_named(wrong, message):
    with pytest.raises(UserError, match=f"corpus must be .*{message}"):
        as_vectors(wrong, "corpus")


@pytest.mark.parametrize(
    "vectors",
    [
        pd.Series(list(MATRIX)),
        pd.Series(MATRIX.tolist(), index=list("dcba")),
        pd.Series(MATRIX.tolist(), dtype=pd.ArrowDtype(pa.list_(pa.float32()))),
        pd.DataFrame({"vector": list(MATRIX)}),
        pd.DataFrame(MATRIX),
        pd.DataFrame(MATRIX).astype(object),
        pa.array(MATRIX.tolist(), pa.list_(pa.float32())),
        pa.chunked_array([pa.FixedSizeListArray.from_arrays(pa.array(MATRIX.ravel()), 6)]),
        pa.table({"vector": MATRIX.tolist()}),
        [*MATRIX],
        (row for row in MATRIX),
        dict(enumerate(MATRIX)).values(),
        tf.constant(MATRIX),
        [*tf.constant(MATRIX)],
    ],
)
def test_rows_in_any_form_are_one_matrix(vectors):
    assert as_vectors(vectors, "corpus") == pytest.approx(MATRIX)


def test_all_functions_take_rows_in_any_form():
    series = pd.Series(list(QUERIES))
    assert semantic_search(series, pd.Series(list(CORPUS))) == semantic_search(QUERIES, CORPUS)
    codes, expected = pd.Series(list(INT8)), quantized_search(QUERIES, INT8, "int8")
    assert quantized_search(series, codes, "int8") == expected
    found = quantized_search(series, list(BITS), "ubinary", rescore_with=pd.Series(list(CORPUS)))
    assert found == quantized_search(QUERIES, BITS, "ubinary", rescore_with=CORPUS)
    assert bitext_mining(series, list(QUERIES)) == bitext_mining(QUERIES, QUERIES)
    assert paraphrase_mining_embeddings(series) == paraphrase_mining_embeddings(QUERIES)
    assert community_detection(series, min_community_size=1) == community_detection(
        QUERIES, min_community_size=1
    )
    assert np.array_equal(cosine_similarity(series, series), cosine_similarity(QUERIES, QUERIES))
    assert np.array_equal(quantize(series, "int8"), quantize(QUERIES, "int8"))


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
    assert ids(semantic_search(queries, corpus, top_k=top_k)) == expected


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


def negative_distance(queries, candidates):
    return -np.linalg.norm(queries[:, np.newaxis] - candidates[np.newaxis], axis=2)


def test_scores_may_be_those_of_a_function(monkeypatch):
    monkeypatch.setattr(neighbours, "_CHUNK", 7)
    monkeypatch.setattr(neighbours, "_QUERIES", 3)
    queries, corpus = normal(10), 5 * normal(30, seed=1)
    for function in (negative_distance, lambda a, b: a @ b.T, lambda a, b: tf.constant(a @ b.T)):
        scores = np.asarray(function(queries, corpus))
        expected = np.argsort(-scores, axis=1, kind="stable")[:, :6].tolist()
        found = semantic_search(queries, corpus, top_k=6, score_function=function)
        assert ids(found) == expected
        assert found[0][0]["score"] == pytest.approx(scores[0].max(), abs=1e-5)
    assert ids(semantic_search(queries, corpus, score_function=cosine_similarity)) == ids(
        semantic_search(queries, corpus)
    )
    pairs = paraphrase_mining_embeddings(corpus, score_function=negative_distance, max_pairs=3)
    distances = -negative_distance(corpus, corpus) + 99 * np.eye(30)
    nearest_pair = np.unravel_index(distances.argmin(), distances.shape)
    assert (pairs[0].first, pairs[0].second) == nearest_pair
    for wrong in (lambda a, b: a, lambda a, b: np.nan * (a @ b.T), lambda a, b: "near"):
        with pytest.raises(UserError, match="score"):
            semantic_search(queries, corpus, score_function=wrong)


def test_options_of_quantized_search_are_those_of_sentence_transformers():
    options = {"corpus_embeddings": INT8, "corpus_precision": "int8", "query_embeddings": QUERIES}
    calibrated = Int8Ranges.calibrated(CORPUS)
    options["corpus_embeddings"] = quantize(CORPUS, "int8", ranges=calibrated)
    expected = quantized_search(**options, ranges=calibrated)
    minima_and_maxima = np.stack([CORPUS.min(axis=0), CORPUS.max(axis=0)])
    assert quantized_search(**options, ranges=minima_and_maxima) == expected
    assert quantized_search(**options, calibration_embeddings=CORPUS, exact=False) == expected
    alone = quantized_search(**options, ranges=calibrated, rescore=False)
    assert alone == quantized_search(**options, ranges=calibrated, rescore_multiplier=1)
    for wrong in ({"output_index": True}, {"corpus_index": object()}):
        with pytest.raises(UserError, match="not supported"):
            quantized_search(**options, **wrong)


class Model:
    """A model whose encode notes its options."""

    def encode(self, sentences, **options):
        self.options = options
        return units(*map(float, sentences))


def test_paraphrase_mining_gives_encode_its_options():
    model = Model()
    pairs = paraphrase_mining(model, ["0", "50", "51"], False, 7, prompt="x: ", max_pairs=1, top_k=1)
    assert [(pair.first, pair.second) for pair in pairs] == [(1, 2)]
    assert model.options == {"show_progress_bar": False, "batch_size": 7, "prompt": "x: "}
    for wrong in (["0", "50"], "exported/en-es", None):
        with pytest.raises(UserError, match="a model with encode is expected first"):
            paraphrase_mining(wrong, model)


# The keywords of sentence-transformers 6.2, which the next test compares with the release that is there.
OURS = {
    "semantic_search": (semantic_search, "semantic_search"),
    "paraphrase_mining": (paraphrase_mining, "paraphrase_mining"),
    "paraphrase_mining_embeddings": (paraphrase_mining_embeddings, "paraphrase_mining_embeddings"),
    "community_detection": (community_detection, "community_detection"),
    "mine_hard_negatives": (mine_hard_negatives, "mine_hard_negatives"),
    "quantization.semantic_search_faiss": (quantized_search, "quantized_search"),
    "quantization.semantic_search_usearch": (quantized_search, "quantized_search"),
}
# What others take for functions that hand options on.
HANDED_ON = {
    "paraphrase_mining": {*signature(paraphrase_mining_embeddings).parameters},
    "mine_hard_negatives": {
        *signature(MiningConfig).parameters,
        *mining._UNSUPPORTED,
        *mining._WITHOUT_EFFECT,
    },
}
SIGNATURES = """
import inspect, json
from sentence_transformers import util
from sentence_transformers.util import quantization
names = %r
functions = {name: eval(name if "." in name else "util." + name) for name in names}
print(json.dumps({name: [*inspect.signature(f).parameters] for name, f in functions.items()}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not PEERS.exists(), reason="sentence-transformers is not there; make .peers/.installed")
def test_every_keyword_of_sentence_transformers_is_taken_or_refused(tmp_path):
    (tmp_path / "signatures.py").write_text(SIGNATURES % [*OURS])
    run = run_python(tmp_path, "signatures.py", python=PEERS)
    assert run.status == 0, run.errors
    for name, keywords in json.loads(run.output.splitlines()[-1]).items():
        function, our_name = OURS[name]
        taken = {*signature(function).parameters} | HANDED_ON.get(our_name, set())
        assert {*keywords} <= taken, name


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
        found = quantized_search(QUERIES, codes, "int8", ranges=ranges, rescore_multiplier=oversampling)
        assert recall(found) > 0.95


@pytest.mark.parametrize(("precision", "codes"), [("int8", INT8), ("ubinary", BITS)])
def test_all_candidates_rescored_in_floats_are_the_exact_search(precision, codes):
    exact = semantic_search(QUERIES, CORPUS)
    found = quantized_search(
        QUERIES, codes, precision, rescore_multiplier=100, rescore_with=CORPUS.astype(np.float64) * 3
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
    assert ids(quantized_search([1.0] * 8, codes, "int8", 3, rescore_multiplier=1)) == [[0, 1, 2]]


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


@pytest.mark.parametrize("dim", [3, 64, 512, 1024])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_equal_vectors_are_one_community_at_threshold_1(dim, dtype):
    # Cosines of equal vectors are 0.9999999 and 1.0000001 as often as 1.
    vectors = np.random.default_rng(dim).normal(size=(4, dim)).astype(dtype)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    # As they come back from a server: in five digits, lengths are off by as much.
    for units in (vectors, vectors.astype(float).round(5), 7 * vectors):
        groups = community_detection(np.repeat(units, 50, axis=0), 1.0)
        assert sorted(groups) == [[*range(begin, begin + 50)] for begin in range(0, 200, 50)]
    assert community_detection(np.repeat(-vectors, 50, axis=0), threshold=-1, batch_size=3)[0][0] == 0


@pytest.mark.parametrize("threshold", [1.01, -1.01, 75, float("nan"), float("inf"), "0.5", None, True])
def test_thresholds_that_no_cosine_can_have_are_refused(threshold):
    with pytest.raises(UserError, match="threshold must be a number from -1 to 1"):
        community_detection(CORPUS, threshold)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, None, "10"])
def test_numbers_of_results_that_cannot_be_are_refused(wrong):
    calls = [
        lambda: semantic_search(QUERIES, CORPUS, top_k=wrong),
        lambda: quantized_search(QUERIES, INT8, "int8", wrong),
        lambda: quantized_search(QUERIES, INT8, "int8", rescore_multiplier=wrong),
        lambda: community_detection(CORPUS, min_community_size=wrong),
        lambda: paraphrase_mining_embeddings(CORPUS, top_k=wrong),
        lambda: paraphrase_mining_embeddings(CORPUS, max_pairs=wrong),
        lambda: bitext_mining(CORPUS, CORPUS, num_neighbours=wrong),
        lambda: semantic_search(QUERIES, CORPUS, query_chunk_size=wrong),
    ]
    for call in calls:
        with pytest.raises(UserError, match="integer of at least 1"):
            call()


def test_more_results_than_there_are_give_all():
    assert len(semantic_search(QUERIES, CORPUS[:7], top_k=1000)[0]) == 7
    assert len(semantic_search(QUERIES, CORPUS[:7], top_k=np.int64(3))[0]) == 3
    assert len(quantized_search(QUERIES, BITS, "ubinary", np.int64(3))[0]) == 3
    assert len(quantized_search(QUERIES, INT8[:7], "int8", 1000)[0]) == 7
    assert len(paraphrase_mining_embeddings(CORPUS[:5], top_k=1000)) == 10
    assert len(bitext_mining(CORPUS[:5], CORPUS[:5], num_neighbours=1000)) == 5


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
