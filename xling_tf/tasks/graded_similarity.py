"""Learning how alike people find two sentences."""

from typing import ClassVar, Self

import tensorflow as tf

from xling_tf.config import ExperimentConfig
from xling_tf.losses import correlation_distance, cosine_distance
from xling_tf.tasks.base import Batch, VectorTask, gather_candidates, native_languages


class GradedSimilarity(VectorTask):
    """Makes the cosines of pairs of sentences correlate with people's scores, as STS is judged.

    The loss is one of all pairs of the batch, and the same for each. A hit is a pair on the same side of the
    batch's mean by both.
    """

    kind: ClassVar[str] = "similarity"
    columns = ("first", "second")

    @classmethod
    def of_experiment(cls, config: ExperimentConfig) -> list[Self]:
        """Makes a task for each language."""
        return cls.mirrored(config, "graded_similarity", native_languages(config))

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Compares the pairs with those of all replicas."""
        cosines, offset = gather_candidates(1 - cosine_distance(*columns))
        scores, _ = gather_candidates(tf.cast(batch.labels, tf.float32))
        count = tf.shape(batch.labels)[0]
        loss = tf.fill([count], correlation_distance(cosines, scores))
        is_high, should_be = (x > tf.reduce_mean(x) for x in (cosines, scores))
        hits = tf.cast(tf.equal(is_high, should_be), tf.float32)
        return loss, hits[offset : offset + count]
