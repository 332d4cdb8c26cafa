"""Ranking what a premise entails over what contradicts it (Gao et al. 2021, SimCSE)."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar, Self

import numpy as np
import tensorflow as tf

from xling_tf.config import ExperimentConfig
from xling_tf.corpora.records import NLI_LABELS, InferencePair, Record
from xling_tf.corpora.store import StoredRecords
from xling_tf.tasks.base import Batch, native_languages
from xling_tf.tasks.ranking import RankingTask, negatives_of

_ENTAILMENT, _CONTRADICTION = NLI_LABELS.index("entailment"), NLI_LABELS.index("contradiction")


class EntailmentRanking(RankingTask):
    """Finds the sentence that a premise entails, by the encodings alone, without towers.

    Candidates are the entailed sentences of the batch and, as hard negatives, sentences that contradict
    its premises (Gao et al. 2021, "SimCSE: Simple Contrastive Learning of Sentence Embeddings", sec. 4,
    eq. 5). It makes nearness mean equal meaning, which semantic similarity asks for; where the languages
    are aligned, in all of them.
    """

    kind: ClassVar[str] = "nli"
    columns = ("premise", "entailed", "contradicting")

    @classmethod
    def of_experiment(cls, config: ExperimentConfig) -> list[Self]:
        """Makes a task for each language with inference corpora; none has a margin."""
        similarity = dataclasses.replace(config.tasks.similarity, margin=0.0)
        own = native_languages(config, with_targets=config.tasks.target_inference)
        return cls.mirrored(config, "entailment_ranking", own, similarity=similarity)

    def select(self, records: StoredRecords) -> StoredRecords:
        """Keeps the pairs in which the premise entails the hypothesis."""
        is_kept = records.labels == _ENTAILMENT
        return StoredRecords(records.store, records.kind, records.indices[is_kept])

    def texts_of(self, records: StoredRecords) -> Callable[[Record], tuple[str, ...]]:
        """Looks the contradictions of the premises up, the first of each.

        Where a premise has none, what it entails fills the column and is left out of the loss.
        """
        contradictions: dict[str, str] = {}
        for place in np.flatnonzero(records.labels == _CONTRADICTION).tolist():
            pair = records[place]
            assert isinstance(pair, InferencePair)
            contradictions.setdefault(pair.premise, pair.hypothesis)

        def texts(record: Record) -> tuple[str, ...]:
            assert isinstance(record, InferencePair)
            premise, entailed, _ = record
            return premise, entailed, contradictions.get(premise, entailed)

        return texts

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Ranks the entailed sentences for their premises."""
        premise, entailed, contradicting = columns
        premise_text, entailed_text, _ = tf.unstack(batch.fingerprints, num=3)
        negatives = negatives_of([contradicting], batch.fingerprints[2:], entailed_text)
        return self.rank(premise, entailed, premise_text, entailed_text, negatives)
