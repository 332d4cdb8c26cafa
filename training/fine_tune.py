"""Fine-tunes a model on your own pairs, and says whether it is better.

    xling-tf fine-tune --model exported/use-multilingual --data faq.xlsx --check
    xling-tf fine-tune --model exported/use-multilingual --data faq.xlsx --minutes 5

The data are a table with two columns of texts: CSV, TSV, Excel, JSON lines or Parquet. The same
command continues a training that was stopped or, with more steps or minutes, one that has ended.
"""

import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags

from xling_tf.program import quiet_start, run, ways_to_try

_MODEL = flags.DEFINE_string(
    "model", None, "Exported model, model folder or run to start from.", required=True
)
_DATA = flags.DEFINE_string("data", None, "Table of pairs of texts.", required=True)
_OUTPUT = flags.DEFINE_string(
    "output", None, "Folder of the exported model; default: exported/<name of the table>."
)
_PAIR = flags.DEFINE_string(
    "pair", None, "Languages of the two sides, such as en-eu, if each side is in one language."
)
_MINUTES = flags.DEFINE_float("minutes", None, "Maximum minutes of training.", lower_bound=0)
_STEPS = flags.DEFINE_integer(
    "steps", None, "Maximum steps of training; default: 300 without --minutes.", lower_bound=0
)
_CHECK = flags.DEFINE_bool(
    "check", False, "Shows what it understood of the data, scores the model, and exits."
)
_SET = flags.DEFINE_multi_string("set", [], "Changes a setting: dotted.name=value. Repeatable.")


def main() -> None:
    """Fine-tunes the model that the flags describe."""
    output = Path(_OUTPUT.value or f"exported/{Path(_DATA.value).name.partition('.')[0]}")
    with quiet_start():
        from xling_tf.trainer.fine_tuning import fine_tune
    languages = {"languages": tuple(_PAIR.value.split("-"))} if _PAIR.value else {}
    encoder = fine_tune(
        _MODEL.value,
        _DATA.value,
        output=output,
        steps=_STEPS.value,
        minutes=_MINUTES.value,
        settings=_SET.value,
        check=_CHECK.value,
        **languages,
    )
    if encoder:
        print(f"The model is in {output}, its scores in {output}/README.md. {ways_to_try(output)}")
    elif not _CHECK.value:
        sys.exit(1)


if __name__ == "__main__":
    run(main, "the same command continues", extra="tensorflow")
