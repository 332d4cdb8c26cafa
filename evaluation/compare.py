"""Prints the results of trainings as one Markdown table.

python evaluation/compare.py runs/en-es/results.json runs/no-snli/results.json
"""

import json
import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import app

from xling_tf.errors import parse_flags_and_files
from xling_tf.evaluators.comparison import comparison, summary


def main(argv: list[str]) -> None:
    """Reads the files and prints the table."""
    paths = [Path(argument) for argument in argv[1:]]
    if not paths:
        print("error: files of results are expected, got none", file=sys.stderr)
        sys.exit(2)
    rows = {}
    for path in paths:
        name = path.parent.name if path.name == "results.json" else path.stem
        try:
            rows[name] = summary(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError) as error:
            print(f"error: {path} must be a training's results.json: {error}", file=sys.stderr)
            sys.exit(2)
    print(comparison(rows))


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags_and_files)
