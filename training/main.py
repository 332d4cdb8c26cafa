"""Trains a cross-lingual sentence encoder, evaluates and exports it.

    python training/main.py --pair en-es
    python training/main.py --pair en-es --data my_corpora --minutes 60

The same command continues a training that was stopped or killed.
"""

import os
import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed. TensorFlow's start-up notes are
# for its developers.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from absl import app, flags, logging  # noqa: E402

from xling_tf.errors import UserError  # noqa: E402
from xling_tf.overrides import apply_overrides  # noqa: E402
from xling_tf.presets import PRESETS, get_preset  # noqa: E402

_PAIR = flags.DEFINE_string("pair", "en-es", "Preset to train; --list names them.")
_DATA = flags.DEFINE_string("data", None, "Folder of corpora; without it, the preset's own.")
_SET = flags.DEFINE_multi_string("set", [], "Changes a setting: dotted.name=value. Repeatable.")
_MINUTES = flags.DEFINE_float("minutes", None, "Minutes of training.", lower_bound=0)
_STEPS = flags.DEFINE_integer("steps", None, "Steps of training.", lower_bound=0)
_RUN_DIR = flags.DEFINE_string("run_dir", None, "Checkpoints and logs; default runs/<pair>.")
_OUTPUT = flags.DEFINE_string("output", None, "Exported model; default exported/<pair>.")
_LIST = flags.DEFINE_bool("list", False, "Lists the presets and exits.")


def main(argv: list[str]) -> None:
    """Runs the experiment that the flags describe."""
    if len(argv) > 1:
        raise app.UsageError(f"flags are expected, got {argv[1]!r}")
    if _LIST.value:
        for name, preset in PRESETS.items():
            print(f"{name:16}{preset.description}")
        return
    logging.set_verbosity(logging.INFO)
    try:
        _train()
    except UserError as error:
        sys.exit(f"error: {error}")


def _train() -> None:
    name = _PAIR.value
    config = apply_overrides(get_preset(name), [*_SET.value, *_budget()])
    # TensorFlow takes seconds to start: a mistyped flag is told before that.
    from xling_tf.evaluators.table import format_table
    from xling_tf.experiment import run_experiment

    output = Path(_OUTPUT.value or f"exported/{name}")
    run_dir = Path(_RUN_DIR.value or f"runs/{name}")
    data = Path(_DATA.value) if _DATA.value else None
    results = run_experiment(name=name, config=config, data=data, run_dir=run_dir, output=output)
    if results is None:
        sys.exit(1)
    print(format_table(results["scores"]))
    print(f"\n{output} holds the model; try\n")
    print(f'    python -c \'import tensorflow_hub as hub; print(hub.load("{output}")(["Hola"]))\'')


def _budget() -> list[str]:
    """Overrides for the budget: what is asked for replaces the preset's."""
    if _MINUTES.value is None and _STEPS.value is None:
        return []
    return [
        f"training.minutes={_MINUTES.value or 0}",
        f"training.steps={_STEPS.value or 0}",
    ]


if __name__ == "__main__":
    app.run(main)
