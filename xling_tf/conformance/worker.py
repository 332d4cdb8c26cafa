"""A process that runs checks for another one: `python -m xling_tf.conformance.worker`.

Its arguments are the folder, the numbers of sentences and calls, and the names of checks. It writes a
line of JSON for each, its outcome.
"""

import json
import os
import sys
from pathlib import Path

from xling_tf.errors import quiet_start

with quiet_start():
    from xling_tf.conformance.subject import Subject
    from xling_tf.conformance.suite import run_check


def main(arguments: list[str]) -> None:
    """Runs the checks."""
    # Libraries print to standard output as well: theirs becomes standard error.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as lines:
        os.dup2(2, 1)
        folder, sentences, calls, *names = arguments
        subject = Subject(Path(folder), int(sentences), int(calls))
        for name in names:
            print(json.dumps(run_check(name, subject)), file=lines, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
