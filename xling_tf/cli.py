"""The command `xling-tf`, which runs the programs from a checkout or an installed package."""

import ast
import runpy
import sys

from xling_tf import __version__
from xling_tf.errors import did_you_mean
from xling_tf.program import PROGRAMS, one_line_errors

_GROUPS = {
    "data": {
        "prepare": "data/default.py",
        "clean": "data/clean.py",
        "align": "data/align.py",
        "mine": "data/mine.py",
        "translate": "data/translate.py",
    },
    "training": {
        "languages": "training/languages.py",
        "train": "training/main.py",
        "fine-tune": "training/fine_tune.py",
        "distill": "training/distill.py",
    },
    "evaluation": {
        "evaluate": "evaluation/main.py",
        "report": "evaluation/report.py",
    },
    "use": {
        "import": "export/import_model.py",
        "export": "export/main.py",
        "encode": "export/encode.py",
        "serve": "export/serve.py",
    },
}
COMMANDS = {name: path for group in _GROUPS.values() for name, path in group.items()}
# Programs behind the first word after a command.
WORDS = {
    "prepare papers": "data/papers.py",
    "prepare collection": "data/collection.py",
    "prepare evaluation": "data/convert.py",
    "prepare raw": "data/prepare_raw.py",
}


def main() -> None:
    """Runs a program: `xling-tf train --list` is `python training/main.py --list`."""
    if sys.argv[1:2] == ["help"] and len(sys.argv) > 2:
        sys.argv[1:] = [*sys.argv[2:], "--help"]
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("--help", "-h", "help"):
        with one_line_errors("ask again"):  # `head` may read a part of it
            print(_help())
    elif name == "--version":
        print(f"xling_tf {__version__}")
    elif name in COMMANDS:
        path, words = COMMANDS[name], sys.argv[2:]
        if words and (longer := f"{name} {words[0]}") in WORDS:
            path, words = WORDS[longer], words[1:]
        program = PROGRAMS / path
        sys.argv = [str(program), *words]
        sys.path.insert(0, str(program.parent))  # for modules that only this program needs
        with one_line_errors("the same command starts again"):  # until the program has its own
            runpy.run_path(str(program), run_name="__main__")
    else:
        hint = did_you_mean(name, COMMANDS, "xling-tf --help lists the commands")
        print(f"error: {name!r} is not a command of xling-tf; {hint}", file=sys.stderr)
        sys.exit(2)


def _help() -> str:
    """Lists the commands, each with the first sentence of its program."""
    width = max(map(len, COMMANDS))
    lines = ["Usage: xling-tf COMMAND [--help] [FLAGS]"]
    for group, programs in _GROUPS.items():
        lines += ["", f"{group}:"]
        for name, path in programs.items():
            text = ast.get_docstring(ast.parse((PROGRAMS / path).read_text("utf-8"))) or ""
            lines.append(f"  {name:{width}}  {text.splitlines()[0].rstrip('.')}")
    return "\n".join(lines)
