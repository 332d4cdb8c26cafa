r"""Mines translations, or wrong translations for training.

    xling-tf mine news.en.txt news.es.txt --output mined.en-es.tsv

Texts have one sentence per line, or are the column "text" of a table. A side may also be a folder
of vectors that `xling-tf encode` has written. If you know a few hundred translations, put their
sentences into both sides. The command can then choose a margin with which 90% of the pairs are
right:

    xling-tf mine vectors.en vectors.es --output mined.en-es.tsv \
        --known pairs.tsv --precision 0.9

After an interruption, the same command continues. Vectors and neighbours stay in folders beside the
output, such as `mined.en-es.tsv.source`, for calls with other margins. Remove them afterwards.

With the word `negatives`, the command mines wrong translations that resemble the right ones, for
each pair in a folder of corpora. After an interruption, the same command continues with the missing
files:

    xling-tf mine negatives --model exported/translation-ranking-en-es --data DIR \
        --relative_margin 0.05
    xling-tf train --data DIR --set tasks.translation_ranking.hard_negatives=5
"""

import sys
from functools import cache
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags

from xling_tf.client.quantization import Precision
from xling_tf.client.search import MIN_MARGIN, PRECISION
from xling_tf.errors import UserError
from xling_tf.models import IN_THE_BOX
from xling_tf.program import define_languages, progress, quiet_start, report_default_model, run

_OUTPUT = flags.DEFINE_string("output", None, "File for the table of source, target and score.")
_THRESHOLD = flags.DEFINE_float(
    "threshold", None, f"Minimum margin of a pair; default without --known: {MIN_MARGIN}."
)
_KNOWN = flags.DEFINE_string(
    "known", None, "Table of translations whose sides are among the texts, to choose the margin."
)
_PRECISION = flags.DEFINE_float("precision", PRECISION, "Wanted share of right pairs, for --known.")
_MEMORY = flags.DEFINE_float("memory", 4, "Memory to use, in GiB.", lower_bound=0)
_DRY_RUN = flags.DEFINE_bool(
    "dry_run", False, "For folders: prints how much there is to search, and exits."
)
_MODEL = flags.DEFINE_string(
    "model", None, "Model that encodes texts (default: the one in the box), or finds negatives."
)
_DATA = flags.DEFINE_string("data", None, "For negatives: folder of corpora.")
_RELATIVE_MARGIN = flags.DEFINE_float(
    "relative_margin",
    None,
    "For negatives: drops those that score within this share of the right one, such as 0.05.",
)


def main(*words: str) -> None:
    """Mines what the command line asks for, and prints the counts."""
    if words == ("negatives",):
        _mine_negatives()
        return
    if len(words) != 2:
        expected = "two folders of vectors or files of texts, or the word negatives"
        raise UserError(f"expected {expected}, got {' '.join(words) or 'none'}; correct it")
    if _DRY_RUN.value:
        source, target = map(Path, words)
        from xling_tf.bulk.mining import describe_mining

        print(describe_mining(source, target, memory=_MEMORY.value))
    else:
        output = Path(_given(_OUTPUT))
        with quiet_start():
            from xling_tf.bulk.mining import known_pairs
            from xling_tf.bulk.text_files import find_files
            from xling_tf.bulk.vector_files import VectorFolder
        # Errors now, before the first file is encoded.
        known = known_pairs(output, _THRESHOLD.value, _KNOWN.value, _PRECISION.value)
        folders = [VectorFolder.open(Path(word)) for word in words if Path(word).is_dir()]
        if texts := [word for word in words if not Path(word).is_dir()]:
            find_files(texts)
            report_default_model(flags.FLAGS["model"])
        # A file that is mined with a folder gets vectors of the folder's precision.
        precision: Precision = folders[0].description["precision"] if folders else "int8"
        source, target = (
            _vectors(word, output.with_name(f"{output.name}.{side}"), precision)
            for word, side in zip(words, ("source", "target"), strict=True)
        )
        _mine_translations(source, target, output, known)


def _vectors(name: str, folder: Path, precision: Precision) -> Path:
    """Returns a folder of vectors; a file of texts is encoded into one."""
    if Path(name).is_dir():
        return Path(name)
    from xling_tf.bulk.vector_files import encode_files

    with progress(f"encoding {name}") as report:
        encode_files(_MODEL.value or IN_THE_BOX, name, folder, precision=precision, report=report)
    return folder


def _given(flag: flags.FlagHolder[str | None]) -> str:
    if not flag.value:
        raise UserError(f"expected --{flag.name}, which --help describes")
    return flag.value


def _mine_translations(
    source: Path, target: Path, output: Path, known: list[tuple[str, str]] | None
) -> None:
    from xling_tf.bulk.mining import mine_translations

    with progress("mining") as report:
        counts = mine_translations(
            source,
            target,
            output,
            threshold=_THRESHOLD.value,
            known=known,
            precision=_PRECISION.value,
            memory=_MEMORY.value,
            report=report,
        )
    sizes = ", ".join(f"{counts[name]} {name}" for name in ("sources", "targets", "pairs"))
    print(f"{output}: {sizes}")
    if known is not None:
        print(
            "margin {margin:.4f}: about {precision:.0%} of the pairs are right (precision), "
            "{recall:.0%} of the known translations are found (recall)".format(**counts)
        )


def _mine_negatives() -> None:
    from hard_negatives import mine_folder

    from xling_tf.savedmodel.saved_models import checksum, find_model
    from xling_tf.search.hard_negatives import NUM_NEGATIVES
    from xling_tf.sentence_encoder import SentenceEncoder

    model = find_model(_given(_MODEL))

    @cache
    def encoder() -> SentenceEncoder:
        with quiet_start():
            return SentenceEncoder(model)

    counts = mine_folder(
        Path(_given(_DATA)),
        lambda texts: encoder().encode(texts),
        model=checksum(model),
        num_negatives=NUM_NEGATIVES,
        relative_margin=_RELATIVE_MARGIN.value,
        source=flags.FLAGS.source,
        targets=flags.FLAGS.target,
    )
    for corpus, counters in counts.items():
        print(f"{corpus}: {', '.join(f'{count} {outcome}' for outcome, count in counters.items())}")


if __name__ == "__main__":
    define_languages()
    run(main, "the same command continues", extra="bulk", files="SOURCE TARGET | negatives")
