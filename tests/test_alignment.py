"""Alignment of two versions of a text: costs by hand, the cheapest path, properties, the band."""

import tracemalloc
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import xling_tf
from xling_tf.client.backends import Backend
from xling_tf.client.encoder import SentenceEncoder
from xling_tf.errors import UserError
from xling_tf.search import alignment
from xling_tf.search.alignment import align, align_vectors, sums_of_groups


def rows(groups):
    return [(tuple(group.source), tuple(group.target)) for group in groups]


def one_to_one(count):
    return [((row,), (row,)) for row in range(count)]


def aligned(source, target, max_group=4, lengths=None):
    """Aligns texts by the vectors of their sentences, all of 50 characters by default."""
    source, target = (np.asarray(side, np.float32) for side in (source, target))
    lengths = lengths or ([50] * len(source), [50] * len(target))
    return align_vectors(*(sums_of_groups(side, max_group) for side in (source, target)), *lengths)


def random_vectors(count, dim=32, seed=0):
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)


def noisy(vectors, seed=1, amount=0.2):
    return vectors + amount * random_vectors(len(vectors), vectors.shape[1], seed)


def test_two_pairs_by_hand():
    # The other text's mean is (.5, .5), so the mean distance of every sentence is 1 - .5 = .5. The
    # right pairs have distance 0, score 1 - 0 / .5 = 1. The wrong ones (1, score 1 - 1 / .5 = -1)
    # cost 1 / .5 = 2 each, two omissions at least 1.8, the right pairs 0, which counts as .05.
    groups = aligned(np.eye(2), np.eye(2), max_group=1)
    assert rows(groups) == one_to_one(2)
    assert [group.score for group in groups] == pytest.approx([1, 1])


def test_a_sentence_of_two_by_hand():
    # (1, 1) is the direction of the sum of (1, 0) and (0, 1): a distance of 0, so a group of 1 and
    # 2. The other way out, a pair of cosine .71 and an omission, costs at least .9 * .5 for the
    # omission alone. The third sentence of the target is opposite to all: its pairs cost more than
    # 1, its omission .9 at most.
    source = [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    target = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-1.0, -1.0, -1.0], [0.0, 0.0, 1.0]]
    lengths = [100, 50], [50, 50, 50, 50]
    groups = aligned(source, target, 2, lengths)
    assert rows(groups) == [((0,), (0, 1)), ((), (2,)), ((1,), (3,))]
    assert groups[1].score == 0


def test_weights_of_groups_by_hand():
    # n for 1 and n; for 2 and 2 half-way between 4 and 3, for 2 and 3 between 6 and 4.
    kinds = [(1, 1), (1, 3), (4, 1), (2, 2), (2, 3)]
    assert [alignment._weight(*kind) for kind in kinds] == [1, 3, 4, 3.5, 5]


def test_lengths_decide_between_equal_vectors():
    # Both sentences of the target fit the first of the source; the second is a text of its own
    # length, the first is twice as long.
    source, target = [[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0], [0.9, 0.2], [0.6, 0.8]]
    first = aligned(source, target, 2, ([200, 100], [100, 100, 100]))
    assert rows(first) == [((0,), (0, 1)), ((1,), (2,))]
    # The ratio of characters is that of the texts: twice as many on one side change nothing.
    assert rows(aligned(source, target, 2, ([400, 200], [100, 100, 100]))) == rows(first)


def cheapest_by_trying(costs, num_rows, num_columns):
    """The cost of the cheapest path among all."""
    best = np.full((num_rows + 1, num_columns + 1), np.inf)
    best[0, 0] = 0
    block = costs.block(slice(0, num_rows + 1), slice(0, num_columns + 1))
    for i, j in product(range(num_rows + 1), range(num_columns + 1)):
        ways = [best[i, j]]
        ways += [best[i - 1, j] + costs.omissions[0][i - 1]] if i else []
        ways += [best[i, j - 1] + costs.omissions[1][j - 1]] if j else []
        for group, (a, b) in zip(block, costs.sizes, strict=True):
            if i >= a and j >= b:
                ways.append(best[i - a, j - b] + group[i, j])
        best[i, j] = min(ways)
    return best[-1, -1]


def cost_of(path, costs):
    total = 0.0
    for (i, j), (k, m) in pairwise(path):
        if (k - i) and (m - j):
            block = costs.block(slice(k, k + 1), slice(m, m + 1))
            total += block[costs.sizes.index((k - i, m - j)), 0, 0]
        else:
            total += sum(costs.omissions[0][i:k]) + sum(costs.omissions[1][j:m])
    return total


def costs_of(source, target, seed):
    """The costs of random texts with lengths at random."""
    rng = np.random.default_rng(seed)
    sides = [
        alignment._Side(
            sums_of_groups(text, 3),
            alignment._sums(rng.integers(10, 90, len(text)).astype(np.float32), 3),
            sums_of_groups(other, 1)[0, 1:].mean(axis=0),
        )
        for text, other in ((source, target), (target, source))
    ]
    return alignment._Costs(*sides)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 1000))
