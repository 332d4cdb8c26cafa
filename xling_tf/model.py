"""A model in training: the encoder, what turns text into its input, and the tasks."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self, TypeVar

import keras
import tensorflow as tf

from xling_tf.config import ExperimentConfig
from xling_tf.encoders.base import TokenEncoder, build_encoder
from xling_tf.encoders.folded import FoldedEncoder
from xling_tf.hub.module import HubModule
from xling_tf.tasks.base import Task, build_tasks
from xling_tf.tasks.inference import Inference
from xling_tf.tasks.question_answering import QuestionAnswering
from xling_tf.tasks.ranking import ResponsePrediction
from xling_tf.tasks.translation import Translation
from xling_tf.text.preprocessor import TextPreprocessor, Vocabulary, build_preprocessor

T = TypeVar("T", bound=Task)


class Model(NamedTuple):
    """An encoder and its tasks, with all variables made."""

    preprocessor: TextPreprocessor
    encoder: TokenEncoder
    tasks: list[Task]
    config: ExperimentConfig
    carried: Sequence[Task] = ()  # not trained: their heads are those of the model it started from

    @classmethod
    def build(cls, config: ExperimentConfig, vocabulary: Vocabulary) -> Self:
        """Makes a model with random weights, of the resolved `config`."""
        preprocessor = build_preprocessor(config.text, vocabulary)
        encoder = build_encoder(config.encoder, preprocessor)
        tasks = build_tasks(config)
        for task in tasks:
            task.build_heads(encoder)
        return cls(preprocessor, encoder, tasks, config)

    @property
    def head_variables(self) -> list[keras.Variable]:
        """The trainable variables of the tasks' heads; those that tasks share come once."""
        return list({id(v): v for task in self.tasks for v in task.variables()}.values())

    @property
    def weights(self) -> list[tf.Variable]:
        """The weights of the encoder and the tasks' heads, in the order of a run's checkpoints."""
        encoder = self.encoder
        variables = [*encoder.table_variables, *encoder.dense_variables, *self.head_variables]
        return [variable.value for variable in variables]

    @property
    def heads(self) -> dict[str, keras.layers.Layer]:
        """The layers that tasks put on the encoder, by name; those that tasks share come once."""
        return {head.name: head for task in (*self.tasks, *self.carried) for head in task.heads}

    def hub_module(self, tables: str = "float32") -> HubModule:
        """Makes what is exported, with the weights as they are now; `tables` is as of `FoldedEncoder`."""
        tasks = (*self.tasks, *self.carried)
        inference = _first(tasks, Inference)
        heads: dict[str, Any] = {"inference_head": inference.head} if inference else {}
        if translation := _first(tasks, Translation):
            heads |= {"decoder": translation.decoder, "languages": translation.languages_of_decoder}
        if answering := _first(tasks, QuestionAnswering):
            heads["question_tower"] = answering.question_tower
            heads["response_tower"] = answering.answer_tower
            heads["context_encoder"] = answering.context_encoder
        elif predicting := _first(tasks, ResponsePrediction):
            heads["response_tower"] = predicting.tower
        folded = FoldedEncoder(self.preprocessor, self.encoder, tables)
        return HubModule(folded, normalize=self.config.tasks.similarity.normalize, **heads)


def _first(tasks: Sequence[Task], kind: type[T]) -> T | None:
    """The first task of a kind, whose heads are those of all."""
    return next((task for task in tasks if isinstance(task, kind)), None)
