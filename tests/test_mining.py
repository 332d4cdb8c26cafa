import sys

import numpy as np
import pytest

from xling_tf.errors import UserError
from xling_tf.search import neighbours
from xling_tf.search.mining import MiningConfig, mine_hard_negatives
from xling_tf.search.neighbours import index_kind, nearest

# Five unit vectors. The inner products of the first with all: 1, 0.8, 0.6, 0 and -1.
A, B, C, D, E = range(5)
VECTORS = np.array([[1, 0], [0.8, 0.6], [0.6, 0.8], [0, 1], [-1, 0]], np.float32)


def mine(queries=VECTORS[:1], positives=(A,), groups=None, **knobs):
    """The negatives of each query, and what was dropped."""
    places = np.arange(len(positives)) if groups is None else np.array(groups)
    config = MiningConfig(**{"num_negatives": 2, **knobs})
    indices, dropped = mine_hard_negatives(queries, VECTORS, np.array(positives), places, config)
    assert indices.shape == (len(positives), config.num_negatives)
    found = [[index for index in row if index >= 0] for row in indices.tolist()]
    # What lacks stands at the end.
    assert [row[: len(kept)] for row, kept in zip(indices.tolist(), found, strict=True)] == found
    return found, {rule: count for rule, count in dropped.items() if count}


def test_the_nearest_wrong_candidates_come_nearest_first():
    # Of D = (0, 1): C 0.8, B 0.6, A 0, E 0.
    found, dropped = mine(VECTORS[[A, D]], [A, D])
    assert found == [[B, C], [C, B]]
    assert dropped == {}


def test_fewer_candidates_than_asked():
    assert mine(num_negatives=7)[0] == [[B, C, D, E]]


def test_right_answers_of_the_group_are_no_negatives():
    # Two examples of one source: B is the answer of the other, so it is none's negative.
    found, dropped = mine(VECTORS[[A, B]], [A, B], groups=[3, 3])
    # Of B = (0.8, 0.6): A 0.8 (right), C 0.48 + 0.48 = 0.96, D 0.6, E -0.8.
    assert found == [[C, D], [C, D]]
    assert dropped == {"right_answer": 2}
    # Another group has the same number neither as answer nor as rule.
    assert mine(VECTORS[[A, B]], [A, B], groups=[3, 0])[0] == [[B, C], [C, A]]


def test_the_query_may_be_another_text_than_the_answer():
    # As with sources for queries: of D, whose right answer is C (0.8): B 0.6, A and E 0.
    assert mine(VECTORS[[D]], [C])[0] == [[D, B]]


def test_query_rows_say_which_query_an_example_has():
    config = MiningConfig(num_negatives=1)
    rows, positives = np.array([1, 0, 1]), np.array([D, A, D])
    groups = np.arange(3)
    found = mine_hard_negatives(
        VECTORS[[A, D]], VECTORS, positives, groups, config, query_rows=rows
    )
    assert found.indices.tolist() == [[C], [B], [C]]


@pytest.mark.parametrize(
    ("knobs", "found", "dropped"),
    [
        # Skips the nearest that pass.
        ({"range_min": 1}, [C, D], {}),
        ({"range_min": 1, "max_score": 0.7}, [D, E], {"max_score": 1}),
        # Looks at three wrong ones: B, C, D.
        ({"range_max": 3, "num_negatives": 3}, [B, C, D], {}),
        ({"range_max": 3, "num_negatives": 3, "max_score": 0.7}, [C, D], {"max_score": 1}),
        ({"max_score": 0.5}, [D, E], {"max_score": 2}),
        ({"max_score": 0.5, "min_score": -0.5}, [D], {"max_score": 2, "min_score": 1}),
        # The right one scores 1: 0.3 below is 0.7.
        ({"absolute_margin": 0.3}, [C, D], {"absolute_margin": 1}),
        ({"absolute_margin": 0.1}, [B, C], {}),
        # 50% of 1.
        ({"relative_margin": 0.5}, [D, E], {"relative_margin": 2}),
        # The first rule that drops one counts it.
        (
            {"absolute_margin": 0.3, "max_score": 0.5},
            [D, E],
            {"absolute_margin": 1, "max_score": 1},
        ),
    ],
)
def test_knobs(knobs, found, dropped):
    assert mine(**knobs) == ([found], dropped)


