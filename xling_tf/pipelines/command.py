"""The command line of data/main.py: a subcommand, its own flags, and Beam's."""

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.runner import create_runner
from tabulate import tabulate

from xling_tf.errors import UserError
from xling_tf.files import require_writable_folder
from xling_tf.pipelines.common import Account
from xling_tf.pipelines.storage import absolute

_LANGUAGE = re.compile(r"[a-z]{2,3}(?:_[A-Za-z]{2,4})?")
# Each shard is an open file while an input is extracted; systems allow a process about 1,000.
_MAX_SHARDS = 500


@dataclass(frozen=True, kw_only=True)
class Command:
    """A subcommand of data/main.py.

    Attributes:
        description: What it makes of what, in one sentence.
        add_arguments: Adds the flags that only this command has.
        run: (the parsed flags, Beam's options) to the account of the corpus it prepared.
    """

    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, PipelineOptions], Account]


def language_code(text: str) -> str:
    """A language code, as files of the data folder have it; the `type` of a flag."""
    if not _LANGUAGE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"a language code such as en is expected, got {text!r}")
    return text


def run_command(commands: Mapping[str, Command], argv: Sequence[str]) -> Account:
    """Parses a command line and runs its command.

    Args:
        commands: The subcommands by name.
        argv: The arguments after the program's name.

    Returns:
        The command's account.

    Raises:
        UserError: A flag is unknown to the command and to Beam or has a wrong value, or the
            command cannot do its work.
    """
    arguments, options = parse_command(commands, argv)
    _require_runner(options)
    if "://" not in arguments.output:
        require_writable_folder(Path(arguments.output), "name another folder with --output")
    return commands[arguments.command].run(arguments, options)


def parse_command(
    commands: Mapping[str, Command], argv: Sequence[str]
) -> tuple[argparse.Namespace, PipelineOptions]:
    """Parses a command line into the command's own flags and Beam's; see `run_command`."""
    arguments, rest = _parser(commands).parse_known_args(argv)
    arguments.output = absolute(arguments.output)
    return arguments, beam_options(rest)


def beam_options(flags: Sequence[str]) -> PipelineOptions:
    """Beam's options, of which none is dropped silently.

    Args:
        flags: The flags that are not the command's own.

    Raises:
        UserError: Beam knows no such flag either, or its value is wrong.
    """

    def check(parser: argparse.ArgumentParser) -> None:
        parser.exit_on_error = False
        try:
            _, unknown = parser.parse_known_args(flags)
        except argparse.ArgumentError as error:
            raise UserError(f"Beam's flags must be as Beam has them: {error}") from None
        if unknown:
            raise UserError(
                f"flags of the command or of Beam are expected, got {' '.join(unknown)}; "
                "--help lists the command's"
            )

    options = PipelineOptions(list(flags))
    options.get_all_options(add_extra_args_fn=check)
    standard = options.view_as(StandardOptions)
    if standard.runner in (None, "DirectRunner"):
        # The part of the DirectRunner that runs in this process: what goes by that name first
        # tries to download another runner.
        standard.runner = "FnApiRunner"
    return options


def _require_runner(options: PipelineOptions) -> None:
    try:
        create_runner(options.view_as(StandardOptions).runner)
    except (ValueError, ImportError, AttributeError) as error:
        raise UserError(f"--runner must name a runner of Beam that is installed: {error}") from None


def format_account(account: Account) -> str:
    """Formats an account as a plain text table, then a line for each damaged file.

    Example:
        >>> from collections import Counter
        >>> print(format_account(Account(counts=Counter({"comments": 1200}))))
        outcome      count
        ---------  -------
        comments      1200
    """
    table = tabulate(sorted(account.counts.items()), headers=("outcome", "count"))
    damage = (f"damaged: {path}: {fault}" for path, fault in account.damaged.items())
    return "\n".join((table, *damage))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; {self.prog} --help lists the flags")


def _parser(commands: Mapping[str, Command]) -> _Parser:
    parser = _Parser(prog="data/main.py", description="Prepares raw text for training.")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in commands.items():
        subparser = subparsers.add_parser(
            name,
            help=command.description,
            description=command.description,
            epilog="Flags of Apache Beam are accepted as well, as --runner=FlinkRunner.",
            allow_abbrev=False,
        )
        _add_common_arguments(subparser)
        command.add_arguments(subparser)
    return parser


def _add_common_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input",
        required=True,
        action="extend",
        nargs="+",
        metavar="PATTERN",
        help="raw files, by names or patterns; repeatable",
    )
    parser.add_argument(
        "--output", required=True, metavar="DIR", help="data folder that gets the corpus"
    )
    parser.add_argument(
        "--num_shards",
        type=_num_shards,
        default=10,
        metavar="N",
        help="files of the corpus; more need less memory (default: %(default)s)",
    )


def _num_shards(text: str) -> int:
    if not (text.isdecimal() and 1 <= int(text) <= _MAX_SHARDS):
        raise argparse.ArgumentTypeError(f"1 to {_MAX_SHARDS} is expected, got {text!r}")
    return int(text)
