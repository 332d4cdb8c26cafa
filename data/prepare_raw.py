"""Prepares raw text for training, by Apache Beam.

    python data/prepare_raw.py reddit --input 'RC_2016-*.zst' --output my_corpora
    python data/prepare_raw.py wikipedia --input 'enwiki-*.xml*.bz2' --language en --output my_corpora
    python data/prepare_raw.py bitext --input web.en-es.tsv.gz --source en --target es --output my_corpora

Flags of Apache Beam are accepted as well, such as --runner=FlinkRunner or --direct_num_workers=8
--direct_running_mode=multi_processing.
"""

import argparse
import logging
import os
import re
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

# A bare checkout is enough: the package need not be installed. Beam's worker processes import it, and
# `pipelines` from this folder, by PYTHONPATH.
_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE.parent), str(_HERE)]
os.environ["PYTHONPATH"] = os.pathsep.join([*sys.path[:2], os.environ.get("PYTHONPATH", "")])

from absl import app, flags
from tabulate import tabulate

from xling_tf.corpora.line_files import LANGUAGE
from xling_tf.errors import UserError
from xling_tf.files import require_writable_folder
from xling_tf.program import one_line_errors, progress, set_up_logging

if TYPE_CHECKING:
    from apache_beam import PTransform
    from apache_beam.options.pipeline_options import PipelineOptions


def main(argv: list[str]) -> None:
    """Runs the subcommand and prints how many records had which outcome."""
    set_up_logging()
    with one_line_errors("the same command starts again"):
        if not find_spec("apache_beam"):
            raise UserError("this needs Apache Beam; install it with: pip install -e '.[beam]'")
        from pipelines.common import prepare

        # Beam logs errors with tracebacks before it raises them.
        logging.getLogger("apache_beam.runners.common").setLevel(logging.CRITICAL)
        arguments, rest = _parser().parse_known_args(argv[1:])
        options = beam_options(rest)
        if "://" not in arguments.output:
            require_writable_folder(Path(arguments.output), "name another folder with --output")
            arguments.output = os.path.abspath(arguments.output)
        name, lines = _corpus(arguments)
        with progress(f"preparing {name} into {arguments.output}"):
            settings = vars(arguments)
            counts = prepare(name, lines, output=settings.pop("output"), options=options, settings=settings)
    print(tabulate(sorted(counts.items()), headers=("outcome", "count")))


def _corpus(arguments: argparse.Namespace) -> "tuple[str, PTransform[Any, Any]]":
    """Returns the path of a command's corpus in the data folder, and the pipeline that makes its lines."""
    from pipelines import bitext, reddit, wikipedia
    from pipelines.common import find_files

    paths = find_files(arguments.input)
    match arguments.command:
        case "reddit":
            return f"conversations/reddit.{arguments.language}.tsv.gz", reddit.Conversations(paths)
        case "wikipedia":
            lines = wikipedia.Documents(paths, arguments.language)
            return f"documents/wikipedia.{arguments.language}.txt.gz", lines
        case _:
            source, target = arguments.source, arguments.target
            name = arguments.name or bitext.corpus_name(paths, f"{source}-{target}")
            pairs = bitext.CleanPairs(paths, source, target, arguments.model, arguments.min_cosine)
            return f"parallel/{name}.{source}-{target}.tsv.gz", pairs


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; {self.prog} --help lists the flags")


def _parser() -> _Parser:
    parser = _Parser(prog="data/prepare_raw.py", description="Prepares raw text for training.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, description: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=description, allow_abbrev=False)
        command.add_argument("--input", required=True, action="extend", nargs="+", help="files, or patterns")
        command.add_argument("--output", required=True, help="data folder for the corpus")
        command.add_argument("--num_shards", type=int, default=10, help="files of the corpus")
        return command

    reddit = add("reddit", "pairs of a comment and its reply from Reddit's dumps")
    reddit.add_argument("--language", type=_language, default="en", help="for the name of the corpus")
    wikipedia = add("wikipedia", "documents from MediaWiki's XML dumps")
    wikipedia.add_argument("--language", type=_language, required=True, help="of the dump, such as en")
    bitext = add("bitext", "clean pairs from lines of source TAB target, or from Moses pairs")
    bitext.add_argument("--source", type=_language, required=True, help="language of column 1")
    bitext.add_argument("--target", type=_language, required=True, help="language of column 2")
    bitext.add_argument("--name", help="name of the corpus; default: that of the input")
    bitext.add_argument("--model", default="", help="exported model that scores the pairs")
    bitext.add_argument("--min_cosine", type=float, default=0.5, help="lowest score of a pair that is kept")
    return parser


def _language(text: str) -> str:
    if not re.fullmatch(LANGUAGE, text):
        raise argparse.ArgumentTypeError(f"expected a language code such as en, got {text!r}")
    return text


def beam_options(rest: Sequence[str]) -> "PipelineOptions":
    """Makes Beam's options from the flags that the command does not have."""
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

    def check(parser: argparse.ArgumentParser) -> None:
        parser.exit_on_error = False
        try:
            _, unknown = parser.parse_known_args(rest)
        except argparse.ArgumentError as error:
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


def _parse_flags(argv: list[str]) -> list[str]:
    """Leaves all flags to the subcommands and Beam."""
    flags.FLAGS.mark_as_parsed()
    return argv


if __name__ == "__main__":
    app.run(main, flags_parser=_parse_flags)
