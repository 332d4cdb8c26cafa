"""Makes an average of words from any encoder, in a minute.

    xling-tf distill --model exported/minilm --languages es,de --output exported/words

With --minutes 10, the average is trained for ten minutes on translations: those of --data, or the
default corpora.
"""

import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags

from xling_tf.program import quiet_start, run, ways_to_try

_MODEL = flags.DEFINE_string(
    "model", None, "The encoder; any --model of xling-tf evaluate.", required=True
)
_LANGUAGES = flags.DEFINE_list("languages", None, "Languages, such as es,de.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "Folder of the exported model.", required=True)
_MINUTES = flags.DEFINE_float(
    "minutes", 0.0, "Minutes of training on translations; 0 for none.", lower_bound=0.0
)
_DATA = flags.DEFINE_string("data", None, "Folder of translations; default: the default corpora.")


def main() -> None:
    """Makes the average that the flags describe, and prints how to use it."""
    with quiet_start():
        from xling_tf.trainer.word_distillation import distill
    encoder = distill(
        _MODEL.value, _LANGUAGES.value, _OUTPUT.value, minutes=_MINUTES.value, data=_DATA.value
    )
    if encoder is None:
        sys.exit(1)
    print(ways_to_try(Path(_OUTPUT.value)))


if __name__ == "__main__":
    run(main, "the same command starts again", extra="data")
