"""A whole experiment: corpora, training, evaluation and export. Started again, it continues."""

import json
import os
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from xling_tf.config import TASKS, DataConfig, ExperimentConfig
from xling_tf.corpora.folder import load_corpora, resolve_languages
from xling_tf.corpora.record_types import RECORD_TYPES
from xling_tf.corpora.records import Corpus
from xling_tf.corpora.store import CorpusStore, open_store, transient_store
from xling_tf.corpora.trained_on import TRAINED_ON, TrainedOn
from xling_tf.errors import UserError
from xling_tf.evaluators.cache import cached
from xling_tf.evaluators.encoding import Embedder
from xling_tf.files import locked, replacing, require_writable_folder
from xling_tf.importers.base import read_base_model
from xling_tf.model import WEIGHTS, Model
from xling_tf.processes import start_tensorflow
from xling_tf.program import STARTED, progress, provenance
from xling_tf.savedmodel.card import example_cosines, model_card, training_card
from xling_tf.savedmodel.module import ExportedModule, require_replaceable
from xling_tf.savedmodel.saved_models import find_model
from xling_tf.sentence_encoder import SentenceEncoder
from xling_tf.settings import to_dict
from xling_tf.tasks.base import Heads, Task
from xling_tf.trainer.distribution import Workers, lost_workers, make_strategy, read_cluster
from xling_tf.trainer.input_pipeline import TaskExamples, task_examples
from xling_tf.trainer.loop import Trainer
from xling_tf.trainer.resolution import START, VECTORS, Resolved, resolve
from xling_tf.trainer.run_folder import RunFolder
from xling_tf.trainer.teacher import (
    Teacher,
    open_teachers,
    start_words,
    with_negatives,
    with_vectors,
)
from xling_tf.trainer.validation import check_scores, evaluate, fit_same_meaning
from xling_tf.weights import Weights, assign_weights, read_weights

# Scores may take this share of the training's time, or so many seconds.
SCORING_SHARE, SCORING_SECONDS = 0.2, 60.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """An experiment's arguments, the same in all workers; only the first writes to folders."""

    name: str  # of the preset
    config: ExperimentConfig  # the preset with its overrides
    # Corpora as read, checkpoints, logs and `results.json`; a run that was started there continues.
    run_dir: Path
    output: Path  # the exported model
    data: Path | None = None  # the data folder; None for the preset's default corpora
    corpora: Sequence[Corpus] | None = None  # in place of those of `data`
    cache: Path | None = None  # where runs share a teacher's vectors; None for the run folder

    @property
    def folder(self) -> RunFolder:
        """The run folder, with the decisions that a restart needs."""
        return RunFolder(self.run_dir)


class Parts(NamedTuple):
    """What a run trains, and on which examples."""

    store: CorpusStore
    model: Model
    tasks: list[Task]  # those that have examples
    examples: dict[str, TaskExamples]  # by task
    new_heads: dict[str, Heads]  # by task, the heads that are not the starting model's


def run_experiment(run: Run) -> dict[str, Any] | None:
    """Trains, exports and scores a model.

    Returns:
        The content of `results.json`, or {} in workers other than the first; None if a signal
        stopped the training.

    Raises:
        UserError: The data, a folder or the config cannot be used.
    """
    start_tensorflow()
    cluster = read_cluster(os.environ)
    training = run.config.training
    if run.config.active_tasks and not training.steps and not training.minutes:
        raise UserError("expected a budget, got none; set training.minutes or training.steps")
    data = run.config.data if run.corpora else resolve_languages(run.data, run.config.data)
    with ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        stack.callback(keras.config.set_dtype_policy, keras.config.dtype_policy())
        if cluster.is_chief:
            # Checked now, rather than after hours of training.
            run_dir = run.run_dir.resolve()
            if run.output.resolve() in (run_dir, *run_dir.parents):
                raise UserError(
                    f"the export to {run.output} would replace the run folder, {run.run_dir}; "
                    "give another output or run_dir"
                )
            require_replaceable(run.output)
            names = {path.name for path in run_dir.iterdir()} if run_dir.is_dir() else set()
            if names and not names & {"lock", "corpora"}:
                raise UserError(f"{run.run_dir} has files, but none of a run; give another run_dir")
            require_writable_folder(run.run_dir, "give another run_dir")
            stack.enter_context(locked(run.run_dir))
        stack.enter_context(lost_workers(cluster))
        return _train(run, data, Workers(make_strategy(cluster), cluster))


