"""What programs share: flags, one-line errors, log lines, tables, and the provenance of results."""

import importlib.metadata
import os
import platform
import re
import select
import shlex
import sys
import threading
import time
from argparse import RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper
from logging import ERROR, INFO, NOTSET, WARNING, Formatter, LogRecord, StreamHandler, root
from pathlib import Path
from typing import Any, NoReturn

from absl import app, flags, logging
from absl.flags import argparse_flags
from tabulate import tabulate

from xling_tf import __version__
from xling_tf.client.batches import available_cpus
from xling_tf.errors import (
    UserError,
    as_user_error,
    is_disk_full,
    is_out_of_memory,
    missing_package,
    one_line,
)
from xling_tf.models import IN_THE_BOX
from xling_tf.processes import QUIET_LEVEL, quiet_tensorflow

STARTED = time.monotonic()  # programs import this module before TensorFlow
_PACKAGE = Path(__file__).resolve().parent
# In a checkout, the programs are beside the package.
_LOGGED = (
    str(_PACKAGE),
    *(str(_PACKAGE.with_name(n)) for n in ("data", "evaluation", "export", "training")),
)
# In a wheel, they are in a folder of it.
PROGRAMS = folder if (folder := _PACKAGE / "programs").is_dir() else _PACKAGE.parent
_SECONDS_BETWEEN_LINES = 10.0
_FORMATTER = Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")
_HELP_COLUMN = 28  # of the options' descriptions
_EXPECTED = {"int": "a whole number", "float": "a number", "bool": "true or false"}
_PACKAGES = ("tensorflow", "keras", "numpy", "scipy", "scikit-learn")
# Modules of the extras in pyproject.toml.
_MODULES = {
    "tensorflow": (
        "tensorflow tensorflow_text keras safetensors sentencepiece scipy py3langid faiss"
    ),
    "data": "lxml polib sentencex wordfreq",
    "hub": "tensorflow_hub tf_keras",
    "evaluation": "pandas jinja2 sklearn bm25s psutil urllib3",
    "serving": "uvicorn starlette orjson prometheus_client tensorflow_serving",
    "bulk": "pyarrow fsspec zstandard faiss",
    "align": "pyarrow fsspec zstandard lxml markdown polib py3langid sentencex",
    "beam": "apache_beam",
    "export": "onnx tf2onnx onnxruntime tokenizers",
    "xlsx": "openpyxl",
}


def define_languages() -> None:
    """Defines `--source` and `--target` of programs that read corpora."""
    program = sys.argv[0]  # whose help lists them
    flags.DEFINE_string("source", "en", "Source language.", module_name=program)
    flags.DEFINE_list("target", ["es"], "Target languages, such as es,fr.", module_name=program)


def define_import() -> None:
    """Defines `--import`, whose modules `run` imports before it calls the program."""
    flags.DEFINE_multi_string(
        "import",
        [],
        "Module, here or installed, that adds encoders, tasks, presets or suites. Repeatable.",
        module_name=sys.argv[0],  # the program, whose help lists it
    )


def run(
    main: Callable[..., None],
    again: str,
    *,
    extra: str = "",
    files: str = "",
    known_only: bool = False,
) -> None:
    """Runs a program after parsing its flags, and prints users' mistakes in one line.

    Args:
        main: The program.
        again: Says what happens if the same command is started again.
        extra: The extras, as "bulk,data", whose missing packages are reported before anything is
            imported.
        files: What the words of the command line that are not flags are, such as "[file ...]"; they
            are passed to `main`. "" refuses them.
        known_only: True leaves unknown flags among these words.
    """

    def start(argv: list[str]) -> None:
        set_up_logging()
        if isinstance(sys.stdout, TextIOWrapper):  # escapes what the terminal's encoding lacks
            sys.stdout.reconfigure(errors="backslashreplace")
        with one_line_errors(again):
            for module in " ".join(_MODULES.get(name, "") for name in extra.split(",")).split():
                if find_spec(module) is None:
                    raise missing_package(module, extra)
            if "import" in flags.FLAGS and flags.FLAGS["import"].value:
                _import(flags.FLAGS["import"].value)
            main(*argv[1:])

    _use_utf8()
    app.run(start, flags_parser=partial(parse_flags, files=files, known_only=known_only))


