"""Makes the model in the box, `xling_tf/models/multilingual-mini`, again.

    python training/box.py
    python training/box.py DATA         # adds the scores on STS Benchmark, in DATA/eval/sts

It prepares the default corpora of fifteen languages with English, trains an average of words on
them, exports it for NumPy, and adds the scores of the exported file to its card. After an
interruption, the same command continues. Because its budget is in steps, it makes the same bytes
each time on one machine.
"""

import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from xling_tf.errors import UserError
from xling_tf.files import folder_bytes, replacing
from xling_tf.models import BOX_FOLDER, IN_THE_BOX
from xling_tf.program import progress, quiet_start, run

if TYPE_CHECKING:
    from xling_tf.trainer.context import Run

# Those of the published multilingual encoder, which teaches it.
TARGETS = tuple("ar de es fr it ja ko nl pl pt ru th tr zh zh_TW".split())
STEPS = 3000
SETTINGS = {
    "tokenizer.num_oov_buckets": 1,
    # The export keeps about 170,000 words. Rare ones of manuals would leave no room for the common
    # words of each language.
    "tokenizer.max_words": 300_000,
    "tokenizer.min_word_count": 10,
    "training.precision": "float32",  # "auto" would decide by the machine's load
}
SIZES: Mapping[str, Any] = {"dim": 384, "bits": 4, "megabytes": 19.0}

_SCORES = """
## Scores

Of this very file. For each language, held-out messages and manuals are searched for the translation
of an English one, and the other way round (precision at 1, in percent, among {candidates} at most).

{retrieval}
"""
_SIMILARITY = """
STS Benchmark: Pearson's correlation with people's scores.

{similarity}
"""


def main(*arguments: str) -> None:
    """Makes the model, or continues to, and prints its card."""
    if len(arguments) > 1:
        raise UserError(
            f"expected a folder of evaluation data or nothing, got {' '.join(arguments)}; name one"
        )
    with quiet_start():
        from xling_tf.trainer.training import experiment, prepare, run_and_draw
    _, config = experiment("static", target=TARGETS, steps=STEPS, minutes=0, settings=SETTINGS)
    trained = prepare(IN_THE_BOX, config)
    if not run_and_draw(trained):
        sys.exit(1)
    make(trained, BOX_FOLDER, *map(Path, arguments))
    print((BOX_FOLDER / "README.md").read_text("utf-8"))
    print(f"{BOX_FOLDER}, {folder_bytes(BOX_FOLDER) / 1e6:.1f} MB")


def make(trained: "Run", folder: Path, data: Path | None = None) -> None:
    """Exports what a run has trained, scores the export, and adds the scores to its card.

    Args:
        trained: A finished run.
        folder: Folder of the export, which is replaced.
        data: Folder of evaluation data with STS Benchmark.
    """
    from xling_tf.corpora.store import CorpusStore
    from xling_tf.exporters.base import export
    from xling_tf.sentence_encoder import load
    from xling_tf.trainer.validation import score_encoder

    export(trained.output, "numpy", folder, **SIZES)
    with progress(f"scoring {folder}"):
        scores = score_encoder(
            load(folder).encode,
            trained.config.data.languages,
            CorpusStore(trained.run_dir / "corpora").corpora,
            data,
        )
    card = folder / "README.md"
    with replacing(card) as temporary:
        temporary.write_text(card.read_text("utf-8") + _score_table(scores), "utf-8")


def _score_table(scores: Mapping[str, Mapping[str, float]]) -> str:
    """Formats the scores for the card."""
    from xling_tf.trainer.validation import main_scores

    precisions, correlations = main_scores(scores)
    candidates = max(v["num_candidates"] for name, v in scores.items() if name.endswith("/all"))
    retrieval = [(code, *(f"{100 * p:.1f}" for p in both)) for code, both in precisions.items()]
    similarity = [(name, f"{score:.3f}") for name, score in correlations.items()]
    headers = ("language", "from English", "to English")
    table = tabulate(retrieval, headers, tablefmt="github", disable_numparse=True)
    text = _SCORES.format(retrieval=table, candidates=f"{candidates:,.0f}")
    if similarity:
        table = tabulate(
            similarity, ("data set", "score"), tablefmt="github", disable_numparse=True
        )
        text += _SIMILARITY.format(similarity=table)
    return text


if __name__ == "__main__":
    run(main, "the same command continues", extra="data", files="[DATA]")
