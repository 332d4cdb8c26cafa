"""Texts in bounded batches of similar length."""

import numpy as np

from xling_tf.evaluators.batching import in_batches, length_sorted_batches


def test_batches_hold_what_they_may() -> None:
    batches = length_sorted_batches([1, 50, 0, 4, 3, 3], max_rows=3, max_length=8)
    # 50 alone exceeds 8; then 2 of at most 4, then 2 of at most 3, then what is left.
    assert [batch.tolist() for batch in batches] == [[1], [3, 4], [5, 0], [2]]
    assert list(length_sorted_batches([], max_rows=3, max_length=8)) == []


def test_in_batches_keeps_the_order_of_the_rows() -> None:
    result = in_batches(
        lambda a, b: np.array([[len(x), len(y)] for x, y in zip(a, b, strict=True)]),
        ["a", "abc", "ab"],
        ["", "a", "abcd"],
        max_rows=2,
        max_length=100,
    )
    assert result.tolist() == [[1, 0], [3, 1], [2, 4]]
    assert in_batches(lambda texts: 1 / 0, [], max_rows=1, max_length=1).shape == (0, 0)