def _use_utf8() -> None:
    """Starts the program again if Python takes names of files for another encoding than UTF-8.

    Libraries encode them as UTF-8: under LANG=C or a Latin-1 locale, they would find no "año.txt".
    """
    if sys.getfilesystemencoding() != "utf-8":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _import(modules: Sequence[str]) -> None:
    sys.path.insert(0, str(Path.cwd()))
    with quiet_start():
        for module in modules:
            message = f"--import {module}: it must be a module, here or installed ({{error}})"
            with as_user_error(message, ImportError):
                import_module(module)


@contextmanager
def one_line_errors(again: str) -> Iterator[None]:
    """Ends with one line after a `UserError`, a full disk or Ctrl-C; see `run` for `again`."""
    try:
        yield
        if sys.stdout is not None:  # None: the program was started without standard output
            sys.stdout.flush()
    except UserError as error:
        # Flags, where a message of the library names arguments in backticks.
        known = flags.FLAGS
        message = re.sub(
            "`(\\w+)`", lambda name: f"--{name[1]}" if name[1] in known else name[0], str(error)
        )
        _exit(f"error: {message}")
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        extra = next((e for e, modules in _MODULES.items() if name in modules.split()), None)
        if extra is None:
            raise
        _exit(f"error: {missing_package(name, extra)}")
    except BrokenPipeError:  # perhaps `head` has read enough
        if not _output_has_no_reader():
            raise
        # Python writes what is left when it ends, and would print another error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if is_disk_full(error):
            _exit(f"error: the disk is full; make room, and {again}")
        if is_out_of_memory(error):
            advice = "end other programs that use the GPU, or set smaller batches"
            _exit(f"error: no memory left ({one_line(error)}); {advice}, and {again}")
        if "REPLACED BY KeyboardInterrupt" in str(error):  # Ctrl-C while TensorFlow makes a graph
            _exit_interrupted(again)
        raise
    except KeyboardInterrupt:
        _exit_interrupted(again)


def _exit_interrupted(again: str) -> NoReturn:
    _exit(f"interrupted; {again}", status=130)


def _output_has_no_reader() -> bool:
    poll = select.poll()
    if sys.stdout is not None:
        poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


class _Parser(argparse_flags.ArgumentParser):
    """Parses a program's flags, and explains them as GNU's programs do."""

    def __init__(self, path: str, files: str) -> None:
        from xling_tf.cli import COMMANDS, WORDS  # which imports this module

        programs = {**COMMANDS, **WORDS}.items()
        names = {PROGRAMS / file: f"xling-tf {name}" for name, file in programs}
        program = names.get(Path(path).resolve(), path)
        super().__init__(
            prog=program,
            usage=f"{program} [options] {files}".rstrip(),
            description=sys.modules["__main__"].__doc__,
            formatter_class=partial(RawDescriptionHelpFormatter, max_help_position=_HELP_COLUMN),
            allow_abbrev=False,
            add_help=False,  # absl's version of it adds more help flags
        )
        self.add_argument("-h", "--help", action="help", help="Prints this text.")

    def _define_absl_flag(self, flag: flags.Flag[Any], suppress: bool) -> None:
        """Adds a flag with its values and default in the form that other programs use."""
        # absl writes "<a|b>: Form." for a choice, and two lines for a flag that may be repeated.
        flag.help, *repeated = re.sub(r"^<.*?>: ", "", flag.help).split(";\n    repeat")
        if repeated and "epeatable" not in flag.help:
            flag.help += " Repeatable."
        values = flag.default if isinstance(flag.default, list) else [flag.default]
        default = ",".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)
        if default not in ("", "None") and not flag.boolean:
            flag.help += f" Default: {default}."
        super()._define_absl_flag(flag, suppress)
        action = self._actions[-1]
        if choices := getattr(flag.parser, "enum_values", None):
            action.metavar = f"{{{','.join(map(str, choices))}}}"
        elif not flag.boolean:  # not the whole name of the flag again
            is_number = flag.parser.flag_type() in ("int", "float")
            action.metavar = "N" if is_number else flag.name.rpartition("_")[2].upper()
        if flag.boolean:  # help shows only what changes something; the other one is accepted, too
            action.option_strings = [f"--no-{flag.name}" if flag.default else f"--{flag.name}"]

    def error(self, message: str) -> NoReturn:
        missing = re.findall(r"^flag --(\w+)=None: ", message, re.MULTILINE)
        names = " and ".join(f"--{name}" for name in missing)
        _exit(
            f"error: expected {names}, which --help describes" if missing else f"error: {message}"
        )


