"""A small exported model whose vectors differ between texts."""

from pathlib import Path

import tensorflow as tf

DIM = 8


def hashed(texts: tf.Tensor) -> tf.Tensor:
    """Returns a unit vector `[texts, DIM]` of each text's hashes."""
    keys = [tf.strings.to_hash_bucket_strong(texts, 1 << 20, [seed, 1]) for seed in range(DIM)]
    vectors = tf.cast(tf.stack(keys, axis=1), tf.float32) / (1 << 20) - 0.5
    return tf.math.l2_normalize(vectors, axis=1)


def save_hashed(folder: Path) -> Path:
    """Saves the model and returns its folder."""
    module, spec = tf.Module(), tf.TensorSpec([None], tf.string)
    module.__call__ = tf.function(hashed, input_signature=[spec], autograph=False)
    tf.saved_model.save(module, str(folder))
    return folder
