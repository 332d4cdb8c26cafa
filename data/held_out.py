"""Writes the held-out translations, so that evaluation/main.py can score any system on them.

    python data/held_out.py --data my_corpora --target es,fr --output my_evaluation
    python evaluation/main.py --model exported/en-es --data my_evaluation --suite retrieval,bitext

They are the stable tenth of each corpus, chosen by a hash of the text, that no training on the folder sees.
"""

import math
import sys
from collections.abc import Sequence
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags

from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.line_files import write_lines
from xling_tf.corpora.store import transient_store
from xling_tf.errors import UserError
from xling_tf.program import run

# A smaller corpus has no file of its own: the papers search a thousand sentences for the right one.
MIN_PAIRS = 1000

_DATA = flags.DEFINE_string("data", None, "Folder of corpora.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "Folder for bitext/.", required=True)
_SOURCE = flags.DEFINE_string("source", "en", "Source language.")
_TARGET = flags.DEFINE_list("target", ["es"], "Target language, or several: es,fr.")
_MAX = flags.DEFINE_integer("max_pairs", 5000, "Maximum number of pairs in a file.", lower_bound=MIN_PAIRS)


def main() -> None:
    """Writes the files of the flags, and prints the counts."""
    data, output = Path(_DATA.value), Path(_OUTPUT.value)
    written = write_held_out(data, output, _SOURCE.value, _TARGET.value, _MAX.value)
    for path, count in written.items():
        print(f"{path}: {count} pairs")


def write_held_out(
    data: Path, output: Path, source: str, targets: Sequence[str], max_pairs: int
) -> dict[Path, int]:
    """Writes a file for each corpus with a thousand held-out pairs, and one for all corpora of a target.

    If there are more than `max_pairs`, every n-th is written. Returns the number of pairs by file.
    """
    corpora = load_folder(data, source=source, targets=targets)
    store = transient_store([corpus for corpus in corpora if corpus.kind == "parallel"])
    written = {}
    for target in targets:
        pair = f"{source}-{target}"
        parts = {c.name: [texts[:2] for texts in c.held_out] for c in store.corpora if c.languages == pair}
        parts["all"] = [texts for part in parts.values() for texts in part]
        for name, rows in parts.items():
            if len(rows) >= MIN_PAIRS:
                rows = [(source, target), *rows[:: math.ceil(len(rows) / max_pairs)]]
                path = output / "bitext" / f"{name}_held_out.{pair}.tsv.gz"
                write_lines(path, map("\t".join, rows))
                written[path] = len(rows) - 1
    if not written:
        raise UserError(f"{data} has fewer than {MIN_PAIRS} held-out pairs, a tenth of all; give more text")
    return written


if __name__ == "__main__":
    run(main, "the files that exist are complete")
