"""Prepares raw text for training, by Apache Beam.

    python data/prepare_raw.py reddit --input 'RC_2016-*.zst' --output my_corpora
    python data/prepare_raw.py wikipedia --input 'enwiki-*.xml*.bz2' --language en --output my_corpora
    python data/prepare_raw.py bitext --input web.en-es.tsv.gz --source en --target es --output my_corpora

Flags of Apache Beam are accepted as well, such as --runner=FlinkRunner or --direct_num_workers=8
--direct_running_mode=multi_processing.
"""

import logging
import os
import re
import sys
from argparse import ArgumentError
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

# A bare checkout is enough: the package need not be installed. Beam's worker processes import it, and
# `pipelines` from this folder, by PYTHONPATH.
_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE.parent), str(_HERE)]
os.environ["PYTHONPATH"] = os.pathsep.join([*sys.path[:2], os.environ.get("PYTHONPATH", "")])

from absl import flags
from tabulate import tabulate

from xling_tf.corpora.line_files import LANGUAGE
from xling_tf.errors import UserError
from xling_tf.files import require_writable_folder
from xling_tf.program import progress, run

if TYPE_CHECKING:
    from apache_beam import PTransform
    from apache_beam.options.pipeline_options import PipelineOptions


# The flags of each command, besides those of all.
_COMMANDS = {
    "reddit": ("language",),  # pairs of a comment and its reply from Reddit's dumps
    "wikipedia": ("language",),  # documents from MediaWiki's XML dumps
    "bitext": (
        "source",
        "target",
        "name",
        "model",
        "min_cosine",
    ),  # from lines of source TAB target, or Moses
}
_LANGUAGES = ("language", "source", "target")


def main(*words: str) -> None:
    """Runs the command and prints how many records had which outcome."""
    settings = _settings(words[0] if words else "")
    from pipelines.common import prepare

    # Beam logs errors with tracebacks before it raises them.
    logging.getLogger("apache_beam.runners.common").setLevel(logging.CRITICAL)
    options, output = beam_options(words[1:]), flags.FLAGS.output
    if "://" not in output:
        require_writable_folder(Path(output), "name another folder with --output")
        output = os.path.abspath(output)
    name, lines = _corpus(**settings)
    with progress(f"preparing {name} into {output}"):
        counts = prepare(name, lines, output=output, options=options, settings=settings)
    print(tabulate(sorted(counts.items()), headers=("outcome", "count")))


def _settings(command: str) -> dict[str, Any]:
    """Returns a command with its flags, and refuses what it cannot use."""
    if command not in _COMMANDS:
        raise UserError(f"expected {', '.join(_COMMANDS)} as the first word, got {command!r}; add one")
    names, values = _COMMANDS[command], flags.FLAGS
    if unused := [name for name in sum(_COMMANDS.values(), ()) if name not in names and values[name].present]:
        raise UserError(f"{command} has no --{unused[0]}; remove it")
    settings = {name: values[name].value for name in ("input", "num_shards", *names)}
    if command == "reddit":
        settings["language"] = settings["language"] or "en"
    for name in {*names} & {*_LANGUAGES}:
        if not re.fullmatch(LANGUAGE, settings[name] or ""):
            raise UserError(
                f"--{name} must be a language code such as en, got {settings[name]!r}; correct it"
            )
    return {"command": command, **settings}


def _corpus(command: str, input: Sequence[str], **settings: Any) -> "tuple[str, PTransform[Any, Any]]":
    """Returns the path of a command's corpus in the data folder, and the pipeline that makes its lines."""
    from pipelines import bitext, reddit, wikipedia
    from pipelines.common import find_files

    paths = find_files(input)
    if command == "bitext":
        source, target = settings["source"], settings["target"]
        name = settings["name"] or bitext.corpus_name(paths, f"{source}-{target}")
        pairs = bitext.CleanPairs(paths, source, target, settings["model"], settings["min_cosine"])
        return f"parallel/{name}.{source}-{target}.tsv.gz", pairs
    language = settings["language"]
    if command == "reddit":
        return f"conversations/reddit.{language}.tsv.gz", reddit.Conversations(paths)
    return f"documents/wikipedia.{language}.txt.gz", wikipedia.Documents(paths, language)


def beam_options(rest: Sequence[str]) -> "PipelineOptions":
    """Makes Beam's options from the flags that the command does not have."""
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

    def check(parser: Any) -> None:  # argparse is Beam's
        parser.exit_on_error = False
        try:
            _, unknown = parser.parse_known_args(rest)
        except ArgumentError as error:
            raise UserError(f"Beam does not accept a flag: {error}") from None
        if unknown:
            raise UserError(f"{' '.join(unknown)} is a flag neither of the command nor of Beam")

    options: Any = PipelineOptions(list(rest))
    options.get_all_options(add_extra_args_fn=check)
    standard = options.view_as(StandardOptions)
    if standard.runner in (None, "DirectRunner"):
        # The part of the DirectRunner that runs in this process: DirectRunner itself first tries to download
        # another runner.
        standard.runner = "FnApiRunner"
    return options


if __name__ == "__main__":
    flags.DEFINE_multi_string("input", None, "Files, or patterns. Repeatable.", required=True)
    flags.DEFINE_string("output", None, "Data folder for the corpus.", required=True)
    flags.DEFINE_integer("num_shards", 10, "Files of the corpus.", lower_bound=1)
    flags.DEFINE_string(
        "language", None, "wikipedia: language of the dump; reddit: of the corpus, default en."
    )
    flags.DEFINE_string("source", None, "bitext: language of column 1.")
    flags.DEFINE_string("target", None, "bitext: language of column 2.")
    flags.DEFINE_string("name", None, "bitext: name of the corpus; default: that of the input.")
    flags.DEFINE_string("model", "", "bitext: exported model that scores the pairs.")
    flags.DEFINE_float("min_cosine", 0.5, "bitext: lowest score of a pair that is kept.")
    run(main, "the same command starts again", extra="beam", takes_files=True, known_only=True)
