"""Learning a teacher's vectors (Reimers and Gurevych 2020)."""

from typing import Any, ClassVar, Self

import tensorflow as tf

from xling_tf.config import ExperimentConfig
from xling_tf.corpora.store import StoredRecords
from xling_tf.layers.pooling import unit_length
from xling_tf.losses import cosine_distance, in_batch_softmax, score_divergence
from xling_tf.tasks.base import Batch, VectorTask, gather_candidates


class Distillation(VectorTask):
    """Gives a sentence and its translation what a teacher knows of the sentence.

    That is its vector (Reimers and Gurevych 2020, "Making Monolingual Sentence Embeddings Multilingual
    using Knowledge Distillation", sec. 2, with the cosine in place of the squared distance, which leaves
    lengths free), or how similar it is to each other sentence of the batch. The teacher never sees the
    translation, whose language it need not know.

    Args:
        every: Only the first of so many pairs of each corpus is an example.
        scale: Of the similarities that are learnt; None: vectors are.
        **kwargs: Of `Task`.
    """

    kind: ClassVar[str] = "parallel"
    columns = ("source", "target")

    def __init__(self, *, every: int = 1, scale: float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.every, self.scale = every, scale

    @classmethod
    def of_experiment(cls, config: ExperimentConfig) -> list[Self]:
        """Makes a task for each target; the source is the language that the teacher knows."""
        pairs = [f"{config.data.source}-{target}" for target in config.data.targets]
        own = config.tasks.distillation
        every, scale = own.every, own.score_scale or None
        return [cls(every=every, scale=scale, **cls.common(config, "distillation", pair)) for pair in pairs]

    def select(self, records: StoredRecords) -> StoredRecords:
        """Keeps one of `every` so many pairs."""
        return records[:: self.every]

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Compares both sides with the teacher; a hit's target is nearest to its own source's vector.

        That is the teacher's vector or, where only similarities are learnt, the student's.
        """
        source, target = columns
        teacher = unit_length(batch.vectors)
        candidates, offset = gather_candidates(teacher)
        positions = offset + tf.range(tf.shape(target)[0])
        source_text = batch.fingerprints[0]
        all_source_text, _ = gather_candidates(source_text)
        same_text = tf.equal(source_text[:, None], all_source_text[None, :])
        if self.scale is None:
            losses = (cosine_distance(source, teacher) + cosine_distance(target, teacher)) / 2
            right = candidates
        else:
            sides = [unit_length(source), unit_length(target)]
            gathered = [gather_candidates(side)[0] for side in sides]
            divergences = [
                score_divergence(side, others, teacher, candidates, positions, scale=self.scale)
                for side, others in zip(sides, gathered, strict=True)
            ]
            losses, right = tf.add_n(divergences) / 2, gathered[0]
        scores = tf.matmul(unit_length(target), right, transpose_b=True)
        _, hits = in_batch_softmax(scores, positions, same_text)
        return losses, hits
