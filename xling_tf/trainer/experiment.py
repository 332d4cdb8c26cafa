"""A whole experiment, from its settings to a scored model.

What happens, in this order:

1. `run_experiment` checks the folders, locks the run's, and waits for all workers;
2. `open_context` opens the starting model, the teachers and the corpora, and decides vocabulary and
   sizes;
3. `build` makes the model with its first weights, its tasks and their examples;
4. `Run.inspect`, if there is one, looks at them and scores the model;
5. `fit` trains, stage by stage, and scores held-out pairs at each tenth of the budget;
6. `finish` exports the model, then scores it.

Started again, a run takes what it has decided from its folder, and continues at its newest
checkpoint.
"""

import json
import os
import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from absl import logging

from xling_tf.config import TASKS, DataConfig, ExperimentConfig
from xling_tf.corpora.folder import corpus_licences
from xling_tf.corpora.record_types import RECORD_TYPES
from xling_tf.corpora.records import columns_of
from xling_tf.corpora.store import CorpusStore
from xling_tf.corpora.trained_on import TRAINED_ON, TrainedOn
from xling_tf.errors import UserError
from xling_tf.evaluators.cache import cached
from xling_tf.evaluators.encoding import Embedder
from xling_tf.files import locked, replacing
from xling_tf.importers.base import read_base_model, read_licence
from xling_tf.model import Model
from xling_tf.processes import start_tensorflow
from xling_tf.program import STARTED, progress, provenance
from xling_tf.savedmodel.card import (
    example_cosines,
    model_card,
    training_card,
    training_notice,
)
from xling_tf.savedmodel.module import ExportedModule
from xling_tf.savedmodel.saved_models import find_model
from xling_tf.sentence_encoder import SentenceEncoder
from xling_tf.settings import to_dict
from xling_tf.tasks.base import Heads, Task
from xling_tf.tokenizers.coverage import warn_of_unknown
from xling_tf.trainer.context import Run, RunContext, open_context, require_usable_folders
from xling_tf.trainer.distribution import Workers, lost_workers, make_strategy, read_cluster
from xling_tf.trainer.held_out import Validation
from xling_tf.trainer.input_pipeline import TaskExamples, task_examples
from xling_tf.trainer.loop import Trainer
from xling_tf.trainer.mining import Miner
from xling_tf.trainer.start import average_with_start, initial_weights
from xling_tf.trainer.teacher import Teacher, with_vectors, words_from_teacher
from xling_tf.trainer.validation import check_scores, curve_of, evaluate, fit_match

_SAMPLED = 500  # records of a corpus by which the starting model's tokenizer is judged


class Trained(NamedTuple):
    """What a run trains, and on which examples."""

    model: Model
    tasks: list[Task]  # those that have examples
    examples: dict[str, TaskExamples]  # by task
    new_heads: dict[str, Heads]  # by task, the heads that are not the starting model's
    miners: dict[str, Teacher]  # by name, models that find wrong answers, until the last stage


def scoring_seconds(training_seconds: float) -> float:
    """Returns the seconds that the scores get after a training."""
    return max(60.0, 0.2 * training_seconds)


def run_experiment(run: Run) -> dict[str, Any] | None:
    """Trains, exports and scores a model.

    Returns:
        The content of `results.json`, or {} in workers other than the first; None if a signal
        stopped the training, or after a check.

    Raises:
        UserError: The data, a folder or the config cannot be used.
    """
    start_tensorflow()
    cluster = read_cluster(os.environ)
    training = run.config.training
    if run.config.active_tasks and not training.steps and not training.minutes:
        raise UserError("expected a budget, got none; set training.minutes or training.steps")
    with ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        stack.callback(keras.config.set_dtype_policy, keras.config.dtype_policy())
        if cluster.is_chief:
            require_usable_folders(run)
            stack.enter_context(locked(run.run_dir))
        stack.enter_context(lost_workers(cluster))
        workers = Workers(make_strategy(cluster), cluster)
        ctx = open_context(run, workers)
        trained = build(ctx)
        validation = None
        if run.inspect and workers.is_chief:
            validation = run.inspect(trained.model, ctx.store)
        elif workers.is_chief:
            validation = curve_of(ctx.store.corpora)
        trainer = None if run.is_check else fit(ctx, trained, validation)
        if trainer is None:
            return None
        with progress("exporting and scoring"):
            results = finish(ctx, trained, trainer, validation) if workers.is_chief else {}
        workers.gather(None)  # waits: the chief would consider a process that ends earlier as lost
        return results


