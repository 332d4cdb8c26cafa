"""Bounds on what people must find their way through: commands, flags, presets, names, packages."""

import ast
import tomllib

from programs import ROOT

import xling_tf
from xling_tf.cli import COMMANDS
from xling_tf.presets import PRESETS


def test_there_is_little_to_choose_from():
    flags = [
        call
        for folder in ("data", "training", "evaluation", "export")
        for path in (ROOT / folder).glob("*.py")
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr.startswith(("DEFINE_", "add_argument"))
    ]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    counts = {
        "commands": len(COMMANDS),
        "flags": len(flags),
        "presets": len(PRESETS),
        "public names": len(xling_tf.__all__),
        "packages": len(project["dependencies"]),
    }
    bounds = {
        "commands": 15,
        "flags": 100,
        "presets": 20,
        "public names": 20,
        "packages": 3,
    }
    assert {name: count for name, count in counts.items() if count > bounds[name]} == {}
