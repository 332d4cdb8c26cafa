"""Random orders that are computed place by place."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from xling_tf.trainer.permutation import shuffled


def order(size, *, epoch=0, seed=(1, 2)):
    return shuffled(np.arange(size), np.full(size, epoch), size, seed)


@pytest.mark.parametrize("size", [*range(1, 20), 64, 65, 255, 256, 257, 1000, 4097, 70_000])
def test_every_thing_comes_once(size):
    for epoch in (0, 1, 12345):
        assert sorted(order(size, epoch=epoch)) == list(range(size))


def test_a_place_does_not_depend_on_what_else_is_asked_for():
    random = np.random.default_rng(0)
    places, epochs = random.integers(0, 1000, 50), random.integers(0, 3, 50)
    expected = [
        order(1000, epoch=epoch)[place] for place, epoch in zip(places, epochs, strict=True)
    ]
    assert shuffled(places, epochs, 1000, (1, 2)).tolist() == expected


def test_sizes_beyond_what_an_array_holds():
    size = 10**15 + 1
    places = np.arange(size - 1000, size)
    found = shuffled(places, np.zeros(1000, int), size, [3])
    assert len(set(found.tolist())) == 1000
    assert found.min() >= 0
    assert found.max() < size
    # Of 1000 even draws the mean is size / 2, its standard deviation size / sqrt(12 * 1000).
    assert abs(found.mean() / size - 0.5) < 5 / np.sqrt(12_000)


def test_epochs_and_seeds_have_other_orders():
    orders = [order(100), order(100, epoch=1), order(100, seed=(1, 3)), order(100, seed=(2, 2))]
    # Two random orders agree in one place on average, rarely in more than five.
    agreements = [np.sum(a == b) for i, a in enumerate(orders) for b in orders[:i]]
    assert max(agreements) < 10


def test_all_orders_of_a_few_things_are_about_equally_frequent():
    counts = Counter(tuple(order(4, epoch=epoch).tolist()) for epoch in range(2400))
    assert set(counts) == set(permutations(range(4)))
    # 100 each on average. Of so few bits four rounds make no more than nearly even orders.
    assert min(counts.values()) > 50
    assert max(counts.values()) < 150


def test_neighbours_are_torn_apart():
    found = order(100_000)
    # The correlation of 100,000 independent pairs has a standard deviation of 0.003.
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.016
    assert abs(np.corrcoef(found, np.arange(len(found)))[0, 1]) < 0.016
    # A tenth of the places holds a tenth of each tenth: 1000, standard deviation 28.
    table = np.histogram2d(found, np.arange(len(found)), bins=10)[0]
    assert np.abs(table - 1000).max() < 150