def _train(run: Run, data: DataConfig, workers: Workers) -> dict[str, Any] | None:
    if workers.is_chief:
        read_start(run)
    teachers = open_teachers(plan_tasks(run.config, data), data.source)
    store = _read_corpora(run, data, is_chief=workers.is_chief)
    checksums = [teacher.system.checksum for teacher in teachers.values()]
    workers.require_same(
        {"config": to_dict(run.config), "data": store.contents(), "teachers": checksums}
    )
    with progress("deciding on vocabulary and sizes"):
        resolved = workers.from_chief(
            lambda: run.folder.resolved() or resolve(run.config, data, store, run.run_dir)
        )
    with progress("making the model"):
        parts = _build(run, data, workers, resolved, store)
    while teachers:  # each frees its memory for the training
        parts = _with_teacher(run, workers, *teachers.popitem(), parts)
    trainer = Trainer(
        model=parts.model,
        tasks=parts.tasks,
        config=run.config,
        examples={task: examples.train for task, examples in parts.examples.items()},
        workers=workers,
        run_dir=run.run_dir,
    )
    _start(run, workers, resolved, parts)
    if not trainer.train():
        logging.warning("stopped at step %d; the same command continues there", trainer.step)
        return None
    with progress("exporting and scoring"):
        if workers.is_chief and run.config.initial.average:
            average_with_start(
                run.run_dir, parts.model, run.config.initial.average, parts.new_heads
            )
        results = _finish(run, data, trainer, parts) if workers.is_chief else {}
    workers.gather(None)  # waits: the chief would consider a process that ends earlier as lost
    return results


def _with_teacher(run: Run, workers: Workers, name: str, teacher: Teacher, parts: Parts) -> Parts:
    """Adds what a teacher finds to the examples; its vectors also initialise averages of words."""
    model = parts.model
    folder = run.run_dir / "teacher" if workers.is_chief else None
    if run.cache and teacher.is_fixed:
        folder = run.cache
    learners = [task for task in parts.tasks if task.teacher == name]
    for task in learners:
        task.require_teacher(teacher.system.name, teacher.dim, model.encoder.hidden_dim)
    examples = (
        with_vectors(learners, parts.examples, teacher, folder) if learners else {**parts.examples}
    )
    for task in parts.tasks:
        if task.miner == name:
            train = with_negatives(
                examples[task.name].train, teacher, folder, run.config.training.seed
            )
            examples[task.name] = examples[task.name]._replace(train=train)
    has_average = getattr(model.encoder.bow_encoder, "is_separate", False)
    if learners and model.tokenizer.known_words and has_average and not run.config.initial.model:
        if workers.is_chief:
            start_words(model, teacher, folder, [examples[task.name].train for task in learners])
        workers.share([v.value for v in model.encoder.trainable_variables])
    return parts._replace(examples=examples)


def read_start(run: Run) -> None:
    """Checks the model that a new run starts from, and copies it, before corpora are read."""
    start = run.config.initial.model
    if not start or run.folder.resolved() is not None:
        return
    model = Model.from_pretrained(start)
    run.config.similarity.require_below(model.encoder.hidden_dim)
    if run.config.training.bow_share and not getattr(
        model.encoder.bow_encoder, "is_separate", False
    ):
        raise UserError(
            "training.bow_share needs a starting model that is a transformer with "
            f"encoder.bow_residual, not {start}; set training.bow_share=0"
        )
    model.save_pretrained(run.run_dir / START)


def plan_tasks(config: ExperimentConfig, data: DataConfig) -> list[Task]:
    """Makes the tasks that examples would train, without heads, to ask what they need."""
    return [
        task
        for name in config.active_tasks
        for task in TASKS.implementation(name).mirrored(name, config, data, {})
    ]


def find_corpora(run: Run, data: DataConfig) -> Sequence[Corpus]:
    """Returns the corpora that the tasks, and a new tokenizer, learn from."""
    config, corpora = run.config, run.corpora
    if corpora is None:
        tasks = plan_tasks(config, data)
        with_targets = any(task.kind == "nli" and task.languages != data.source for task in tasks)
        corpora = load_corpora(
            run.data,
            data,
            with_mined=any(task.hard_negatives for task in tasks),
            target_inference=with_targets,
        )
        kinds = {"parallel", *(task.kind for task in tasks)}
        if not config.initial.model:  # a tokenizer also learns from texts that no task uses
            kinds |= {"documents", "conversations", "nli"}
        corpora = [corpus for corpus in corpora if corpus.kind in kinds]
    return corpora


def _read_corpora(run: Run, data: DataConfig, *, is_chief: bool) -> CorpusStore:
    """Opens the corpora; the chief stores them in its run folder, for restarts."""
    corpora = find_corpora(run, data)
    if not is_chief:
        return transient_store(corpora)
    return open_store(
        run.run_dir / "corpora",
        corpora,
        lambda store: run.folder.require_same(run.config, store.contents()),
    )


