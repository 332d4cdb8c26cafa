"""A model in training: the encoder, what turns text into its input, and the tasks."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self

import keras
import numpy as np

from xling_tf.config import ExperimentConfig, TextConfig
from xling_tf.encoders.base import TokenEncoder
from xling_tf.encoders.folded import FoldedEncoder
from xling_tf.encoders.registry import build_encoder
from xling_tf.hub import FrozenInferenceHead, FrozenTower, HubModule
from xling_tf.tasks.base import Task
from xling_tf.tasks.inference import Inference
from xling_tf.tasks.ranking import ResponsePrediction
from xling_tf.tasks.registry import build_tasks
from xling_tf.text.preprocessor import TextPreprocessor, Vocabulary
from xling_tf.text.sentencepiece import SentencePiecePreprocessor, fit_pieces
from xling_tf.text.vocabulary import fit_words
from xling_tf.text.word_ngram import word_preprocessor


class _Tokenizer(NamedTuple):
    """What is learnt from texts for a tokenizer, and what is made of that."""

    fit: Callable[[TextConfig, Iterable[str]], tuple[TextConfig, Vocabulary]]
    preprocessor: Callable[[Any, TextConfig], TextPreprocessor]


_TOKENIZERS: Mapping[str, _Tokenizer] = {
    "treebank": _Tokenizer(fit_words, word_preprocessor),
    "sentencepiece": _Tokenizer(fit_pieces, SentencePiecePreprocessor),
}


def fit_text(config: TextConfig, texts: Iterable[str]) -> tuple[TextConfig, Vocabulary]:
    """Learns words or pieces from the training texts.

    Args:
        config: As asked for.
        texts: Read once.

    Returns:
        `config` with the sizes that the texts decide, and what was learnt.
    """
    return _TOKENIZERS[config.tokenizer].fit(config, texts)


class Model(NamedTuple):
    """An encoder and its tasks, with all variables made."""

    preprocessor: TextPreprocessor
    encoder: TokenEncoder
    tasks: list[Task]
    config: ExperimentConfig

    @classmethod
    def build(cls, config: ExperimentConfig, vocabulary: Vocabulary) -> Self:
        """Makes a model with random weights, of the resolved `config`."""
        preprocessor = _TOKENIZERS[config.text.tokenizer].preprocessor(vocabulary, config.text)
        encoder = build_encoder(config.encoder, preprocessor)
        tasks = build_tasks(config)
        for task in tasks:
            task.build_heads(np.zeros((1, config.encoder.hidden_dim), np.float32))
        return cls(preprocessor, encoder, tasks, config)

    @property
    def head_variables(self) -> list[keras.Variable]:
        """The trainable variables of the tasks' heads; those that tasks share come once."""
        return list({id(v): v for task in self.tasks for v in task.variables()}.values())

    def hub_module(self) -> HubModule:
        """Makes what is exported, with the weights as they are now."""
        towers = [
            FrozenTower(task.tower, normalize=task.normalize)
            for task in self.tasks
            if isinstance(task, ResponsePrediction)
        ]
        heads = [
            FrozenInferenceHead(task.head, normalize=task.normalize)
            for task in self.tasks
            if isinstance(task, Inference)
        ]
        folded = FoldedEncoder(self.preprocessor, self.encoder, self.config.encoder)
        return HubModule(folded, next(iter(towers), None), next(iter(heads), None))