def parse_flags(argv: list[str], files: str, known_only: bool = False) -> list[str]:
    """Parses a command line; returns the program's name and the files, if the program takes any."""
    # Shells expand "~" at the beginning of a word, but not after "--flag=".
    home = os.path.expanduser("~")
    words = [re.sub(r"^(--?[\w-]+=)~(?=/|$)", lambda flag: flag[1] + home, w) for w in argv[1:]]
    words = [_with_underscores(word) for word in words]
    parser = _Parser(argv[0], files)
    unknown = [word for word in words if re.match("--?[a-zA-Z]{2}", word) and not _is_flag(word)]
    if unknown and not known_only:
        name = unknown[0].partition("=")[0]
        similar = get_close_matches(name.lstrip("-"), flags.FLAGS, n=1)
        hint = f"did you mean --{similar[0]}?" if similar else "--help lists the flags"
        parser.error(f"{name} is not a flag of this program; {hint}")
    try:
        _, rest = parser.parse_known_args(words)
    except flags.Error as error:
        parser.error(_in_plain_words(str(error)))
    if rest and not files:
        parser.error(f"expected flags, got {rest[0]!r}")
    return [argv[0], *rest]


def _in_plain_words(message: str) -> str:
    """Says what a flag expects, where absl says how its conversion of the value fails."""
    if (match := re.match(r"flag --(\w+)=(.*?): ", message, re.DOTALL)) is None:
        return message
    name, value = match.groups()
    parser = flags.FLAGS[name].parser
    expected = _EXPECTED.get(parser.flag_type(), "another value")
    if choices := getattr(parser, "enum_values", ()):
        expected = f"one of {', '.join(choices)}"
    if (least := getattr(parser, "lower_bound", None)) is not None:
        expected += f" of {least:g} or more"
    return f"--{name} must be {expected}, got {value!r}"


def _with_underscores(word: str) -> str:
    """Returns a flag in the form in which it is defined: --rows_per_shard=8 and --noheader."""
    name, equals, value = word.partition("=")
    for defined in (name.replace("-", "_"), name.replace("--no-", "--no", 1).replace("-", "_")):
        flag = f"--{defined[2:]}{equals}{value}"
        if name.startswith("--") and _is_flag(flag):
            return flag
    return word


def _is_flag(word: str) -> bool:
    name = word.removeprefix("--").partition("=")[0]
    is_negated = name.startswith("no") and name[2:] in flags.FLAGS and flags.FLAGS[name[2:]].boolean
    return name in flags.FLAGS or name == "help" or is_negated


def set_up_logging() -> None:
    """Shows the log lines of this package and its programs; of other packages only errors."""
    logging.set_verbosity(logging.INFO)
    handler = logging.get_absl_handler()
    handler.setFormatter(_FORMATTER)
    handler.addFilter(_is_ours)


