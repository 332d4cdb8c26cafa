"""A whole experiment: corpora, training, evaluation, export; started again, it continues."""

import dataclasses
import json
import os
import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from xling_tf.config import PRECISIONS, ExperimentConfig, to_json
from xling_tf.corpora.folder import load_corpora, resolve_languages
from xling_tf.corpora.records import Corpus
from xling_tf.corpora.store import CorpusStore, StoredRecords, join, open_store, transient_store
from xling_tf.corpora.tfds import read_sources
from xling_tf.corpora.trained_on import TRAINED_ON, TrainedOn
from xling_tf.errors import UserError, progress
from xling_tf.files import locked, provenance, replacing, require_writable_folder
from xling_tf.hub.card import model_card
from xling_tf.hub.module import export, require_replaceable
from xling_tf.hub.saved_models import require_not_forked
from xling_tf.model import Model
from xling_tf.sentence_encoder import SentenceEncoder
from xling_tf.tasks.base import TASKS, Task, task_classes
from xling_tf.tasks.distillation import Distillation
from xling_tf.text.preprocessor import Vocabulary, fit_text
from xling_tf.text.vectors import Bitext, fit_vectors
from xling_tf.trainer.development import Development, evaluate, held_out_translations
from xling_tf.trainer.distribution import Workers, lost_workers, make_strategy, read_cluster
from xling_tf.trainer.input_pipeline import Examples, TaskExamples, task_examples
from xling_tf.trainer.log import write_projection
from xling_tf.trainer.loop import Trainer
from xling_tf.trainer.run_folder import RunFolder
from xling_tf.trainer.teacher import open_teachers, start_words, with_vectors
from xling_tf.trainer.warm_start import average_with_start, inherited_texts, start_text, start_weights

# What each kind of task lacks, and the file in the data folder that would help.
_MISSING = {
    "nli": ("NLI data", "nli/<name>.{}.train.tsv, or SNLI's snli_1.0_train.jsonl,"),
    "conversations": ("conversations", "conversations/<name>.{}.tsv"),
    "documents": ("documents", "documents/<name>.{}.txt"),
    "parallel": ("translations", "parallel/<name>.{}.tsv"),
    "questions": ("questions", "questions/<name>.{}.tsv, or a .json of SQuAD's layout,"),
    "similarity": ("graded pairs", "similarity/<name>.{}.tsv"),
}
# Where bfloat16 has no hardware it is emulated and slower; where it has, it is about twice as fast.
# Between the two lies nothing worth the lost digits.
_WORTHWHILE_SPEEDUP = 1.2
_PROJECTED = 500  # held-out translations of every two languages whose vectors TensorBoard can draw
# Floating-point operations of a budget, as matrix products have them: with an hour of a core that has
# hardware for bfloat16, 650e12, one layer still is as good as three (docs/results.md, "en-es in minutes").
_FOR_THREE_LAYERS = 1000e12
# What `initial.vectors` came to, in the folder of the run.
_VECTORS = "vectors.npz"


@dataclass(frozen=True, kw_only=True)
class Run:
    """What an experiment is run with.

    Where TF_CONFIG names several workers, each has the same; only the first uses `run_dir` and `output`.

    Attributes:
        name: Of the preset.
        config: The preset with its overrides.
        run_dir: Keeps the corpora as they were read, checkpoints, logs and `results.json`; a run that
            was started there continues.
        output: Folder of the exported model.
        data: A data folder; None for the preset's default corpora.
        corpora: Take the place of those of `data`, if they are given.
        cache: Keeps a teacher's vectors for other runs; None: this run alone has them.
    """

    name: str
    config: ExperimentConfig
    run_dir: Path
    output: Path
    data: Path | None = None
    corpora: Sequence[Corpus] | None = None
    cache: Path | None = None

    @property
    def folder(self) -> RunFolder:
        """What `run_dir` keeps for the restart."""
        return RunFolder(self.run_dir)