def build(ctx: RunContext) -> Trained:
    """Makes the model, with the weights that training starts from, and its tasks' examples."""
    trained = _make(ctx)
    miners = {name for task in trained.tasks for name in task.miners} & ctx.teachers.keys()
    trained = trained._replace(miners={name: ctx.teachers[name] for name in miners})
    while ctx.teachers:  # each frees its memory for the training
        trained = _with_teacher(ctx, trained, *ctx.teachers.popitem())
    return trained


def _make(ctx: RunContext) -> Trained:
    config, workers = ctx.config, ctx.workers
    random.seed(config.training.seed)  # Keras draws the seeds of layers from it
    keras.config.set_dtype_policy(ctx.resolved.precision)
    with workers.strategy.scope():
        model = Model.from_config(ctx.resolved.model, ctx.resolved.files.__getitem__)
        tasks, new_heads = make_tasks(config, ctx.data, model)
    if config.initial.model and ctx.run.corpora is None:
        _warn_of_languages(ctx, model)
    examples = task_examples(tasks, ctx.store.corpora, model.info.role_prompts)
    tasks = _with_examples(tasks, examples, config.data.source)
    workers.require_same({"tasks with examples": [task.name for task in tasks]})
    unused = new_heads.keys() - {task.group for task in tasks}
    model.heads = {name: heads for name, heads in model.heads.items() if name not in unused}
    if workers.is_chief:
        ctx.folder.write("config.json", model.description_files()["config.json"])
    initial_weights(config, ctx.run.run_dir, workers, model, new_heads)
    return Trained(model, tasks, examples, new_heads, miners={})


def _warn_of_languages(ctx: RunContext, model: Model) -> None:
    """Warns of languages whose texts the starting model's tokenizer does not know."""
    texts = defaultdict[str, list[str]](list)
    for corpus in ctx.store.corpora:
        for record in islice(corpus.train, _SAMPLED):
            for language, side in columns_of(corpus.languages):
                fields = (field for field in tuple(record)[side] if isinstance(field, str))
                texts[language] += fields
    for language, sample in texts.items():
        warn_of_unknown(model.tokenizer, sample, f"the texts in {language}")


def _with_teacher(ctx: RunContext, trained: Trained, name: str, teacher: Teacher) -> Trained:
    """Adds a teacher's vectors to the examples; a new average of words starts with its words."""
    model, workers, folder = trained.model, ctx.workers, ctx.teacher_folder(teacher)
    learners = [task for task in trained.tasks if task.teacher == name]
    for task in learners:
        task.require_teacher(teacher.system.name, teacher.dim, model.encoder.hidden_dim)
    examples = {**trained.examples}
    if learners:
        examples = with_vectors(learners, examples, teacher, folder)
    is_new = model.encoder.static_part is not None and not ctx.config.initial.model
    if learners and model.tokenizer.known_words and is_new:
        if workers.is_chief:
            pairs = [examples[task.name].train for task in learners]
            words_from_teacher(model, teacher, folder, pairs)
        workers.share([v.value for v in model.encoder.trainable_variables])
    return trained._replace(examples=examples)


def make_tasks(
    config: ExperimentConfig, data: DataConfig, model: Model
) -> tuple[list[Task], dict[str, Heads]]:
    """Makes the tasks, and the heads that the model lacks or that do not fit; returns both."""
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


