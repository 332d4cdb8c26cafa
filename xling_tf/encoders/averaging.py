"""Averages of a text's word vectors, for texts too long to be encoded as sentences."""

import tensorflow as tf


def average_words(words: tf.Tensor, positions: tf.RaggedTensor) -> tf.Tensor:
    """Averages the vectors of each text's words (Iyyer et al. 2015, "Deep Unordered Composition", eq. 2).

    No vector is copied to where it occurs: a batch of paragraphs takes the memory of its distinct
    words.

    Args:
        words: `[words, dim]`, as of `TokenEncoder.embed_words`.
        positions: `[texts, (tokens)]` int32, which word stands where; at least one a text.

    Returns:
        `[texts, dim]` float32.

    Example:
        >>> words = tf.constant([[1.0, 0.0], [0.0, 4.0]])
        >>> average_words(words, tf.ragged.constant([[0, 0, 0, 1], [1]])).numpy().tolist()
        [[0.75, 1.0], [0.0, 4.0]]
    """
    return tf.sparse.segment_mean(
        tf.cast(words, tf.float32), positions.values, positions.value_rowids()
    )