def run_experiment(run: Run) -> dict[str, Any] | None:
    """Trains a preset, evaluates and exports it.

    Returns:
        The content of `results.json` (in other workers than the first, nothing), or None if a
        signal has stopped the training.

    Raises:
        UserError: The data, a folder or the config cannot be used.
    """
    require_not_forked()
    cluster = read_cluster(os.environ)
    is_trained = any(getattr(run.config.tasks, name).weight for name in TASKS)
    if is_trained and not run.config.training.steps and not run.config.training.minutes:
        raise UserError("a budget is expected, got none; give --minutes or --steps")
    if run.corpora is None:
        data = resolve_languages(run.data, run.config.data)
        run = dataclasses.replace(run, config=dataclasses.replace(run.config, data=data))
    with ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        stack.callback(keras.config.set_dtype_policy, keras.config.dtype_policy())
        if cluster.is_chief:
            # What would be in the way after an hour.
            require_replaceable(run.output)
            require_writable_folder(run.run_dir, "give another with --run_dir")
            stack.enter_context(locked(run.run_dir))
        stack.enter_context(lost_workers(cluster))
        return _train(run, Workers(make_strategy(cluster), cluster))


def _train(run: Run, workers: Workers) -> dict[str, Any] | None:
    teachers = open_teachers(run.config)
    store = _read_corpora(run, is_chief=workers.is_chief)
    facts = {"config": dataclasses.asdict(run.config), "data": store.contents()}
    workers.require_same({**facts, "teachers": [teacher.checksum for teacher in teachers.values()]})
    with progress("deciding on vocabulary and sizes"):
        resolved, vocabulary = workers.from_chief(lambda: _resolve(run, store))
    with progress("making the model"):
        model, examples = _build(run, workers, resolved, vocabulary, store)
    own = run.run_dir / "teacher" if workers.is_chief else None
    starts_words = model.encoder.static_part and not isinstance(vocabulary, bytes)
    while teachers:  # the memory of each is for the training when it is done
        kind, teacher = teachers.popitem()
        # What has no checksum may have changed since another run.
        folder = run.cache if run.cache and teacher.system.checksum else own
        if kind is Distillation and starts_words and not resolved.initial.model:
            if workers.is_chief:
                start_words(model, teacher, folder)
            workers.share([v.value for v in model.encoder.trainable_variables])
        taught = [task for task in model.tasks if isinstance(task, kind)]
        examples = with_vectors(taught, examples, teacher, folder)
        del teacher
    held_out = {task: parts.held_out for task, parts in examples.items()}
    best = run.run_dir / "checkpoints" / "best"
    trainer = Trainer(
        model=model,
        examples={task: parts.train for task, parts in examples.items()},
        workers=workers,
        run_dir=run.run_dir,
        development=Development(model, held_out, best) if resolved.training.dev_steps else None,
    )
    if not trainer.train():
        logging.warning("stopped at step %d; the same command continues there", trainer.step)
        return None
    with progress("evaluating and exporting"):
        results = _finish(run, trainer, model, held_out, store) if workers.is_chief else {}
    workers.wait()  # a process that ends before the chief looks lost
    return results


def _read_corpora(run: Run, *, is_chief: bool) -> CorpusStore:
    """Opens the corpora, which the chief keeps in its run folder for the restart."""
    config, corpora = run.config, run.corpora
    if corpora is None:
        with_mined = config.tasks.hard_negatives > 0
        target_inference = config.tasks.target_inference
        corpora = load_corpora(
            run.data, config.data, with_mined=with_mined, target_inference=target_inference
        )
        corpora += read_sources(config.data)
        kinds = {"parallel", *(task.kind for task in task_classes(config))}
        if not config.initial.model:  # a vocabulary is learnt from what no task learns from, too
            kinds |= {"documents", "conversations", "nli"}
        corpora = [corpus for corpus in corpora if corpus.kind in kinds]
    if not is_chief:
        return transient_store(corpora)
    return open_store(
        run.run_dir / "corpora",
        corpora,
        lambda store: run.folder.require_same(config, store.contents()),
    )


def _resolve(run: Run, store: CorpusStore) -> tuple[ExperimentConfig, Vocabulary]:
    """Decides what depends on the data and the machine, or reads what was decided before."""
    if (decided := run.folder.resolved(run.config)) is not None:
        return decided
    resolved = fit_to_machine(run.config)
    vocabulary: Vocabulary
    if resolved.initial.vectors and not resolved.initial.model:
        resolved, vocabulary = _fit_vectors(run, resolved, store)
    else:
        if resolved.initial.model:
            text, vocabulary = start_text(run.folder, run.config)
        else:
            text, vocabulary = fit_text(run.config.text, store.training_texts_by_language())
        resolved = dataclasses.replace(resolved, text=text)
    run.folder.start(run.config, resolved, vocabulary, store.contents())
    return resolved, vocabulary


