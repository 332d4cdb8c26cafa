"""A training that starts from another model: its settings, its vocabulary and its weights.

The run keeps a record of the model and a copy of the weights: a restart needs the model no more.
"""

import dataclasses
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from absl import logging
from numpy.typing import NDArray

from xling_tf.config import (
    EncoderConfig,
    ExperimentConfig,
    InitialConfig,
    TextConfig,
    apply_overrides,
    from_json,
)
from xling_tf.corpora.trained_on import TrainedOn
from xling_tf.encoders.folded import WORDS, rows_digest
from xling_tf.errors import UserError
from xling_tf.files import SAVED_MODEL, read_json
from xling_tf.hub.module import TRAINING
from xling_tf.hub.saved_models import load_saved_model, resolve
from xling_tf.model import Model
from xling_tf.tasks.base import Task, build_tasks
from xling_tf.text.preprocessor import Vocabulary, read_vocabulary
from xling_tf.trainer.checkpoints import Checkpoints
from xling_tf.trainer.distribution import Workers
from xling_tf.trainer.run_folder import RunFolder

CONFIG = "config.json"
_RECORD = "start.json"
# What no weight depends on, and may be set anew.
_FREE = ("text.max_tokens", "text.max_context_tokens")
_FAMILY = ("encoder.kind", "text.tokenizer")

Weights = Sequence[NDArray[np.float32]]


class StartRecord(NamedTuple):
    """What a run keeps of the model it was started from, which may change or go meanwhile."""

    model: str  # as it was given
    config: ExperimentConfig

    @classmethod
    def of(cls, model: str) -> Self:
        """Looks at a run or an exported model."""
        try:
            folder = resolve(model)
        except UserError as error:
            raise UserError(f"{error}; export/import_published.py imports the published weights") from error
        is_run = any(folder.glob("checkpoints/*/state.json"))
        if not (folder / CONFIG).is_file() or not (is_run or (folder / SAVED_MODEL).is_file()):
            found = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
            raise UserError(
                "--init expects the folder of a run that has a checkpoint or of a model exported by "
                f"xling_tf, but {folder} has {', '.join(found[:5]) or 'nothing'}; other SavedModels are "
                "made ones by export/import_published.py"
            )
        try:
            config = from_json(ExperimentConfig, (folder / CONFIG).read_text(encoding="utf-8"))
        except (AttributeError, RecursionError, TypeError, ValueError) as error:
            raise UserError(
                f"{folder / CONFIG} must be the settings of a model of xling_tf, but is not ({error}); bring "
                "it back from a copy, or export the model anew"
            ) from error
        return cls(model, config)

    @classmethod
    def read(cls, run_dir: Path) -> "StartRecord | None":
        """Reads what a run has kept; None where it has nothing."""
        if not (run_dir / _RECORD).is_file():
            return None
        try:
            fields = read_json(run_dir / _RECORD)
            config = from_json(ExperimentConfig, json.dumps(fields.pop("config")))
            return cls(config=config, **fields)
        except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
            raise RunFolder(run_dir).damaged(_RECORD, error) from error

    def write(self, run: RunFolder) -> None:
        """Writes what `read` reads."""
        fields = {**self._asdict(), "config": dataclasses.asdict(self.config)}
        run.write(_RECORD, json.dumps(fields, indent=2) + "\n")


@dataclasses.dataclass(frozen=True)
class _Sections:
    """What of a config the model that a training starts from decides, and which model that is."""

    text: TextConfig
    encoder: EncoderConfig
    initial: InitialConfig


def find_start(model: str, run_dir: Path) -> StartRecord:
    """Looks at what a run in `run_dir` has kept of a model, else at the model itself."""
    kept = StartRecord.read(run_dir)
    return kept if kept and kept.model == model else StartRecord.of(model)


def apply_start(preset: ExperimentConfig, settings: Sequence[str], run_dir: Path) -> ExperimentConfig:
    """Applies overrides to a preset; one that names a model to start from gets its text and encoder.

    So do the widths of towers and of the head for inference, unless they are set: those of the model
    can then go on. A run that was started in `run_dir` has kept the settings of its model.

    Raises:
        UserError: The preset or an override asks for another text or encoder.
    """
    names = [setting.partition("=")[0].strip() for setting in settings]
    # These alone, which need not fit the rest of the preset: with the model's they will.
    own = [s for s in settings if s.strip().startswith(("text.", "encoder.", "initial."))]
    asked = apply_overrides(_Sections(preset.text, preset.encoder, preset.initial), own)
    if not asked.initial.model:
        return apply_overrides(preset, settings)
    start = find_start(asked.initial.model, run_dir)
    _require_equal(start, asked, [*_FAMILY, *names])
    tasks = dataclasses.replace(
        preset.tasks,
        tower_dims=start.config.tasks.tower_dims,
        residual_towers=start.config.tasks.residual_towers,
        inference_dim=start.config.tasks.inference_dim,
    )
    adopted = dataclasses.replace(preset, text=start.config.text, encoder=start.config.encoder, tasks=tasks)
    return apply_overrides(adopted, settings)


