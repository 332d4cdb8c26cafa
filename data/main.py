"""Prepares raw text for training, by Apache Beam.

    python data/main.py reddit --input 'RC_2016-*.zst' --output my_corpora
    python data/main.py wikipedia --input 'enwiki-*.xml*.bz2' --language en --output my_corpora
    python data/main.py bitext --input paracrawl.en-es.tsv.gz --source en --target es --output my_corpora
    python data/main.py snli --input snli_1.0.zip multinli_1.0.zip --output my_corpora

Flags of Apache Beam are accepted as well, as --runner=FlinkRunner or --direct_num_workers=8
--direct_running_mode=multi_processing.
"""

import argparse
import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

# A bare checkout is enough: the package need not be installed, nor for Beam's worker processes, which
# import `pipelines` from this folder too.
_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE.parent), str(_HERE)]
os.environ["PYTHONPATH"] = os.pathsep.join([*sys.path[:2], os.environ.get("PYTHONPATH", "")])

from absl import app, flags
from tabulate import tabulate

from xling_tf.errors import UserError, one_line_errors, progress, set_up_logging
from xling_tf.files import require_writable_folder

if TYPE_CHECKING:
    from apache_beam import PTransform
    from apache_beam.options.pipeline_options import PipelineOptions


def main(argv: list[str]) -> None:
    """Runs the subcommand and prints what became of its input."""
    set_up_logging()
    with one_line_errors("the same command starts again"):
        if not find_spec("apache_beam"):
            raise UserError(
                "preparing raw corpora needs Apache Beam; install it with: pip install -e '.[beam]'"
            )
        from pipelines.common import prepare

        # Beam logs an error with its traceback before it raises it.
        logging.getLogger("apache_beam.runners.common").setLevel(logging.CRITICAL)
        arguments, rest = _parser().parse_known_args(argv[1:])
        options = beam_options(rest)
        if "://" not in arguments.output:
            require_writable_folder(Path(arguments.output), "name another folder with --output")
            arguments.output = os.path.abspath(arguments.output)
        with progress(f"preparing {arguments.command} into {arguments.output}"):
            counts = prepare(
                _corpora(arguments),
                output=arguments.output,
                num_shards=arguments.num_shards,
                options=options,
                settings={key: value for key, value in vars(arguments).items() if key != "output"},
            )
    print(tabulate(sorted(counts.items()), headers=("outcome", "count")))


def _corpora(arguments: argparse.Namespace) -> "Mapping[str, PTransform[Any, Any]]":
    """The corpora that a command makes, by their path in the data folder."""
    from pipelines import bitext, nli, reddit, wikipedia
    from pipelines.common import find_files

    paths = find_files(arguments.input)
    match arguments.command:
        case "reddit":
            name = f"conversations/reddit.{arguments.language}.tsv.gz"
            return {name: reddit.Conversations(paths)}
        case "wikipedia":
            name = f"documents/wikipedia.{arguments.language}.txt.gz"
            return {name: wikipedia.Documents(paths, arguments.language)}
        case "bitext":
            languages = (arguments.source, arguments.target)
            name = arguments.name or bitext.corpus_name(paths, "-".join(languages))
            scoring = (arguments.model, arguments.min_cosine)
            pairs = bitext.CleanPairs(paths, *languages, *scoring)
            return {f"parallel/{name}.{'-'.join(languages)}.tsv.gz": pairs}
        case _:
            places = nli.find_splits(paths)
            return {corpus: nli.Inferences(place) for corpus, place in places.items()}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; {self.prog} --help lists the flags")


def _parser() -> _Parser:
    parser = _Parser(prog="data/main.py", description="Prepares raw text for training.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, description: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=description, allow_abbrev=False)
        command.add_argument(
            "--input", required=True, action="extend", nargs="+", help="raw files, or patterns"
        )
        command.add_argument("--output", required=True, help="data folder that gets the corpus")
        command.add_argument("--num_shards", type=_num_shards, default=10, help="files of a corpus")
        return command

    reddit = add("reddit", "Reddit's dumps of comments to pairs of a comment and its reply")
    reddit.add_argument("--language", type=_language, default="en", help="for the corpus' name")
    wikipedia = add("wikipedia", "MediaWiki's XML dumps to documents")
    wikipedia.add_argument("--language", type=_language, required=True, help="the dump's, as en")
    bitext = add("bitext", "lines of source TAB target, or Moses pairs, to the pairs that are fit")
    bitext.add_argument("--source", type=_language, required=True, help="language of column 1")
    bitext.add_argument("--target", type=_language, required=True, help="language of column 2")
    bitext.add_argument("--name", help="the corpus' name; default: that of the input")
    bitext.add_argument("--model", default="", help="an exported model that scores the pairs")
    bitext.add_argument("--min_cosine", type=float, default=0.5, help="the lowest score kept")
    add("snli", "SNLI and MultiNLI (JSON lines, or the archives) to a corpus for each split")
    return parser


def _language(text: str) -> str:
    if not re.fullmatch(r"[a-z]{2,3}(?:_[A-Za-z]{2,4})?", text):
        raise argparse.ArgumentTypeError(f"a language code such as en is expected, got {text!r}")
    return text


def _num_shards(text: str) -> int:
    if not (text.isdecimal() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"a number above 0 is expected, got {text!r}")
    return int(text)


def beam_options(rest: Sequence[str]) -> "PipelineOptions":
    """Makes Beam's options of the flags that are not the command's own.

    Raises:
        UserError: Beam does not know a flag either.
    """
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

    def check(parser: argparse.ArgumentParser) -> None:
        parser.exit_on_error = False
        try:
            _, unknown = parser.parse_known_args(rest)
        except argparse.ArgumentError as error:
            raise UserError(f"Beam's flags must be as Beam has them: {error}") from None
        if unknown:
            raise UserError(f"{' '.join(unknown)} is a flag neither of the command nor of Beam")

    options: Any = PipelineOptions(list(rest))
    options.get_all_options(add_extra_args_fn=check)
    standard = options.view_as(StandardOptions)
    if standard.runner in (None, "DirectRunner"):
        # The part of the DirectRunner that runs in this process: what goes by that name first
        # tries to download another runner.
        standard.runner = "FnApiRunner"
    return options


def _parse_flags(argv: list[str]) -> list[str]:
    """Leaves all flags to the subcommands and Beam."""
    flags.FLAGS.mark_as_parsed()
    return argv


if __name__ == "__main__":
    app.run(main, flags_parser=_parse_flags)
