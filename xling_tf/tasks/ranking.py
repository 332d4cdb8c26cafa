"""Tasks that rank the right text over the others of the batch (2019, eq. 1-2 and sec. 2.2)."""

from typing import Any, ClassVar, NamedTuple, Self

import tensorflow as tf

from xling_tf.config import ExperimentConfig
from xling_tf.corpora.records import Record, TranslationPair
from xling_tf.layers.pooling import unit_length
from xling_tf.layers.towers import Tower
from xling_tf.losses import in_batch_softmax
from xling_tf.tasks.base import Batch, VectorTask, gather_candidates, language_pairs, native_languages

NO_TEXT = -1  # fingerprints of texts are at least 0


class Negatives(NamedTuple):
    """Texts that are wrong but where they are known to be right: `[negatives, dim]` and `[negatives]`.

    The fingerprint is `NO_TEXT` where a column is only filled.
    """

    encodings: tf.Tensor
    fingerprints: tf.Tensor


def negatives_of(
    columns: list[tf.Tensor], fingerprints: tf.Tensor, right_fingerprints: tf.Tensor
) -> Negatives:
    """Makes the negatives of columns of `[batch, dim]`; the right text fills what an example lacks."""
    no_text = tf.constant(NO_TEXT, tf.int64)
    fingerprints = tf.where(tf.equal(fingerprints, right_fingerprints), no_text, fingerprints)
    return Negatives(tf.concat(columns, axis=0), tf.reshape(fingerprints, [-1]))


