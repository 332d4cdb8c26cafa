"""Scores on held-out examples: while a model trains, and of the model at the end."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, combinations, islice
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from xling_tf.config import ExperimentConfig, apply_overrides
from xling_tf.corpora.records import Record, TranslationPair
from xling_tf.corpora.split import near_twins
from xling_tf.corpora.store import StoredCorpus
from xling_tf.encoders.base import TokenEncoder
from xling_tf.encoders.folded import in_micro_batches
from xling_tf.errors import UserError
from xling_tf.evaluators.retrieval import TranslationRetrieval
from xling_tf.evaluators.sts import SemanticTextualSimilarity, find_sts
from xling_tf.model import Model
from xling_tf.sentence_encoder import SentenceEncoder
from xling_tf.tasks.base import Batch, Task
from xling_tf.tasks.distillation import Distillation
from xling_tf.tasks.ranking import TranslationRanking
from xling_tf.trainer.checkpoints import CheckpointError, Checkpoints
from xling_tf.trainer.input_pipeline import BatchSampler, Examples, make_dataset

TaskScores = Mapping[str, dict[str, float]]

# Corpora with fewer held-out pairs than the paper has candidates are scored only among all.
_CANDIDATES = 1000
_QUERIES = 2000
_SCORED_CORPORA = 4
# Held-out pairs of a corpus that queries and candidates are drawn from, which are in memory.
_DRAWN_FROM = 100_000


class HeldOutScores:
    """Loss and accuracy of each task that has held-out examples, on the same ones at every call."""

    def __init__(self, model: Model, held_out: Mapping[str, Examples]) -> None:
        # Mirrored tasks, which share heads and settings, share the graph.
        graphs: dict[str, Callable[[Batch], tuple[tf.Tensor, tf.Tensor]]] = {}
        encoder: Any = _InMicroBatches(model.encoder)
        self._scorers = {}
        for task in model.tasks:
            if not (examples := held_out.get(task.name)):
                continue
            batches = _batches(model, task, examples)
            if task.graph not in graphs:
                graphs[task.graph] = tf.function(
                    partial(task.losses, encoder), input_signature=[batches.element_spec], autograph=False
                )
            self._scorers[task.name] = graphs[task.graph], batches

    def __call__(self) -> TaskScores:
        """Returns loss, accuracy and number of examples of each task, by its name."""
        scores = {}
        for name, (score_batch, batches) in self._scorers.items():
            results = [score_batch(batch) for batch in batches]
            losses, hits = (np.concatenate(parts) for parts in zip(*results, strict=True))
            scores[name] = {
                "loss": float(losses.mean()),
                "accuracy": float(hits.mean()),
                "num_examples": float(len(losses)),
            }
        return scores


def _batches(model: Model, task: Task, examples: Examples) -> tf.data.Dataset:
    """Batches of one size and of any lengths, the same ones for every seed.

    What is found among a batch can then be compared. Examples count alike, also of corpora that training
    leaves out.
    """
    size = min(task.config.examples_per_batch, len(examples))
    config = apply_overrides(
        model.config, ["data.pool_batches=1", "data.equal_batches=true", "training.seed=1"]
    )
    sampler = BatchSampler(examples, [1.0] * len(examples.corpora), size, config)
    # No more batches than there are different ones.
    count = min(config.training.dev_batches, len(examples) // size)
    return make_dataset(examples, sampler.batch, model.preprocessor, count=count)


class _InMicroBatches:
    """An encoder whose sentences are padded to the longest of similar ones, not to the longest of a batch."""

    def __init__(self, encoder: TokenEncoder) -> None:
        self._encoder = encoder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)

    def encode(self, words: tf.Tensor, tokens: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """See `TokenEncoder.encode`."""

        def encode(part: tf.RaggedTensor) -> tf.Tensor:
            return self._encoder.encode(words, part.to_tensor(), tf.cast(part.row_lengths(), tf.int32))

        return in_micro_batches(
            encode, tf.RaggedTensor.from_tensor(tokens, lengths), self._encoder.hidden_dim
        )


class Development:
    """Scores a model while it trains, and keeps its best weights.

    The best weights have the lowest mean loss of the translation ranking tasks: aligning the languages
    is what the model is for, and its accuracy moves in steps and ends at 1. Without such tasks, it is
    that of distillation, which aligns them too; without these, the mean loss of all. They are kept in
    `folder`, apart from the checkpoints.
    """

    def __init__(self, model: Model, held_out: Mapping[str, Examples], folder: Path) -> None:
        self._score = HeldOutScores(model, held_out)
        scored = [task for task in model.tasks if held_out.get(task.name)]
        kinds = (TranslationRanking, Distillation, Task)
        by_kind = [[task.name for task in scored if isinstance(task, kind)] for kind in kinds]
        self._deciding = next(filter(None, by_kind), [])
        if not self._deciding:
            raise UserError(
                "training.dev_steps expects held-out examples, but no corpus is large enough to have "
                "any; leave it 0"
            )
        variables = [*model.encoder.trainable_variables, *model.head_variables]
        self._checkpoints = Checkpoints(folder, [variable.value for variable in variables])
        self._lowest = math.inf

    def resume(self, step: int) -> None:
        """Forgets the scores after `step`, where training continues: they will be made again."""
        state = self._checkpoints.forget_after(step)
        self._lowest = state["loss"] if state else math.inf

    def score(self, step: int) -> TaskScores:
        """Scores the weights as they are after `step` steps, and keeps them if none were better."""
        scores = self._score()
        loss = float(np.mean([scores[name]["loss"] for name in self._deciding]))
        if loss < self._lowest:
            try:
                self._checkpoints.save(step, {"step": step, "loss": loss})
                self._lowest = loss
            except CheckpointError as error:
                logging.warning("%s; training goes on, and the best weights stay as before", error)
        return scores

    def restore_best(self) -> int | None:
        """Gives the model its best weights; returns their step, None if there are none to read."""
        state = self._checkpoints.restore()
        if state is None:
            return None
        logging.info("best weights: step %d, held-out loss %.4f", state["step"], state["loss"])
        return int(state["step"])


def evaluate(
    model: Model,
    encoder: SentenceEncoder,
    held_out: Mapping[str, Examples],
    corpora: Sequence[StoredCorpus],
    data: Path | None,
) -> dict[str, dict[str, float]]:
    """Scores what was held out of training, and STS sets in the folder `data`, by suite and metric.

    The tasks are scored by the model in training, retrieval and similarity by what will be exported.
    """
    logging.info("evaluating the tasks")
    scores = {f"task/{name}": of_task for name, of_task in HeldOutScores(model, held_out)().items()}
    for evaluator in _evaluators(model.config, corpora, data):
        logging.info("evaluating %s", evaluator.name)
        scores[evaluator.name] = evaluator(encoder.encode)
    return scores


def held_out_translations(corpora: Sequence[StoredCorpus], most: int) -> list[tuple[str, str]]:
    """Language and text of both sides of held-out pairs, `most` at most of every two languages."""
    found: defaultdict[str, list[TranslationPair]] = defaultdict(list)
    for corpus in corpora:
        found[corpus.languages] += islice(_pairs(corpus.held_out), most)
    return [
        label
        for languages, pairs in found.items()
        for pair in pairs[:: math.ceil(len(pairs) / most) or 1]
        for label in zip(languages.split("-"), (pair.source, pair.target), strict=True)
    ]


def _evaluators(
    config: ExperimentConfig, corpora: Sequence[StoredCorpus], data: Path | None
) -> Iterator[TranslationRetrieval | SemanticTextualSimilarity]:
    languages = (config.data.source, *config.data.targets)
    for source, target in combinations(languages, 2):
        yield from _retrieval(source, target, corpora)
    if data:
        yield from find_sts(data, languages)


def _retrieval(source: str, target: str, corpora: Sequence[StoredCorpus]) -> Iterator[TranslationRetrieval]:
    """Of a pair's held-out translations: all, those unlike any of training, and the largest corpora's."""
    own = [corpus for corpus in corpora if corpus.languages == f"{source}-{target}"]
    steps = {c.name: math.ceil(len(c.held_out) / _DRAWN_FROM) or 1 for c in own}
    parallel = {c.name: [*_pairs(c.held_out[:: steps[c.name]])] for c in own}
    name = f"retrieval/{source}-{target}"
    make = partial(TranslationRetrieval, source=source, target=target)
    every = [pair for pairs in parallel.values() for pair in pairs]
    if len(every) > 1:
        yield make(every, name=f"{name}/all")
    is_twin = near_twins(every, _pairs(chain.from_iterable(corpus.train for corpus in own)))
    alone = [pair for pair, twin in zip(every, is_twin, strict=True) if not twin]
    if len(alone) >= _CANDIDATES:
        yield make(alone, name=f"{name}/no_near_twins", max_queries=_QUERIES)
    large = [corpus for corpus, pairs in parallel.items() if len(pairs) >= _CANDIDATES]
    for corpus in sorted(large, key=lambda corpus: -len(parallel[corpus]))[:_SCORED_CORPORA]:
        yield make(parallel[corpus], name=f"{name}/{corpus}", max_queries=_QUERIES)


def _pairs(records: Iterable[Record]) -> Iterator[TranslationPair]:
    return (record for record in records if isinstance(record, TranslationPair))
