r"""Prepares dumps of Reddit or Wikipedia for training, with Apache Beam.

    xling-tf prepare raw reddit --input 'RC_2016-*.zst' --language en --output my_corpora
    xling-tf prepare raw wikipedia --input 'enwiki-*.xml*.bz2' --language en --output my_corpora

The command also accepts the flags of Apache Beam, such as --runner=FlinkRunner, or
--direct_num_workers=8 --direct_running_mode=multi_processing.
"""

import logging
import os
import re
import sys
from argparse import ArgumentError
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

# A bare checkout is enough: the package need not be installed. Beam's worker processes import it,
# and `pipelines` from this folder, by PYTHONPATH.
_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE.parent), str(_HERE)]
os.environ["PYTHONPATH"] = os.pathsep.join([*sys.path[:2], os.environ.get("PYTHONPATH", "")])

from absl import flags
from tabulate import tabulate

from xling_tf.corpora.line_files import LANGUAGE
from xling_tf.errors import UserError, require_known
from xling_tf.files import require_writable_folder
from xling_tf.program import progress, run

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions


def main(*words: str) -> None:
    """Runs the command and prints how many records had which outcome."""
    values = flags.FLAGS
    require_known("prepare raw", words[0] if words else "", ("reddit", "wikipedia"))
    if not re.fullmatch(LANGUAGE, language := values.language):
        raise UserError(
            f"--language must be a language code such as en, got {language!r}; correct it"
        )
    from pipelines import reddit, wikipedia
    from pipelines.common import find_files, prepare

    # Beam logs errors with tracebacks before it raises them.
    logging.getLogger("apache_beam.runners.common").setLevel(logging.CRITICAL)
    options, output, paths = beam_options(words[1:]), values.output, find_files(values.input)
    if "://" not in output:
        require_writable_folder(Path(output), "name another folder with --output")
        output = os.path.abspath(output)
    if words[0] == "reddit":
        name, lines = f"conversations/reddit.{language}.tsv.gz", reddit.Conversations(paths)
    else:
        name = f"documents/wikipedia.{language}.txt.gz"
        lines = wikipedia.Documents(paths, language)
    with progress(f"preparing {name} into {output}"):
        counts = prepare(name, lines, output=output, options=options, num_shards=values.num_shards)
    print(tabulate(sorted(counts.items()), headers=("outcome", "count")))


def beam_options(rest: Sequence[str]) -> "PipelineOptions":
    """Makes Beam's options from the flags that the command does not have."""
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

    def check(parser: Any) -> None:  # argparse is Beam's
        parser.exit_on_error = False
        try:
            _, unknown = parser.parse_known_args(rest)
        except ArgumentError as error:
            raise UserError(f"Beam does not accept a flag: {error}; correct it") from None
        if unknown:
            raise UserError(
                f"{' '.join(unknown)} is a flag neither of the command nor of Beam; correct it"
            )

    options: Any = PipelineOptions(list(rest))
    options.get_all_options(add_extra_args_fn=check)
    standard = options.view_as(StandardOptions)
    if standard.runner in (None, "DirectRunner"):
        # The part of the DirectRunner that runs in this process: DirectRunner itself first tries to
        # download another runner.
        standard.runner = "FnApiRunner"
    return options


if __name__ == "__main__":
    flags.DEFINE_multi_string("input", None, "Files or patterns. Repeatable.", required=True)
    flags.DEFINE_string("language", None, "Language of the text, such as en.", required=True)
    flags.DEFINE_string("output", None, "Data folder for the corpus.", required=True)
    flags.DEFINE_integer("num_shards", 10, "Number of files of the corpus.", lower_bound=1)
    run(
        main,
        "the same command starts again",
        extra="beam",
        files="reddit | wikipedia",
        known_only=True,
    )
