"""Learning people's scores of the similarity of two sentences."""

from typing import ClassVar

import tensorflow as tf

from xling_tf.losses import correlation_distance, cosine_distance
from xling_tf.tasks.base import Batch, Task, gather_candidates


class GradedSimilarity(Task):
    """Maximises the correlation of cosines with people's scores, by which STS is evaluated.

    All pairs of a batch have the same loss, that of the whole batch. In a hit, the cosine and the score are
    on the same side of their means in the batch.
    """

    kind: ClassVar[str] = "similarity"
    columns = ("first", "second")

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """See `Task.score`: correlates the pairs of all replicas."""
        cosines, offset = gather_candidates(1 - cosine_distance(*columns))
        scores, _ = gather_candidates(tf.cast(batch.labels, tf.float32))
        count = tf.shape(batch.labels)[0]
        loss = tf.fill([count], correlation_distance(cosines, scores))
        is_high, is_high_score = (x > tf.reduce_mean(x) for x in (cosines, scores))
        hits = tf.cast(tf.equal(is_high, is_high_score), tf.float32)
        return loss, hits[offset : offset + count]
