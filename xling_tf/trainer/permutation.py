"""Random orders of any number of things, of which any place is computed by itself."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 4  # Luby and Rackoff 1988: from four on, an order is not told from a random one


def shuffled(
    places: NDArray[np.int64], epochs: NDArray[np.int64], size: int, seed: Sequence[int]
) -> NDArray[np.int64]:
    """Says which things are at some places of random orders, one order for each epoch.

    An order is a Feistel network over the numbers of an even number of bits, gone through again until
    the number is one of a thing ("cycle walking", Black and Rogaway 2002, sec. 4). So the orders of a
    billion things take no memory.

    Args:
        places: `[n]` numbers from 0 to `size`.
        epochs: `[n]` number of the order of each, from 0.
        size: How many things there are.
        seed: Of all orders.

    Returns:
        `[n]` numbers from 0 to `size`.

    Example:
        >>> places = np.arange(5)
        >>> sorted(shuffled(places, np.zeros(5, int), 5, [1]).tolist())
        [0, 1, 2, 3, 4]
    """
    half = np.uint64(max(1, -(-int(size - 1).bit_length() // 2)))
    keys = np.random.SeedSequence(seed).generate_state(_ROUNDS, np.uint64)
    keys = _mixed(keys[:, None] + _mixed(epochs.astype(np.uint64)))
    numbers = places.astype(np.uint64)
    walking = np.arange(len(numbers))
    while len(walking):
        numbers[walking] = _network(numbers[walking], keys[:, walking], half)
        walking = walking[numbers[walking] >= size]
    return numbers.astype(np.int64)


def _network(
    numbers: NDArray[np.uint64], keys: NDArray[np.uint64], half: np.uint64
) -> NDArray[np.uint64]:
    left, right = numbers >> half, numbers & ((np.uint64(1) << half) - np.uint64(1))
    for key in keys:
        left, right = right, left ^ (_mixed(right + key) >> (np.uint64(64) - half))
    return (left << half) | right


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Lets every bit depend on every other (the finalizer of SplitMix64, Steele et al. 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
