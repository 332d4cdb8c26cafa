"""A whole experiment: corpora, training, evaluation, export; started again, it continues."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import keras
from absl import logging

from xling_tf.cluster import read_cluster
from xling_tf.config import ExperimentConfig
from xling_tf.corpora.default import load_corpora
from xling_tf.corpora.store import CorpusStore, open_store, transient_store
from xling_tf.development import Development
from xling_tf.encoders.sentence_encoder import SentenceEncoder
from xling_tf.errors import UserError
from xling_tf.evaluation import evaluate
from xling_tf.examples import task_examples
from xling_tf.files import locked, require_writable_folder
from xling_tf.hub import export, require_replaceable
from xling_tf.model import Model, fit_text
from xling_tf.model_card import model_card
from xling_tf.overrides import to_json
from xling_tf.precision import PRECISIONS, resolve_precision
from xling_tf.provenance import provenance
from xling_tf.run_folder import RunFolder
from xling_tf.tasks.base import Task
from xling_tf.text.preprocessor import Vocabulary
from xling_tf.tfds_source import read_sources
from xling_tf.trainer import Trainer
from xling_tf.workers import Workers, connect, losses_told

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

    Where TF_CONFIG names several workers, each calls this with the same arguments; only the first uses
    `run_dir` and `output`.

    Args:
        name: Of the preset.
        config: The preset with its overrides.
        data: A data folder; None for the preset's default corpora.
        run_dir: Keeps the corpora as they were read, checkpoints, logs and `results.json`; a run that
            was started there continues.
        output: Folder of the exported model.

    Returns:
        The content of `results.json` (in other workers than the first, nothing), or None if a
        signal has stopped the training.

    Raises:
        UserError: The data, a folder or the config cannot be used.
    """
    cluster = read_cluster(os.environ)
    _require_feasible(config)
    with ExitStack() as stack:
        if cluster.is_chief:
            _require_usable(run_dir, output)
            stack.enter_context(locked(run_dir))
        stack.enter_context(losses_told(cluster))
        return _run(connect(cluster), name, config, data, run_dir, output)


def _run(
    workers: Workers,
    name: str,
    config: ExperimentConfig,
    data: Path | None,
    run_dir: Path,
    output: Path,
) -> dict[str, Any] | None:
    run = RunFolder(run_dir)
    store = _read_corpora(run, config, data, is_chief=workers.is_chief)
    workers.require_same({"config": dataclasses.asdict(config), "data": store.contents()})
    resolved, vocabulary = workers.from_chief(lambda: _resolve(run, config, store))

    keras.utils.set_random_seed(resolved.training.seed)
    keras.config.set_dtype_policy(resolved.training.precision)
    with workers.strategy.scope():
        model = Model.build(resolved, vocabulary)
    examples = task_examples(model.tasks, store.corpora)
    model = model._replace(tasks=_with_examples(model.tasks, examples))
    held_out = {task: parts.held_out for task, parts in examples.items()}
    is_scored = resolved.training.dev_steps > 0
    best = run_dir / "checkpoints" / "best"
    trainer = Trainer(
        model=model,
        examples={task: parts.train for task, parts in examples.items()},
        workers=workers,
        run_dir=run_dir,
        development=Development(model, held_out, best) if is_scored else None,
    )
    if not trainer.train():
        logging.warning("stopped at step %d; the same command continues there", trainer.step)
        return None
    if not workers.is_chief:
        workers.wait()  # whoever ends before the chief looks lost
        return {}

    exported_step = trainer.use_best_weights()
    module = model.hub_module()
    results = {
        "preset": name,
        "steps": trainer.step,
        "exported_step": exported_step,
        "minutes": trainer.seconds / 60,
        "scores": evaluate(model, SentenceEncoder(module), held_out, store.corpora, data),
        "corpora": store.counts(),
        "num_parameters": model.encoder.count_params(),
        **provenance(),
        "config": dataclasses.asdict(resolved),
    }
    run.write("results.json", json.dumps(results, indent=2) + "\n")
    card = model_card(name, resolved, results)
    export(module, output, {"README.md": card, "config.json": to_json(resolved)})
    workers.wait()
    return results


def _require_feasible(config: ExperimentConfig) -> None:
    if config.training.precision not in (*PRECISIONS, "auto"):
        raise UserError(
            f"training.precision expects auto, {' or '.join(PRECISIONS)}, "
            f"got {config.training.precision!r}"
        )
    if not config.training.steps and not config.training.minutes:
        raise UserError("a budget is expected, got none; give --minutes or --steps")


def _require_usable(run_dir: Path, output: Path) -> None:
    """Finds out before anything is read what would be in the way after an hour."""
    require_replaceable(output)
    require_writable_folder(run_dir, "give another with --run_dir")
    require_writable_folder(output.parent, "give another with --output")


def _read_corpora(
    run: RunFolder, config: ExperimentConfig, data: Path | None, *, is_chief: bool
) -> CorpusStore:
    """Opens the corpora, which the chief keeps in its run folder for the restart."""
    with_mined = config.tasks.hard_negatives > 0
    corpora = load_corpora(data, config.data, with_mined=with_mined)
    corpora += read_sources(config.data)
    if not is_chief:
        return transient_store(corpora)
    return open_store(
        run.path / "corpora", corpora, lambda store: run.require_same(config, store.contents())
    )


def _resolve(
    run: RunFolder, config: ExperimentConfig, store: CorpusStore
) -> tuple[ExperimentConfig, Vocabulary]:
    """Decides what depends on the data and the machine, or reads what was decided before."""
    decided = run.resolved(config)
    if decided is not None:
        return decided
    text, vocabulary = fit_text(config.text, store.training_texts())
    training = dataclasses.replace(
        config.training, precision=resolve_precision(config.training.precision)
    )
    resolved = dataclasses.replace(config, text=text, training=training)
    run.start(config, resolved, vocabulary, store.contents())
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
