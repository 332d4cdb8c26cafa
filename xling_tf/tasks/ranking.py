"""Ranks the right text over a batch's others (Chidambaram et al. 2019, eq. 1-2, sec. 2.2)."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from xling_tf.config import DataConfig, ExperimentConfig, TranslationRankingConfig
from xling_tf.corpora.records import NLI_LABELS
from xling_tf.corpora.store import StoredRecords
from xling_tf.encoders.base import TokenEncoder
from xling_tf.layers.pooling import unit_length
from xling_tf.layers.towers import Tower
from xling_tf.losses import in_batch_softmax
from xling_tf.tasks.base import Batch, Heads, Task, gather_candidates
from xling_tf.tasks.signatures import (
    ExportedLayers,
    SentenceSignature,
    Signature,
    SignatureDescription,
)

_NO_TEXT = -1  # fingerprints of texts are at least 0
# Most texts that can mean the same. The translations between English and one of four languages,
# 280,000 to 433,000, join 47 at most; all together join 1,029, from "of course" to "go away". A
# text that translates many others would join a whole corpus, of which nothing would be wrong.
_MOST_TEXTS = 100
_ENTAILMENT, _CONTRADICTION = NLI_LABELS.index("entailment"), NLI_LABELS.index("contradiction")


class RankingTask(Task):
    """Base class of the tasks whose loss is a softmax over the candidates of the batch."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        own: dict[str, Any] = {}
        for name in ("scale", "margin"):
            if (value := getattr(self.config, name, None)) is not None:
                own[name] = value
        self.similarity = dataclasses.replace(self.similarity, **own)

    def rank(
        self,
        queries: tf.Tensor,
        candidates: tf.Tensor,
        fingerprints: tf.Tensor,
        negatives: Sequence[tf.Tensor] = (),
        *,
        meanings: tf.Tensor | None = None,
        both_ways: bool = False,
        same_side: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Ranks the candidates of all replicas for each query.

        A candidate does not count as wrong if it has the same text as the right one, or if its
        query has the same text or meaning as this query. The negatives of all examples are
        candidates of every query to which they are not a right answer. With
        `similarity.matryoshka_dims`, prefixes of the vectors are ranked as well: the losses are the
        means, and the hits are those of the whole vectors.

        Args:
            queries: `[batch, dim]`.
            candidates: `[batch, dim]`; row i is the right candidate of query i.
            fingerprints: `[2 + negatives, batch]` int64 of queries, candidates and each column of
                negatives.
            negatives: Columns of `[batch, dim]` wrong candidates. The right candidate's text marks
                a missing one, which does not count.
            meanings: `[batch]` int64, as `Batch.meanings`; None if only equal texts mean the same.
            both_ways: Also ranks the queries for each candidate, and averages losses and hits.
            same_side: Also counts other queries as wrong answers of a query, and other candidates
                as those of a candidate (Li et al. 2023, "Towards General Text Embeddings with
                Multi-stage Contrastive Learning", eq. 4).

        Returns:
            `[batch]` losses and `[batch]` hits.
        """
        all_candidates, offset = gather_candidates(candidates)
        all_query_texts, all_texts = (
            gather_candidates(row)[0] for row in tf.unstack(fingerprints[:2], 2)
        )
        same_query = tf.equal(fingerprints[0][:, None], all_query_texts[None, :])
        if meanings is not None:
            all_meanings, _ = gather_candidates(meanings)
            same_query |= tf.equal(meanings[:, None], all_meanings[None, :])
        excluded = same_query | tf.equal(fingerprints[1][:, None], all_texts[None, :])
        positives = offset + tf.range(tf.shape(queries)[0])
        all_queries = gather_candidates(queries)[0] if both_ways or same_side else queries
        # Side by side: the candidates, then the queries' own side, then the negatives.
        scores, masks = [self._scores(queries, all_candidates)], [excluded] * (1 + same_side)
        ranked = []
        if both_ways:
            # On one replica both directions have the same scores; computing them takes most of the
            # time.
            if all_candidates is candidates:
                reverse = [[tf.transpose(matrix) for matrix in scores[0]]]
            else:
                reverse = [self._scores(candidates, all_queries)]
            if same_side:
                reverse.append(self._scores(candidates, all_candidates))
            ranked.append(self._rank_by(reverse, positives, masks))
        if same_side:
            scores.append(self._scores(queries, all_queries))
        if negatives:
            is_missing = tf.equal(fingerprints[2:], fingerprints[1])
            texts = tf.where(is_missing, tf.constant(_NO_TEXT, tf.int64), fingerprints[2:])
            texts, _ = gather_candidates(tf.reshape(texts, [-1]))
            is_answer = tf.equal(all_texts[:, None], texts[None, :])
            # Number of examples that have such a query, and the negative as their right answer.
            num_answers = tf.cast(same_query, tf.float32) @ tf.cast(is_answer, tf.float32)
            not_wrong = (num_answers > 0) | tf.equal(texts, _NO_TEXT)[None, :]
            all_negatives, _ = gather_candidates(tf.concat(negatives, axis=0))
            scores.append(self._scores(queries, all_negatives))
            masks = [*masks, not_wrong]
        ranked.append(self._rank_by(scores, positives, masks))
        losses, hits = (tf.add_n(values) / len(values) for values in zip(*ranked, strict=True))
        return losses, hits

    def _scores(self, queries: tf.Tensor, candidates: tf.Tensor) -> list[tf.Tensor]:
        """Returns the `[queries, candidates]` scores of the whole vectors and of each prefix."""
        scale = self.similarity.scale
        prepared = unit_length if self.similarity.normalize else tf.identity
        return [
            tf.matmul(
                scale * prepared(queries[:, :dim]), prepared(candidates[:, :dim]), transpose_b=True
            )
            for dim in (queries.shape[1], *self.similarity.matryoshka_dims)
        ]

    def _rank_by(
        self, scores: list[list[tf.Tensor]], positives: tf.Tensor, masks: list[tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the mean losses of the whole vectors and each prefix, and the hits of the first.

        `scores` and `masks` are of several sets of candidates, the right ones in the first.
        """
        margin = self.similarity.scale * self.similarity.margin
        excluded = tf.concat(masks, axis=1)
        results = [
            in_batch_softmax(tf.concat(parts, axis=1), positives, excluded, margin=margin)
            for parts in zip(*scores, strict=True)
        ]
        losses, hits = zip(*results, strict=True)
        return tf.add_n(losses) / len(losses), hits[0]


class TranslationRanking(RankingTask):
    """Ranks the source of a translation over others, by their encodings, without towers.

    The paper models P(source | target); with `similarity.bidirectional`, the loss is the mean of
    both directions. Mined wrong translations, `config.hard_negatives` for each example, are further
    candidates of P(target | source), which is then the learned direction if there is only one (Guo
    et al. 2018, "semantically similar hard negatives": K in-batch candidates become K + M K). If a
    record has fewer, its target fills the columns and is left out of the loss. Translations of a
    sentence's translations are not wrong for it.
    """

    record_type: ClassVar[str] = "parallel"
    config: TranslationRankingConfig

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.hard_negatives = self.config.hard_negatives
        names = [f"negative_{number}" for number in range(1, self.hard_negatives + 1)]
        self.columns = ("source", "target", *names)

    def texts(self, records: StoredRecords) -> list[NDArray[np.object_]]:
        """Returns sources, targets and `hard_negatives` columns, the target if one is missing."""
        target = records.column("target")
        negatives = [records.negatives(number, target) for number in range(self.hard_negatives)]
        return [records.column("source"), target, *negatives]

    def meanings(self, records: StoredRecords) -> NDArray[np.int32]:
        """See `Task.meanings`: (a, x) and (b, y) mean the same if (a, y) is a translation."""
        # The connected components of a graph whose nodes are texts, and whose edges translations.
        hashes = np.concatenate([records.hashes("source"), records.hashes("target")])
        distinct, texts = np.unique(hashes, return_inverse=True)
        source, target = np.split(texts, 2)
        edges = np.ones(len(records), bool), (source, target)
        _, component = connected_components(
            coo_array(edges, shape=[len(distinct)] * 2), directed=False
        )
        is_large = np.bincount(component)[component[source]] > _MOST_TEXTS
        alone = len(distinct) + np.arange(len(records))
        return np.where(is_large, alone, component[source]).astype(np.int32)

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """See `Task.score`: ranks sources for targets, targets for sources, or both."""
        source, target, *negatives = columns
        rank = partial(
            self.rank,
            meanings=batch.meanings,
            both_ways=self.similarity.bidirectional,
            same_side=self.config.same_side,
        )
        if negatives:
            return rank(source, target, batch.fingerprints, negatives)
        return rank(target, source, batch.fingerprints[::-1])


class EntailmentRanking(RankingTask):
    """Ranks the sentence that a premise entails over others, by their encodings, without towers.

    Candidates are the entailed sentences of the batch and, as hard negatives, sentences that
    contradict its premises (Gao et al. 2021, "SimCSE: Simple Contrastive Learning of Sentence
    Embeddings", sec. 4, eq. 5). This improves semantic similarity, in all languages if they are
    aligned.
    """

    record_type: ClassVar[str] = "nli"
    columns = ("premise", "entailed", "contradicting")

    def select(self, records: StoredRecords) -> StoredRecords:
        """Keeps the pairs in which the premise entails the hypothesis."""
        return records[records.labels == _ENTAILMENT]

    def learned(self, records: StoredRecords) -> StoredRecords:
        """See `Task.learned`: also the contradictions."""
        return records[np.isin(records.labels, (_ENTAILMENT, _CONTRADICTION))]

    def columns_of(
        self, records: StoredRecords
    ) -> Callable[[StoredRecords], list[NDArray[np.object_]]]:
        """Pairs each premise with the first sentence that contradicts it, or the entailed one."""
        contradicting = records[records.labels == _CONTRADICTION]
        contradictions: dict[bytes, bytes] = {}
        sides = (contradicting.column(name) for name in ("premise", "hypothesis"))
        for premise, hypothesis in zip(*sides, strict=True):
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
        return self.rank(premise, entailed, batch.fingerprints, [contradicting])


class ResponsePrediction(RankingTask):
    """Ranks the reply to a message over others; only replies pass through a tower."""

    record_type: ClassVar[str] = "conversations"
    columns = ("message", "response")
    roles = ("default", "document")

    @classmethod
    def make_heads(cls, config: ExperimentConfig, data: DataConfig, encoder: TokenEncoder) -> Heads:
        """See `Task.make_heads`: a tower for responses."""
        return {"response_tower": make_tower("response_tower", config, encoder)}

    @classmethod
    def signatures(cls, layers: ExportedLayers) -> list[Signature]:
        """See `Task.signatures`."""
        description = SignatureDescription(
            "response_encoder",
            ("input",),
            "vectors of replies, near the messages that they answer",
            'encoder.response_encoder(["Fine, thanks."])     # near the messages that it answers',
            role="document",
        )
        return [SentenceSignature(layers, description)]

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """See `Task.score`: ranks replies for messages."""
        message, response = columns
        return self.rank(message, self.heads["response_tower"](response), batch.fingerprints)


class QuickThought(RankingTask):
    """Ranks the previous and the following sentence over others; all pass through towers."""

    record_type: ClassVar[str] = "documents"
    columns = ("previous", "sentence", "following")

    @classmethod
    def make_heads(cls, config: ExperimentConfig, data: DataConfig, encoder: TokenEncoder) -> Heads:
        """See `Task.make_heads`: a tower for each column."""
        names = [f"{column}_tower" for column in cls.columns]
        return {name: make_tower(name, config, encoder) for name in names}

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """See `Task.score`: sums the losses of previous and following sentences."""
        previous, sentence, following = (
            self.heads[f"{name}_tower"](column)
            for name, column in zip(self.columns, columns, strict=True)
        )
        before, before_hits = self.rank(sentence, previous, batch.fingerprints[1::-1])
        after, after_hits = self.rank(sentence, following, batch.fingerprints[1:])
        return before + after, (before_hits + after_hits) / 2


def make_tower(
    name: str, config: ExperimentConfig, encoder: TokenEncoder, context_dim: int = 0
) -> Tower:
    """Makes a tower over encodings, perhaps with contexts, with outputs as wide as encodings."""
    heads = config.heads
    tower = Tower((*heads.tower_dims, encoder.hidden_dim), heads.residual_towers, name=name)
    tower.build((None, encoder.hidden_dim + context_dim))
    return tower
