"""The scores at the end of a training."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations
from pathlib import Path

from absl import logging

from xling_tf.config import ExperimentConfig
from xling_tf.corpora.records import Record, TranslationPair
from xling_tf.corpora.split import near_twins
from xling_tf.corpora.store import StoredCorpus
from xling_tf.evaluators.retrieval import TranslationRetrieval
from xling_tf.evaluators.sts import SemanticTextualSimilarity, find_sts
from xling_tf.model import Model
from xling_tf.sentence_encoder import SentenceEncoder
from xling_tf.trainer.development import HeldOutScores
from xling_tf.trainer.input_pipeline import Examples

# Corpora with fewer held-out pairs than the paper has candidates are scored only among all.
_CANDIDATES = 1000
_QUERIES = 2000
_SCORED_CORPORA = 8
# Held-out pairs of a corpus that queries and candidates are drawn from, which are in memory.
_DRAWN_FROM = 100_000

Scores = dict[str, dict[str, float]]


def evaluate(
    model: Model,
    encoder: SentenceEncoder,
    held_out: Mapping[str, Examples],
    corpora: Sequence[StoredCorpus],
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
    logging.info("evaluating the tasks")
    of_tasks = HeldOutScores(model, held_out)()
    scores = {f"task/{name}": of_task for name, of_task in of_tasks.items()}
    for evaluator in _evaluators(model.config, corpora, data):
        logging.info("evaluating %s", evaluator.name)
        scores[evaluator.name] = evaluator(encoder.encode)
    return scores


def _evaluators(
    config: ExperimentConfig, corpora: Sequence[StoredCorpus], data: Path | None
) -> Iterator[TranslationRetrieval | SemanticTextualSimilarity]:
    languages = (config.data.source, *config.data.targets)
    for source, target in combinations(languages, 2):
        yield from _retrieval(source, target, corpora)
    if data:
        yield from find_sts(data, languages)


def _retrieval(
    source: str, target: str, corpora: Sequence[StoredCorpus]
) -> Iterator[TranslationRetrieval]:
    """Of a pair's held-out translations: all, those unlike any of training, and the largest corpora's."""
    parallel = {
        c.name: [pair for pair in _spread(c.held_out) if isinstance(pair, TranslationPair)]
        for c in corpora
        if c.languages == f"{source}-{target}"
    }
    every = [pair for pairs in parallel.values() for pair in pairs]
    name = f"retrieval/{source}-{target}"
    if len(every) > 1:
        yield TranslationRetrieval(every, source=source, target=target, name=f"{name}/all")
    training = chain.from_iterable(c.train for c in corpora if c.languages == f"{source}-{target}")
    is_twin = near_twins(every, (pair for pair in training if isinstance(pair, TranslationPair)))
    alone = [pair for pair, twin in zip(every, is_twin, strict=True) if not twin]
    if len(alone) >= _CANDIDATES:
        yield TranslationRetrieval(
            alone, source=source, target=target, name=f"{name}/no_near_twins"
        )
    large = [name for name, pairs in parallel.items() if len(pairs) >= _CANDIDATES]
    for corpus in sorted(large, key=lambda corpus: -len(parallel[corpus]))[:_SCORED_CORPORA]:
        yield TranslationRetrieval(
            parallel[corpus],
            source=source,
            target=target,
            name=f"{name}/{corpus}",
            max_queries=_QUERIES,
        )


def _spread(records: Sequence[Record]) -> Sequence[Record]:
    return records[:: math.ceil(len(records) / _DRAWN_FROM) or 1]
