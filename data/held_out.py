"""Writes the translations that training holds out, for evaluation/main.py to score any system on.

    python data/held_out.py --data my_corpora --target es,fr --output my_evaluation
    python evaluation/main.py --model exported/en-es --data my_evaluation --suite retrieval,bitext

The stable tenth of each corpus, chosen by a hash of its text, that no training on the folder sees.
"""

import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import app, flags

from xling_tf.corpora.held_out import write_held_out
from xling_tf.errors import one_line_errors, parse_flags, set_up_logging

_DATA = flags.DEFINE_string("data", None, "Folder of corpora.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "Folder for bitext/.", required=True)
_SOURCE = flags.DEFINE_string("source", "en", "Source language.")
_TARGET = flags.DEFINE_list("target", ["es"], "Target language, or several: es,fr.")
_MAX = flags.DEFINE_integer("max_pairs", 5000, "Pairs in one file.", lower_bound=1000)


def main(argv: list[str]) -> None:
    """Writes what the flags describe, and prints the counts."""
    del argv
    set_up_logging()
    with one_line_errors("files that are written are whole"):
        written = write_held_out(
            Path(_DATA.value),
            Path(_OUTPUT.value),
            source=_SOURCE.value,
            targets=_TARGET.value,
            max_pairs=_MAX.value,
        )
    for path, count in written.items():
        print(f"{path}: {count} pairs")


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
