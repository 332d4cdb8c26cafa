"""Prepares raw text for training, by Apache Beam.

    python data/main.py reddit --input 'RC_2016-*.zst' --output my_corpora
    python data/main.py wikipedia --input 'enwiki-*.xml*.bz2' --language en --output my_corpora

The same command continues a preparation that was stopped or killed.
"""

import logging
import os
import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed, nor for Beam's worker processes.
_ROOT = str(Path(__file__).resolve().parents[1])
sys.path.insert(0, _ROOT)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))

from absl import app, flags

from xling_tf.errors import one_line_errors, set_up_logging


def main(argv: list[str]) -> None:
    """Runs the subcommand and prints what became of its input."""
    set_up_logging()
    # What goes wrong in a worker comes as an exception as well.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    with one_line_errors("the same command continues"):
        # Beam is an extra: the first of these imports tells where it is missing.
        from xling_tf.pipelines.command import format_account, run_command
        from xling_tf.pipelines.registry import COMMANDS

        print(format_account(run_command(COMMANDS, argv[1:])))


def _parse_flags(argv: list[str]) -> list[str]:
    """Leaves all flags to the subcommands and Beam."""
    flags.FLAGS.mark_as_parsed()
    return argv


if __name__ == "__main__":
    app.run(main, flags_parser=_parse_flags)
