"""Fetches the collection of data on which our figures were measured.

    xling-tf prepare collection             # all that can be made, into data/collection
    xling-tf prepare collection --list      # addresses, sizes, licences, what to do by hand

The checksum of each table must be that of ours, so the text is the same as the one on which our
figures were measured. Tables that exist are checked, and made again if they are wrong. After an
interruption, the same command continues.
"""

import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags
from published import read_sets
from published import run as prepare

from xling_tf.program import run


def main(*words: str) -> None:
    """Prepares the sets of our collection."""
    prepare([data_set for data_set in read_sets() if data_set.is_ours], words)


if __name__ == "__main__":
    flags.DEFINE_string("output", "data/collection", "Folder for the collection.")
    flags.DEFINE_bool("list", False, "Lists the sets, and exits.")
    run(main, "the same command continues", files="[SET ...]")
