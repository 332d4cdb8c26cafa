from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf
from testing import TINY, make_examples

from xling_tf.errors import UserError
from xling_tf.overrides import apply_overrides
from xling_tf.text.words import WordNgramPreprocessor
from xling_tf.trainer.input_pipeline import BatchSampler, make_dataset, make_sampler


def texts_of(lengths):
    return [" ".join("abcdefghijkl"[i % 12] for i in range(length)) for length in lengths]


def numbered(count, corpora=None):
    """Examples of one word each: "0", "1", ..."""
    return make_examples([str(number) for number in range(count)], corpora=corpora)


def make(examples, *, size=4, pool=3, weights=None, seed=1):
    return BatchSampler(
        examples,
        weights or [1.0] * len(examples.corpora),
        examples_per_batch=size,
        pool_batches=pool,
        seed=seed,
    )


def drawn(sampler, positions):
    return np.concatenate([sampler.batch(position) for position in positions])


RAGGED = make_examples(texts_of(np.random.default_rng(3).integers(1, 30, 500)))


def test_a_batch_depends_on_its_position_alone():
    first = make(RAGGED)
    batches = [first.batch(position).tolist() for position in range(40)]
    for position in (39, 0, 17, 17, 5, 38):
        assert make(RAGGED).batch(position).tolist() == batches[position]
    other = make(RAGGED)
    backwards = [other.batch(position).tolist() for position in reversed(range(40))]
    assert backwards[::-1] == batches


def test_the_seed_decides_the_order():
    assert (
        drawn(make(RAGGED), range(10)).tolist() != drawn(make(RAGGED, seed=2), range(10)).tolist()
    )


@pytest.mark.parametrize(
    "corpora", [None, [("a", 20), ("b", 40)], [("a", 1), ("b", 48), ("c", 11)]]
)
def test_an_epoch_holds_every_example_once(corpora):
    # 60 examples in pools of 3 * 4 = 12: positions 0 ... 14 are an epoch.
    sampler = make(numbered(60, corpora))
    first = drawn(sampler, range(15))
    second = drawn(sampler, range(15, 30))
    if corpora is None or corpora[0][1] == 20:  # shares 1/3 and 2/3 of 12 are whole numbers
        assert sorted(first) == sorted(second) == list(range(60))
    # Shares that are no whole numbers come out over a few epochs, within one draw a corpus.
    counts = Counter(drawn(sampler, range(150)).tolist())
    assert set(counts) == set(range(60))
    assert {8, 9, 10, 11} >= set(counts.values())
    assert first.tolist() != second.tolist()


def test_a_corpus_is_exhausted_before_an_example_comes_again():
    examples = numbered(50, [("a", 30), ("b", 20)])
    indices = drawn(make(examples, size=7, pool=2), range(100))
    counts = Counter(indices.tolist())
    of_a = [counts[index] for index in range(30)]
    of_b = [counts[index] for index in range(30, 50)]
    assert max(of_a) - min(of_a) <= 1
    assert max(of_b) - min(of_b) <= 1


def test_weights_are_relative_to_the_size():
    # Sizes 300, 100, 100 with weights 1, 3, 0: shares 300 : 300 : 0.
    examples = numbered(500, [("a", 300), ("b", 100), ("c", 100)])
    indices = drawn(make(examples, size=10, pool=6, weights=[1.0, 3.0, 0.0]), range(60))
    counts = np.bincount(np.digitize(indices, [300, 400]), minlength=3)
    assert counts.tolist() == [300, 300, 0]
    assert Counter(indices[indices >= 300].tolist()) == dict.fromkeys(range(300, 400), 3)


def test_batches_hold_similar_lengths_and_equal_work():
    sampler = make(RAGGED, size=16, pool=10)
    batches = [RAGGED.lengths[sampler.batch(position)] for position in range(10)]
    assert sum(map(len, batches)) == 160
    work = np.array([lengths.sum() for lengths in batches])
    # A cut falls on a sentence, which is at most 29 tokens from where it should.
    assert np.abs(work - work.mean()).max() <= 2 * 29
    # Sorted by length, batches overlap at their ends only.
    spans = sorted((lengths.min(), lengths.max()) for lengths in batches)
    assert all(high <= low for (_, high), (low, _) in pairwise(spans))
    # Short sentences come in larger batches: the shortest and the longest tenth of the work.
    sizes = [len(lengths) for lengths in sorted(batches, key=np.mean)]
    assert sizes[0] > 3 * sizes[-1]


def test_batches_of_a_pool_come_in_random_order():
    sampler = make(RAGGED, size=16, pool=10)
    means = [RAGGED.lengths[sampler.batch(position)].mean() for position in range(10)]
    assert means != sorted(means)
    assert means != sorted(means, reverse=True)


def test_pools_are_no_larger_than_the_corpora():
    # 20 examples in batches of 4: a pool of 64 batches would hold each example 12 times.
    sampler = make(numbered(20), size=4, pool=64)
    assert sorted(drawn(sampler, range(5))) == list(range(20))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_fewer_examples_than_a_batch(count):
    sampler = make(numbered(count), size=4, pool=3)
    for position in range(7):
        batch = sampler.batch(position)
        assert 1 <= len(batch) <= 5
        assert set(batch.tolist()) <= set(range(count))
    assert set(drawn(sampler, range(7)).tolist()) == set(range(count))


def test_more_corpora_than_a_batch_holds():
    sampler = make(numbered(3, [("a", 1), ("b", 1), ("c", 1)]), size=2, pool=1)
    # Every pool has one of each, however the shares of a third are rounded.
    for position in range(99):
        assert sorted(sampler.batch(position)) == [0, 1, 2]


