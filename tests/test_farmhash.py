"""FarmHash in plain Python."""

import random

import tensorflow as tf

from xling_tf.client.farmhash import fingerprint


def test_it_is_the_hash_of_the_graph_for_texts_of_any_length():
    # 0 to 300 bytes: every branch, and none to four blocks of 64 before the last one. A modulus of
    # nearly 64 bits keeps all bits of the hash.
    draw = random.Random(0)
    texts = [draw.randbytes(size) for size in range(301) for _ in range(3)]
    texts += [byte * size for size in range(301) for byte in (b"\0", b"\xff")]
    buckets = 2**63 - 1
    expected = tf.strings.to_hash_bucket_fast(texts, buckets).numpy().tolist()
    assert [fingerprint(text) % buckets for text in texts] == expected
