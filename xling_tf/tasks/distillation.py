"""Learning a teacher's vectors (Reimers and Gurevych 2020)."""

from typing import Any, ClassVar

import keras
import tensorflow as tf

from xling_tf.corpora.store import StoredRecords
from xling_tf.layers.pooling import unit_length
from xling_tf.losses import cosine_distance, in_batch_softmax, squared_distance
from xling_tf.tasks.base import Batch, Task
from xling_tf.trainer.distribution import gather_candidates


class Distillation(Task):
    """Gives a sentence and its translation the vector that a teacher gives the sentence.

    Reimers and Gurevych 2020, "Making Monolingual Sentence Embeddings Multilingual using Knowledge
    Distillation", sec. 2. The teacher never sees the translation, whose language it need not know.

    Args:
        loss: "mse": the squared distances of both from the teacher's vector, added, as in eq. 1. They
            are summed over the dimensions, not averaged as some implementations do, so that the loss
            of unit vectors is that of the angle whatever their width: 2 - 2 cos. "cosine": the mean
            of the two 1 - cos, which leaves lengths free.
        every: Only the first of so many pairs of each corpus is an example.
        **kwargs: Of `Task`; `normalize` is for the teacher's vectors too.
    """

    kind: ClassVar[str] = "parallel"
    columns = ("source", "target")

    def __init__(self, *, loss: str, every: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.loss = loss
        self.every = every

    @property
    def heads(self) -> tuple[keras.layers.Layer, ...]:
        """None: the task moves the encodings themselves."""
        return ()

    def select(self, records: StoredRecords) -> StoredRecords:
        """Keeps one of `every` so many pairs."""
        return records[:: self.every]

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Compares both sides with the teacher; a hit's target is nearest to its own source's vector."""
        source, target = columns
        teacher = unit_length(batch.vectors) if self.normalize else batch.vectors
        if self.loss == "mse":
            losses = squared_distance(source, teacher) + squared_distance(target, teacher)
        else:
            losses = (cosine_distance(source, teacher) + cosine_distance(target, teacher)) / 2
        return losses, self._hits(target, batch)

    def _hits(self, target: tf.Tensor, batch: Batch) -> tf.Tensor:
        """`[batch]` whether no teacher's vector of another source is nearer, by the cosine."""
        candidates, offset = gather_candidates(unit_length(batch.vectors))
        source_text = batch.fingerprints[0]
        all_source_text, _ = gather_candidates(source_text)
        _, hits = in_batch_softmax(
            unit_length(target),
            candidates,
            offset + tf.range(tf.shape(target)[0]),
            tf.equal(source_text[:, None], all_source_text[None, :]),
        )
        return hits
