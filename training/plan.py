"""Describes what a training would do: its corpora, budget and disk space, for `--dry_run`."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from tabulate import tabulate

from xling_tf.corpora.folder import resolve_languages
from xling_tf.corpora.store import transient_store
from xling_tf.files import folder_bytes
from xling_tf.model import Model
from xling_tf.processes import start_tensorflow
from xling_tf.savedmodel.saved_models import find_model
from xling_tf.trainer.checkpoints import MAX_CHECKPOINTS
from xling_tf.trainer.context import Run, find_corpora, plan_tasks
from xling_tf.trainer.experiment import scoring_seconds
from xling_tf.trainer.resolution import resolve

_COPIES = 3  # of the weights in a checkpoint, at most: Adam keeps two numbers for each weight


def plan(run: Run) -> str:
    """Describes a run in some lines. It reads the corpora and fits the tokenizer, but writes
    nothing.
    """
    start_tensorflow()
    config, data = run.config, resolve_languages(run.data, run.config.data)
    tasks = plan_tasks(config, data)
    with TemporaryDirectory() as folder:
        store = transient_store(find_corpora(run, data, tasks), Path(folder))
        counts = Counter[tuple[str, str, str]]()
        for corpus in store.corpora:
            key = corpus.record_type, corpus.languages
            counts[*key, "corpora"] += 1
            counts[*key, "records"] += len(corpus.train)
            counts[*key, "held out"] += len(corpus.held_out)
        if config.initial.model:
            weights = folder_bytes(find_model(config.initial.model))
        else:
            model = resolve(config, data, store, Path(folder))
            made = Model.from_config(model.model, model.files.__getitem__)
            weights = 4 * made.encoder.count_params()
        text = folder_bytes(Path(folder))
    rows = [
        (
            *key,
            *(counts[*key, name] for name in ("corpora", "records", "held out")),
            ", ".join(task.name for task in tasks if (task.record_type, task.languages) == key),
        )
        for key in sorted({key[:2] for key in counts})
    ]
    scoring = scoring_seconds(60 * config.training.minutes) / 60
    scores = f", and {scoring:g} minutes for scores" if config.training.minutes else ""
    sizes = {
        "corpora": text,
        "checkpoints": MAX_CHECKPOINTS * _COPIES * weights,
        "the export": weights,
    }
    headers = ("kind", "languages", "corpora", "to train on", "held out", "tasks")
    return (
        f"{tabulate(rows, headers=headers)}\n\nAt most {config.training.budget}{scores}.\n"
        f"Disk: {', '.join(f'{size / 1e6:,.0f} MB for {what}' for what, size in sizes.items())}."
    )