def _fit_vectors(
    run: Run, config: ExperimentConfig, store: CorpusStore
) -> tuple[ExperimentConfig, list[str]]:
    """Makes the words' vectors, which the run keeps, and fits an encoder of them to their sizes."""
    parts = defaultdict[str, list[StoredRecords]](list)
    for corpus in store.corpora:
        if corpus.kind == "parallel" and len(corpus.train):
            parts[corpus.languages].append(corpus.train)
    if not parts:
        raise UserError(
            "initial.vectors expects translations to train on, which tell the languages of words, got none; "
            "put parallel/<name>.<pair>.tsv into the folder given with --data"
        )
    seed, encoder = config.training.seed, config.encoder
    bitext = Bitext.read({languages: join(part) for languages, part in parts.items()}, config.text, seed)
    fitted = fit_vectors(config.initial.vectors, bitext, config.text, seed)
    with replacing(run.run_dir / _VECTORS) as path, path.open("wb") as file:
        np.savez(file, rows=fitted.rows, is_known=fitted.is_known)
    width = sum(fitted.dims)
    if encoder.kind == "p_mean":
        hidden_dim = width * len(encoder.p_values)
        encoder = dataclasses.replace(encoder, space_dims=fitted.dims, hidden_dim=hidden_dim)
        tasks = dataclasses.replace(config.tasks, tower_dims=(*config.tasks.tower_dims[:-1], hidden_dim))
        config = dataclasses.replace(config, encoder=encoder, tasks=tasks)
    elif width != encoder.embedding_dim:
        raise UserError(
            f"initial.vectors must have encoder.embedding_dim, {encoder.embedding_dim}, numbers, got {width}"
        )
    return config, fitted.words


def _build(
    run: Run,
    workers: Workers,
    config: ExperimentConfig,
    vocabulary: Vocabulary,
    store: CorpusStore,
) -> tuple[Model, dict[str, TaskExamples]]:
    """Makes the model of the tasks that have examples, with random weights or those it starts from."""
    random.seed(config.training.seed)  # Keras draws the seeds of layers from it.
    keras.config.set_dtype_policy(config.training.precision)
    with workers.strategy.scope():
        model = Model.build(config, vocabulary)
    examples = task_examples(model.tasks, store.corpora)
    model = model._replace(tasks=_with_examples(model.tasks, examples, config.data.source))
    if workers.is_chief and not (run.run_dir / TRAINED_ON).exists():
        trained_on = _trained_on(config, model.tasks, store).joined(inherited_texts(run.run_dir))
        run.folder.write(TRAINED_ON, trained_on.to_bytes())
    if config.initial.model:
        model = start_weights(workers, run.run_dir, model)
    elif config.initial.vectors:
        if workers.is_chief:
            model.encoder.start_words(**np.load(run.run_dir / _VECTORS))
        workers.share([table.value for table in model.encoder.table_variables])
    if workers.is_chief:
        run.folder.write_tasks([task.name for task in model.tasks])
    return model, examples


def _trained_on(config: ExperimentConfig, tasks: Sequence[Task], store: CorpusStore) -> TrainedOn:
    """Collects the texts that the tasks, or the vectors of words, learn from."""
    parts = [
        task.select(corpus.train)
        for task in tasks
        for corpus in store.corpora
        if (corpus.kind, corpus.languages) == (task.kind, task.languages)
        and config.data.corpus_weights.get(corpus.name, 1) > 0
    ]
    if config.initial.vectors and not config.initial.model:
        parts += [corpus.train for corpus in store.corpora if corpus.kind == "parallel"]
    return TrainedOn.of(part.text_hashes for part in parts)