def _with_examples(tasks: Sequence[Task], examples: Mapping[str, Any], source: str) -> list[Task]:
    """Returns the tasks that have examples; reports the others, in a line for each kind of data."""
    # Of inference in target languages, only a lack in all of them is reported.
    missed = {"nli"} - {t.record_type for t in tasks if t.name in examples and _is_extra(t, source)}
    lacking = [
        task
        for task in tasks
        if task.name not in examples and (task.record_type in missed or not _is_extra(task, source))
    ]
    for record_type, description in RECORD_TYPES.items():
        if left_out := [task for task in lacking if task.record_type == record_type]:
            languages = list(dict.fromkeys(task.languages for task in left_out))
            names = ", ".join(task.name for task in left_out)
            # Most presets learn from these if there are any; the default corpora have none.
            report = logging.info if record_type in ("questions", "similarity") else logging.warning
            report("%s; left out: %s", description.missing(languages), names)
    trained = [task for task in tasks if task.name in examples]
    if tasks and not trained:
        raise UserError(
            "expected at least one task with examples, got none; add the files that the warnings "
            "name"
        )
    return trained


def _is_extra(task: Task, source: str) -> bool:
    # Few data folders have translations between targets, inference in target languages, or scored
    # pairs that are not in the source language alone.
    if task.record_type == "similarity":
        return task.languages != source
    return task.record_type in ("parallel", "nli") and source not in task.languages.split("-")


def fit(ctx: RunContext, trained: Trained, validation: Validation | None = None) -> Trainer | None:
    """Trains from the newest checkpoint to the end of the budget; None if a signal stopped it."""
    trainer = Trainer(
        model=trained.model,
        tasks=trained.tasks,
        config=ctx.config,
        examples={task: examples.train for task, examples in trained.examples.items()},
        workers=ctx.workers,
        run_dir=ctx.run.run_dir,
        miner=Miner(
            trained.model,
            trained.miners,
            ctx.teacher_folder,
            ctx.run.run_dir,
            ctx.config.training.seed,
            ctx.workers,
        ),
        validation=validation,
    )
    _begin(ctx, trained)
    if trainer.train():
        return trainer
    logging.warning("stopped at step %d; the same command continues there", trainer.step)
    return None


def _begin(ctx: RunContext, trained: Trained) -> None:
    """Saves what a restart needs; until then, the folder accepts corrected settings."""
    folder, config, model = ctx.folder, ctx.config, trained.model
    is_begun = (folder.path / TRAINED_ON).exists() and folder.resolved() is not None
    if is_begun or not ctx.workers.is_chief:
        return
    learned = trained_on(config, trained.tasks, ctx.store)
    if config.initial.model:
        check_scores(lambda texts: model(texts).numpy(), ctx.store.corpora)
        # The texts of the starting model were trained on, too.
        learned = learned.joined(TrainedOn.read(find_model(config.initial.model)) or learned)
    folder.write(TRAINED_ON, learned.to_bytes())
    folder.begin(config, ctx.store.contents(), ctx.resolved)


def trained_on(config: ExperimentConfig, tasks: Sequence[Task], store: CorpusStore) -> TrainedOn:
    """Returns the hashes of the texts that the tasks and the word vectors learn from."""
    parts = [
        task.learned(corpus.train)
        for task in tasks
        for corpus in store.corpora
        if (corpus.record_type, corpus.languages) == (task.record_type, task.languages)
        and config.data.corpus_weights.get(corpus.name, 1) > 0
    ]
    if config.initial.vectors and not config.initial.model:
        parts += [corpus.train for corpus in store.corpora if corpus.record_type == "parallel"]
    return TrainedOn.from_hashes(part.text_hashes for part in parts)


