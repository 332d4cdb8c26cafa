"""Trains a cross-lingual sentence encoder, exports and scores it.

    xling-tf train --pair en-es
    xling-tf train --pair en-es --data my_corpora --minutes 60
    xling-tf train --preset static --source en --target es,fr,de,zh

The same command continues a training that was stopped or killed.
"""

import ctypes
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags, logging

from xling_tf.config import ExperimentConfig
from xling_tf.presets import FORMER_NAMES, OF_PAPERS, PRESETS, get_preset
from xling_tf.program import define_import, format_table, quiet_start, run, ways_to_try
from xling_tf.settings import setting_lines, settings_by_name, to_dict

if TYPE_CHECKING:
    from xling_tf.trainer.context import Run

_PRESET = flags.DEFINE_string("preset", "multi-task", "Name of the recipe; --list shows all.")
_PAIR = flags.DEFINE_string(
    "pair", None, "Languages, such as en-es; short for --source en --target es."
)
_SOURCE = flags.DEFINE_string(
    "source", None, "Source language; default: the preset's, which is en."
)
_TARGET = flags.DEFINE_list(
    "target", None, "Target languages, such as es,fr, or all for those of the data."
)
_DATA = flags.DEFINE_string("data", None, "Folder of corpora; default: the default corpora.")
_SET = flags.DEFINE_multi_string("set", [], "Changes a setting: dotted.name=value. Repeatable.")
_MINUTES = flags.DEFINE_float(
    "minutes", None, "Maximum minutes of training; 0 for no limit.", lower_bound=0
)
_STEPS = flags.DEFINE_integer(
    "steps", None, "Maximum steps of training; 0 for no limit.", lower_bound=0
)
_SEED = flags.DEFINE_integer(
    "seed", None, "Random seed; if it is not 1, the run's name ends in it.", lower_bound=0
)
_RUN_DIR = flags.DEFINE_string(
    "run_dir", None, "Folder of checkpoints and logs; default: runs/<name>, such as runs/en-es."
)
_OUTPUT = flags.DEFINE_string(
    "output",
    None,
    "Folder of the exported model; default: exported/<name>, such as exported/en-es.",
)
_INIT = flags.DEFINE_string("init", None, "Run, exported model or model folder to start from.")
_TEACHER = flags.DEFINE_string(
    "teacher", None, "Model to learn from; any --model of xling-tf evaluate."
)
_CACHE = flags.DEFINE_string(
    "cache", None, "Folder of the teacher's vectors, which runs can share."
)
_SHOW = flags.DEFINE_bool("show", False, "Prints all settings of the training, and exits.")
_DRY_RUN = flags.DEFINE_bool(
    "dry_run", False, "Prints what would be trained, and for how long, and exits."
)
_LIST = flags.DEFINE_bool("list", False, "Lists the presets, and exits.")
define_import()

# Parameters of mallopt(3) that make malloc keep freed memory: a single arena (M_ARENA_MAX), as
# others cannot grow beyond 64 MiB; no mmap for large tensors (M_MMAP_MAX); no trimming
# (M_TRIM_THRESHOLD); and growth by at least 256 MiB (M_TOP_PAD).
_MALLOC = {-8: 1, -4: 0, -1: 2**31 - 1, -2: 2**28}

# Metrics that only results.json has, not the table at the end.
_LESS_TELLING = re.compile("num_(?!candidates)|precision_at_(3|10)|spearman|own_language")


def main() -> None:
    """Runs the experiment that the flags describe."""
    if _LIST.value:
        print(_presets())
        return
    _keep_freed_memory()
    with quiet_start():
        from xling_tf.trainer.training import prepare
    name, config = _experiment()
    if _SHOW.value:
        print("\n".join(setting_lines(settings_by_name(to_dict(config)))))
        return
    logging.info("%s", _summary(name, config))
    run = prepare(
        name,
        config,
        data=_DATA.value,
        run_dir=_RUN_DIR.value,
        output=_OUTPUT.value,
        cache=_CACHE.value,
        is_plan=_DRY_RUN.value,
    )
    if _DRY_RUN.value:
        from training.plan import plan

        print(plan(run))
    elif not _run(run):
        sys.exit(1)


