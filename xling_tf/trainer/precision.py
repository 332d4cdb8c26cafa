"""The compute precision that is fastest on the machine at hand."""

import time

import tensorflow as tf
from absl import logging

PRECISIONS = ("float32", "mixed_bfloat16")

# Where bfloat16 has no hardware it is emulated and slower; where it has, it is about twice as fast.
# Between the two lies nothing worth the lost digits.
_WORTHWHILE_SPEEDUP = 1.2


def matmul_gflops(dtype: str, *, rows: int = 4096, inner: int = 512, columns: int = 2048) -> float:
    """Measures the matrix-product rate of the default device, in units of 10^9 operations a second.

    Args:
        dtype: "float32" or "bfloat16".
        rows: Of the left matrix: the tokens of a batch.
        inner: The width of the transformer.
        columns: The width of its feed-forward layer.
    """
    left = tf.cast(tf.random.normal([rows, inner]), dtype)
    right = tf.cast(tf.random.normal([inner, columns]), dtype)
    product = tf.function(lambda: tf.reduce_max(tf.matmul(left, right)))
    product()
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        product().numpy()
        seconds.append(time.perf_counter() - begin)
    return 2 * rows * inner * columns / min(seconds) / 1e9


def resolve_precision(precision: str) -> str:
    """Replaces "auto" by the precision whose matrix products are faster here."""
    if precision != "auto":
        return precision
    speedup = matmul_gflops("bfloat16") / matmul_gflops("float32")
    chosen = PRECISIONS[speedup > _WORTHWHILE_SPEEDUP]
    logging.info("precision %s: bfloat16 products run at %.1f x float32", chosen, speedup)
    return chosen
