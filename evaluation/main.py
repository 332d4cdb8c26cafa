r"""Evaluates a sentence encoder by the papers' protocols.

    xling-tf evaluate --model exported/en-es --data DIR
    xling-tf evaluate --model rest:http://127.0.0.1:8501/v1/models/en-es --data DIR \
        --suite sts,bitext

The same command continues an evaluation that was stopped or killed.
"""

import sys
from pathlib import Path

# Works in a checkout without installation.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags
from tabulate import tabulate

from xling_tf.errors import UserError
from xling_tf.evaluators.classifiers import NETWORK
from xling_tf.program import define_import, format_table, quiet_start, run

_MODEL = flags.DEFINE_string(
    "model", None, "The model: exported/en-es, rest:URL or python:module:function."
)
_DATA = flags.DEFINE_string(
    "data", None, "Folder of evaluation data or corpora; sample is the built-in one."
)
_SUITE = flags.DEFINE_list(
    "suite",
    [],
    "Suites (sts) or data sets (sts/stsb.en.dev, bitext/*); default: all of the folder.",
)
_OUTPUT = flags.DEFINE_string("output", None, "Results file; default: runs/evaluation/<name>.json.")
_CACHE = flags.DEFINE_string("cache", "runs/embeddings", "Folder that keeps the vectors.")
_HIDDEN = flags.DEFINE_integer(
    "hidden",
    NETWORK["hidden"],
    "Hidden units of the network in the suite senteval; 128 in Yu et al. 2018, Table 1.",
    lower_bound=1,
)
_SEED = flags.DEFINE_integer("seed", 0, "Random seed.")
_LIST = flags.DEFINE_bool("list", False, "Lists the suites, and exits.")
define_import()


def main() -> None:
    """Runs the suites that the flags ask for."""
    with quiet_start():
        from xling_tf.evaluators.running import SUITES, evaluate, headlines, results_file
    if _LIST.value:
        rows = [(suite.name, suite.title, suite.source) for suite in SUITES.values()]
        print(tabulate(rows, tablefmt="plain"))
        return
    if _MODEL.value is None or _DATA.value is None:
        raise UserError("expected --model and --data, which --help describes")
    results = evaluate(
        _MODEL.value,
        _DATA.value,
        suite=_SUITE.value,
        output=_OUTPUT.value,
        cache=_CACHE.value,
        hidden=_HIDDEN.value,
        seed=_SEED.value,
    )
    accounts = {
        f"{suite}/{name}": account
        for suite, datasets in results["datasets"].items()
        for name, account in datasets.items()
    }
    print(format_table(headlines(results, accounts)))
    if not any("trained_on" in account for account in accounts.values()):
        print(
            "\nIt is not known what the model was trained on, so it may have seen these data sets."
        )
    output = _OUTPUT.value or results_file(results["system"]["name"])
    print(f"\nAll scores are in {output}. To compare them with those of papers and other models:\n")
    print(f"    xling-tf report {output} --output report.html")


if __name__ == "__main__":
    run(main, "the same command continues", extra="evaluation")