def test_the_path_is_the_cheapest_of_all(num_rows, num_columns, seed):
    texts = random_vectors(num_rows, 4, seed), random_vectors(num_columns, 4, seed + 1)
    costs = costs_of(*texts, seed)
    path = alignment._search(costs, alignment._band([], num_rows, num_columns, 1))
    assert (path[0], path[-1]) == ((0, 0), (num_rows, num_columns))
    assert cost_of(path, costs) == pytest.approx(
        cheapest_by_trying(costs, num_rows, num_columns), rel=1e-5
    )


def all_paths(num_rows, num_columns, sizes):
    """Yields every path as its steps (i, j, k, m)."""
    if not num_rows and not num_columns:
        yield []
    for a, b in [*sizes, (1, 0), (0, 1)]:
        if num_rows >= a and num_columns >= b:
            i, j = num_rows - a, num_columns - b
            for steps in all_paths(i, j, sizes):
                yield [*steps, (i, j, num_rows, num_columns)]


@pytest.mark.parametrize(("num_rows", "num_columns"), [(1, 1), (3, 4), (4, 2)])
def test_probabilities_are_shares_of_all_paths(num_rows, num_columns):
    costs = costs_of(random_vectors(num_rows, 4, 1), random_vectors(num_columns, 4, 2), seed=3)
    band = alignment._band([], num_rows, num_columns, 1)
    path = alignment._search(costs, band)
    weights = {}
    for steps in all_paths(num_rows, num_columns, costs.sizes):
        several = alignment._SEVERAL * sum(k - i > 1 and m - j > 1 for i, j, k, m in steps)
        points = [(0, 0), *((k, m) for *_, k, m in steps)]
        weights[tuple(steps)] = np.exp(-cost_of(points, costs) / alignment._TEMPERATURE - several)
    total = sum(weights.values())
    expected = [
        sum(weight for steps, weight in weights.items() if (*before, *after) in steps) / total
        for before, after in pairwise(path)
    ]
    assert alignment._probabilities(costs, band, path) == pytest.approx(expected, rel=1e-4)


def test_probabilities_of_a_long_text_are_those_of_its_groups():
    # Pairs of equal vectors are sure; a group whose two halves fit the neighbours as well is not.
    vectors = random_vectors(400)
    sure = aligned(vectors, noisy(vectors))
    assert min(group.probability for group in sure) > 0.7
    vectors[200] = vectors[201] = vectors[202]
    doubtful = aligned(vectors, noisy(np.delete(vectors, 201, axis=0)))
    assert min(doubtful, key=lambda group: group.probability).source.start in (199, 200, 201, 202)
    assert all(0 <= group.probability <= 1 for group in doubtful)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 1000))
def test_every_row_is_in_one_group_and_groups_are_in_order(num_sources, num_targets, seed):
    groups = aligned(random_vectors(num_sources, 6, seed), random_vectors(num_targets, 6, seed + 1))
    assert [row for group in groups for row in group.source] == [*range(num_sources)]
    assert [row for group in groups for row in group.target] == [*range(num_targets)]
    assert all(group.source or group.target for group in groups)


@pytest.mark.parametrize("count", [1, 2, 3, 40, 700])
def test_a_text_is_aligned_with_itself_sentence_by_sentence(count):
    vectors = random_vectors(count)
    groups = aligned(vectors, vectors)
    assert rows(groups) == one_to_one(count)
    assert [group.score for group in groups] == pytest.approx([1.0] * count, abs=1e-3)


def test_repeated_headings_stay_in_order():
    vectors = random_vectors(30)
    vectors[::5] = vectors[0]
    assert rows(aligned(vectors, noisy(vectors))) == one_to_one(30)


def test_swapped_and_reversed_texts_have_the_same_groups():
    source = random_vectors(40)
    target = noisy(np.delete(source, [7, 8, 20], axis=0))
    groups = rows(aligned(source, target))
    assert ((7,), ()) in groups
    assert sorted(rows(aligned(target, source))) == sorted((b, a) for a, b in groups)
    back = [
        (tuple(39 - i for i in reversed(a)), tuple(36 - j for j in reversed(b)))
        for a, b in rows(aligned(source[::-1], target[::-1]))
    ]
    assert sorted(back) == sorted(groups)


def test_a_missing_chapter_of_a_long_text_is_left_out():
    source = random_vectors(3000)
    target = noisy(np.delete(source, np.s_[1000:1900], axis=0))
    expected = [
        *(((row,), (row,)) for row in range(1000)),
        *(((row,), ()) for row in range(1000, 1900)),
        *(((row,), (row - 900,)) for row in range(1900, 3000)),
    ]
    # At its borders, an omitted sentence may join a neighbour.
    assert len({*expected} - {*rows(aligned(source, target, max_group=2))}) <= 4


