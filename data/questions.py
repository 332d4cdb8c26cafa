"""Gives the answers of a question answering corpus a context: the answers around them.

    python data/questions.py --pairs squad.tsv.gz --output my_corpora/questions/squad.en.tsv.gz
    python training/main.py --pair multilingual-qa --data my_corpora

For corpora that have lost their paragraphs: lines of question TAB answer in the order of their
documents become lines of question TAB answer TAB context.
"""

import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import app, flags

from xling_tf.corpora.question_contexts import add_contexts
from xling_tf.errors import one_line_errors, parse_flags, set_up_logging

_PAIRS = flags.DEFINE_string("pairs", None, "Lines of question TAB answer.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "NAME.LANGUAGE.tsv or .tsv.gz.", required=True)
_NEIGHBOURS = flags.DEFINE_integer(
    "neighbours", 2, "Distinct answers on each side that are the context.", lower_bound=0
)


def main(argv: list[str]) -> None:
    """Writes what the flags describe, and prints the counts."""
    del argv
    set_up_logging()
    with one_line_errors("the same command begins anew"):
        counts = add_contexts(Path(_PAIRS.value), Path(_OUTPUT.value), _NEIGHBOURS.value)
    print(f"{_OUTPUT.value}: {', '.join(f'{what} {count}' for what, count in counts.items())}")


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
