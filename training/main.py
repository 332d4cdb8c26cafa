"""Trains a cross-lingual sentence encoder, evaluates and exports it.

    python training/main.py --pair en-es
    python training/main.py --pair en-es --data my_corpora --minutes 60

The same command continues a training that was stopped or killed.
"""

import ctypes
import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import app, flags

from xling_tf.config import ALL_LANGUAGES, ExperimentConfig, apply_overrides
from xling_tf.corpora.folder import DEFAULT_TARGETS
from xling_tf.errors import library, one_line_errors, parse_flags, quiet_start, set_up_logging
from xling_tf.presets import PRESETS, PUBLISHED, get_preset

if TYPE_CHECKING:
    from xling_tf.trainer.experiment import Run

_PAIR = flags.DEFINE_string("pair", "en-es", "Preset to train; --list names them.")
_DATA = flags.DEFINE_string("data", None, "Folder of corpora; without it, the preset's own.")
_SET = flags.DEFINE_multi_string("set", [], "Changes a setting: dotted.name=value. Repeatable.")
_MINUTES = flags.DEFINE_float("minutes", None, "Minutes of training.", lower_bound=0)
_STEPS = flags.DEFINE_integer("steps", None, "Steps of training.", lower_bound=0)
_RUN_DIR = flags.DEFINE_string("run_dir", None, "Checkpoints and logs; default runs/<pair>.")
_OUTPUT = flags.DEFINE_string("output", None, "Exported model; default exported/<pair>.")
_SOURCE = flags.DEFINE_multi_string("source", [], "More corpora: tfds:BUILDER. Repeatable.")
_INIT = flags.DEFINE_string("init", None, "Run or exported model to start from.")
_TEACHER = flags.DEFINE_string("teacher", None, "Model to learn from, as evaluation's --model.")
_CACHE = flags.DEFINE_string("cache", None, "Folder that keeps --teacher's vectors for other runs.")
_WANDB = flags.DEFINE_string("wandb", None, "Project of Weights & Biases that follows the training.")
_LIST = flags.DEFINE_bool("list", False, "Lists the presets and exits.")

# Parameters of mallopt(3): one arena, which alone can grow beyond 64 MiB; no maps of their own for large
# tensors; what is freed at its end is kept; and it grows by 256 MiB at least.
_MALLOC = {-8: 1, -4: 0, -1: 2**31 - 1, -2: 2**28}


def main(argv: list[str]) -> None:
    """Runs the experiment that the flags describe."""
    del argv
    if _LIST.value:
        width = max(map(len, PRESETS))
        for name, preset in PRESETS.items():
            print(f"{name:{width}}  {preset.description}")
        return
    set_up_logging()
    _keep_freed_memory()
    with one_line_errors("the same command continues"):
        config = _config()
        if _DATA.value is None and not config.data.sample:
            _prepare_default_corpora(config)
        distillation = config.tasks.distillation
        taught = distillation.weight and PUBLISHED in distillation.teacher.split(",")
        if taught and not Path(PUBLISHED).exists():
            _run_program("export/import_published.py", "--output", PUBLISHED)
        results = _run(config)
    if results is None:
        sys.exit(1)


def _keep_freed_memory() -> None:
    """Keeps what one step frees for the next one: a seventh of the time is the kernel's otherwise."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):  # glibc's
        for parameter, value in _MALLOC.items():
            mallopt(parameter, value)


def _config() -> ExperimentConfig:
    """The preset with its overrides; mistakes in them show before TensorFlow takes its seconds to start."""
    preset = get_preset(_PAIR.value)
    settings = []
    if _SOURCE.value:
        settings.append(f"data.sources={','.join(_SOURCE.value)}")
    if _INIT.value:
        settings.append(f"initial.model={_INIT.value}")
    if _TEACHER.value:
        weight = preset.tasks.distillation.weight or 1
        settings.append(f"tasks.distillation.teacher={_TEACHER.value}")
        settings.append(f"tasks.distillation.weight={weight}")
    settings += _SET.value
    # What is asked for replaces the preset's whole budget.
    if _MINUTES.value is not None or _STEPS.value is not None:
        settings.append(f"training.minutes={_MINUTES.value or 0}")
        settings.append(f"training.steps={_STEPS.value or 0}")
    starts = preset.initial.model or any(s.startswith("initial.model=") for s in settings)
    if not starts:
        return apply_overrides(preset, settings)
    with quiet_start():
        from xling_tf.trainer.warm_start import apply_start
    return apply_start(preset, settings, _run_dir())


def _prepare_default_corpora(config: ExperimentConfig) -> None:
    """Runs data/default.py, which ends at once where it has been run before."""
    targets = config.data.targets
    if ALL_LANGUAGES in targets:
        targets = DEFAULT_TARGETS
    _run_program("data/default.py", "--source", config.data.source, "--target", ",".join(targets))


def _run_program(name: str, *arguments: str) -> None:
    program = str(Path(__file__).resolve().parents[1] / name)
    done = subprocess.run([sys.executable, program, *arguments], stdout=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(done.returncode)


def _run(config: ExperimentConfig) -> dict[str, Any] | None:
    with quiet_start():
        from xling_tf.trainer.distribution import read_cluster
        from xling_tf.trainer.experiment import Run, run_experiment
    from xling_tf.evaluators.data import format_table

    output = Path(_OUTPUT.value or f"exported/{_PAIR.value}")
    run = Run(
        name=_PAIR.value,
        config=config,
        data=Path(_DATA.value) if _DATA.value is not None else None,
        run_dir=_run_dir(),
        output=output,
        cache=Path(_CACHE.value) if _CACHE.value is not None else None,
    )
    # Of several workers, the chief alone writes what is followed.
    follower = _follow(run) if _WANDB.value and read_cluster(os.environ).is_chief else None
    results = run_experiment(run)
    if results and follower:
        follower.summary.update(results["scores"])
    if results:
        print(format_table(results["scores"]))
        print(f"\n{output} holds the model. Try it:\n")
        if config.text.tokenizer == "sentencepiece":
            print("    import tensorflow_text  # registers the operations of its tokenizer")
        print(f'    import tensorflow_hub as hub\n    hub.load("{output}")(["Hola", "Hello"])')
    return results


def _follow(run: "Run") -> Any:
    """Has Weights & Biases see what is written for TensorBoard; a training that goes on is the same run."""
    wandb = library("wandb", "wandb", "wandb")
    run.run_dir.mkdir(parents=True, exist_ok=True)
    return wandb.init(
        project=_WANDB.value,
        name=run.name,
        config=dataclasses.asdict(run.config),
        dir=run.run_dir,
        resume="auto",
        sync_tensorboard=True,
    )


def _run_dir() -> Path:
    return Path(_RUN_DIR.value or f"runs/{_PAIR.value}")


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
