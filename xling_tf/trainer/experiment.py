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

from xling_tf.config import ExperimentConfig
from xling_tf.corpora.default import load_corpora, resolve_languages
from xling_tf.corpora.records import Corpus
from xling_tf.corpora.store import CorpusStore, open_store, transient_store
from xling_tf.corpora.tfds import read_sources
from xling_tf.errors import UserError
from xling_tf.files import locked, provenance, require_writable_folder
from xling_tf.hub.card import model_card
from xling_tf.hub.module import export, require_replaceable
from xling_tf.model import Model
from xling_tf.overrides import to_json
from xling_tf.sentence_encoder import SentenceEncoder
from xling_tf.tasks.base import Task
from xling_tf.text.preprocessor import Vocabulary, fit_text
from xling_tf.trainer.cluster import read_cluster
from xling_tf.trainer.development import Development
from xling_tf.trainer.evaluation import evaluate
from xling_tf.trainer.examples import TaskExamples, task_examples
from xling_tf.trainer.input_pipeline import Examples
from xling_tf.trainer.loop import Trainer
from xling_tf.trainer.precision import PRECISIONS, resolve_precision
from xling_tf.trainer.run_folder import RunFolder
from xling_tf.trainer.taking_over import take_over_text, take_over_weights
from xling_tf.trainer.teacher import open_teacher, with_vectors
from xling_tf.trainer.workers import Workers, connect, losses_told

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
    "questions": (
        "no questions: {task} is left out; put questions/<name>.{language}.tsv, or a .json of "
        "SQuAD's layout, into the folder given with --data"
    ),
}


def run_experiment(
    *,
    name: str,
    config: ExperimentConfig,
    data: Path | None,
    corpora: Sequence[Corpus] | None = None,
    run_dir: Path,
    output: Path,
    cache: Path | None = None,
) -> dict[str, Any] | None:
    """Trains a preset, evaluates and exports it.

    Where TF_CONFIG names several workers, each calls this with the same arguments; only the first uses
    `run_dir` and `output`.

    Args:
        name: Of the preset.
        config: The preset with its overrides.
        data: A data folder; None for the preset's default corpora.
        corpora: Take the place of those of `data`, if they are given.
        run_dir: Keeps the corpora as they were read, checkpoints, logs and `results.json`; a run that
            was started there continues.
        output: Folder of the exported model.
        cache: Keeps a teacher's vectors for other runs; None: this run alone has them.

    Returns:
        The content of `results.json` (in other workers than the first, nothing), or None if a
        signal has stopped the training.

    Raises:
        UserError: The data, a folder or the config cannot be used.
    """
    cluster = read_cluster(os.environ)
    _require_feasible(config)
    if corpora is None:
        config = dataclasses.replace(config, data=resolve_languages(data, config.data))
    with ExitStack() as stack:
        if cluster.is_chief:
            _require_usable(run_dir, output)
            stack.enter_context(locked(run_dir))
        stack.enter_context(losses_told(cluster))
        return _run(connect(cluster), name, config, data, corpora, run_dir, output, cache)


def _run(
    workers: Workers,
    name: str,
    config: ExperimentConfig,
    data: Path | None,
    corpora: Sequence[Corpus] | None,
    run_dir: Path,
    output: Path,
    cache: Path | None,
) -> dict[str, Any] | None:
    run = RunFolder(run_dir)
    teacher = open_teacher(config, cache)
    if corpora is None:
        corpora = _find_corpora(config, data)
    store = _read_corpora(run, config, corpora, is_chief=workers.is_chief)
    workers.require_same(
        {
            "config": dataclasses.asdict(config),
            "data": store.contents(),
            "teacher": teacher and teacher.checksum,
        }
    )
    resolved, vocabulary = workers.from_chief(lambda: _resolve(run, config, store))

    model, examples = _build(workers, run, resolved, vocabulary, store)
    if teacher:
        kept = run.path / "teacher" if workers.is_chief else None
        examples = with_vectors(model.tasks, examples, teacher, kept)
        del teacher  # its memory is for the training now
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

    results = _finish(run, name, trainer, model, held_out, store, data, output)
    workers.wait()
    return results


def _build(
    workers: Workers,
    run: RunFolder,
    config: ExperimentConfig,
    vocabulary: Vocabulary,
    store: CorpusStore,
) -> tuple[Model, Mapping[str, TaskExamples]]:
    """Makes the model of the tasks that have examples, with random weights or those it starts from."""
    keras.utils.set_random_seed(config.training.seed)
    keras.config.set_dtype_policy(config.training.precision)
    with workers.strategy.scope():
        model = Model.build(config, vocabulary)
    examples = task_examples(model.tasks, store.corpora)
    model = model._replace(tasks=_with_examples(model.tasks, examples, config.data.source))
    if config.initial.model:
        model = take_over_weights(workers, run.path, model)
    if workers.is_chief:
        run.write_tasks([task.name for task in model.tasks])
    return model, examples


def _finish(
    run: RunFolder,
    name: str,
    trainer: Trainer,
    model: Model,
    held_out: Mapping[str, Examples],
    store: CorpusStore,
    data: Path | None,
    output: Path,
) -> dict[str, Any]:
    """Evaluates and exports a trained model."""
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
        "config": dataclasses.asdict(model.config),
    }
    run.write("results.json", json.dumps(results, indent=2) + "\n")
    card = model_card(name, model.config, results)
    export(module, output, {"README.md": card, "config.json": to_json(model.config)})
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


def _find_corpora(config: ExperimentConfig, data: Path | None) -> list[Corpus]:
    corpora = load_corpora(
        data,
        config.data,
        with_mined=config.tasks.hard_negatives > 0,
        target_inference=config.tasks.target_inference,
    )
    return corpora + read_sources(config.data)


def _read_corpora(
    run: RunFolder, config: ExperimentConfig, corpora: Sequence[Corpus], *, is_chief: bool
) -> CorpusStore:
    """Opens the corpora, which the chief keeps in its run folder for the restart."""
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
    texts = store.training_texts_by_language()
    text, vocabulary = (
        take_over_text(run, config, texts) if config.initial.model else fit_text(config.text, texts)
    )
    training = dataclasses.replace(
        config.training, precision=resolve_precision(config.training.precision)
    )
    resolved = dataclasses.replace(config, text=text, training=training)
    run.start(config, resolved, vocabulary, store.contents())
    return resolved, vocabulary


def _with_examples(tasks: Sequence[Task], examples: Mapping[str, Any], source: str) -> list[Task]:
    """Keeps the tasks that have examples, and warns about each other one.

    Translations between targets, and inference in their languages, are extra: nobody misses them.
    """
    for task in tasks:
        is_extra = task.kind in ("parallel", "nli") and source not in task.languages.split("-")
        if task.name not in examples and not is_extra:
            logging.warning(_MISSING[task.kind].format(language=task.languages, task=task.name))
    kept = [task for task in tasks if task.name in examples]
    if not kept:
        raise UserError("at least one task with examples is expected, got none; see the warnings")
    return kept
