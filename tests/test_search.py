import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xling_tf.errors import UserError
from xling_tf.search import arrays as vectors_module
from xling_tf.search.search import (
    bitext_mining,
    paraphrase_mining,
    paraphrase_mining_embeddings,
    semantic_search,
)


def units(*degrees):
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def normal(count, dim=8, seed=0):
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)


def ids(hits):
    return [[hit["corpus_id"] for hit in row] for row in hits]


def test_hits_derived_by_hand():
    # cos 0, cos 60 and cos 90 degrees, whatever the vectors' lengths.
    (hits,) = semantic_search(units(0)[0] * 3, units(60, 90, 0) * 2, top_k=2)
    assert [hit["corpus_id"] for hit in hits] == [2, 0]
    assert [hit["score"] for hit in hits] == pytest.approx([1.0, 0.5], abs=1e-6)
    assert isinstance(hits[0]["corpus_id"], int)
    assert isinstance(hits[0]["score"], float)


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 12), st.integers(0, 5))
@settings(max_examples=20, deadline=None)
def test_hits_are_those_of_all_cosines(num_queries, num_corpus, top_k, seed):
    queries, corpus = normal(num_queries, seed=seed), normal(num_corpus, seed=seed + 1)
    cosines = vectors_module.cosine_similarity(queries, corpus)
    expected = np.argsort(-cosines, axis=1, kind="stable")[:, :top_k].tolist()
    assert ids(semantic_search(queries, corpus, top_k)) == expected


@pytest.mark.parametrize("num_queries", [1, 40])  # FAISS has one way for few and one for many
def test_of_equal_ones_the_first_come_first(num_queries):
    corpus = np.tile(units(0, 90), (50, 1))
    found = ids(semantic_search(np.tile(units(0), (num_queries, 1)), corpus, top_k=5))
    assert found == [[0, 2, 4, 6, 8]] * num_queries


def test_nothing_is_found_in_nothing():
    assert semantic_search(np.zeros((0, 2)), units(0)) == []
    assert semantic_search(units(0, 1), np.zeros((0, 2))) == [[], []]
    assert semantic_search(units(0, 1), []) == [[], []]


@pytest.mark.parametrize("search", [semantic_search, bitext_mining])
def test_vectors_of_two_models_are_both_named(search):
    with pytest.raises(UserError, match=r"have 2 and \w+ 8; encode both with one model"):
        search(units(0), normal(3))


def test_texts_are_no_queries():
    with pytest.raises(UserError, match=r"queries must be float vectors.*encode texts first"):
        semantic_search(["Hola"], units(0))


def test_a_count_of_none_is_refused():
    with pytest.raises(UserError, match="top_k must be an integer of at least 1, got 0"):
        semantic_search(units(0), units(0), top_k=0)


def test_paraphrases_derived_by_hand():
    # Angles between 0, 60, 90 and 95 degrees: the pair 5 apart comes first, then 30, 35, 60, 90 and 95.
    pairs = paraphrase_mining_embeddings(units(0, 60, 90, 95))
    assert [(first, second) for _, first, second in pairs] == [
        (2, 3),
        (1, 2),
        (1, 3),
        (0, 1),
        (0, 2),
        (0, 3),
    ]
    cosines = np.cos(np.radians([5, 30, 35, 60, 90, 95]))
    assert [pair.score for pair in pairs] == pytest.approx(cosines, abs=1e-6)


@given(st.integers(0, 12), st.integers(1, 12), st.integers(1, 80), st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_paraphrases_are_the_best_of_all_pairs(count, top_k, max_pairs, seed):
    vectors = normal(count, seed=seed)
    cosines = vectors_module.cosine_similarity(vectors, vectors)
    best = np.argsort(-(cosines - 9 * np.eye(count)), axis=1)[:, :top_k].tolist()
    near = {(min(i, j), max(i, j)) for i in range(count) for j in best[i] if i != j}
    expected = sorted(near, key=lambda pair: -cosines[pair])[:max_pairs]
    pairs = paraphrase_mining_embeddings(vectors, top_k=top_k, max_pairs=max_pairs)
    assert [(pair.first, pair.second) for pair in pairs] == expected


def test_equal_sentences_are_each_others_paraphrases_once():
    # With more copies than neighbours a sentence need not be among its own.
    pairs = paraphrase_mining_embeddings(np.tile(units(0), (6, 1)), top_k=2)
    assert all(pair.first < pair.second for pair in pairs)
    assert len({(pair.first, pair.second) for pair in pairs}) == len(pairs) >= 6
    assert [pair.score for pair in pairs] == pytest.approx([1.0] * len(pairs))


def test_an_encoder_makes_the_vectors():
    class Encoder:
        def encode(self, sentences):
            return units(*map(len, sentences))

    (best, *_) = paraphrase_mining(Encoder(), ["a" * 80, "", "b" * 79], max_pairs=2)
    assert (best.first, best.second) == (0, 2)


def test_one_sentence_has_no_paraphrase():
    assert paraphrase_mining_embeddings(units(0)) == []
    assert paraphrase_mining_embeddings([]) == []


def test_translations_derived_by_hand():
    # As in test_evaluators_bitext_mining: sources at 0 and 60 degrees, targets at 90 and 0, margins 1.6 and
    # 0.866 / ((0.683 + 0.433) / 2) = 1.552.
    pairs = bitext_mining(units(0, 60) * 2, units(90, 0))
    assert [(pair.first, pair.second) for pair in pairs] == [(0, 1), (1, 0)]
    assert [pair.score for pair in pairs] == pytest.approx([1.6, 1.552], abs=1e-3)


def test_translations_of_one_neighbour_have_the_margin_one():
    # The mean over the nearest alone is the cosine itself.
    pairs = bitext_mining(units(0, 90), units(10, 80), num_neighbours=1)
    assert [tuple(pair) for pair in pairs] == [
        (pytest.approx(1.0), 0, 0),
        (pytest.approx(1.0), 1, 1),
    ]


def test_nothing_translates_nothing():
    assert bitext_mining([], units(0)) == bitext_mining(units(0), np.zeros((0, 2))) == []
