"""The command `xling-tf`, which runs the programs from a checkout or an installed package."""

import runpy
import sys
from pathlib import Path

PROGRAMS = {
    "train": "training/main.py",
    "sweep": "training/sweep.py",
    "evaluate": "evaluation/main.py",
    "report": "evaluation/report.py",
    "export": "export/main.py",
    "encode": "export/encode.py",
    "serve": "export/serve.py",
    "check": "export/check.py",
    "import": "export/import_model.py",
    "prepare": "data/default.py",
    "convert": "data/convert.py",
    "hard-negatives": "data/hard_negatives.py",
    "mine": "data/mine.py",
    "clean": "data/clean.py",
    "translate": "data/translate.py",
}


def main() -> None:
    """Runs a program: `xling-tf train --list` is `python training/main.py --list`."""
    _, *arguments = sys.argv
    name = arguments[0] if arguments else "--help"
    if name not in PROGRAMS:
        print(
            f"xling-tf {'|'.join(PROGRAMS)} [--help] ...",
            file=sys.stdout if name == "--help" else sys.stderr,
        )
        sys.exit(0 if name == "--help" else 2)
    here = Path(__file__).resolve().parent
    home = here / "programs" if (here / "programs").is_dir() else here.parent
    program = home / PROGRAMS[name]
    sys.argv = [f"xling-tf {name}", *arguments[1:]]
    sys.path.insert(0, str(program.parent))  # for modules that only this program needs
    runpy.run_path(str(program), run_name="__main__")
