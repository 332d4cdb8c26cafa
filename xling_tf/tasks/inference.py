"""Natural language inference (Chidambaram et al. 2019, sec. 2.2)."""

from typing import Any, ClassVar, Self

import tensorflow as tf

from xling_tf.config import ExperimentConfig
from xling_tf.corpora.records import NLI_LABELS
from xling_tf.layers.towers import InferenceHead
from xling_tf.losses import softmax_cross_entropy
from xling_tf.tasks.base import (
    Batch,
    VectorTask,
    draw_others,
    gather_candidates,
    language_pairs,
    native_languages,
)


class _PairClassification(VectorTask):
    """Classifies pairs of sentences."""

    def __init__(self, *, head: InferenceHead, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.head = head
        self.heads = (head,)


class Inference(_PairClassification):
    """Says whether a premise entails a hypothesis, contradicts it, or neither."""

    kind: ClassVar[str] = "nli"
    columns = ("premise", "hypothesis")

    @classmethod
    def of_experiment(cls, config: ExperimentConfig) -> list[Self]:
        """Makes a task for each language, with one head for all; the source's is called "inference"."""
        head = InferenceHead(config.tasks.inference_dim, len(NLI_LABELS), name="inference_head")
        own = native_languages(config, with_targets=config.tasks.target_inference)
        tasks = cls.mirrored(config, "inference", own, head=head)
        tasks[0].name = "inference"
        return tasks

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Classifies the pairs."""
        return softmax_cross_entropy(self.head(*columns), batch.labels)


class TranslationDetection(_PairClassification):
    """Tells a sentence's translation from another sentence, InferSent TD (Rücklé et al. 2018, sec. 5.1)."""

    kind: ClassVar[str] = "parallel"
    columns = ("source", "target")

    @classmethod
    def of_experiment(cls, config: ExperimentConfig) -> list[Self]:
        """Makes a task for each pair, with one head for all."""
        head = InferenceHead(config.tasks.inference_dim, 2, name="detection_head")
        return cls.mirrored(config, "translation_detection", language_pairs(config), head=head)

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Classifies each source with its target, and with another one drawn at random: means of the two.

        Where the batch has no other target, the right one alone counts.
        """
        source, target = columns
        places, has_other = draw_others(batch.fingerprints)
        other = tf.gather(gather_candidates(target)[0], places)
        wrong, right = (
            softmax_cross_entropy(self.head(source, side), tf.fill([tf.shape(source)[0]], label))
            for label, side in enumerate((other, target))
        )
        losses, hits = (
            tf.where(has_other, (of_wrong + of_right) / 2, of_right)
            for of_wrong, of_right in zip(wrong, right, strict=True)
        )
        return losses, hits
