"""Distillation of a teacher's vectors or similarities (Reimers and Gurevych 2020)."""

from typing import ClassVar

import tensorflow as tf

from xling_tf.config import DataConfig, DistillationConfig
from xling_tf.corpora.store import StoredRecords
from xling_tf.errors import UserError
from xling_tf.layers.pooling import unit_length
from xling_tf.losses import cosine_distance, in_batch_softmax, score_divergence
from xling_tf.tasks.base import Batch, Task, gather_candidates


class Distillation(Task):
    """Pulls a sentence and its translation towards the teacher's vector of the sentence.

    This is Reimers and Gurevych 2020, "Making Monolingual Sentence Embeddings Multilingual using
    Knowledge Distillation", sec. 2, with the cosine in place of the squared distance, so that
    vectors may have any length. With `score_scale`, the student learns the teacher's similarities
    between the batch's sentences. The teacher never sees the translation, and need not know its
    language.
    """

    record_type: ClassVar[str] = "parallel"
    columns = ("source", "target")
    config: DistillationConfig

    @classmethod
    def languages_of(cls, config: DistillationConfig, data: DataConfig) -> list[str]:
        """See `Task.languages_of`: a pair for each target, as the teacher knows the source."""
        return [f"{data.source}-{target}" for target in data.targets]

    def require_teacher(self, name: str, dim: int, hidden_dim: int) -> None:
        """See `Task.require_teacher`: as wide as the encoder for vectors, not for similarities."""
        if dim != hidden_dim and not self.config.score_scale:
            raise UserError(
                f"a teacher's vectors must be as wide as the student's, {hidden_dim}, but those "
                f"of {name} have width {dim}: set encoder.hidden_dim={dim}, or learn similarities "
                f"instead of vectors, with tasks.{self.group}.score_scale=20"
            )

    def select(self, records: StoredRecords) -> StoredRecords:
        """Keeps every n-th pair, where n is `config.every`."""
        return records[:: self.config.every]

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """See `Task.score`; a hit is a target whose nearest source is its translation."""
        source, target = columns
        teacher = unit_length(batch.vectors)
        candidates, offset = gather_candidates(teacher)
        positions = offset + tf.range(tf.shape(target)[0])
        all_source_text, _ = gather_candidates(batch.fingerprints[0])
        same_text = tf.equal(batch.fingerprints[0][:, None], all_source_text[None, :])
        if not self.config.score_scale:
            losses = (cosine_distance(source, teacher) + cosine_distance(target, teacher)) / 2
            sources = candidates
        else:
            sides = [unit_length(source), unit_length(target)]
            gathered = [gather_candidates(side)[0] for side in sides]
            divergences = [
                score_divergence(
                    side, others, teacher, candidates, positions, scale=self.config.score_scale
                )
                for side, others in zip(sides, gathered, strict=True)
            ]
            losses, sources = tf.add_n(divergences) / 2, gathered[0]
        scores = tf.matmul(unit_length(target), sources, transpose_b=True)
        _, hits = in_batch_softmax(scores, positions, same_text)
        return losses, hits