def _build(
    run: Run, data: DataConfig, workers: Workers, resolved: Resolved, store: CorpusStore
) -> Parts:
    """Makes the model, with random or starting weights, and the tasks that have examples."""
    config = run.config
    random.seed(config.training.seed)  # Keras draws the seeds of layers from it
    keras.config.set_dtype_policy(resolved.precision)
    with workers.strategy.scope():
        model = Model.from_config(resolved.model, resolved.files.__getitem__)
        config.similarity.require_below(model.encoder.hidden_dim)
        tasks, new_heads = make_tasks(config, data, model)
    examples = task_examples(tasks, store.corpora, model.info.role_prompts)
    tasks = _with_examples(tasks, examples, config.data.source)
    workers.require_same({"tasks with examples": [task.name for task in tasks]})
    unused = new_heads.keys() - {task.group for task in tasks}
    model.heads = {name: heads for name, heads in model.heads.items() if name not in unused}
    if workers.is_chief:
        run.folder.write("config.json", model.description_files()["config.json"])
    if config.initial.model:
        start_weights(workers, run.run_dir, model, new_heads)
    elif config.initial.vectors:
        if workers.is_chief:
            model.encoder.assign_word_vectors(**np.load(run.run_dir / VECTORS))
        workers.share([table.value for table in model.encoder.table_variables])
    return Parts(store, model, tasks, examples, new_heads)


def _start(run: Run, workers: Workers, resolved: Resolved, parts: Parts) -> None:
    """Saves what a restart needs; until then, the folder accepts corrected settings."""
    if not workers.is_chief or (
        (run.run_dir / TRAINED_ON).exists() and run.folder.resolved() is not None
    ):
        return
    trained_on = _trained_on(run.config, parts.tasks, parts.store)
    if run.config.initial.model:
        check_scores(lambda texts: parts.model(texts).numpy(), parts.store.corpora)
        # The texts of the starting model were trained on, too.
        trained_on = trained_on.joined(
            TrainedOn.read(find_model(run.config.initial.model)) or trained_on
        )
    run.folder.write(TRAINED_ON, trained_on.to_bytes())
    run.folder.start(run.config, parts.store.contents(), resolved)


def start_weights(
    workers: Workers, run_dir: Path, model: Model, new_heads: Mapping[str, Any]
) -> None:
    """Assigns the weights that training starts from, read by the chief; new heads stay random."""
    variables = {
        name: variable.value for name, variable in _without(new_heads, model.weights).items()
    }
    workers.from_chief(
        lambda: assign_weights(variables, _start_weights(run_dir, new_heads), str(run_dir / START))
    )
    workers.share([*variables.values()])
    for task in new_heads:
        logging.info(
            "%s: the starting model has no fitting heads; new ones are initialised at random", task
        )


def average_with_start(
    run_dir: Path, model: Model, share: float, new_heads: Mapping[str, Any]
) -> None:
    """Averages trained weights with a share of their start's (Wortsman et al. 2022, eq. 1)."""
    variables = model.weights
    for name, start in _start_weights(run_dir, new_heads).items():
        variables[name].assign(share * start + (1 - share) * np.asarray(variables[name].value))


def _start_weights(run_dir: Path, new_heads: Mapping[str, Any]) -> Weights:
    """Reads the weights that training started from, but for tasks with new heads."""
    return _without(new_heads, read_weights(run_dir / START / WEIGHTS))


def _without(heads: Iterable[str], weights: Mapping[str, Any]) -> dict[str, Any]:
    """Leaves out the weights of the heads of some tasks."""
    prefixes = tuple(f"heads/{task}/" for task in heads)
    return {name: value for name, value in weights.items() if not name.startswith(prefixes)}


def make_tasks(
    config: ExperimentConfig, data: DataConfig, model: Model
) -> tuple[list[Task], dict[str, Heads]]:
    """Makes tasks, and heads (also returned, by task) that the model lacks or that do not fit."""
    tasks, new_heads = list[Task](), dict[str, Heads]()
    for name in config.active_tasks:
        kind, existing = TASKS.implementation(name), model.heads.setdefault(name, {})
        heads = kind.make_heads(config, data, model.encoder)
        if heads.keys() == existing.keys() and kind.can_use(existing, data):
            heads = existing
        else:
            model.heads[name] = new_heads[name] = heads
        tasks += kind.mirrored(name, config, data, heads)
    return tasks, new_heads


def _trained_on(config: ExperimentConfig, tasks: Sequence[Task], store: CorpusStore) -> TrainedOn:
    """Returns the hashes of the texts that the tasks and the word vectors learn from."""
    parts = [
        task.learned(corpus.train)
        for task in tasks
        for corpus in store.corpora
        if (corpus.kind, corpus.languages) == (task.kind, task.languages)
        and config.data.corpus_weights.get(corpus.name, 1) > 0
    ]
    if config.initial.vectors and not config.initial.model:
        parts += [corpus.train for corpus in store.corpora if corpus.kind == "parallel"]
    return TrainedOn.from_hashes(part.text_hashes for part in parts)