def finish(
    ctx: RunContext, trained: Trained, trainer: Trainer, validation: Validation | None = None
) -> dict[str, Any]:
    """Exports a trained model, then scores it; returns the content of `results.json`."""
    run, data, corpora, model = ctx.run, ctx.data, ctx.store.corpora, trained.model
    if share := ctx.config.initial.average:
        average_with_start(run.run_dir, model, share, trained.new_heads)
    module = model.module()
    # Exported models compute in bfloat16 on CPUs alone.
    precision = keras.config.dtype_policy().name
    in_bfloat16 = precision == "mixed_bfloat16" and not tf.config.get_visible_devices("GPU")
    encoder = SentenceEncoder(module, "bfloat16" if in_bfloat16 else "float32")
    # Several evaluators share texts.
    encode = cached(Embedder(name=run.name, sentences=encoder.encode), None, show_progress=False)
    # The pairs of a fine-tuning may be of any kind.
    lines, reliability = fit_match(encoder, encode, () if run.corpora else corpora, data.source)
    model.info = replace(model.info, match=lines)
    cosines = example_cosines(encode, data.languages)
    _, files = _describe(ctx, trainer, module, model, {"scores": {}, "cosines": cosines})
    model.export(run.output, {**files, TRAINED_ON: (run.run_dir / TRAINED_ON).read_bytes()}, module)
    minutes = (time.monotonic() - STARTED) / 60
    logging.info("the model is in %s; now it is scored", run.output)
    seconds = scoring_seconds(trainer.seconds)
    held_out = {task: examples.held_out for task, examples in trained.examples.items()}
    scores = evaluate(
        model,
        trained.tasks,
        data.languages,
        encode,
        held_out=held_out,
        # The validation of a fine-tuning scores its pairs.
        corpora=() if run.corpora and validation else corpora,
        data=run.data,
        seconds=seconds,
    )
    scores |= {"same_meaning": reliability} if reliability else {}
    measured: dict[str, Any] = {"scores": scores, "cosines": cosines}
    if validation:
        validated, comparison = validation.result(encode)
        measured |= {"scores": {**validated, **scores}, "curve": validation.curve}
        if comparison:
            measured["comparison"] = comparison
            logging.info("%s", comparison)
    results, files = _describe(ctx, trainer, module, model, measured)
    for name, content in files.items():
        with replacing(run.output / name) as temporary:
            temporary.write_text(content, "utf-8")
    results["minutes_until_export"] = minutes  # since the program's start; a restart begins again
    ctx.folder.write("results.json", json.dumps(results, indent=2) + "\n")
    return results


def _describe(
    ctx: RunContext,
    trainer: Trainer,
    module: ExportedModule,
    model: Model,
    measured: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns a run's results, and the files that describe an export by them."""
    run, config = ctx.run, ctx.config
    # Exports contain no paths or settings of this machine.
    published = {
        "preset": run.name,
        "steps": trainer.step,
        "minutes": trainer.seconds / 60,
        **measured,
        **({"start": _start(config.initial.model)} if config.initial.model else {}),
        **({"examples": run.examples} if run.examples else {}),
        "corpora": {corpus.title: corpus.num_records for corpus in ctx.store.corpora},
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
        f"Trained by xling_tf {results['versions']['xling_tf']} as `{run.name}`: "
        f"{config.description}.",
        model.config(),
        module.signatures,
        licence="other",
        base_model=read_base_model(config.initial.model) if config.initial.model else "",
        results=results,
    )
    text = json.dumps(published, indent=2) + "\n"
    files = {"README.md": card + training_card(results), "results.json": text}
    licences = {} if run.corpora else corpus_licences(run.data, ctx.data)
    teachers = [getattr(task, "teacher", "") for task in config.active_tasks.values()]
    if notice := training_notice(licences, teachers):
        files["NOTICE"] = notice
    return results, files


def _start(model: str) -> dict[str, str]:
    """Returns the name and the licence of the model that a training starts from; "" if unknown."""
    licence = ""
    with suppress(UserError):  # a training must not fail at its end because its start was moved
        licence = read_licence(find_model(model))
    return {"name": read_base_model(model) or Path(model).name, "licence": licence}
