"""A whole experiment: corpora, training, evaluation, export; started again, it continues."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
from absl import logging

from xling_tf.config import ExperimentConfig
from xling_tf.corpora.default import load_corpora
from xling_tf.distribution import make_strategy
from xling_tf.encoders.sentence_encoder import SentenceEncoder
from xling_tf.errors import UserError
from xling_tf.evaluation import evaluate
from xling_tf.examples import SplitCorpus, split, task_examples, training_texts
from xling_tf.files import require_writable_folder
from xling_tf.hub import export, require_replaceable
from xling_tf.model import Model, fit_text
from xling_tf.model_card import model_card
from xling_tf.overrides import to_json
from xling_tf.precision import PRECISIONS, resolve_precision
from xling_tf.provenance import provenance
from xling_tf.run_folder import RunFolder
from xling_tf.tasks.base import Task
from xling_tf.trainer import Trainer

_MISSING = {
    "nli": (
        "no {language} NLI data: the inference task is left out, which costs accuracy on semantic "
        "similarity (Chidambaram et al. 2018, sec. A.4) and the NLI head; put SNLI's "
        "snli_1.0_train.jsonl, or nli/<name>.{language}.train.tsv, into the folder given with --data"
    ),
    "conversations": (
        "no conversations: {task} is left out; put conversations/<name>.{language}.tsv into the "
        "folder given with --data"
    ),
    "documents": (
        "no documents: {task} is left out; put documents/<name>.{language}.txt into the folder "
        "given with --data"
    ),
    "parallel": "no translations: {task} is left out",
}


def run_experiment(
    *, name: str, config: ExperimentConfig, data: Path | None, run_dir: Path, output: Path
) -> dict[str, Any] | None:
    """Trains a preset, evaluates and exports it.

    Args:
        name: Of the preset.
        config: The preset with its overrides.
        data: A data folder; None for the preset's default corpora.
        run_dir: Keeps checkpoints, logs and `results.json`; a run that was started there continues.
        output: Folder of the exported model.

    Returns:
        The content of `results.json`, or None if a signal has stopped the training.

    Raises:
        UserError: The data, a folder or the config cannot be used.
    """
    _require_feasible(config, run_dir, output)
    corpora = split(load_corpora(data, config.data))
    counts = _counts(corpora)
    run = RunFolder(run_dir)
    run.require_same(config, counts)
    resolved, vocabulary = run.resolved(config) or _start(run, config, counts, corpora)

    keras.utils.set_random_seed(resolved.training.seed)
    keras.config.set_dtype_policy(resolved.training.precision)
    strategy = make_strategy()
    with strategy.scope():
        model = Model.build(resolved, vocabulary)
    examples = task_examples(model.tasks, corpora)
    model = model._replace(tasks=_with_examples(model.tasks, examples))
    held_out = {task: parts.held_out for task, parts in examples.items()}
    trainer = Trainer(
        model=model,
        examples={task: parts.train for task, parts in examples.items()},
        strategy=strategy,
        run_dir=run_dir,
    )
    if not trainer.train():
        logging.warning("stopped at step %d; the same command continues there", trainer.step)
        return None

    module = model.hub_module()
    results = {
        "preset": name,
        "steps": trainer.step,
        "minutes": trainer.seconds / 60,
        "scores": evaluate(model, SentenceEncoder(module), held_out, corpora, data),
        "corpora": counts,
        "num_parameters": model.encoder.count_params(),
        **provenance(),
        "config": dataclasses.asdict(resolved),
    }
    run.write("results.json", json.dumps(results, indent=2) + "\n")
    card = model_card(name, resolved, results)
    export(module, output, {"README.md": card, "config.json": to_json(resolved)})
    return results


def _require_feasible(config: ExperimentConfig, run_dir: Path, output: Path) -> None:
    """Finds out before anything is read what would be in the way after an hour."""
    if config.training.precision not in (*PRECISIONS, "auto"):
        raise UserError(
            f"training.precision expects auto, {' or '.join(PRECISIONS)}, "
            f"got {config.training.precision!r}"
        )
    if not config.training.steps and not config.training.minutes:
        raise UserError("a budget is expected, got none; give --minutes or --steps")
    require_replaceable(output)
    require_writable_folder(run_dir, "give another with --run_dir")
    require_writable_folder(output.parent, "give another with --output")


def _counts(corpora: Sequence[SplitCorpus]) -> dict[str, int]:
    parts = (corpus.corpus for corpus in corpora)
    return {
        ".".join(filter(None, (f"{c.kind}/{c.name}", c.languages, c.split))): len(c.records)
        for c in parts
    }


def _start(
    run: RunFolder,
    config: ExperimentConfig,
    counts: Mapping[str, int],
    corpora: Sequence[SplitCorpus],
) -> tuple[ExperimentConfig, list[str]]:
    """Decides what depends on the data and the machine, and writes it down for restarts."""
    text, vocabulary = fit_text(config.text, training_texts(corpora))
    logging.info("%d words, %d n-gram buckets", len(vocabulary), text.num_ngram_buckets)
    training = dataclasses.replace(
        config.training, precision=resolve_precision(config.training.precision)
    )
    resolved = dataclasses.replace(config, text=text, training=training)
    run.start(config, resolved, vocabulary, counts)
    return resolved, vocabulary


def _with_examples(tasks: Sequence[Task], examples: Mapping[str, Any]) -> list[Task]:
    """Keeps the tasks that have examples, and warns about each other one."""
    for task in tasks:
        if task.name not in examples:
            logging.warning(_MISSING[task.kind].format(language=task.languages, task=task.name))
    kept = [task for task in tasks if task.name in examples]
    if not kept:
        raise UserError("at least one task with examples is expected, got none; see the warnings")
    return kept
