"""Validation: scores of a trained model on held-out examples."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from xling_tf.client.batches import encode_in_batches
from xling_tf.client.encoder import SentenceEncoder
from xling_tf.client.match import KINDS, Line, probabilities
from xling_tf.corpora.split import normalised
from xling_tf.corpora.store import StoredCorpus, StoredRecords, join
from xling_tf.evaluators.encoding import Encode
from xling_tf.evaluators.retrieval import TranslationRetrieval, find_mixed_pools
from xling_tf.evaluators.sts import find_sts
from xling_tf.model import Model
from xling_tf.search.calibration import (
    MatchExamples,
    answer_examples,
    calibration_error,
    fit_parts,
    fit_sample,
    foreign_texts,
    joined,
    selected,
    translation_examples,
)
from xling_tf.tasks.base import Batch, Task
from xling_tf.trainer.held_out import HeldOutPairs, Validation
from xling_tf.trainer.input_pipeline import (
    BatchGraphs,
    BatchSampler,
    Examples,
    batch_graphs,
    make_dataset,
)

_BATCHES = 8  # on which each task is scored
# Number of candidates in the paper, and of queries to one corpus. Smaller corpora are not scored
# alone.
_CANDIDATES = 1000
_QUERIES = 2000  # to all corpora of a language pair
_SCORED_CORPORA = 4
# Held-out translations that are scored ten times while a model is trained: 500 texts, which
# multilingual-e5-small encodes in five seconds on two cores.
_ON_THE_WAY = 250
# Mixes the bits of hashes, which are small in the held-out tenth.
_ODD = np.uint64(0x9E3779B97F4A7C15)
# Number of pairs of a corpus on which the probability of a match is fitted, the minimum, and the
# number of corpora of a type, or one of each language: of 2,000 texts, multilingual-e5-best encodes
# 100 a second.
_FITTED, _FEWEST_FITTED, _FITTED_CORPORA = 100, 50, 10
_CHECKED = 100  # number of scored pairs whose labels are checked before training


def curve_of(corpora: Sequence[StoredCorpus]) -> Validation | None:
    """Returns what scores held-out translations during a training; None if there are too few."""
    parts = [corpus.held_out for corpus in corpora if corpus.record_type == "parallel"]
    pairs = HeldOutPairs(_pairs(_drawn(parts, _ON_THE_WAY)) if parts else [], [])
    if not pairs.can_score:
        return None
    logging.info("%s at each tenth of the training", pairs.title)
    return Validation(pairs)


def held_out_scores(
    model: Model, tasks: Sequence[Task], held_out: Mapping[str, Examples], end: float = math.inf
) -> dict[str, dict[str, float]]:
    """Scores tasks on their held-out examples until `end` of the monotonic clock, but one at least.

    Returns:
        Loss, accuracy and number of examples, by the task's name.
    """
    # By trace key: tasks of several languages share a graph.
    graphs: dict[str, Callable[[Batch], tuple[tf.Tensor, tf.Tensor]]] = {}
    inputs = batch_graphs(model.tokenizer)
    scores: dict[str, dict[str, float]] = {}
    for task in tasks:
        if not (examples := held_out.get(task.name)):
            continue
        if scores and time.monotonic() >= end:
            logging.info("%s: not scored, because no time is left", task.name)
            continue
        batches = _batches(task, examples, inputs)
        if task.trace_key not in graphs:
            graphs[task.trace_key] = tf.function(
                partial(task.losses, model.encoder),
                input_signature=[batches.element_spec],
                autograph=False,
            )
        results = [graphs[task.trace_key](batch) for batch in batches]
        losses, hits = (np.concatenate(parts) for parts in zip(*results, strict=True))
        means = {"loss": float(losses.mean()), "accuracy": float(hits.mean())}
        scores[task.name] = {**means, "num_examples": float(len(losses))}
    return scores


def _batches(task: Task, examples: Examples, graphs: BatchGraphs) -> tf.data.Dataset:
    """Returns batches of one size and any length, the same for all seeds, to compare accuracies."""
    size = min(task.config.examples_per_batch, len(examples))
    # All examples count equally, also those of corpora that training leaves out.
    weights = [1.0] * len(examples.corpora)
    sampler = BatchSampler(
        examples, weights, size, pool_batches=1, seed=1, equal_batches=True, order="random"
    )
    # At most one pass over the examples.
    count = min(_BATCHES, len(examples) // size)
    return make_dataset(examples, sampler.batch, graphs, count=count)


def evaluate(
    model: Model,
    tasks: Sequence[Task],
    languages: Sequence[str],
    encode: Encode,
    *,
    held_out: Mapping[str, Examples],
    corpora: Sequence[StoredCorpus],
    data: Path | None,
    seconds: float,
) -> dict[str, dict[str, float]]:
    """Scores tasks for half of `seconds` at most, then retrieval and similarity by `encode`.

    Returns:
        The scores by suite; what there was no time for is left out.
    """
    begin = time.monotonic()
    end = begin + seconds
    logging.info("evaluating the tasks")
    of_tasks = held_out_scores(model, tasks, held_out, begin + seconds / 2)
    scores = {f"task/{name}": values for name, values in of_tasks.items()}
    return scores | score_encoder(encode, languages, corpora, data, end=end)


def score_encoder(
    encode: Encode,
    languages: Sequence[str],
    corpora: Sequence[StoredCorpus],
    data: Path | None,
    *,
    end: float = math.inf,
) -> dict[str, dict[str, float]]:
    """Scores retrieval of held-out translations, and similarity, until `end` of the clock."""
    evaluators: list[Any] = [
        e for pair in combinations(languages, 2) for e in _retrieval(*pair, corpora)
    ]
    if data:
        evaluators += [*find_sts(data, languages), *find_mixed_pools(data, languages)]
    evaluators.sort(key=lambda e: e.name.startswith("retrieval/") and not e.name.endswith("/all"))
    scores = {}
    # The first is always scored, so that the table at the end of a training has a score.
    for number, evaluator in enumerate(evaluators):
        if number and time.monotonic() >= end:
            logging.info(
                "%s: not scored, because no time is left; xling-tf evaluate can", evaluator.name
            )
            continue
        logging.info("evaluating %s", evaluator.name)
        scores[evaluator.name] = evaluator(encode)
    return scores


def main_scores(
    scores: Mapping[str, Mapping[str, float]],
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Returns P@1 of translations by language, from English and to it, and STS by data set."""
    retrieval, similarity = {}, {}
    for name, values in scores.items():
        suite, _, rest = name.partition("/")
        if suite == "retrieval" and rest.endswith("/all"):
            language = rest.partition("/")[0].partition("-")[2]
            retrieval[language] = [v for metric, v in values.items() if metric.endswith("at_1")]
        elif name.startswith("stsb."):
            similarity[name] = values["pearson_angular"]
    return retrieval, similarity