def test_margins_are_relative_to_the_score_of_the_right_answer():
    # Of A, whose right answer is C (0.6): 0.1 below is 0.5, which A and B exceed.
    assert mine(positives=[C], absolute_margin=0.1)[0] == [[D, E]]
    # The right answer E scores -1; below -1.1 there is nothing.
    assert mine(positives=[E], relative_margin=0.1)[0] == [[]]
    # In its own right, D's answer A scores 0: only what is above 0 is dropped, and E is not.
    assert mine(VECTORS[[D]], [A], relative_margin=0.5)[0] == [[E]]


def test_random_ones_are_any_that_pass_and_the_seed_says_which():
    drawn = [
        tuple(mine(sampling_strategy="random", max_score=0.7, seed=seed)[0][0])
        for seed in range(40)
    ]
    # Of C, D, E two, nearest first.
    assert set(drawn) == {(C, D), (C, E), (D, E)}
    assert mine(sampling_strategy="random", max_score=0.7, seed=3)[0] == [list(drawn[3])]
    # Fewer than asked: all.
    assert mine(sampling_strategy="random", max_score=-0.5)[0] == [[E]]


def test_rules_may_drop_many_and_still_enough_are_looked_at():
    # 30 candidates above the limit, and one below: with two negatives, twenty would be looked at.
    circle = np.linspace(0, 0.3, 31)
    vectors = np.stack([np.cos(circle), np.sin(circle)], axis=1)
    vectors = np.concatenate([vectors, [[0, 1]]])
    first = np.array([0])
    few = MiningConfig(num_negatives=2, max_score=0.5)
    assert mine_hard_negatives(vectors[:1], vectors, first, first, few).indices.tolist() == [
        [-1, -1]
    ]
    many = MiningConfig(num_negatives=2, max_score=0.5, range_max=31)
    assert mine_hard_negatives(vectors[:1], vectors, first, first, many).indices.tolist() == [
        [31, -1]
    ]


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"num_negatives": 0}, "num_negatives must be at least 1, got 0"),
        ({"range_min": -1}, "range_min must be at least 0, got -1"),
        ({"range_min": 2, "range_max": 6}, "range_max must be at least 7, got 6"),
        ({"sampling_strategy": "best"}, "sampling_strategy expects top or random, got 'best'"),
    ],
)
def test_knobs_out_of_range(knobs, message):
    with pytest.raises(UserError, match=message):
        MiningConfig(**knobs)


def test_nearest_with_ties_and_fewer_candidates():
    candidates = np.array([[0, 1], [1, 0], [1, 0]], np.float32)
    scores, indices = nearest(np.array([[1.0, 0.0]]), candidates, 4)
    assert indices.tolist() == [[1, 2, 0, -1]]
    assert scores.tolist() == [[1, 1, 0, -np.inf]]


def test_nearest_of_no_query():
    scores, indices = nearest(np.zeros((0, 2)), VECTORS, 3)
    assert scores.shape == indices.shape == (0, 3)


def test_chunks_make_no_difference(monkeypatch):
    random = np.random.default_rng(0)
    queries, candidates = random.normal(size=(10, 4)), random.normal(size=(23, 4))
    whole = nearest(queries, candidates, 5)
    monkeypatch.setattr(neighbours, "_CHUNK", 3)
    parts = nearest(queries, candidates, 5)
    assert parts.indices.tolist() == whole.indices.tolist()
    # By sorting all: exact search.
    expected = np.argsort(-queries @ candidates.T, axis=1)[:, :5]
    assert whole.indices.tolist() == expected.tolist()


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_approximate_indices_find_nearly_all_that_the_exact_one_finds(kind):
    random = np.random.default_rng(0)
    vectors = random.normal(size=(4000, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    exact = nearest(vectors[:200], vectors, 10, kind="flat").indices
    found = nearest(vectors[:200], vectors, 10, kind=kind).indices
    recall = np.mean([len({*a} & {*b}) / 10 for a, b in zip(exact, found, strict=True)])
    assert recall >= 0.9


def test_the_index_is_chosen_by_size():
    sizes = {10: "flat", 200_000: "flat", 200_001: "hnsw", 1_000_000: "hnsw", 1_000_001: "ivf"}
    assert {size: index_kind(size) for size in sizes} == sizes


def test_without_faiss_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UserError, match=r"xling_tf\[mining\]"):
        nearest(VECTORS, VECTORS, 1)