def _with_examples(tasks: Sequence[Task], examples: Mapping[str, Any], source: str) -> list[Task]:
    """Returns the tasks with examples; reports the others, a line for each kind of data."""
    # Optional: translations between targets, inference in target languages, and scored pairs that
    # are not in the source language alone. But inference that is missing in all target languages is
    # reported.
    kinds = ("parallel", "nli")
    optional = [t for t in tasks if t.kind in kinds and source not in t.languages.split("-")]
    optional += [t for t in tasks if t.kind == "similarity" and t.languages != source]
    inference = [task for task in optional if task.kind == "nli"]
    if not any(task.name in examples for task in inference):
        optional = [task for task in optional if task not in inference]
    lacking = [t for t in tasks if t.name not in examples and t not in optional]
    for kind, record_type in RECORD_TYPES.items():
        if left_out := [task for task in lacking if task.kind == kind]:
            languages = list(dict.fromkeys(task.languages for task in left_out))
            names = ", ".join(task.name for task in left_out)
            # Most presets learn from these if there are any; the default corpora have none.
            report = logging.info if kind in ("questions", "similarity") else logging.warning
            report("%s; left out: %s", record_type.missing(languages), names)
    trained = [task for task in tasks if task.name in examples]
    if tasks and not trained:
        raise UserError("expected at least one task with examples, got none; see the warnings")
    return trained


def _finish(run: Run, data: DataConfig, trainer: Trainer, parts: Parts) -> dict[str, Any]:
    """Exports a trained model, then scores it."""
    model, corpora = parts.model, parts.store.corpora
    module = model.module()
    # Exported models compute in bfloat16 on CPUs alone.
    precision = keras.config.dtype_policy().name
    in_bfloat16 = precision == "mixed_bfloat16" and not tf.config.get_visible_devices("GPU")
    encoder = SentenceEncoder(module, "bfloat16" if in_bfloat16 else "float32")
    # Several evaluators share texts.
    encode = cached(Embedder(name=run.name, sentences=encoder.encode), None, show_progress=False)
    line, reliability = ((), {}) if run.corpora else fit_same_meaning(encode, corpora)
    if line:
        model.info = replace(model.info, same_meaning=line)
        module.calibrate(line)
    cosines = example_cosines(encode, data.languages)
    _, files = _describe(run, trainer, module, parts, {"scores": {}, "cosines": cosines})
    model.export(run.output, {**files, TRAINED_ON: (run.run_dir / TRAINED_ON).read_bytes()}, module)
    minutes = (time.monotonic() - STARTED) / 60
    logging.info("%s holds the model; now it is scored", run.output)
    seconds = max(SCORING_SECONDS, SCORING_SHARE * trainer.seconds)
    held_out = {task: examples.held_out for task, examples in parts.examples.items()}
    scores = evaluate(
        model, parts.tasks, data.languages, encode, held_out, corpora, run.data, seconds
    )
    scores |= {"same_meaning": reliability} if line else {}
    measured = {"scores": scores, "cosines": cosines}
    results, files = _describe(run, trainer, module, parts, measured)
    for name, content in files.items():
        with replacing(run.output / name) as temporary:
            temporary.write_text(content, "utf-8")
    results["minutes_until_export"] = minutes  # since the program's start; a restart begins again
    run.folder.write("results.json", json.dumps(results, indent=2) + "\n")
    return results


def _describe(
    run: Run, trainer: Trainer, module: ExportedModule, parts: Parts, measured: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns a run's results, and the files that describe an export by them."""
    config, model = run.config, parts.model
    # Exports contain no paths or settings of this machine.
    published = {
        "preset": run.name,
        "steps": trainer.step,
        "minutes": trainer.seconds / 60,
        **measured,
        "corpora": {corpus.title: corpus.num_records for corpus in parts.store.corpora},
        "config": to_dict(config),
    }
    results = {
        **published,
        "precision": keras.config.dtype_policy().name,
        "num_parameters": model.encoder.count_params(),
        **provenance(),
        "model": model.config(),
    }
    card = model_card(
        run.name,
        f"Trained by xling_tf {results['versions']['xling_tf']}, preset `{run.name}`: "
        f"{config.description}.",
        model.config(),
        module.signatures,
        licence="other",
        base_model=read_base_model(config.initial.model) if config.initial.model else "",
        results=results,
    )
    text = json.dumps(published, indent=2) + "\n"
    return results, {"README.md": card + training_card(results), "results.json": text}
