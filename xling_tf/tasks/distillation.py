"""Learning a teacher's vectors (Reimers and Gurevych 2020)."""

from typing import ClassVar, Self

import tensorflow as tf

from xling_tf.config import DistillationConfig, ExperimentConfig
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
    """

    kind: ClassVar[str] = "parallel"
    columns = ("source", "target")
    config: DistillationConfig

    @classmethod
    def of_experiment(cls, config: ExperimentConfig) -> list[Self]:
        """Makes a task for each target; the source is the language that the teacher knows."""
        pairs = [f"{config.data.source}-{target}" for target in config.data.targets]
        return cls.mirrored(config, "distillation", pairs)

    def select(self, records: StoredRecords) -> StoredRecords:
        """Keeps one of `config.every` so many pairs."""
        return records[:: self.config.every]

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
        if not self.config.score_scale:
            losses = (cosine_distance(source, teacher) + cosine_distance(target, teacher)) / 2
            right = candidates
        else:
            sides = [unit_length(source), unit_length(target)]
            gathered = [gather_candidates(side)[0] for side in sides]
            divergences = [
                score_divergence(side, others, teacher, candidates, positions, scale=self.config.score_scale)
                for side, others in zip(sides, gathered, strict=True)
            ]
            losses, right = tf.add_n(divergences) / 2, gathered[0]
        scores = tf.matmul(unit_length(target), right, transpose_b=True)
        _, hits = in_batch_softmax(scores, positions, same_text)
        return losses, hits
