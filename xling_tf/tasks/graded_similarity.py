"""Learning how alike people find two sentences."""

from typing import Any, ClassVar, Self

import tensorflow as tf

from xling_tf.config import ExperimentConfig
from xling_tf.losses import cosine_distance, order_divergence
from xling_tf.tasks.base import Batch, VectorTask, gather_candidates


class GradedSimilarity(VectorTask):
    """Puts the cosines of pairs of sentences in the order of people's scores (Su 2022, "CoSENT").

    The loss is one of all pairs of the batch, and the same for each; hits are shares.

    Args:
        scale: Of the cosines.
        **kwargs: Of `Task`.
    """

    kind: ClassVar[str] = "similarity"
    columns = ("first", "second")

    def __init__(self, *, scale: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale = scale

    @classmethod
    def of_experiment(cls, config: ExperimentConfig) -> list[Self]:
        """Makes a task for each language."""
        scale = config.tasks.similarity.scale
        return [
            cls(scale=scale, **cls.common(config, "graded_similarity", language))
            for language in (config.data.source, *config.data.targets)
        ]

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Compares the pairs with those of all replicas."""
        cosines, offset = gather_candidates(1 - cosine_distance(*columns))
        scores, _ = gather_candidates(batch.labels)
        loss, right = order_divergence(cosines, scores, scale=self.scale)
        count = tf.shape(batch.labels)[0]
        return tf.fill([count], loss), right[offset : offset + count]
