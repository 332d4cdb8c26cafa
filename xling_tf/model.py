"""A model in training: the encoder, what turns text into its input, and the tasks."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from xling_tf.config import ExperimentConfig, TextConfig
from xling_tf.encoders.transformer import TransformerEncoder
from xling_tf.hub import FoldedEncoder, FrozenTower, HubModule
from xling_tf.tasks.base import Task
from xling_tf.tasks.ranking import ResponsePrediction
from xling_tf.tasks.registry import build_tasks
from xling_tf.text.vocabulary import count_ngrams, count_words, select_vocabulary
from xling_tf.text.word_ngram import WordNgramPreprocessor


def fit_text(config: TextConfig, texts: Sequence[str]) -> tuple[TextConfig, list[str]]:
    """Builds the vocabulary, and shrinks the n-gram table to the n-grams that occur."""
    counts = count_words(texts, config)
    num_ngrams = count_ngrams(list(counts), config)
    return dataclasses.replace(config, num_ngram_buckets=num_ngrams), select_vocabulary(
        counts, config
    )


class Model(NamedTuple):
    """An encoder and its tasks, with all variables made."""

    preprocessor: WordNgramPreprocessor
    encoder: TransformerEncoder
    tasks: list[Task]
    config: ExperimentConfig

    @classmethod
    def build(cls, config: ExperimentConfig, vocabulary: Sequence[str]) -> Self:
        """Makes a model with random weights, of the resolved `config`."""
        preprocessor = WordNgramPreprocessor(vocabulary, config.text)
        encoder = TransformerEncoder(
            config.encoder,
            num_words=preprocessor.num_words,
            num_ngrams=config.text.num_ngram_buckets,
            max_tokens=config.text.max_tokens,
        )
        encoder.build_variables()
        tasks = build_tasks(config)
        for task in tasks:
            task.build_heads(np.zeros((1, config.encoder.hidden_dim), np.float32))
        return cls(preprocessor, encoder, tasks, config)

    def hub_module(self) -> HubModule:
        """Makes what is exported, with the weights as they are now."""
        towers = [
            FrozenTower(task.tower, normalize=task.normalize)
            for task in self.tasks
            if isinstance(task, ResponsePrediction)
        ]
        folded = FoldedEncoder(self.preprocessor, self.encoder, self.config.encoder)
        return HubModule(folded, towers[0] if towers else None)
