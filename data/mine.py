r"""Mines translations out of two large collections of sentences.

    xling-tf encode --model exported/en-es --input 'news.en/*.parquet' --output vectors.en \
        --precision int8
    xling-tf encode --model exported/en-es --input 'news.es/*.parquet' --output vectors.es \
        --precision int8
    xling-tf mine --source_vectors vectors.en --target_vectors vectors.es --output mined.en-es.tsv

If it is killed, the same command continues. The results of the search stay in the folder
`mined.en-es.tsv.neighbours`, so that another --threshold takes little time. Remove it afterwards.
"""

import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags

from xling_tf.client.search import MIN_MARGIN
from xling_tf.program import progress, run

_SOURCE = flags.DEFINE_string(
    "source_vectors", None, "Folder of the sources' vectors.", required=True
)
_TARGET = flags.DEFINE_string(
    "target_vectors", None, "Folder of the targets' vectors.", required=True
)
_OUTPUT = flags.DEFINE_string(
    "output", None, "File to write: lines of score, source and target.", required=True
)
_THRESHOLD = flags.DEFINE_float("threshold", MIN_MARGIN, "Minimum margin of a pair.")
_MEMORY = flags.DEFINE_float("memory", 4, "Memory to use, in GiB.", lower_bound=0)
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "Prints how much there is to search, and exits.")


def main() -> None:
    """Mines what the flags describe, and prints the counts."""
    from xling_tf.bulk.mining import describe_mining, mine_translations

    if _DRY_RUN.value:
        print(describe_mining(Path(_SOURCE.value), Path(_TARGET.value), memory=_MEMORY.value))
        return
    with progress("mining") as report:
        paths = (Path(flag.value) for flag in (_SOURCE, _TARGET, _OUTPUT))
        counts = mine_translations(
            *paths, threshold=_THRESHOLD.value, memory=_MEMORY.value, report=report
        )
    print(f"{_OUTPUT.value}: {', '.join(f'{count} {name}' for name, count in counts.items())}")


if __name__ == "__main__":
    run(main, "the same command continues", extra="bulk")