@pytest.mark.parametrize("count", [1, 7, 40])
def test_no_pool_is_empty_however_many_corpora_there_are(count):
    examples = numbered(3 * count, [(str(number), 3) for number in range(count)])
    sampler = make(examples, size=2, pool=2, weights=[1 + 0.1 * i for i in range(count)])
    assert all(len(sampler.batch(position)) for position in range(200))


@pytest.mark.parametrize("weights", [[0.0, 0.0], [-1.0, 2.0], [-1.0, -1.0], [float("nan"), 1.0]])
def test_weights_that_leave_nothing_or_less_are_refused(weights):
    examples = numbered(5, [("tatoeba", 3), ("manpages", 2)])
    with pytest.raises(UserError, match=r"^data\.corpus_weights .* tatoeba, manpages have \["):
        make(examples, weights=weights)


def test_a_corpus_of_weight_zero_is_left_out():
    sampler = make(numbered(5, [("a", 3), ("b", 2)]), weights=[0.0, 1.0], size=1)
    assert set(drawn(sampler, range(20)).tolist()) == {3, 4}


PREPROCESS = WordNgramPreprocessor(list("abcdefgh"), TINY.text)
PAIRS = make_examples(
    [f"a {number}" for number in range(20)],
    ["b c" if number % 2 else f"c {number}" for number in range(20)],
    labels=[number % 3 for number in range(20)],
)


def as_lists(batch):
    return [np.asarray(part).tolist() for part in tf.nest.flatten(batch)]


def test_a_stream_is_the_sampler_through_the_preprocessor():
    sampler = make(PAIRS)
    dataset = make_dataset(PAIRS, make(PAIRS), PREPROCESS, count=4)
    batches = list(dataset)
    assert len(batches) == 4
    for position, batch in enumerate(batches):
        indices = sampler.batch(position)
        texts = PAIRS.texts(indices)
        assert as_lists(batch.features) == as_lists(PREPROCESS(tf.constant(texts)))
        assert batch.labels.numpy().tolist() == (indices % 3).tolist()


def test_fingerprints_are_equal_where_texts_are():
    batch = next(iter(make_dataset(PAIRS, make(PAIRS, size=20, pool=1), PREPROCESS)))
    indices = make(PAIRS, size=20, pool=1).batch(0)
    flat = PAIRS.texts(indices)
    fingerprints = batch.fingerprints.numpy()
    assert fingerprints.shape == (2, 20)
    equal = fingerprints.reshape(-1)[:, None] == fingerprints.reshape(-1)[None, :]
    assert equal.tolist() == (flat[:, None] == flat[None, :]).tolist()
    assert equal.sum() > 40  # "b c" is there ten times


@pytest.mark.parametrize("start", [1, 4, 11])
def test_a_stream_from_the_middle_continues(start):
    whole = list(make_dataset(PAIRS, make(PAIRS), PREPROCESS, count=15))
    rest = list(make_dataset(PAIRS, make(PAIRS), PREPROCESS, start=start, count=15 - start))
    assert [as_lists(batch) for batch in rest] == [as_lists(batch) for batch in whole[start:]]


def test_a_workers_share_is_its_block_of_every_stride():
    # Two replicas of six, the second and third: 1 2, 7 8, 13.
    share = make_dataset(PAIRS, make(PAIRS), PREPROCESS, start=1, count=5, block=2, stride=6)
    whole = list(make_dataset(PAIRS, make(PAIRS), PREPROCESS, count=14))
    expected = [whole[position] for position in (1, 2, 7, 8, 13)]
    assert [as_lists(batch) for batch in share] == [as_lists(batch) for batch in expected]


@pytest.mark.parametrize(("num_workers", "replicas"), [(2, 1), (2, 2), (3, 1)])
def test_the_shares_of_workers_are_together_what_one_would_see(num_workers, replicas):
    stride = num_workers * replicas
    shares = [
        make_dataset(
            *(PAIRS, make(PAIRS), PREPROCESS),
            **{"start": rank * replicas, "count": 4, "block": replicas, "stride": stride},
        )
        for rank in range(num_workers)
    ]
    whole = make_dataset(PAIRS, make(PAIRS), PREPROCESS, count=4 * num_workers)
    parts = [[as_lists(batch) for batch in share] for share in shares]
    together = [
        batch
        for first in range(0, 4, replicas)
        for part in parts
        for batch in part[first : first + replicas]
    ]
    assert together == [as_lists(batch) for batch in whole]


def test_an_epoch_of_workers_holds_every_example_once():
    # 60 examples in batches of 4 on average: positions 0 ... 14 are an epoch, 0 3 6 ... the first's.
    sampler = make(numbered(60))
    shares = [drawn(sampler, range(rank, 15, 3)) for rank in range(3)]
    assert sorted(np.concatenate(shares)) == list(range(60))


def test_a_stream_without_a_count_has_no_end():
    dataset = make_dataset(numbered(2), make(numbered(2)), PREPROCESS)
    assert len(list(dataset.take(50))) == 50


def test_the_config_gives_weights_pool_and_seed():
    examples = numbered(40, [("a", 30), ("b", 10)])
    overrides = ["data.corpus_weights.b=3", "data.pool_batches=2", "training.seed=9"]
    sampler = make_sampler(examples, apply_overrides(TINY, overrides), 5)
    expected = make(examples, size=5, pool=2, weights=[1.0, 3.0], seed=9)
    assert drawn(sampler, range(20)).tolist() == drawn(expected, range(20)).tolist()