def fit_match(
    encoder: SentenceEncoder, encode: Encode, corpora: Sequence[StoredCorpus], source: str
) -> tuple[dict[str, Line], dict[str, float]]:
    """Fits the probabilities of a match on held-out translations and questions.

    Pairs that do not match are those of `calibration.translation_examples` and `answer_examples`.
    For the same meaning, the line is fitted on one half of the translations and scored on the
    other. If there are too few pairs of a kind, the built-in sample is used.

    Args:
        encoder: The model.
        encode: Its function of sentences, which remembers vectors.
        corpora: The run's corpora; none if they may be pairs of any kind.
        source: The source language.

    Returns:
        `ModelInfo.match`; and "expected_calibration_error" and "num_pairs" of the probability of
        the same meaning, or {} if the built-in sample was used.
    """
    parts: dict[str, list[MatchExamples]] = defaultdict(list)
    others = []
    for corpus in _fitted_corpora(corpora, "parallel"):
        examples = translation_examples(encode, _pairs(_drawn([corpus.held_out], _FITTED)))
        parts["same_meaning"].append(selected(examples, slice(0, None, 2)))
        others.append(selected(examples, slice(1, None, 2)))
    for corpus in _fitted_corpora(corpora, "questions"):
        pairs = _pairs(_drawn([corpus.held_out], _FITTED), "question", "answer")
        parts["answer"].append(answer_examples(encoder, pairs, foreign_texts([corpus.languages])))
    lines = fit_parts(parts)
    languages = [source, *chain(*(corpus.languages.split("-") for corpus in corpora))]
    lines |= fit_sample(encoder, languages, KINDS.keys() - parts.keys())
    if missing := KINDS.keys() - lines.keys():
        names = " and ".join(sorted(missing))
        logging.warning("no pairs to fit the probability %s; xling_tf.calibrate can add it", names)
    if "same_meaning" not in lines or not others:
        return lines, {}
    scored = joined(others)
    predicted = probabilities(scored.cosines, lines["same_meaning"])
    error = calibration_error(predicted, scored.is_match)
    return lines, {"expected_calibration_error": error, "num_pairs": 2.0 * len(scored.cosines)}


