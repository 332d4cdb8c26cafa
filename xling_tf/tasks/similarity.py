"""Learning how similar people find sentences."""

from typing import ClassVar, Self

import tensorflow as tf

from xling_tf.config import ExperimentConfig
from xling_tf.layers.pooling import unit_length
from xling_tf.losses import ordering_loss
from xling_tf.tasks.base import Batch, VectorTask, gather_candidates

_SCALE = 20.0  # of the cosines: Su 2022


class GradedSimilarity(VectorTask):
    """Orders the pairs of a batch by their cosines as people order them (see `ordering_loss`)."""

    kind: ClassVar[str] = "similarity"
    columns = ("first", "second")

    @classmethod
    def of_experiment(cls, config: ExperimentConfig) -> list[Self]:
        """Makes a task for each language."""
        languages = (config.data.source, *config.data.targets)
        return [cls(**cls.common(config, "graded_similarity", language)) for language in languages]

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Compares each pair with those of the batch that are less similar."""
        first, second = map(unit_length, columns)
        scores = _SCALE * tf.reduce_sum(first * second, axis=1)
        all_scores, _ = gather_candidates(scores)
        all_labels, _ = gather_candidates(batch.labels)
        return ordering_loss(scores, all_scores, batch.labels, all_labels)
