"""What a run knows before its model is made: request, decisions, data and workers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from xling_tf.config import TASKS, DataConfig, ExperimentConfig
from xling_tf.corpora.cleaning import are_shuffled
from xling_tf.corpora.folder import load_corpora, resolve_languages
from xling_tf.corpora.records import Corpus, SentenceTriplet
from xling_tf.corpora.store import CorpusStore, open_store, transient_store
from xling_tf.errors import UserError
from xling_tf.files import require_writable_folder
from xling_tf.model import Model
from xling_tf.program import progress
from xling_tf.savedmodel.module import require_replaceable
from xling_tf.settings import to_dict
from xling_tf.tasks.base import Task
from xling_tf.trainer.distribution import Workers
from xling_tf.trainer.held_out import Validation
from xling_tf.trainer.resolution import Resolved, resolve
from xling_tf.trainer.run_folder import RunFolder
from xling_tf.trainer.start import copy_start
from xling_tf.trainer.teacher import Teacher, open_teachers

_NEIGHBOURS = 1000  # sentences of a corpus by which its order is judged


@dataclass(frozen=True, kw_only=True)
class Run:
    """An experiment's arguments, the same in all workers; only the first writes to folders."""

    name: str  # in the card and results, of preset and languages, such as "en-it-static"
    config: ExperimentConfig  # the preset with its overrides
    # Corpora as read, checkpoints, logs and `results.json`; a run that was started there continues.
    run_dir: Path
    output: Path  # the exported model
    data: Path | None = None  # the data folder; None for the preset's default corpora
    corpora: Sequence[Corpus] | None = None  # in place of those of `data`
    cache: Path | None = None  # where runs share a teacher's vectors; None for the run folder
    # Looks at the model and the corpora before the first step, in the chief, and returns what
    # scores the model while it trains.
    inspect: Callable[[Model, CorpusStore], Validation | None] | None = None
    examples: Sequence[tuple[str, str]] = ()  # pairs that the card shows
    is_check: bool = False  # ends after `inspect`

    @property
    def folder(self) -> RunFolder:
        """The run folder, with the decisions that a restart needs."""
        return RunFolder(self.run_dir)


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """A run that begins or goes on, as `open_context` makes it, once."""

    run: Run
    data: DataConfig  # with the languages of the data in place of "all"
    store: CorpusStore  # the corpora
    resolved: Resolved  # decided by the data and the machine
    workers: Workers
    teachers: dict[str, Teacher]  # by name; making the examples takes each out, for its memory

    @property
    def config(self) -> ExperimentConfig:
        """The settings of the run."""
        return self.run.config

    @property
    def folder(self) -> RunFolder:
        """The run folder."""
        return self.run.folder

    def teacher_folder(self, teacher: Teacher) -> Path | None:
        """Returns the cache of a teacher's vectors; None, for a temporary one, beside the chief."""
        if self.run.cache and teacher.is_fixed:
            return self.run.cache
        return self.run.run_dir / "teacher" if self.workers.is_chief else None


def require_usable_folders(run: Run) -> None:
    """Raises a `UserError` now, not after hours of training, if a folder cannot be used."""
    run_dir = run.run_dir.resolve()
    if run.output.resolve() in (run_dir, *run_dir.parents):
        raise UserError(
            f"the export to {run.output} would replace the run folder, {run.run_dir}; "
            "give another `output` or `run_dir`"
        )
    require_replaceable(run.output)
    names = {path.name for path in run_dir.iterdir()} if run_dir.is_dir() else set()
    if names and not names & {"lock", "corpora"}:
        raise UserError(f"{run.run_dir} has files, but none of a run; give another `run_dir`")
    require_writable_folder(run.run_dir, "give another `run_dir`")


def open_context(run: Run, workers: Workers) -> RunContext:
    """Opens the starting model, the teachers and the corpora; decides vocabulary and sizes."""
    data = run.config.data if run.corpora else resolve_languages(run.data, run.config.data)
    tasks = plan_tasks(run.config, data)
    if workers.is_chief:
        copy_start(run.config, run.folder)
    teachers = open_teachers(tasks, data.source)
    store = read_corpora(run, data, tasks, is_chief=workers.is_chief)
    if workers.is_chief and not run.folder.resolved():
        require_order(store, tasks, data)
    checksums = [teacher.system.checksum for teacher in teachers.values()]
    workers.require_same(
        {"config": to_dict(run.config), "data": store.contents(), "teachers": checksums}
    )
    with progress("deciding on vocabulary and sizes"):
        resolved = workers.from_chief(
            lambda: run.folder.resolved() or resolve(run.config, data, store, run.run_dir)
        )
    return RunContext(
        run=run,
        data=data,
        store=store,
        resolved=resolved,
        workers=workers,
        teachers=teachers,
    )


def plan_tasks(config: ExperimentConfig, data: DataConfig) -> list[Task]:
    """Makes the tasks of a config, without their heads, to ask what they need."""
    return [
        task
        for name in config.active_tasks
        for task in TASKS.implementation(name).mirrored(name, config, data, {})
    ]


def require_order(store: CorpusStore, tasks: Sequence[Task], data: DataConfig) -> None:
    """Refuses documents whose lines are in no order, if tasks learn from their neighbours.

    Args:
        store: The corpora.
        tasks: The tasks to train.
        data: Corpora that its `corpus_weights` name are not judged.

    Raises:
        UserError: The lines of a corpus seem to be in no order.
    """
    record_types = {task.record_type for task in tasks}
    for corpus in store.corpora:
        is_judged = corpus.record_type == "documents" and corpus.name not in data.corpus_weights
        if not is_judged or corpus.record_type not in record_types:
            continue
        sample = corpus.train[:: -(-len(corpus.train) // _NEIGHBOURS) or 1]
        if are_shuffled([record for record in sample if isinstance(record, SentenceTriplet)]):
            raise UserError(
                f"expected documents, but the lines of {corpus.title} seem to be in no order: "
                "neighbouring sentences have no more words in common than others; move it out of "
                "documents/ (docs/languages.md says how to use it) or, if they are in order, set "
                f"data.corpus_weights.{corpus.name}=1"
            )


def find_corpora(run: Run, data: DataConfig, tasks: Sequence[Task]) -> Sequence[Corpus]:
    """Returns the corpora that the tasks, and a new tokenizer, learn from."""
    config, corpora = run.config, run.corpora
    if corpora is None:
        with_targets = any(
            task.record_type == "nli" and task.languages != data.source for task in tasks
        )
        corpora = load_corpora(
            run.data,
            data,
            with_mined=any(task.hard_negatives for task in tasks),
            target_inference=with_targets,
        )
        record_types = {"parallel", *(task.record_type for task in tasks)}
        if not config.initial.model:  # a tokenizer also learns from texts that no task uses
            record_types |= {"documents", "conversations", "nli"}
        corpora = [corpus for corpus in corpora if corpus.record_type in record_types]
    return corpora


def read_corpora(
    run: Run, data: DataConfig, tasks: Sequence[Task], *, is_chief: bool
) -> CorpusStore:
    """Opens the corpora; the chief stores them in its run folder, for restarts."""
    corpora = find_corpora(run, data, tasks)
    if not is_chief:
        return transient_store(corpora)
    return open_store(
        run.run_dir / "corpora",
        corpora,
        lambda store: run.folder.require_same(run.config, store.contents()),
    )
