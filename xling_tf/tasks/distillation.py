"""Learning a teacher's vectors (Reimers and Gurevych 2020)."""

from typing import Any, ClassVar, Self

import tensorflow as tf

from xling_tf.config import ExperimentConfig
from xling_tf.corpora.store import StoredRecords
from xling_tf.layers.pooling import unit_length
from xling_tf.losses import cosine_distance, in_batch_softmax
from xling_tf.tasks.base import Batch, Task, gather_candidates


class Distillation(Task):
    """Gives a sentence and its translation the vector that a teacher gives the sentence.

    Reimers and Gurevych 2020, "Making Monolingual Sentence Embeddings Multilingual using Knowledge
    Distillation", sec. 2, with the cosine in place of the squared distance, which leaves lengths free.
    The teacher never sees the translation, whose language it need not know.

    Args:
        every: Only the first of so many pairs of each corpus is an example.
        **kwargs: Of `Task`.
    """

    kind: ClassVar[str] = "parallel"
    columns = ("source", "target")

    def __init__(self, *, every: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.every = every

    @classmethod
    def of_experiment(cls, config: ExperimentConfig) -> list[Self]:
        """Makes a task for each target; the source is the language that the teacher knows."""
        pairs = [f"{config.data.source}-{target}" for target in config.data.targets]
        every = config.tasks.distillation.every
        return [cls(every=every, **cls.common(config, "distillation", pair)) for pair in pairs]

    def select(self, records: StoredRecords) -> StoredRecords:
        """Keeps one of `every` so many pairs."""
        return records[:: self.every]

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Compares both sides with the teacher; a hit's target is nearest to its own source's vector."""
        source, target = columns
        teacher = unit_length(batch.vectors)
        losses = (cosine_distance(source, teacher) + cosine_distance(target, teacher)) / 2
        source_text = batch.fingerprints[0]
        candidates, offset = gather_candidates(teacher)
        all_source_text, _ = gather_candidates(source_text)
        _, hits = in_batch_softmax(
            unit_length(target),
            candidates,
            offset + tf.range(tf.shape(target)[0]),
            tf.equal(source_text[:, None], all_source_text[None, :]),
        )
        return losses, hits