def test_merged_and_split_sentences_of_a_long_text():
    pieces = random_vectors(2000)
    sizes = np.random.default_rng(3).choice([1, 1, 1, 2, 3], 700)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    source = np.add.reduceat(pieces[: ends[-1]], starts)
    target = noisy(pieces[: ends[-1]], amount=0.3)
    lengths = (50 * sizes).tolist(), [50] * int(ends[-1])
    groups = rows(aligned(source, target, lengths=lengths))
    expected = {
        ((n,), tuple(range(a, b))) for n, (a, b) in enumerate(zip(starts, ends, strict=True))
    }
    assert len(expected & {*groups}) > 0.99 * len(expected)


def test_memory_grows_with_the_length_and_not_with_its_square():
    # 6,000 rows: a table of all pairs of sentences would take 36 MB in single bytes. Here, the
    # groups' vectors of 16 numbers, four sizes, two sides, take 3 MB; the band of some 130 columns,
    # in bytes, 1 MB.
    vectors = random_vectors(6_000, 16)
    tracemalloc.start()
    groups = aligned(vectors, noisy(vectors, amount=0.1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(a == b for a, b in rows(groups)) > 5_600
    assert peak < 20e6


class Averages(Backend):
    """Adds up the random vectors of words; counts the texts that it encodes."""

    has_units = False

    def __init__(self):
        self.encoded = 0

    def embed(self, texts, role, *contexts):
        self.encoded += len(texts)
        vectors = np.zeros((len(texts), 24), np.float32)
        for row, text in enumerate(texts):
            for word in text.split():
                seed = sum(map(ord, word)) + 1000 * len(word)
                vectors[row] += np.random.default_rng(seed).normal(size=24)
        return vectors

    embed_raw = embed


WORDS = ["alba", "barca", "costa", "duna", "estela", "faro", "golfo", "hielo", "isla", "jarcia"]


def sentences(count, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, 5)) for _ in range(count)]


def test_an_average_encodes_no_sentence_twice():
    backend, texts = Averages(), sentences(150)
    merged = [f"{texts[0]} {texts[1]}", *texts[2:]]
    groups = align(texts, merged, SentenceEncoder(backend))
    assert rows(groups) == [((0, 1), (0,)), *(((n + 1,), (n,)) for n in range(1, 149))]
    assert backend.encoded < 2 * 150 + 3 * 64 + 10  # and the sample of groups


def test_other_models_encode_groups():
    backend = Averages()

    def encode(texts):  # unlike a sum: the order of words changes it
        rolled = np.roll(backend.embed(texts, ""), len(texts[0]), axis=1)
        return np.where(rolled > 0, 1.0, -1.0) + [[len(text) % 3] for text in texts]

    texts = sentences(20)
    assert rows(align(texts, texts, encode)) == one_to_one(20)
    before = backend.encoded
    assert rows(align(texts, texts, encode, encode_groups=False)) == one_to_one(20)
    assert backend.encoded - before == 2 * 20


def test_a_model_with_unit_vectors_alone_and_blank_sentences():
    class Units(Averages):
        has_units = True

        def embed(self, texts, role, *contexts):
            vectors = super().embed(texts, role)
            return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)

        def embed_raw(self, texts, role, *contexts):
            raise ValueError  # of a wheel, which has a `UserError` of its own

    texts = sentences(12)
    texts[4] = " "
    groups = xling_tf.align(texts, texts, SentenceEncoder(Units()))
    assert [row for group in groups for row in group.source] == [*range(12)]
    assert sum(a == b for a, b in rows(groups)) >= 9


def test_a_blank_sentence_has_no_translation():
    """Without it, both texts have two sentences with equal vectors in the same order."""
    vectors = {"Uno.": [1.0, 0.0], "Dos.": [0.0, 1.0], "One.": [1.0, 0.0], "Two.": [0.0, 1.0]}

    def encode(texts):
        return [vectors[text] for text in texts]

    source, target = ["", "Uno.", " ", "Dos."], ["One.", "Two.", "\u200b"]
    groups = align(source, target, encode, encode_groups=False)
    assert rows(groups) == [((0,), ()), ((1,), (0,)), ((2,), ()), ((3,), (1,)), ((), (2,))]
    assert rows(align([""], ["One."], encode)) == [((), (0,)), ((0,), ())]
    assert rows(align(["", "\t"], [], encode)) == [((0,), ()), ((1,), ())]


def test_an_empty_side_leaves_the_other_without_translations():
    model = SentenceEncoder(Averages())
    assert rows(align([], ["alba", "faro"], model)) == [((), (0,)), ((), (1,))]
    assert rows(align(["alba"], [], model)) == [((0,), ())]
    assert align([], [], model) == []


def test_wrong_arguments_are_told():
    with pytest.raises(UserError, match="max_group"):
        align(["a"], ["b"], SentenceEncoder(Averages()), max_group=0)
    with pytest.raises(UserError, match="source"):
        align({"a": 1}, ["b"], SentenceEncoder(Averages()))


def test_a_name_of_a_model_is_no_model():
    with pytest.raises(UserError, match="load it first"):
        align(["Uno."], ["One."], "exported/en-es")