def _presets() -> str:
    """Returns the names and descriptions of the presets, those of papers after the others."""
    to_use = [name for name in PRESETS if name not in OF_PAPERS]
    lines = []
    for title, names in (("To use:", to_use), ("Of the papers, to compare with:", OF_PAPERS)):
        lines += [title, *(f"  {name:20}  {PRESETS[name].description}" for name in names)]
    return "\n".join(lines)


def _summary(name: str, config: ExperimentConfig) -> str:
    """Says what begins, for those who have given no flags."""
    corpora = _DATA.value or "the default corpora, downloaded if missing (about 0.7 GB for a pair)"
    if config.data.sample:
        corpora = "the built-in sample"
    languages, limit = "-".join(config.data.languages), config.training.budget
    return f"{name}: the preset {_PRESET.value} for {languages} on {corpora}; at most {limit}"


def _keep_freed_memory() -> None:
    """Makes malloc keep the memory of one step for the next, which saves a seventh of the time."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):  # only glibc has it
        for parameter, value in _MALLOC.items():
            mallopt(parameter, value)


def _experiment() -> tuple[str, ExperimentConfig]:
    """Returns the name and the settings of the run."""
    from xling_tf.trainer.training import experiment

    preset, pair = _named()
    return experiment(
        preset,
        pair=pair,
        source=_SOURCE.value,
        target=_TARGET.value or (),
        data=_DATA.value,
        minutes=_MINUTES.value,
        steps=_STEPS.value,
        seed=_SEED.value,
        init=_INIT.value,
        teacher=_TEACHER.value,
        settings=_SET.value,
    )


def _named() -> tuple[str, str | None]:
    """Returns the preset and the pair; in the last version, --pair and --preset were one flag."""
    name, pair = _PRESET.value, _PAIR.value
    is_name = pair in PRESETS or pair in FORMER_NAMES
    if pair and is_name and pair != "-".join(get_preset(pair).data.languages):
        name, pair = pair, None
        logging.warning("--pair %s is now --preset %s: --pair names languages", name, name)
    if name in FORMER_NAMES and name not in PRESETS:
        now = FORMER_NAMES[name].flags
        logging.warning("--preset %s is now %s; the old name goes with the next version", name, now)
    return name, pair


def _run(run: "Run") -> bool:
    """Trains and prints the scores; False if a signal stopped the training."""
    from xling_tf.trainer.training import CURVES, run_and_draw

    results = run_and_draw(run)
    if results:
        print(_table(results["scores"]))
        print(
            f"\nAll scores are in {run.run_dir}/results.json, the losses in {run.output}/{CURVES}. "
            "To see more:\n"
        )
        print(f"    xling-tf report {run.run_dir}/results.json\n")
        print(f"    tensorboard --logdir {run.run_dir}/tensorboard")
        print(f"\nThe model is in {run.output}. {ways_to_try(run.output)}", end="")
    return results is not None


def _table(scores: Mapping[str, Mapping[str, float]]) -> str:
    """Formats the scores but those of single corpora, and less telling metrics.

    Losses and accuracies of tasks are shown if nothing else was scored.
    """
    telling = {
        name: {metric: v for metric, v in values.items() if not _LESS_TELLING.search(metric)}
        for name, values in scores.items()
        if not name.startswith("retrieval/") or name.endswith("/all")
    }
    if not any(telling.values()):
        return "There were no held-out examples to score; `xling-tf evaluate` scores the model."
    others = {name: values for name, values in telling.items() if not name.startswith("task/")}
    return format_table(others if any(others.values()) else telling)


if __name__ == "__main__":
    run(main, "the same command continues", extra="tensorflow")
