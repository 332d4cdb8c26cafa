"""Tasks on labelled pairs: inference (Chidambaram et al. 2019, sec. 2.2), and grades."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import tensorflow as tf

from xling_tf.config import DataConfig, ExperimentConfig
from xling_tf.corpora.records import NLI_LABELS
from xling_tf.encoders.base import TokenEncoder
from xling_tf.layers.towers import InferenceHead
from xling_tf.losses import correlation_distance, cosine_distance, in_batch_softmax
from xling_tf.tasks.base import Batch, BatchOrder, Heads, Task, gather_candidates
from xling_tf.tasks.signatures import (
    ExportedLayers,
    Signature,
    SignatureDescription,
    require_as_many,
    texts,
)


class InferenceSignature(Signature):
    """Classifies pairs of strings by entailment."""

    @tf.function(input_signature=texts("premise", "hypothesis"), autograph=False)
    def __call__(self, premise: tf.Tensor, hypothesis: tf.Tensor) -> tf.Tensor:
        """Returns `[pairs, 3]` float32 probabilities of `NLI_LABELS`; flattens inputs."""
        premise, hypothesis = tf.reshape(premise, [-1]), tf.reshape(hypothesis, [-1])
        hypothesis = require_as_many(hypothesis, premise, "expected as many hypotheses as premises")
        vectors = self.scaled_for_heads(self.encode(tf.concat([premise, hypothesis], axis=0)))
        logits = self.head("classifier")(*tf.split(vectors, 2))
        return tf.nn.softmax(logits[:, : len(NLI_LABELS)])


class Inference(Task):
    """Classifies whether a premise entails a hypothesis, contradicts it, or neither."""

    record_type: ClassVar[str] = "nli"
    columns = ("premise", "hypothesis")

    @classmethod
    def make_heads(cls, config: ExperimentConfig, data: DataConfig, encoder: TokenEncoder) -> Heads:
        """See `Task.make_heads`: a classifier of three classes."""
        return {"classifier": make_classifier(config, encoder, len(NLI_LABELS))}

    @classmethod
    def signatures(cls, layers: ExportedLayers) -> list[Signature]:
        """See `Task.signatures`."""
        labels = ", ".join(NLI_LABELS)
        description = SignatureDescription(
            "inference",
            ("premise", "hypothesis"),
            f"probabilities of {labels}, float32 `[pairs, 3]`",
            'encoder.inference(["A cat sleeps."], ["Un gato duerme."])   # float32 [1, 3]: '
            + labels,
        )
        return [InferenceSignature(layers, description)]

    @classmethod
    def mirrored(
        cls, name: str, config: ExperimentConfig, data: DataConfig, heads: Mapping[str, Any]
    ) -> list[Self]:
        """See `Task.mirrored`; the name of the source language's task has no language."""
        tasks = super().mirrored(name, config, data, heads)
        tasks[0].name = name
        return tasks

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """See `Task.score`: classifies the pairs."""
        return in_batch_softmax(self.heads["classifier"](*columns), batch.labels, excluded=False)


class GradedSimilarity(Task):
    """Maximises the correlation of cosines with people's scores, by which STS is evaluated.

    All pairs of a batch have the same loss, that of the whole batch. A pair is a hit if its cosine
    and its score are on the same side of the batch's means.
    """

    record_type: ClassVar[str] = "similarity"
    columns = ("first", "second")
    # A correlation within one length would compare no short pair with a long one.
    batch_order: ClassVar[BatchOrder] = "random"

    @classmethod
    def languages_of(cls, config: Any, data: DataConfig) -> list[str]:
        """See `Task.languages_of`: each language, and the source with each target."""
        return [
            *super().languages_of(config, data),
            *(f"{data.source}-{code}" for code in data.targets),
        ]

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """See `Task.score`: correlates the pairs of all replicas."""
        cosines, offset = gather_candidates(1 - cosine_distance(*columns))
        scores, _ = gather_candidates(tf.cast(batch.labels, tf.float32))
        count = tf.shape(batch.labels)[0]
        loss = tf.fill([count], correlation_distance(cosines, scores))
        is_high, is_high_score = (x > tf.reduce_mean(x) for x in (cosines, scores))
        hits = tf.cast(tf.equal(is_high, is_high_score), tf.float32)
        return loss, hits[offset : offset + count]


def make_classifier(
    config: ExperimentConfig, encoder: TokenEncoder, num_classes: int
) -> InferenceHead:
    """Makes a classifier of two encodings, already built."""
    classifier = InferenceHead(config.heads.inference_dim, num_classes, name="classifier")
    classifier.build((None, encoder.hidden_dim))
    return classifier
