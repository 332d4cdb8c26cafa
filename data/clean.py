"""Keeps the pairs of a noisy bitext that are translations.

    xling-tf clean --model exported/en-es --input noisy.en-es.tsv --output clean.en-es.tsv

Rules about the texts, and the margin of the model's cosines, decide. The pairs stay in order.
"""

import sys
from functools import cache
from pathlib import Path
from typing import Any

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags

from xling_tf.program import progress, quiet_start, run

_MODEL = flags.DEFINE_string(
    "model", None, "The exported model, in any form that xling_tf.load opens.", required=True
)
_INPUT = flags.DEFINE_string(
    "input", None, "Table of sources and targets, such as a TSV file.", required=True
)
_OUTPUT = flags.DEFINE_string("output", None, "File for the kept pairs.", required=True)
_OPTIONS = (
    flags.DEFINE_string("source", "en", "Source language."),
    flags.DEFINE_string("target", "es", "Target language."),
    flags.DEFINE_float("threshold", 1.0, "Minimum margin of a pair."),
)


def main() -> None:
    """Cleans what the flags describe, and prints the counts."""
    with quiet_start():
        from xling_tf.bulk.bitext_cleaning import clean_bitext
        from xling_tf.savedmodel.saved_models import find_model
        from xling_tf.sentence_encoder import SentenceEncoder
    with progress("cleaning") as report:
        # The model is loaded for the first pairs.
        folder, load = find_model(_MODEL.value), cache(SentenceEncoder)
        options: dict[str, Any] = {flag.name: flag.value for flag in _OPTIONS}
        paths = Path(_INPUT.value), Path(_OUTPUT.value)
        counts = clean_bitext(
            lambda texts: load(folder).encode(texts), *paths, report=report, **options
        )
    print(f"{_OUTPUT.value}: {', '.join(f'{count} {name}' for name, count in counts.items())}")


if __name__ == "__main__":
    run(main, "the same command starts again", extra="bulk")
