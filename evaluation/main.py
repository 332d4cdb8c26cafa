"""Evaluates a sentence encoder by the papers' protocols.

    python evaluation/main.py --model exported/en-es --data DIR
    python evaluation/main.py --model rest:http://127.0.0.1:8501/v1/models/en-es --data DIR --suite
    sts,bitext

The same command continues an evaluation that was stopped or killed.
"""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

# Works in a checkout without installation.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags
from tabulate import tabulate

from xling_tf.corpora.folder import SAMPLE_FOLDER
from xling_tf.errors import UserError
from xling_tf.evaluators.classifiers import NETWORK
from xling_tf.program import define_import, format_table, progress, quiet_start, run

_MODEL = flags.DEFINE_string(
    "model", None, "The model: exported/en-es, rest:URL or python:module:function."
)
_DATA = flags.DEFINE_string(
    "data", None, "Folder of evaluation data or corpora; sample for the built-in."
)
_SUITE = flags.DEFINE_list(
    "suite", [], "Suites (sts) or data sets (sts/stsb.en.dev, bitext/*); default all in the folder."
)
_OUTPUT = flags.DEFINE_string("output", None, "Results file; default runs/evaluation/<name>.json.")
_CACHE = flags.DEFINE_string("cache", "runs/embeddings", "Folder in which vectors are stored.")
_HIDDEN = flags.DEFINE_integer(
    "hidden",
    NETWORK["hidden"],
    "Hidden units of the network of the suite senteval; 128 in Yu et al. 2018, Table 1.",
    lower_bound=1,
)
_SEED = flags.DEFINE_integer("seed", 0, "Random seed.")
_LIST = flags.DEFINE_bool("list", False, "Lists the suites and exits.")
define_import()


def main() -> None:
    """Runs the suites that the flags ask for."""
    from xling_tf.evaluators.running import SUITES

    if _LIST.value:
        rows = [(suite.name, suite.title, suite.source) for suite in SUITES.values()]
        print(tabulate(rows, tablefmt="plain"))
        return
    _run()


def _run() -> None:
    from xling_tf.evaluators import transfer
    from xling_tf.evaluators.cache import cached
    from xling_tf.evaluators.data import select
    from xling_tf.evaluators.embedders import open_embedder
    from xling_tf.evaluators.running import SUITES, evaluate_embedder, headlines

    if _MODEL.value is None or _DATA.value is None:
        raise UserError("expected --model and --data, which --help describes")
    folder = SAMPLE_FOLDER if _DATA.value == "sample" else Path(_DATA.value)
    senteval = replace(transfer.SUITE, find=partial(transfer.find, hidden=_HIDDEN.value))
    datasets, missing = select({**SUITES, "senteval": senteval}, folder, _SUITE.value, _SEED.value)
    with progress(f"loading {_MODEL.value}"), quiet_start():
        embedder = open_embedder(_MODEL.value)
    output = Path(_OUTPUT.value or f"runs/evaluation/{embedder.name}.json")
    embedder = cached(embedder, Path(_CACHE.value), show_progress=True)
    results = evaluate_embedder(
        embedder, datasets, output, missing=missing, folder=folder, seed=_SEED.value
    )
    print(format_table(headlines(results, datasets)))
    if embedder.trained_on is None:
        print(
            "\nThe training data of the model, and so their overlap with these data sets, are "
            "unknown."
        )
    print(f"\n{output} has all scores; compare them with those of papers and other models by\n")
    print(f"    python evaluation/report.py {output} --output report.html")


if __name__ == "__main__":
    run(main, "the same command continues", extra="evaluation")