class RankingTask(VectorTask):
    """A task whose losses are softmaxes over the batch's candidates."""

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
        """Ranks each row of `candidates`, which is the right one for the same row of `queries`.

        A candidate is not counted as wrong where its text is that of the right one, or where its
        own query has the same text: both are right answers too. Every query ranks the negatives of
        all examples as well; none that is a right answer to it counts. With `both_ways` candidates
        rank the queries too, and losses and hits are the means of both.

        With `similarity.matryoshka_dims` prefixes of the vectors rank as well, and the losses are the
        mean; the hits are those of the whole vectors. Gives `[batch]` losses and `[batch]` hits.
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
            # On one replica both ways have the same scores, and products cost more than all else here.
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
        """`[queries, candidates]` of the whole vectors, and of each prefix that ranks."""
        scale = self.similarity.scale
        return [
            tf.matmul(scale * self._prefixes(queries, dim), self._prefixes(candidates, dim), transpose_b=True)
            for dim in (queries.shape[1], *self.similarity.matryoshka_dims)
        ]

    def _prefixes(self, vectors: tf.Tensor, dim: int) -> tf.Tensor:
        """The first numbers of each vector, as they are compared."""
        return unit_length(vectors[:, :dim]) if self.similarity.normalize else vectors[:, :dim]

    def _rank_by(
        self, scores: list[tf.Tensor], positives: tf.Tensor, excluded: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The mean losses of all scores, and the hits of the first."""
        margin = self.similarity.scale * self.similarity.margin
        results = [in_batch_softmax(matrix, positives, excluded, margin=margin) for matrix in scores]
        losses, hits = zip(*results, strict=True)
        return tf.add_n(losses) / len(losses), hits[0]

    @staticmethod
    def _gathered(
        negatives: Negatives, same_query: tf.Tensor, right_fingerprints: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The negatives of all replicas, and `[batch, negatives]` where one is not wrong."""
        all_encodings, _ = gather_candidates(negatives.encodings)
        fingerprints, _ = gather_candidates(negatives.fingerprints)
        is_answer = tf.equal(right_fingerprints[:, None], fingerprints[None, :])
        # How many examples with this query have the negative for their answer.
        num_answers = tf.cast(same_query, tf.float32) @ tf.cast(is_answer, tf.float32)
        return all_encodings, (num_answers > 0) | tf.equal(fingerprints, NO_TEXT)[None, :]


class TranslationRanking(RankingTask):
    """Finds the source of a translation, by the encodings alone, without towers.

    The paper models P(source | target); with `similarity.bidirectional` the loss is the mean of both
    directions. Mined wrong translations join the candidates of P(target | source), which with them
    is the direction learnt where only one is (Guo et al. 2018, "semantically similar hard
    negatives": K in-batch candidates become K + M K).

    Args:
        hard_negatives: Wrong translations of each example; where a record has fewer, its own target
            fills the columns and is left out of the loss.
    """

    kind: ClassVar[str] = "parallel"

    def __init__(self, *, hard_negatives: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hard_negatives = hard_negatives
        names = [f"negative_{number}" for number in range(1, hard_negatives + 1)]
        self.columns = ("source", "target", *names)

    @classmethod
    def of_experiment(cls, config: ExperimentConfig) -> list[Self]:
        """Makes a task for each pair of the source and a target, or of any two with `data.all_pairs`."""
        negatives = config.tasks.hard_negatives
        return cls.mirrored(config, "translation_ranking", language_pairs(config), hard_negatives=negatives)

    def texts(self, record: Record) -> tuple[str, ...]:
        """Source, target and `hard_negatives` wrong translations, or the target in place of one."""
        assert isinstance(record, TranslationPair)
        negatives = record.negatives[: self.hard_negatives]
        padding = (record.target,) * (self.hard_negatives - len(negatives))
        return (record.source, record.target, *negatives, *padding)

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Ranks sources for targets, targets for sources, or both."""
        source, target = columns[:2]
        source_text, target_text = tf.unstack(batch.fingerprints[:2], num=2)
        both_ways = self.similarity.bidirectional
        if self.hard_negatives:
            negatives = negatives_of(columns[2:], batch.fingerprints[2:], target_text)
            return self.rank(source, target, source_text, target_text, negatives, both_ways=both_ways)
        return self.rank(target, source, target_text, source_text, both_ways=both_ways)


class ResponsePrediction(RankingTask):
    """Finds the reply to a message; only the reply passes through a tower.

    Args:
        tower: 320 and 512 with tanh; shared by the languages, so that it encodes replies in either.
    """

    kind: ClassVar[str] = "conversations"
    columns = ("message", "response")

    def __init__(self, *, tower: Tower, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tower = tower
        self.heads = (tower,)

    @classmethod
    def of_experiment(cls, config: ExperimentConfig) -> list[Self]:
        """Makes a task for each language, with one tower for all."""
        dims, residual = config.tasks.tower_dims, config.tasks.residual_towers
        tower = Tower(dims, residual, name="response_tower")
        native = native_languages(config, with_targets=config.tasks.target_native)
        return cls.mirrored(config, "response_prediction", native, tower=tower)

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Ranks responses for messages."""
        message, response = columns
        return self.rank(message, self.tower(response), *tf.unstack(batch.fingerprints, num=2))


class QuickThought(RankingTask):
    """Finds the sentences before and after, with a tower for each of the three; the losses are summed.

    Args:
        towers: For the previous sentence, the sentence and the following one.
    """

    kind: ClassVar[str] = "documents"
    columns = ("previous", "sentence", "following")

    def __init__(self, *, towers: tuple[Tower, ...], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.towers = self.heads = towers

    @classmethod
    def of_experiment(cls, config: ExperimentConfig) -> list[Self]:
        """Makes a task for each language, with the same three towers for all."""
        dims, residual = config.tasks.tower_dims, config.tasks.residual_towers
        towers = tuple(Tower(dims, residual, name=f"{column}_tower") for column in cls.columns)
        native = native_languages(config, with_targets=config.tasks.target_native)
        return cls.mirrored(config, "quick_thought", native, towers=towers)

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Ranks predecessors and successors for sentences."""
        previous, sentence, following = (
            tower(column) for tower, column in zip(self.towers, columns, strict=True)
        )
        previous_text, text, following_text = tf.unstack(batch.fingerprints, num=3)
        before, before_hits = self.rank(sentence, previous, text, previous_text)
        after, after_hits = self.rank(sentence, following, text, following_text)
        return before + after, (before_hits + after_hits) / 2