@contextmanager
def visible_log() -> Iterator[None]:
    """Shows this package's log lines while a block runs, unless the caller has set up logging."""
    logger = logging.get_absl_logger()
    if logger.level or logger.isEnabledFor(INFO):
        yield
        return
    handler, for_others = StreamHandler(), StreamHandler()
    handler.setFormatter(_FORMATTER)
    for_others.setLevel(WARNING)
    propagates, has_handlers = (
        logger.propagate,
        logger.hasHandlers(),
    )  # they show all lines that the logger passes on
    logger.setLevel(INFO)
    logger.addFilter(_is_ours)
    if not has_handlers:
        logger.addHandler(handler)
        # A library may set up logging meanwhile, which would repeat the lines.
        logger.propagate = False
        # Without a handler, absl would add one that stays. This one shows other packages' warnings.
        root.addHandler(for_others)
    try:
        yield
    finally:
        logger.propagate = propagates
        logger.setLevel(NOTSET)
        logger.removeFilter(_is_ours)
        logger.removeHandler(handler)
        root.removeHandler(for_others)


def _is_ours(line: LogRecord) -> bool:
    return line.levelno >= ERROR or os.path.realpath(line.pathname).startswith(_LOGGED)


@contextmanager
def progress(part: str) -> Iterator[Callable[[str], None]]:
    """Logs when a part of a program begins and ends, and every ten seconds in between.

    Yields:
        A function that sets the state that the following lines report.
    """
    begin, ended, state = time.monotonic(), threading.Event(), ""

    def report(new_state: str) -> None:
        nonlocal state
        state = new_state

    def remind() -> None:
        while not ended.wait(_SECONDS_BETWEEN_LINES):
            seconds = time.monotonic() - begin
            logging.info("%s: %s, after %.0f seconds", part, state or "still running", seconds)

    logging.info("%s", part)
    thread = threading.Thread(target=remind, daemon=True)
    thread.start()
    try:
        yield report
        logging.info("%s: done in %.0f seconds", part, time.monotonic() - begin)
    finally:
        ended.set()
        thread.join()


def report_default_model(flag: Any) -> None:
    """Says in a line which model is used if a flag for one is not given."""
    if not flag.present:
        logging.info("without --%s: %s, the model in the box", flag.name, IN_THE_BOX)


def ways_to_try(folder: Path) -> str:
    """Returns the lines that a program prints about an encoder that it has written."""
    return f"""Try it:

    import xling_tf
    xling_tf.load({str(folder)!r}).encode(["Hola", "Hello"])

Or on a page in the browser:

    xling-tf serve --model {shlex.quote(str(folder))}"""


@contextmanager
def quiet_start() -> Iterator[None]:
    """Sets up this process for TensorFlow, and hides what it prints while the block imports it."""
    os.environ["KERAS_BACKEND"] = "tensorflow"  # the user's may be another
    # cuDNN would try all its convolutions for each new shape, which almost every batch has.
    os.environ.setdefault("TF_CUDNN_USE_AUTOTUNE", "0")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", QUIET_LEVEL)
    with quiet_tensorflow():
        yield


def provenance() -> dict[str, Any]:
    """Describes the command, the software and the machine, for result files."""
    versions = {"python": platform.python_version(), "xling_tf": __version__}
    installed = importlib.metadata.distributions()
    versions |= {p.name: p.version for p in installed if p.name in _PACKAGES}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # bytes
    machine = {
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": available_cpus(),
        "memory_gib": round(memory / 2**30, 1),
    }
    return {"command": shlex.join(["python", *sys.argv]), "versions": versions, "machine": machine}


def _exit(line: str, status: int = 2) -> NoReturn:
    print(line, file=sys.stderr)
    sys.exit(status)


def format_table(scores: Mapping[str, Mapping[str, float]]) -> str:
    """Formats scores by data set and metric as a plain table; counts ("num_...") are integers."""
    rows = [
        (name, metric, f"{value:.0f}" if metric.startswith("num_") else f"{value:.4f}")
        for name, values in scores.items()
        for metric, value in values.items()
    ]
    headers, alignment = ("suite", "metric", "value"), ("left", "left", "right")
    return tabulate(rows, headers=headers, colalign=alignment, disable_numparse=True)