def _require_equal(start: StartRecord, config: ExperimentConfig | _Sections, names: Iterable[str]) -> None:
    """Makes sure that settings of text and encoder are those of the model, as far as weights need it."""
    theirs, ours = _leaves(start.config), _leaves(config)
    for name in names:
        if name in theirs and name not in _FREE and theirs[name] != ours[name]:
            family = ", as its presets do" if name in _FAMILY else ""
            raise UserError(
                f"the preset or --set asks for {name}={ours[name]}, but {start.model}, from which it starts, "
                f"has {theirs[name]}: set {name}={theirs[name]}{family}, or start another model with --init"
            )


def _leaves(config: ExperimentConfig | _Sections) -> Mapping[str, str]:
    """The settings of text and encoder, as --set takes them."""
    return {
        f"{section}.{name}": ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for section in ("text", "encoder")
        for name, value in vars(getattr(config, section)).items()
    }


class StartingPoint(NamedTuple):
    """The weights that a training starts from, and what they are of."""

    config: ExperimentConfig
    vocabulary: Vocabulary
    weights: Weights  # of the encoder's `[*table_variables, *dense_variables]`
    heads: Mapping[str, Weights]  # of the layers that tasks put on the encoder, by the layer's name

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Reads a run, as it is trained now (before `average_with_start`), or an exported model.

        An exported model may have been fine-tuned by other programs and saved again, with `config.json`
        and `training/` of the old folder put beside it.
        """
        config = StartRecord.of(str(folder)).config
        vocabulary = _read_vocabulary(folder, config)
        if (folder / SAVED_MODEL).is_file():
            loaded = load_saved_model(folder)
            weights = _arrays(loaded.trainable_variables)
            if (folder / TRAINING / WORDS).is_file():
                weights = _unfolded(weights, folder / TRAINING / WORDS)
            heads = {n: _arrays(head.weights) for n, head in getattr(loaded, "heads", {}).items()}
        else:
            model = _read_run(folder, config, vocabulary)
            weights = _arrays([*model.encoder.table_variables, *model.encoder.dense_variables])
            heads = {n: _arrays(layer.trainable_variables) for n, layer in model.heads.items()}
        return cls(config, vocabulary, weights, heads)

    def give(self, model: Model) -> list[str]:
        """Gives a model of this config these weights; returns the names of the heads that got theirs.

        Heads that are not among them, or of another size, stay random.
        """
        encoder, num_words = model.encoder, model.preprocessor.num_words
        variables = [*encoder.table_variables, *encoder.dense_variables]
        if len(self.weights) and len(self.weights[0]) != num_words:
            raise UserError(
                f"the table of the model to start from has {len(self.weights[0])} rows, but its vocabulary "
                f"has {num_words} words or pieces: the vocabulary is another model's; put the right one there"
            )
        if _shapes(self.weights) != _shapes(variables):
            raise UserError(
                f"the model to start from has {len(self.weights)} weights that are not of the sizes its "
                f"config.json says ({len(variables)} weights): both must be of one model; export it anew"
            )
        pairs = [*zip(variables, self.weights, strict=True)]
        given = []
        for name, layer in model.heads.items():
            head = layer.trainable_variables
            if _shapes(self.heads.get(name, ())) == _shapes(head):
                pairs += zip(head, self.heads[name], strict=True)
                given.append(name)
        for variable, value in pairs:
            variable.assign(value)
        return given


def _read_vocabulary(folder: Path, config: ExperimentConfig) -> Vocabulary:
    place = folder / TRAINING if (folder / SAVED_MODEL).is_file() else folder
    try:
        return read_vocabulary(place, config.text.tokenizer)
    except FileNotFoundError as error:
        raise UserError(
            f"{error.filename} is expected beside an exported model that training starts from, but is "
            "not there; copy config.json and training/ from the export that it was made of, or "
            "export it anew"
        ) from error


def _unfolded(weights: Weights, path: Path) -> Weights:
    """Puts the rows of known words back, in place of what they and their n-grams were folded to."""
    rows, buckets, *rest = weights
    try:
        with np.load(path) as arrays:
            kept = {name: arrays[name] for name in ("digest", "words")}
    except (EOFError, LookupError, OSError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path} must hold the rows of known words, as the export wrote it, but is damaged ({error}); "
            "bring it back from a copy, or export the model anew"
        ) from error
    if kept["digest"].item() != rows_digest(rows):
        raise UserError(
            f"{path.parents[1]} was changed after its export, which holds known words as what they and "
            "their n-grams come to; training can start from such a model as it was exported, or from its "
            "run, but no longer from this"
        )
    return [np.concatenate([kept["words"], buckets]), *rest]


def _read_run(folder: Path, config: ExperimentConfig, vocabulary: Vocabulary) -> Model:
    """Reads the best weights of a run, else the newest ones."""
    model = Model.build(config, vocabulary)
    trained = RunFolder(folder).tasks()
    model = model._replace(tasks=[task for task in model.tasks if task.name in trained])
    best = [v.value for v in (*model.encoder.trainable_variables, *model.head_variables)]
    checkpoints = folder / "checkpoints"
    for place, variables in ((checkpoints / "best", best), (checkpoints, model.weights)):
        if Checkpoints(place, variables).read_newest() is not None:
            return model
    raise UserError(
        f"a checkpoint of the run is expected in {checkpoints}, but none there can be read; train it "
        "further, or start from another model"
    )


def start_text(run: RunFolder, config: ExperimentConfig) -> tuple[TextConfig, Vocabulary]:
    """Takes the vocabulary of the model that a run starts from, and writes down whose it was."""
    start = StartRecord.of(config.initial.model)
    _require_equal(start, config, _leaves(config))
    vocabulary = _read_vocabulary(resolve(start.model), start.config)
    start.write(run)
    return config.text, vocabulary


def inherited_texts(run_dir: Path) -> TrainedOn:
    """The training texts of the model that a run starts from; none if its folder does not tell."""
    start = StartRecord.read(run_dir)
    return (TrainedOn.read(resolve(start.model)) if start else None) or TrainedOn.of(())


def start_weights(workers: Workers, run_dir: Path, model: Model) -> Model:
    """Gives a model the weights it starts from; a restart takes them from the run's own copy.

    Heads of the model it starts from that no task trains are carried on, to be exported again: the model
    is returned with their tasks. The chief alone reads files.
    """
    start = workers.from_chief(lambda: StartRecord.read(run_dir))
    assert start is not None  # `start_text` has written it
    with workers.strategy.scope():
        candidates = _untrained(model, start.config)
    carried = [variable.value for task in candidates for variable in task.variables()]
    kept = Checkpoints(run_dir / "start", [*model.weights, *carried])
    whole = model._replace(carried=candidates)
    given = workers.from_chief(lambda: _restore_or_read(kept, start, whole))
    workers.share(kept.variables)
    carried_on = [task for task in candidates if {head.name for head in task.heads} <= set(given)]
    return model._replace(carried=carried_on)


def average_with_start(run_dir: Path, model: Model, share: float) -> None:
    """Gives a trained model the mean of its weights and those it started from (Wortsman et al. 2022, eq. 1).

    Args:
        run_dir: The run folder, which has the weights it started from.
        model: The model, whose variables change.
        share: Of the weights that it started from, in the mean.
    """
    # Heads that no task trains come last in what is kept, and are what they were.
    weights = model.weights
    trained = _arrays(weights)
    if Checkpoints(run_dir / "start", weights).read_newest() is None:
        raise UserError(
            f"{run_dir / 'start'} must have the weights that training started from, but cannot be read; "
            "bring it back from a copy, or train again with another --run_dir"
        )
    for variable, ours in zip(weights, trained, strict=True):
        variable.assign(share * np.asarray(variable) + (1 - share) * ours)


def _restore_or_read(kept: Checkpoints, start: StartRecord, model: Model) -> list[str]:
    """Reads the weights of the run's own copy, or the model's, which are copied; returns its heads."""
    if (state := kept.restore()) is not None:
        return list(state["heads"])
    given = StartingPoint.open(resolve(start.model)).give(model)
    kept.save(0, {"heads": given})
    trained = list(dict.fromkeys(head.name for task in model.tasks for head in task.heads))
    logging.info("starting from %s", start.model)
    if random := [name for name in trained if name not in given]:
        logging.info("it has no %s of that size: at random", ", ".join(random))
    if carried := [name for name in given if name not in trained]:
        logging.info("no task trains its %s: exported again as it is", ", ".join(carried))
    return given


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


def _shapes(variables: Iterable[Any]) -> list[tuple[int, ...]]:
    return [tuple(variable.shape) for variable in variables]


def _arrays(variables: Iterable[Any]) -> Weights:
    return [np.asarray(variable) for variable in variables]
