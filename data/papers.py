"""Fetches the papers' free evaluation sets, as tables for `evaluate`.

    xling-tf prepare papers                      # all free sets, into data/eval
    xling-tf prepare papers stsb quora           # some of them
    xling-tf prepare papers --list               # addresses, sizes, licences, what to do by hand
    xling-tf evaluate --model exported/en-es --data data/eval

Tables that exist and are right are not fetched again. After an interruption, the same command
continues.
"""

import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags
from published import EVALUATION, read_sets
from published import run as prepare

from xling_tf.program import run


def main(*words: str) -> None:
    """Prepares the sets that evaluations read."""
    sets = [s for s in read_sets() if any(path.startswith(EVALUATION) for path in s.tables)]
    prepare(sets, words, EVALUATION)


if __name__ == "__main__":
    flags.DEFINE_string("output", "data/eval", "The evaluation folder.")
    flags.DEFINE_bool("list", False, "Lists the sets, and exits.")
    run(main, "the same command continues", files="[SET ...]")
