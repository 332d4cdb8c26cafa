"""The beginning of a run that starts from another model, and what its restart finds of that."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from absl import logging

from xling_tf.config import ExperimentConfig, TextConfig
from xling_tf.errors import UserError
from xling_tf.model import Model
from xling_tf.tasks.base import Task, build_tasks
from xling_tf.text.preprocessor import Vocabulary
from xling_tf.trainer.checkpoints import Checkpoints
from xling_tf.trainer.run_folder import RunFolder
from xling_tf.trainer.starting_config import StartRecord, require_fit
from xling_tf.trainer.starting_point import StartingPoint, read_start_vocabulary
from xling_tf.trainer.workers import Workers


def take_over_text(
    run: RunFolder, config: ExperimentConfig, texts_by_language: Mapping[str, Iterable[str]]
) -> tuple[TextConfig, Vocabulary]:
    """Takes the vocabulary over, extended where that is asked for, and writes down whose it was.

    Args:
        run: The run that begins.
        config: Names the model to start from.
        texts_by_language: What additional pieces are learnt from.

    Raises:
        UserError: `config` has another text or encoder than the model.
    """
    start = StartRecord.of(config.initial.model)
    require_fit(start, config)
    vocabulary = read_start_vocabulary(Path(start.model), start.config)
    run.write(*start.file())
    return config.text, vocabulary


def take_over_weights(workers: Workers, run_dir: Path, model: Model) -> Model:
    """Gives a model the weights it starts from; a restart takes them from the run's own copy.

    Heads of the model it starts from that no task trains are carried on, to be exported again.

    Args:
        workers: Who train together; the chief alone reads files.
        run_dir: Keeps the weights, and knows whose they are.
        model: Built under the strategy's scope, with the tasks that have examples.

    Returns:
        The model with the tasks that are carried on.

    Raises:
        UserError: The weights cannot be read.
    """
    start = workers.from_chief(lambda: StartRecord.read(run_dir))
    assert start is not None  # `take_over_text` has written it
    with workers.strategy.scope():
        candidates = _untrained(model, start.config)
    whole = model._replace(carried=candidates)
    heads = [v for layer in whole.heads.values() for v in layer.trainable_variables]
    encoder = [*model.encoder.table_variables, *model.encoder.dense_variables]
    kept = Checkpoints(run_dir / "start", [v.value for v in (*encoder, *heads)])
    given = workers.from_chief(lambda: _restore_or_read(kept, start, whole))
    workers.share(kept.variables)
    names = [{head.name for head in task.heads} for task in candidates]
    carried = [task for task, own in zip(candidates, names, strict=True) if own <= set(given)]
    return model._replace(carried=carried)


def _restore_or_read(kept: Checkpoints, start: StartRecord, model: Model) -> list[str]:
    state = kept.restore()
    if state is not None:
        with suppress(UserError):  # it may be gone
            if StartRecord.of(start.model).digest != start.digest:
                logging.warning(
                    "%s has changed since this run was begun, which goes on from its own copy; for what is "
                    "there now start another with --run_dir",
                    start.model,
                )
    else:
        if StartRecord.of(start.model).digest != start.digest:  # killed before it was copied
            raise UserError(
                f"{start.model} was expected as it was when this run was begun, but is another model by "
                "now; start a new run with --run_dir"
            )
        state = {"heads": StartingPoint.open(Path(start.model)).give(model, start.parents)}
        kept.save(0, state)
        _tell(model, start, state["heads"])
    return list(state["heads"])


def _tell(model: Model, start: StartRecord, given: Sequence[str]) -> None:
    trained = [head.name for task in model.tasks for head in task.heads]
    carried = [name for name in given if name not in trained]
    at_random = [name for name in dict.fromkeys(trained) if name not in given]
    logging.info("starting from %s", start.model)
    if at_random:
        logging.info("it has no %s of that size: at random", ", ".join(at_random))
    if carried:
        logging.info("no task trains its %s: exported again as it is", ", ".join(carried))


def _untrained(model: Model, start: ExperimentConfig) -> list[Task]:
    """One task of the starting model for each of its heads that the model has none of."""
    taken, tasks = set(model.heads), list[Task]()
    for task in build_tasks(start):
        names = {head.name for head in task.heads}
        if names and not names & taken:
            task.build_heads(model.encoder)
            tasks.append(task)
            taken |= names
    return tasks
