"""Validation: scores of a trained model on held-out examples."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, combinations, islice
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from xling_tf.config import ExperimentConfig
from xling_tf.corpora.records import Record, TranslationPair
from xling_tf.corpora.split import near_twins
from xling_tf.corpora.store import StoredCorpus
from xling_tf.encoders.base import TokenEncoder
from xling_tf.encoders.serving import in_micro_batches
from xling_tf.evaluators.retrieval import TranslationRetrieval, find_mixed_pools
from xling_tf.evaluators.sts import find_sts
from xling_tf.model import Model
from xling_tf.search.same_meaning import (
    Encode,
    calibration_error,
    fit_line,
    probabilities,
    translation_cosines,
)
from xling_tf.sentence_encoder import SentenceEncoder
from xling_tf.tasks.base import Batch, Task
from xling_tf.trainer.input_pipeline import BatchSampler, Examples, make_dataset

# Number of candidates in the paper. Corpora with fewer held-out pairs have no score of their own.
_CANDIDATES = 1000
_QUERIES = 2000
_SCORED_CORPORA = 4
# Pairs of a corpus on which the probability of the same meaning is calibrated.
_CALIBRATED, _FEWEST_CALIBRATED = 250, 50
# Maximum number of held-out pairs of a corpus that are read into memory.
_DRAWN_FROM = 100_000


def held_out_scores(
    model: Model, tasks: Sequence[Task], config: ExperimentConfig, held_out: Mapping[str, Examples]
) -> dict[str, dict[str, float]]:
    """Returns loss, accuracy and number of examples of each task that has held-out examples, by its name."""
    # By trace key: tasks of several languages share a graph.
    graphs: dict[str, Callable[[Batch], tuple[tf.Tensor, tf.Tensor]]] = {}
    encoder: Any = _InMicroBatches(model.encoder)
    scores = {}
    for task in tasks:
        if not (examples := held_out.get(task.name)):
            continue
        batches = _batches(model, task, config, examples)
        if task.trace_key not in graphs:
            graphs[task.trace_key] = tf.function(
                partial(task.losses, encoder), input_signature=[batches.element_spec], autograph=False
            )
        results = [graphs[task.trace_key](batch) for batch in batches]
        losses, hits = (np.concatenate(parts) for parts in zip(*results, strict=True))
        means = {"loss": float(losses.mean()), "accuracy": float(hits.mean())}
        scores[task.name] = {**means, "num_examples": float(len(losses))}
    return scores


def _batches(model: Model, task: Task, config: ExperimentConfig, examples: Examples) -> tf.data.Dataset:
    """Returns the same batches for every seed, of one size and any length, so that accuracies compare."""
    size = min(task.config.examples_per_batch, len(examples))
    config = replace(
        config,
        data=replace(config.data, pool_batches=1, equal_batches=True),
        training=replace(config.training, seed=1),
    )
    # All examples count equally, also those of corpora that training leaves out.
    sampler = BatchSampler(examples, [1.0] * len(examples.corpora), size, config)
    # At most one pass over the examples.
    count = min(config.training.dev_batches, len(examples) // size)
    return make_dataset(examples, sampler.batch, model.tokenizer, count=count)


class _InMicroBatches:
    """An encoder that encodes sentences in micro-batches of similar length, to save padding."""

    def __init__(self, encoder: TokenEncoder) -> None:
        self._encoder = encoder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)

    def encode(
        self, words: tf.Tensor, tokens: tf.Tensor, lengths: tf.Tensor, training: bool = False
    ) -> tf.Tensor:
        """See `TokenEncoder.encode`."""
        del training  # the model is scored as it will be exported

        def encode(part: tf.RaggedTensor) -> tf.Tensor:
            return self._encoder.encode(words, part.to_tensor(), tf.cast(part.row_lengths(), tf.int32))

        return in_micro_batches(
            encode, tf.RaggedTensor.from_tensor(tokens, lengths), self._encoder.hidden_dim
        )


def evaluate(
    model: Model,
    tasks: Sequence[Task],
    config: ExperimentConfig,
    languages: Sequence[str],
    encoder: SentenceEncoder,
    held_out: Mapping[str, Examples],
    corpora: Sequence[StoredCorpus],
    data: Path | None,
) -> dict[str, dict[str, float]]:
    """Scores tasks by the model in training, retrieval and similarity by the encoder as it is exported."""
    logging.info("evaluating the tasks")
    of_tasks = held_out_scores(model, tasks, config, held_out)
    scores = {f"task/{name}": of_task for name, of_task in of_tasks.items()}
    evaluators: list[Any] = [e for pair in combinations(languages, 2) for e in _retrieval(*pair, corpora)]
    if data:
        evaluators += [*find_sts(data, languages), *find_mixed_pools(data, languages)]
    vectors: dict[str, np.ndarray] = {}

    def encode(texts: list[str]) -> np.ndarray:
        """Encodes each text once, as some evaluators share texts."""
        new = [text for text in dict.fromkeys(texts) if text not in vectors]
        vectors.update(zip(new, encoder.encode(new), strict=True))
        return np.stack([vectors[text] for text in texts])

    for evaluator in evaluators:
        logging.info("evaluating %s", evaluator.name)
        scores[evaluator.name] = evaluator(encode)
    return scores


def calibrate(encode: Encode, corpora: Sequence[StoredCorpus]) -> tuple[tuple[float, ...], dict[str, float]]:
    """Calibrates the probability that two sentences mean the same, on held-out translations.

    The pairs that do not are each sentence with its nearest wrong translation in the same corpus. One half
    of all pairs is fitted, the other scored.

    Returns:
        `ModelInfo.same_meaning`, and "expected_calibration_error" and "num_pairs"; both empty if there are
        too few translations.
    """
    by_languages: defaultdict[str, list[StoredCorpus]] = defaultdict(list)
    for corpus in sorted(corpora, key=lambda corpus: -len(corpus.held_out)):
        if corpus.kind == "parallel" and len(by_languages[corpus.languages]) < _SCORED_CORPORA:
            by_languages[corpus.languages].append(corpus)
    parts = []
    for corpus in chain.from_iterable(by_languages.values()):
        step = math.ceil(len(corpus.held_out) / _CALIBRATED) or 1
        pairs = [(pair.source, pair.target) for pair in _pairs(corpus.held_out[::step])]
        if len(pairs) >= _FEWEST_CALIBRATED:
            parts.append(translation_cosines(encode, pairs))
    if not any(len(cosines) for cosines, _ in parts):
        return (), {}
    cosines, is_same = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    line = fit_line(cosines[::2], is_same[::2])
    error = calibration_error(probabilities(cosines[1::2], line), is_same[1::2])
    return line, {"expected_calibration_error": error, "num_pairs": float(len(cosines))}


def held_out_translations(corpora: Sequence[StoredCorpus], most: int) -> list[tuple[str, str]]:
    """Returns language and text of both sides of at most `most` held-out translations of each pair."""
    by_languages: defaultdict[str, list[TranslationPair]] = defaultdict(list)
    for corpus in corpora:
        by_languages[corpus.languages] += islice(_pairs(corpus.held_out), most)
    return [
        label
        for languages, pairs in by_languages.items()
        for pair in pairs[:: math.ceil(len(pairs) / most) or 1]
        for label in zip(languages.split("-"), (pair.source, pair.target), strict=True)
    ]


def _retrieval(source: str, target: str, corpora: Sequence[StoredCorpus]) -> Iterator[TranslationRetrieval]:
    """Yields retrieval among all held-out translations, among those without a near twin, and by corpus."""
    corpora = [corpus for corpus in corpora if corpus.languages == f"{source}-{target}"]
    steps = {c.name: math.ceil(len(c.held_out) / _DRAWN_FROM) or 1 for c in corpora}
    by_corpus = {c.name: [*_pairs(c.held_out[:: steps[c.name]])] for c in corpora}
    name = f"retrieval/{source}-{target}"
    make = partial(TranslationRetrieval, source=source, target=target)
    all_pairs = [pair for pairs in by_corpus.values() for pair in pairs]
    if len(all_pairs) > 1:
        yield make(all_pairs, name=f"{name}/all")
    is_twin = near_twins(all_pairs, _pairs(chain.from_iterable(corpus.train for corpus in corpora)))
    unlike = [pair for pair, twin in zip(all_pairs, is_twin, strict=True) if not twin]
    if len(unlike) >= _CANDIDATES:
        yield make(unlike, name=f"{name}/no_near_twins", max_queries=_QUERIES)
    large = [corpus for corpus, pairs in by_corpus.items() if len(pairs) >= _CANDIDATES]
    for corpus in sorted(large, key=lambda corpus: -len(by_corpus[corpus]))[:_SCORED_CORPORA]:
        yield make(by_corpus[corpus], name=f"{name}/{corpus}", max_queries=_QUERIES)


def _pairs(records: Iterable[Record]) -> Iterator[TranslationPair]:
    return (record for record in records if isinstance(record, TranslationPair))
