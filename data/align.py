"""Pairs the sentences of a text with those of its translation.

    xling-tf align book.de.txt book.fr.txt --model exported/use-multilingual --output pairs.tsv

The name of the output tells its format: .tsv, .jsonl, .tmx or .parquet. The texts are plain (one
sentence per line, or paragraphs between empty lines), subtitles (.srt, .vtt), HTML, Markdown, EPUB,
PO or XLIFF. The files of two folders are paired by their names, such as novel.de.txt and
novel.fr.txt:

    xling-tf align german french --model exported/use-multilingual --output 'aligned/*.tsv'

After an interruption, the same command continues: pairs whose output exists are skipped.
"""

import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags

from xling_tf.errors import UserError
from xling_tf.models import IN_THE_BOX
from xling_tf.program import progress, quiet_start, report_default_model, run

_MODEL = flags.DEFINE_string("model", IN_THE_BOX, "The model, anything that xling_tf.load opens.")
_OUTPUT = flags.DEFINE_string(
    "output", None, "File for the pairs; for two folders, such as 'aligned/*.tsv'.", required=True
)
_REVIEW = flags.DEFINE_string(
    "review", None, "File for a page with both texts side by side: review.html or 'review/*.html'."
)
_MIN_PROBABILITY = flags.DEFINE_float(
    "min_probability", 0.0, "Smallest probability that a group is right, such as 0.9.", 0, 1
)


def main(*files: str) -> None:
    """Aligns what the command line names, and prints the counts."""
    if len(files) != 2:
        raise UserError(
            f"expected two files or two folders, got {' '.join(files) or 'none'}; name both"
        )
    report_default_model(flags.FLAGS["model"])
    with quiet_start():
        from xling_tf.bulk.aligned_files import align_files
        from xling_tf.sentence_encoder import SentenceEncoder
    with progress("aligning") as report:
        counts = align_files(
            lambda: SentenceEncoder(_MODEL.value),
            Path(files[0]),
            Path(files[1]),
            Path(_OUTPUT.value),
            review=Path(_REVIEW.value) if _REVIEW.value else None,
            min_probability=_MIN_PROBABILITY.value,
            report=report,
        )
    print(f"{_OUTPUT.value}: {', '.join(f'{count} {name}' for name, count in counts.items())}")


if __name__ == "__main__":
    run(main, "the same command continues", extra="align", files="SOURCE TARGET")
