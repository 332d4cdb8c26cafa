r"""Puts evaluations beside each other and beside the papers' figures, on a page and in Markdown.

python evaluation/report.py runs/evaluation/en-es.json runs/evaluation/usem3.json --training runs/en-es
python evaluation/report.py runs/evaluation/en-es.json --markdown report.md
python evaluation/report.py runs/evaluation/en-es.json --markdown - \
    --scores sts/stsb.en.dev/pearson_angular --published "Yang et al. 2019/USE_CNN"
"""

import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import app, flags

from xling_tf.errors import UserError, one_line_errors, parse_flags_and_files
from xling_tf.evaluators.suites import SUITES
from xling_tf.files import replacing, require_writable_folder
from xling_tf.reporting.curves import learning_curves
from xling_tf.reporting.markdown import compact_table, markdown_report
from xling_tf.reporting.page import html_report
from xling_tf.reporting.results import read_results

_OUTPUT = flags.DEFINE_string("output", None, "The page; default report.html if no --markdown.")
_MARKDOWN = flags.DEFINE_string("markdown", None, "Tables in Markdown; - prints them.")
_TRAINING = flags.DEFINE_multi_string("training", [], "Run folder for the curves. Repeatable.")
_SCORES = flags.DEFINE_list(
    "scores", [], "Only these in Markdown: senteval/MR/network/accuracy,sts/..."
)
_PUBLISHED = flags.DEFINE_multi_string(
    "published", [], "Beside --scores: a paper's system, as 'Yang et al. 2019/USE_CNN'. Repeatable."
)


def main(argv: list[str]) -> None:
    """Reads the results that the arguments name, and writes the report."""
    with one_line_errors("the same command makes the report anew"):
        _run([Path(argument) for argument in argv[1:]])


def _run(paths: list[Path]) -> None:
    if not paths:
        raise UserError("results files are expected, as runs/evaluation/en-es.json, got none")
    results = read_results(paths)
    if _MARKDOWN.value is not None:
        if _SCORES.value:
            text = compact_table(results, _SCORES.value, _PUBLISHED.value)
        else:
            text = markdown_report(results)
        _write(_MARKDOWN.value, text)
    if _OUTPUT.value is not None or _MARKDOWN.value is None:
        curves = [chart for run in _TRAINING.value for chart in learning_curves(Path(run))]
        suites = {name: (suite.title, suite.source) for name, suite in SUITES.items()}
        _write(_OUTPUT.value or "report.html", html_report(results, curves, suites))


def _write(name: str, text: str) -> None:
    if name == "-":
        print(text, end="")
        return
    path = Path(name)
    require_writable_folder(path.parent, "give another file")
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(f"{path} is written", file=sys.stderr)


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags_and_files)
