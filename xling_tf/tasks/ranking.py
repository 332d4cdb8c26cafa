"""Tasks that rank the right text over the others of the batch (2019, eq. 1-2 and sec. 2.2)."""

from typing import Any, ClassVar

import keras
import tensorflow as tf

from xling_tf.config import SimilarityConfig
from xling_tf.distribution import gather_candidates
from xling_tf.layers.pooling import unit_length
from xling_tf.losses import in_batch_softmax
from xling_tf.tasks.base import Batch, Task


class RankingTask(Task):
    """A task whose losses are softmaxes over the batch's candidates.

    Args:
        similarity: How a query scores a candidate.
        **kwargs: Of `Task`.
    """

    def __init__(self, *, similarity: SimilarityConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.similarity = similarity

    def rank(
        self,
        queries: tf.Tensor,
        candidates: tf.Tensor,
        query_fingerprints: tf.Tensor,
        candidate_fingerprints: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Ranks each row of `candidates` for the same row of `queries`.

        A candidate is not counted as wrong where its text is that of the right one, or where its
        own query has the same text: both are right answers too.

        Returns:
            `[batch]` losses and `[batch]` hits.
        """
        if self.normalize:
            queries, candidates = unit_length(queries), unit_length(candidates)
        all_candidates, offset = gather_candidates(candidates)
        all_candidate_fingerprints, _ = gather_candidates(candidate_fingerprints)
        all_query_fingerprints, _ = gather_candidates(query_fingerprints)
        return in_batch_softmax(
            queries,
            all_candidates,
            offset + tf.range(tf.shape(queries)[0]),
            tf.equal(candidate_fingerprints[:, None], all_candidate_fingerprints[None, :])
            | tf.equal(query_fingerprints[:, None], all_query_fingerprints[None, :]),
            scale=self.similarity.scale,
            margin=self.similarity.margin,
        )


class TranslationRanking(RankingTask):
    """Finds the source of a translation, by the encodings alone, without towers.

    The paper models P(source | target); with `similarity.bidirectional` the loss is the mean of both
    directions.
    """

    kind: ClassVar[str] = "parallel"
    columns: ClassVar[tuple[str, ...]] = ("source", "target")

    @property
    def heads(self) -> tuple[keras.layers.Layer, ...]:
        """None: the task aligns the encodings themselves."""
        return ()

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Ranks sources for targets, and targets for sources if asked."""
        source, target = columns
        source_text, target_text = tf.unstack(batch.fingerprints, num=2)
        losses, hits = self.rank(target, source, target_text, source_text)
        if self.similarity.bidirectional:
            back_losses, back_hits = self.rank(source, target, source_text, target_text)
            losses, hits = (losses + back_losses) / 2, (hits + back_hits) / 2
        return losses, hits


class ResponsePrediction(RankingTask):
    """Finds the reply to a message; only the reply passes through a tower.

    Args:
        tower: 320 and 512 with tanh; shared by the languages, so that it encodes replies in either.
        **kwargs: Of `RankingTask`.
    """

    kind: ClassVar[str] = "conversations"
    columns: ClassVar[tuple[str, ...]] = ("message", "response")

    def __init__(self, *, tower: keras.layers.Layer, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tower = tower

    @property
    def heads(self) -> tuple[keras.layers.Layer, ...]:
        """The response tower."""
        return (self.tower,)

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Ranks responses for messages."""
        message, response = columns
        return self.rank(message, self.tower(response), *tf.unstack(batch.fingerprints, num=2))


class QuickThought(RankingTask):
    """Finds the sentence before and the sentence after, with a tower for each of the three.

    The losses of the two are summed.

    Args:
        towers: For the previous sentence, the sentence and the following one.
        **kwargs: Of `RankingTask`.
    """

    kind: ClassVar[str] = "documents"
    columns: ClassVar[tuple[str, ...]] = ("previous", "sentence", "following")

    def __init__(self, *, towers: tuple[keras.layers.Layer, ...], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.towers = towers

    @property
    def heads(self) -> tuple[keras.layers.Layer, ...]:
        """The three towers."""
        return self.towers

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Ranks predecessors and successors for sentences."""
        previous, sentence, following = (
            tower(column) for tower, column in zip(self.towers, columns, strict=True)
        )
        previous_text, text, following_text = tf.unstack(batch.fingerprints, num=3)
        before, before_hits = self.rank(sentence, previous, text, previous_text)
        after, after_hits = self.rank(sentence, following, text, following_text)
        return before + after, (before_hits + after_hits) / 2
