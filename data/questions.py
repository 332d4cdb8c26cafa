"""Gives the answers of a question answering corpus a context: the answers around them.

    python data/questions.py --pairs squad.tsv.gz --output my_corpora/questions/squad.en.tsv.gz
    python training/main.py --pair multilingual-qa --data my_corpora

For corpora that have lost their paragraphs: lines of question TAB answer in the order of their
documents become lines of question TAB answer TAB context. An answer that comes again has its first
context.
"""

import re
import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import app, flags

from xling_tf.corpora.line_files import write_lines
from xling_tf.corpora.questions import read_questions
from xling_tf.corpora.sentences import surroundings
from xling_tf.errors import UserError, one_line_errors, parse_flags, set_up_logging
from xling_tf.files import require_writable_folder

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
        output = Path(_OUTPUT.value)
        if not re.fullmatch(r"[^.].*\.[a-z]{2,3}(_[A-Za-z]{2,4})?\.tsv(\.gz)?", output.name):
            raise UserError(
                f"--output expects a name that says the language, as squad.en.tsv.gz, got {output.name!r}"
            )
        require_writable_folder(output.parent, "give another with --output")
        pairs = _read_pairs(Path(_PAIRS.value))
        answers = list(dict.fromkeys(answer for _, answer in pairs))
        around = surroundings(answers, _NEIGHBOURS.value)
        lines = (f"{question}\t{answer}\t{around[answer]}" for question, answer in pairs)
        write_lines(output, lines)
        contexts = len(set(around.values()))
        print(f"{output}: questions {len(pairs)}, answers {len(answers)}, contexts {contexts}")


def _read_pairs(path: Path) -> list[tuple[str, str]]:
    reading = read_questions(path)
    pairs = []
    for (question, answer, context), _ in reading:
        if context != answer:
            raise UserError(
                f"{path} must hold lines of question TAB answer, but that of {question[:80]!r} has a "
                "context already; train on the file as it is"
            )
        pairs.append((question, answer))
    if not pairs:
        raise reading.nothing_usable()
    if reading.malformed:
        print(reading.summary(), file=sys.stderr)
    return pairs


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