def _fitted_corpora(corpora: Sequence[StoredCorpus], record_type: str) -> list[StoredCorpus]:
    """Returns the largest corpora of a type, in each language, with enough held-out records."""
    by_languages: defaultdict[str, list[StoredCorpus]] = defaultdict(list)
    for corpus in sorted(corpora, key=lambda corpus: -len(corpus.held_out)):
        if corpus.record_type == record_type and len(corpus.held_out) >= _FEWEST_FITTED:
            by_languages[corpus.languages].append(corpus)
    count = max(1, _FITTED_CORPORA // max(1, len(by_languages)))
    return [*chain(*(several[:count] for several in by_languages.values()))]


def check_scores(encode: Encode, corpora: Sequence[StoredCorpus]) -> None:
    """Logs mean cosines of pairs with high and low scores; warns if the low ones' is higher."""
    for corpus in corpora:
        if corpus.record_type != "similarity" or not len(corpus.train):
            continue
        records = corpus.train[:: -(-len(corpus.train) // _CHECKED)]
        sides = ([text.decode() for text in records.column(side)] for side in ("first", "second"))
        vectors = (encode_in_batches(encode, side, max_rows=32, max_length=2**14) for side in sides)
        first, second = (np.asarray(side, np.float32) for side in vectors)
        cosines, is_alike = np.einsum("nd,nd->n", first, second), records.labels > 50
        if is_alike.all() or not is_alike.any():
            continue
        alike, others = float(cosines[is_alike].mean()), float(cosines[~is_alike].mean())
        report = (
            f"{corpus.title}: mean cosine of high scores (alike) {alike:.2f}, of others "
            f"{others:.2f}"
        )
        if alike < others:
            logging.warning(
                "%s before training; if the highest score means different, reverse the scores",
                report,
            )
        else:
            logging.info("%s before training", report)


def _retrieval(
    source: str, target: str, corpora: Sequence[StoredCorpus]
) -> Iterator[TranslationRetrieval]:
    """Yields retrieval among all held-out translations, and by corpus."""
    pair = f"{source}-{target}"
    corpora = [
        corpus
        for corpus in corpora
        if corpus.record_type == "parallel" and corpus.languages == pair
    ]
    if not corpora:
        return
    parts = [(f"retrieval/{pair}/all", _drawn([corpus.held_out for corpus in corpora], _QUERIES))]
    large = [corpus for corpus in corpora if len(corpus.held_out) >= _CANDIDATES]
    for corpus in sorted(large, key=lambda corpus: -len(corpus.held_out))[:_SCORED_CORPORA]:
        parts.append((f"retrieval/{pair}/{corpus.name}", _drawn([corpus.held_out], _CANDIDATES)))
    for name, records in parts:
        pairs = _pairs(records)
        # Questions may share one answer: then nothing can be found wrongly.
        if len({normalised(second) for _, second in pairs}) > 1:
            yield TranslationRetrieval(pairs, name=name, languages=(source, target))


def _drawn(parts: Sequence[StoredRecords], limit: int) -> StoredRecords:
    """Draws at most `limit` records with different sources at random, the same for every seed."""
    # The hashes of the sources decide. So the draws of several corpora and languages share many
    # texts, which are encoded once.
    records = join(parts)
    hashes, rows = np.unique(next(records.text_hashes, np.zeros(0, np.uint64)), return_index=True)
    return records[rows[np.argsort(hashes * _ODD, kind="stable")[:limit]]]


def _pairs(
    records: StoredRecords, first: str = "source", second: str = "target"
) -> list[tuple[str, str]]:
    """Returns two fields of records, by default translations, as pairs of texts."""
    sides = ([text.decode() for text in records.column(side)] for side in (first, second))
    return list(zip(*sides, strict=True))
