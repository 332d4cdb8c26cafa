"""Mines hard negatives: for each translation, the most similar wrong ones.

    python data/mine.py --model exported/translation-ranking-en-es --data my_corpora
    python training/main.py --pair en-es --data my_corpora --set tasks.hard_negatives=5

The same command keeps what it has mined already.
"""

import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import app, flags
from folder_mining import mine_folder, model_fingerprint

from xling_tf.errors import one_line_errors, parse_flags, quiet_start, set_up_logging
from xling_tf.hub.saved_models import resolve
from xling_tf.search.mining import QUERIES, STRATEGIES, MiningConfig
from xling_tf.sentence_encoder import SentenceEncoder

_MODEL = flags.DEFINE_string("model", None, "Exported model that says what is similar.", required=True)
_DATA = flags.DEFINE_string("data", None, "Folder of corpora.", required=True)
_CORPUS = flags.DEFINE_multi_string("corpus", [], "A corpus to mine; default all. Repeatable.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder for hard_negatives/; default that of --data.")
_SOURCE = flags.DEFINE_string("source", "en", "Source language.")
_TARGET = flags.DEFINE_list("target", ["es"], "Target language, or several: es,fr.")
_QUERY = flags.DEFINE_enum("query", "target", QUERIES, "Similar to the right translation, or to the source.")
_TOP = flags.DEFINE_integer("top", 5, "Negatives of each pair, at most.")
_RANGE_MIN = flags.DEFINE_integer("range_min", 0, "How many of the nearest are skipped.")
_RANGE_MAX = flags.DEFINE_integer("range_max", None, "How many of the nearest are looked at.")
_MAX_SCORE = flags.DEFINE_float("max_score", None, "Those above it are dropped.")
_MIN_SCORE = flags.DEFINE_float("min_score", None, "Those below it are dropped.")
_ABSOLUTE = flags.DEFINE_float(
    "absolute_margin", None, "Those not this far below the right one's score are dropped."
)
_RELATIVE = flags.DEFINE_float("relative_margin", 0.05, "The same, as a share of the right one's score.")
_STRATEGY = flags.DEFINE_enum(
    "sampling_strategy", "top", STRATEGIES, "The nearest that pass, or any of them."
)
_SEED = flags.DEFINE_integer("seed", 1, "Of --sampling_strategy=random.")


def main(argv: list[str]) -> None:
    """Mines what the flags describe, and prints the counts."""
    del argv
    set_up_logging()
    with one_line_errors("the same command keeps the corpora that are done"):
        config = MiningConfig(
            num_negatives=_TOP.value,
            range_min=_RANGE_MIN.value,
            range_max=_RANGE_MAX.value,
            max_score=_MAX_SCORE.value,
            min_score=_MIN_SCORE.value,
            absolute_margin=_ABSOLUTE.value,
            relative_margin=_RELATIVE.value,
            sampling_strategy=_STRATEGY.value,
            seed=_SEED.value,
            query=_QUERY.value,
        )
        model = resolve(_MODEL.value)
        with quiet_start():
            encoder = SentenceEncoder.load(model)
        counts = mine_folder(
            Path(_DATA.value),
            encoder.encode,
            config,
            model=model_fingerprint(model),
            source=_SOURCE.value,
            targets=_TARGET.value,
            names=_CORPUS.value,
            output=Path(_OUTPUT.value) if _OUTPUT.value is not None else None,
            show_progress=sys.stderr.isatty(),
        )
    for corpus, counters in counts.items():
        print(f"{corpus}: {', '.join(f'{what} {count}' for what, count in counters.items())}")


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