def _with_examples(tasks: Sequence[Task], examples: Mapping[str, Any], source: str) -> list[Task]:
    """Keeps the tasks that have examples, and warns about the others, a line for each kind of data.

    Translations between targets, and inference and graded pairs in their languages, are extra: nobody misses
    them, but inference that none of them has.
    """
    kinds = ("parallel", "nli", "similarity")
    extra = [t for t in tasks if t.kind in kinds and source not in t.languages.split("-")]
    inference = [task for task in extra if task.kind == "nli"]
    if any(task.name in examples for task in inference):
        inference = []
    lacking = [t for t in tasks if t.name not in examples and (t not in extra or t in inference)]
    for kind, (data, file) in _MISSING.items():
        if left_out := [task for task in lacking if task.kind == kind]:
            languages = list(dict.fromkeys(task.languages for task in left_out))
            logging.warning(
                "no %s in %s, left out: %s; put %s into the folder given with --data",
                *(data, ", ".join(languages), ", ".join(task.name for task in left_out)),
                file.format(languages[0]),
            )
    kept = [task for task in tasks if task.name in examples]
    if tasks and not kept:
        raise UserError("at least one task with examples is expected, got none; see the warnings")
    return kept


def _finish(
    run: Run,
    trainer: Trainer,
    model: Model,
    held_out: Mapping[str, Examples],
    store: CorpusStore,
) -> dict[str, Any]:
    """Evaluates and exports a trained model."""
    exported_step = trainer.use_best_weights()
    if share := model.config.initial.average:
        average_with_start(run.run_dir, model, share)
    module = model.hub_module()
    encoder = SentenceEncoder(module)
    labels = held_out_translations(store.corpora, _PROJECTED)
    write_projection(run.run_dir, labels, encoder.encode([text for _, text in labels]))
    results = {
        "preset": run.name,
        "steps": trainer.step,
        "exported_step": exported_step,
        "minutes": trainer.seconds / 60,
        "scores": evaluate(model, encoder, held_out, store.corpora, run.data),
        "corpora": store.counts(),
        "num_parameters": model.encoder.count_params(),
        **provenance(),
        "config": dataclasses.asdict(model.config),
    }
    run.folder.write("results.json", json.dumps(results, indent=2) + "\n")
    # An export is for others: nothing in it is of this machine.
    told = {name: results[name] for name in ("steps", "minutes", "scores", "corpora")}
    files: dict[str, str | bytes] = {
        "README.md": model_card(run.name, model.config, results),
        "config.json": to_json(model.config),
        "results.json": json.dumps(told, indent=2) + "\n",
        TRAINED_ON: (run.run_dir / TRAINED_ON).read_bytes(),
    }
    export(module, run.output, files)
    return results


def fit_to_machine(config: ExperimentConfig) -> ExperimentConfig:
    """Decides what is left to the machine's speed: the precision, and a transformer's depth.

    One layer learns as much as three in few minutes, and encodes three times as fast afterwards.
    """
    training, encoder = config.training, config.encoder
    if training.precision != "auto" and encoder.num_layers:
        return config
    float32, bfloat16 = (matmul_gflops(dtype) for dtype in ("float32", "bfloat16"))
    precision, num_layers = training.precision, encoder.num_layers
    if precision == "auto":
        precision = PRECISIONS[bfloat16 > _WORTHWHILE_SPEEDUP * float32]
    told = f"precision {precision}"
    if not num_layers:
        operations = 60e9 * training.minutes * (float32 if precision == "float32" else bfloat16)
        num_layers = 1 if 0 < operations < _FOR_THREE_LAYERS else 3
        told += f", encoder.num_layers {num_layers}"
    if training.minutes:
        told += f"; {training.minutes:g} minutes of training"
        if training.static_share:
            told += f", the first {training.minutes * training.static_share:.0f} of the average of words"
        told += ", then evaluation, some minutes more"
    logging.info(
        "this machine multiplies matrices at %.0f GFLOP/s in float32, %.0f in bfloat16: %s",
        *(float32, bfloat16, told),
    )
    return dataclasses.replace(
        config,
        training=dataclasses.replace(training, precision=precision),
        encoder=dataclasses.replace(encoder, num_layers=num_layers),
    )


def matmul_gflops(dtype: str) -> float:
    """Measures the rate of matrix products in 10^9 operations a second.

    They are as large as those of a batch's tokens in the feed-forward layer of the paper.
    """
    rows, inner, columns = 4096, 512, 2048
    left, right = tf.ones([rows, inner], dtype), tf.ones([inner, columns], dtype)
    product = tf.function(lambda: tf.reduce_max(tf.matmul(left, right)))
    product()
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        product().numpy()
        seconds.append(time.perf_counter() - begin)
    return 2 * rows * inner * columns / min(seconds) / 1e9
