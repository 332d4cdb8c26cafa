"""Tasks that rank the right text over the others of a batch (Chidambaram et al. 2019, eq. 1-2, sec. 2.2)."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from xling_tf.config import DataConfig, ExperimentConfig, TranslationRankingConfig
from xling_tf.corpora.records import NLI_LABELS
from xling_tf.corpora.store import StoredRecords
from xling_tf.encoders.base import TokenEncoder
from xling_tf.layers.pooling import unit_length
from xling_tf.layers.towers import Tower
from xling_tf.losses import in_batch_softmax
from xling_tf.tasks.base import Batch, Heads, Task, gather_candidates
from xling_tf.tasks.signatures import About, SentenceSignature, Served, Signature

NO_TEXT = -1  # fingerprints of texts are at least 0
_ENTAILMENT, _CONTRADICTION = NLI_LABELS.index("entailment"), NLI_LABELS.index("contradiction")


# Encodings `[negatives, dim]` and fingerprints `[negatives]` of candidates that are wrong for every query for
# which they are not known to be right.
Negatives = tuple[tf.Tensor, tf.Tensor]


def negatives_of(
    columns: list[tf.Tensor], fingerprints: tf.Tensor, right_fingerprints: tf.Tensor
) -> Negatives:
    """Makes negatives from the columns of wrong texts.

    Args:
        columns: `[batch, dim]` encodings of each column.
        fingerprints: `[columns, batch]` int64.
        right_fingerprints: `[batch]` int64 fingerprints of the right texts, which fill missing wrong ones.

    Returns:
        The negatives, column after column.
    """
    is_missing = tf.equal(fingerprints, right_fingerprints)
    fingerprints = tf.where(is_missing, tf.constant(NO_TEXT, tf.int64), fingerprints)
    return tf.concat(columns, axis=0), tf.reshape(fingerprints, [-1])


class RankingTask(Task):
    """Base class of the tasks whose loss is a softmax over the candidates of the batch."""

    def rank(
        self,
        queries: tf.Tensor,
        candidates: tf.Tensor,
        query_fingerprints: tf.Tensor,
        candidate_fingerprints: tf.Tensor,
        negatives: Negatives | None = None,
        *,
        both_ways: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Ranks the candidates of all replicas for each query.

        A candidate does not count as wrong if it has the same text as the right one, or if its query has the
        same text as this query. The negatives of all examples are candidates of every query to which they are
        not a right answer. With `similarity.matryoshka_dims`, prefixes of the vectors are ranked as well: the
        losses are the means, and the hits are those of the whole vectors.

        Args:
            queries: `[batch, dim]`.
            candidates: `[batch, dim]`; row i is the right candidate of query i.
            query_fingerprints: `[batch]` int64, equal for equal texts.
            candidate_fingerprints: `[batch]` int64.
            negatives: More candidates.
            both_ways: Also ranks the queries for each candidate, and averages losses and hits.

        Returns:
            `[batch]` losses and `[batch]` hits.
        """
        all_candidates, offset = gather_candidates(candidates)
        all_candidate_fingerprints, _ = gather_candidates(candidate_fingerprints)
        all_query_fingerprints, _ = gather_candidates(query_fingerprints)
        same_query = tf.equal(query_fingerprints[:, None], all_query_fingerprints[None, :])
        same_text = tf.equal(candidate_fingerprints[:, None], all_candidate_fingerprints[None, :])
        excluded = same_text | same_query
        positives = offset + tf.range(tf.shape(queries)[0])
        scores = self._scores(queries, all_candidates)
        ranked = []
        if both_ways:
            # On one replica both directions have the same scores; computing them takes most of the time.
            reverse = (
                [tf.transpose(matrix) for matrix in scores]
                if all_candidates is candidates
                else self._scores(candidates, gather_candidates(queries)[0])
            )
            ranked.append(self._rank_by(reverse, positives, excluded))
        if negatives is not None:
            encodings, not_wrong = self._gathered(negatives, same_query, all_candidate_fingerprints)
            of_negatives = self._scores(queries, encodings)
            scores = [tf.concat(parts, axis=1) for parts in zip(scores, of_negatives, strict=True)]
            excluded = tf.concat([excluded, not_wrong], axis=1)
        ranked.append(self._rank_by(scores, positives, excluded))
        losses, hits = (tf.add_n(values) / len(values) for values in zip(*ranked, strict=True))
        return losses, hits

    def _scores(self, queries: tf.Tensor, candidates: tf.Tensor) -> list[tf.Tensor]:
        """Returns the `[queries, candidates]` scores of the whole vectors and of each prefix."""
        scale = self.similarity.scale
        return [
            tf.matmul(scale * self._prefixes(queries, dim), self._prefixes(candidates, dim), transpose_b=True)
            for dim in (queries.shape[1], *self.similarity.matryoshka_dims)
        ]

    def _prefixes(self, vectors: tf.Tensor, dim: int) -> tf.Tensor:
        """Returns the first `dim` numbers of each vector, normalised if cosines are compared."""
        return unit_length(vectors[:, :dim]) if self.similarity.normalize else vectors[:, :dim]

    def _rank_by(
        self, scores: list[tf.Tensor], positives: tf.Tensor, excluded: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the mean losses of all score matrices, and the hits of the first."""
        margin = self.similarity.scale * self.similarity.margin
        results = [in_batch_softmax(matrix, positives, excluded, margin=margin) for matrix in scores]
        losses, hits = zip(*results, strict=True)
        return tf.add_n(losses) / len(losses), hits[0]

    @staticmethod
    def _gathered(
        negatives: Negatives, same_query: tf.Tensor, right_fingerprints: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the negatives of all replicas, and `[batch, negatives]`, true where one must not count."""
        encodings, fingerprints = (gather_candidates(part)[0] for part in negatives)
        is_answer = tf.equal(right_fingerprints[:, None], fingerprints[None, :])
        # Number of examples with the same query whose right answer is the negative.
        num_answers = tf.cast(same_query, tf.float32) @ tf.cast(is_answer, tf.float32)
        return encodings, (num_answers > 0) | tf.equal(fingerprints, NO_TEXT)[None, :]


class TranslationRanking(RankingTask):
    """Ranks the source of a translation over others, by their encodings, without towers.

    The paper models P(source | target); with `similarity.bidirectional`, the loss is the mean of both
    directions. Mined wrong translations, `config.hard_negatives` for each example, are further candidates of
    P(target | source), which is then the learned direction if there is only one (Guo et al. 2018,
    "semantically similar hard negatives": K in-batch candidates become K + M K). If a record has fewer, its
    target fills the columns and is left out of the loss.
    """

    kind: ClassVar[str] = "parallel"
    config: TranslationRankingConfig

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.hard_negatives = self.config.hard_negatives
        names = [f"negative_{number}" for number in range(1, self.hard_negatives + 1)]
        self.columns = ("source", "target", *names)

    def texts(self, records: StoredRecords) -> list[NDArray[np.object_]]:
        """Returns sources, targets and `hard_negatives` columns; a target fills in for a missing negative."""
        target = records.column("target")
        negatives = [records.negatives(number, target) for number in range(self.hard_negatives)]
        return [records.column("source"), target, *negatives]

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """See `Task.score`: ranks sources for targets, targets for sources, or both."""
        source, target = columns[:2]
        source_text, target_text = tf.unstack(batch.fingerprints[:2], num=2)
        both_ways = self.similarity.bidirectional
        if self.hard_negatives:
            negatives = negatives_of(columns[2:], batch.fingerprints[2:], target_text)
            return self.rank(source, target, source_text, target_text, negatives, both_ways=both_ways)
        return self.rank(target, source, target_text, source_text, both_ways=both_ways)


class EntailmentRanking(RankingTask):
    """Ranks the sentence that a premise entails over others, by their encodings, without towers.

    Candidates are the entailed sentences of the batch and, as hard negatives, sentences that contradict
    its premises (Gao et al. 2021, "SimCSE: Simple Contrastive Learning of Sentence Embeddings", sec. 4,
    eq. 5). This improves semantic similarity, in all languages if they are aligned. There is no margin.
    """

    kind: ClassVar[str] = "nli"
    columns = ("premise", "entailed", "contradicting")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.similarity = dataclasses.replace(self.similarity, margin=0.0)

    def select(self, records: StoredRecords) -> StoredRecords:
        """Keeps the pairs in which the premise entails the hypothesis."""
        return records[records.labels == _ENTAILMENT]

    def columns_of(self, records: StoredRecords) -> Callable[[StoredRecords], list[NDArray[np.object_]]]:
        """Pairs each premise with the first sentence that contradicts it.

        If a premise has none, its entailed sentence fills the column and is left out of the loss.

        Returns:
            See `Task.columns_of`.
        """
        contradicting = records[records.labels == _CONTRADICTION]
        contradictions: dict[bytes, bytes] = {}
        for premise, hypothesis in zip(
            contradicting.column("premise"), contradicting.column("hypothesis"), strict=True
        ):
            contradictions.setdefault(premise, hypothesis)

        def columns(selected: StoredRecords) -> list[NDArray[np.object_]]:
            premises, entailed = selected.column("premise"), selected.column("hypothesis")
            third = np.empty(len(selected), object)
            third[:] = [contradictions.get(*pair) for pair in zip(premises, entailed, strict=True)]
            return [premises, entailed, third]

        return columns

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """See `Task.score`: ranks the entailed sentences for their premises."""
        premise, entailed, contradicting = columns
        premise_text, entailed_text, _ = tf.unstack(batch.fingerprints, num=3)
        negatives = negatives_of([contradicting], batch.fingerprints[2:], entailed_text)
        return self.rank(premise, entailed, premise_text, entailed_text, negatives)


class ResponsePrediction(RankingTask):
    """Ranks the reply to a message over others; only replies pass through a tower."""

    kind: ClassVar[str] = "conversations"
    columns = ("message", "response")
    roles = ("default", "document")

    @classmethod
    def make_heads(cls, config: ExperimentConfig, data: DataConfig, encoder: TokenEncoder) -> Heads:
        """See `Task.make_heads`: a tower for responses."""
        return {"response_tower": make_tower("response_tower", config, encoder)}

    @classmethod
    def signatures(cls, served: Served) -> list[Signature]:
        """See `Task.signatures`."""
        about = About(
            "response_encoder",
            ("input",),
            "vectors of replies, near the messages that they answer",
            'encoder.response_encoder(["Fine, thanks."])     # near the messages that it answers',
            role="document",
        )
        return [SentenceSignature(served, about)]

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """See `Task.score`: ranks replies for messages."""
        message, response = columns
        responses = self.heads["response_tower"](response)
        return self.rank(message, responses, *tf.unstack(batch.fingerprints, num=2))


class QuickThought(RankingTask):
    """Ranks the previous and the following sentence over others; all three columns pass through towers."""

    kind: ClassVar[str] = "documents"
    columns = ("previous", "sentence", "following")

    @classmethod
    def make_heads(cls, config: ExperimentConfig, data: DataConfig, encoder: TokenEncoder) -> Heads:
        """See `Task.make_heads`: a tower for each column."""
        names = [f"{column}_tower" for column in cls.columns]
        return {name: make_tower(name, config, encoder) for name in names}

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """See `Task.score`: sums the losses of previous and following sentences."""
        previous, sentence, following = (
            tower(column) for tower, column in zip(self.heads.values(), columns, strict=True)
        )
        previous_text, text, following_text = tf.unstack(batch.fingerprints, num=3)
        before, before_hits = self.rank(sentence, previous, text, previous_text)
        after, after_hits = self.rank(sentence, following, text, following_text)
        return before + after, (before_hits + after_hits) / 2


def make_tower(name: str, config: ExperimentConfig, encoder: TokenEncoder, context_dim: int = 0) -> Tower:
    """Makes a tower from the encoder's vectors to vectors of the same width.

    Args:
        name: Name of the layer.
        config: The experiment, with the sizes of heads.
        encoder: The encoder.
        context_dim: Width of the context vectors that are appended to the inputs.

    Returns:
        The built tower.
    """
    heads = config.heads
    tower = Tower((*heads.tower_dims, encoder.hidden_dim), heads.residual_towers, name=name)
    tower.build((None, encoder.hidden_dim + context_dim))
    return tower
