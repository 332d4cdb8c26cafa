import numpy as np
import pytest

from xling_tf.errors import UserError
from xling_tf.search.quantization import Int8Ranges, quantize
from xling_tf.search.search import quantized_search, semantic_search

RANDOM = np.random.default_rng(0)
# Clusters, so that neighbours are told apart by more than chance.
CORPUS = np.repeat(RANDOM.normal(size=(50, 64)), 20, axis=0) + RANDOM.normal(size=(1000, 64)) * 0.5
CORPUS = (CORPUS / np.linalg.norm(CORPUS, axis=1, keepdims=True)).astype(np.float32)
QUERIES = CORPUS[::50] + RANDOM.normal(size=(20, 64)).astype(np.float32) * 0.02


def places(hits):
    return [[hit["corpus_id"] for hit in row] for row in hits]


def recall(hits):
    pairs = zip(places(hits), places(semantic_search(QUERIES, CORPUS)), strict=True)
    return np.mean([len(set(some) & set(others)) / 10 for some, others in pairs])


def test_int8_finds_nearly_all_by_either_range():
    ranges = Int8Ranges.calibrated(CORPUS)
    calibrated = quantize(CORPUS, "int8", ranges=ranges)
    assert recall(quantized_search(QUERIES, quantize(CORPUS, "int8"), "int8")) > 0.95
    assert recall(quantized_search(QUERIES, calibrated, "int8", ranges=ranges)) > 0.95


def test_int8_in_blocks_is_int8_at_once(monkeypatch):
    codes = quantize(CORPUS, "int8")
    whole = quantized_search(QUERIES, codes, "int8")
    monkeypatch.setattr("xling_tf.search.arrays._CHUNK", 37)
    assert places(quantized_search(QUERIES, codes, "int8")) == places(whole)


def test_more_candidates_and_better_scores_find_more():
    codes = quantize(CORPUS, "ubinary")
    recalls = [
        recall(quantized_search(QUERIES, codes, "ubinary", oversampling=1)),
        recall(quantized_search(QUERIES, codes, "ubinary", oversampling=4)),
        recall(quantized_search(QUERIES, codes, "ubinary", oversampling=4, rescore_with=CORPUS)),
    ]
    assert recalls == sorted(recalls)
    assert recalls[0] < recalls[-1]


@pytest.mark.parametrize("precision", ["int8", "ubinary"])
def test_all_candidates_rescored_in_floats_are_the_exact_search(precision):
    codes = quantize(CORPUS, precision)
    found = quantized_search(
        QUERIES, codes, precision, oversampling=100, rescore_with=CORPUS.astype(np.float64) * 3
    )
    exact = semantic_search(QUERIES, CORPUS)
    assert places(found) == places(exact)
    scores = [[hit["score"] for hit in row] for row in found]
    assert scores == pytest.approx(
        np.array([[hit["score"] for hit in row] for row in exact]), abs=1e-6
    )


def test_bits_are_rescored_with_int8_codes_too():
    ranges = Int8Ranges.calibrated(CORPUS)
    found = quantized_search(
        QUERIES,
        quantize(CORPUS, "ubinary"),
        "ubinary",
        oversampling=100,
        ranges=ranges,
        rescore_with=quantize(CORPUS, "int8", ranges=ranges),
    )
    by_int8 = quantized_search(
        QUERIES, quantize(CORPUS, "int8", ranges=ranges), "int8", ranges=ranges
    )
    assert places(found) == places(by_int8)


def test_both_kinds_of_bits_find_the_same():
    found = [quantized_search(QUERIES, quantize(CORPUS, p), p) for p in ("binary", "ubinary")]
    assert found[0] == found[1]


def test_the_score_of_bits_derived_by_hand():
    # A query of eight equal numbers and the signs + + + + + + - -: (6 - 2) / 8.
    codes = quantize(np.array([[1.0] * 6 + [-1.0] * 2]), "ubinary")
    ((hit,),) = quantized_search([0.5] * 8, codes, "ubinary")
    assert hit["score"] == pytest.approx(0.5)


def test_of_equal_ones_the_first_come_first():
    codes = quantize(np.ones((40, 8)), "int8")
    assert places(quantized_search([1.0] * 8, codes, "int8", 3)) == [[0, 1, 2]]


@pytest.mark.parametrize("precision", ["int8", "ubinary"])
def test_nothing_is_found_in_nothing(precision):
    none = quantize(np.zeros((0, 64)), precision)
    assert quantized_search(QUERIES[:2], none, precision) == [[], []]
    assert quantized_search(QUERIES[:0], quantize(CORPUS, precision), precision) == []


@pytest.mark.parametrize(
    ("codes", "precision", "options", "message"),
    [
        (CORPUS, "float32", {}, "got 'float32'; use semantic_search"),
        (CORPUS, "int8", {}, "must be int8 .* but are float32"),
        (
            quantize(CORPUS[:, :32], "int8"),
            "int8",
            {},
            r"\[1000, 64\] .*64 dimensions, .*\[1000, 32\]",
        ),
        (quantize(CORPUS, "ubinary")[:, :4], "ubinary", {}, r"\[1000, 8\] .* has \[1000, 4\]"),
        (quantize(CORPUS, "ubinary"), "ubinary", {"rescore_with": CORPUS[:9]}, "rescore_with must"),
        (quantize(CORPUS, "ubinary"), "ubinary", {"oversampling": 0}, "oversampling must be an"),
    ],
)
def test_what_does_not_suit_is_named(codes, precision, options, message):
    with pytest.raises(UserError, match=message):
        quantized_search(QUERIES, codes, precision, **options)
