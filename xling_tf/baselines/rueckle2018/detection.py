"""Detection of translations, alone or together with inference: InferSent TD and MT+TD."""

from collections.abc import Mapping
from typing import Any, ClassVar

import tensorflow as tf

from xling_tf.baselines.yu2018.translation import draw_others
from xling_tf.config import DataConfig, ExperimentConfig
from xling_tf.corpora.records import NLI_LABELS
from xling_tf.encoders.base import TokenEncoder
from xling_tf.losses import in_batch_softmax
from xling_tf.tasks.base import Batch, Heads, Task, gather_candidates
from xling_tf.tasks.inference import Inference, make_classifier
from xling_tf.tasks.signatures import ExportedLayers, Signature


class TranslationDetection(Task):
    """Tells whether sentences are translations: InferSent TD (Rücklé et al. 2018, sec. 5.1)."""

    record_type: ClassVar[str] = "parallel"
    columns = ("source", "target")
    num_classes: ClassVar[int] = 2  # the last two: unrelated sentences, and translations

    @classmethod
    def make_heads(cls, config: ExperimentConfig, data: DataConfig, encoder: TokenEncoder) -> Heads:
        """See `Task.make_heads`: a classifier of `num_classes`."""
        return {"classifier": make_classifier(config, encoder, cls.num_classes)}

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """See `Task.score`: classifies sources with their targets and any random others."""
        source, target = columns
        indices, has_other = draw_others(batch.fingerprints)
        classifier = self.heads["classifier"]
        other = tf.gather(gather_candidates(target)[0], indices)
        wrong, right = (
            in_batch_softmax(
                classifier(source, side), tf.fill([tf.shape(source)[0]], label), excluded=False
            )
            for label, side in enumerate((other, target), start=self.num_classes - 2)
        )
        losses, hits = (
            tf.where(has_other, (for_wrong + for_right) / 2, for_right)
            for for_wrong, for_right in zip(wrong, right, strict=True)
        )
        return losses, hits


class InferenceAndDetection(TranslationDetection):
    """Inference in each language that has it and translation detection, by one classifier.

    This is InferSent MT+TD (Rücklé et al. 2018, sec. 5.1): "The two label sets are combined".
    Inference and detection alternate by step; the paper mixes their examples.
    """

    num_classes: ClassVar[int] = len(NLI_LABELS) + 2

    @classmethod
    def signatures(cls, layers: ExportedLayers) -> list[Signature]:
        """See `Task.signatures`: those of inference."""
        return Inference.signatures(layers)

    @classmethod
    def mirrored(
        cls, name: str, config: ExperimentConfig, data: DataConfig, heads: Mapping[str, Any]
    ) -> list[Any]:
        """See `Task.mirrored`: detection by pair of languages, then inference by language."""
        detection = super().mirrored(name, config, data, heads)
        return [*detection, *Inference.mirrored(name, config, data, heads)]
