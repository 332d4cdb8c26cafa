"""The scores at the end of a training."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from absl import logging

from xling_tf.config import ExperimentConfig
from xling_tf.corpora.records import TranslationPair
from xling_tf.encoders.sentence_encoder import SentenceEncoder
from xling_tf.evaluators.encoding import Evaluator
from xling_tf.evaluators.retrieval import TranslationRetrieval
from xling_tf.evaluators.sts import find_sts
from xling_tf.examples import SplitCorpus
from xling_tf.input_pipeline import BatchSampler, Examples, make_dataset
from xling_tf.model import Model
from xling_tf.tasks.base import Task

# Corpora with fewer held-out pairs than the paper has candidates are scored only among all.
_CANDIDATES = 1000
_QUERIES = 2000
_SCORED_CORPORA = 8

Scores = dict[str, dict[str, float]]


def evaluate(
    model: Model,
    encoder: SentenceEncoder,
    held_out: Mapping[str, Examples],
    corpora: Sequence[SplitCorpus],
    data: Path | None,
) -> Scores:
    """Scores a trained model on what was held out of its training.

    Args:
        model: For the loss and accuracy of each task.
        encoder: What will be exported: for retrieval and similarity.
        held_out: Held-out examples of each task.
        corpora: For the held-out translations of each corpus.
        data: Folder in which STS sets are looked for.

    Returns:
        Scores by suite and metric.
    """
    scores: Scores = {}
    for task in model.tasks:
        if task.name in held_out and len(held_out[task.name]):
            logging.info("evaluating %s", task.name)
            scores[f"task/{task.name}"] = _task_scores(model, task, held_out[task.name])
    for evaluator in _evaluators(model.config, corpora, data):
        logging.info("evaluating %s", evaluator.name)
        scores[evaluator.name] = evaluator(encoder.encode)
    return scores


def _task_scores(model: Model, task: Task, examples: Examples) -> dict[str, float]:
    """Loss and accuracy over batches like those of training."""
    sampler = BatchSampler(
        examples,
        # Held-out examples count alike, also of corpora that training leaves out.
        [1.0] * len(examples.corpora),
        examples_per_batch=task.examples_per_batch,
        pool_batches=model.config.data.pool_batches,
        seed=model.config.training.seed,
    )
    dataset = make_dataset(
        examples, sampler, model.preprocessor, count=model.config.training.dev_batches
    )
    score = tf.function(
        lambda batch: task.losses(model.encoder, batch), input_signature=[dataset.element_spec]
    )
    results = [score(batch) for batch in dataset]
    losses, hits = (np.concatenate(parts) for parts in zip(*results, strict=True))
    return {
        "loss": float(losses.mean()),
        "accuracy": float(hits.mean()),
        "num_examples": float(len(losses)),
    }


def _evaluators(
    config: ExperimentConfig, corpora: Sequence[SplitCorpus], data: Path | None
) -> Iterator[Evaluator]:
    source, targets = config.data.source, config.data.targets
    for target in targets:
        yield from _retrieval(source, target, corpora)
    if data:
        yield from find_sts(data, (source, *targets))


def _retrieval(
    source: str, target: str, corpora: Sequence[SplitCorpus]
) -> Iterator[TranslationRetrieval]:
    """Of a pair's held-out translations, all together and those of its largest corpora."""
    parallel = {
        c.corpus.name: [pair for pair in c.held_out if isinstance(pair, TranslationPair)]
        for c in corpora
        if c.corpus.languages == f"{source}-{target}"
    }
    every = [pair for pairs in parallel.values() for pair in pairs]
    name = f"retrieval/{source}-{target}"
    if len(every) > 1:
        yield TranslationRetrieval(every, source=source, target=target, name=f"{name}/all")
    large = [name for name, pairs in parallel.items() if len(pairs) >= _CANDIDATES]
    for corpus in sorted(large, key=lambda corpus: -len(parallel[corpus]))[:_SCORED_CORPORA]:
        yield TranslationRetrieval(
            parallel[corpus],
            source=source,
            target=target,
            name=f"{name}/{corpus}",
            max_queries=_QUERIES,
        )
