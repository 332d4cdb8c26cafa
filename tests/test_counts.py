"""Bounds on what people must find their way through: commands, flags, presets, names, packages."""

import ast
import tomllib

from programs import ROOT

import xling_tf
from xling_tf.cli import COMMANDS, WORDS
from xling_tf.presets import PRESETS


def flags_defined(tree):
    """The flags that code defines: their names, and whether they take text or what else."""
    # A flag that may be repeated, or lists its values, is learned with the one that takes a value.
    kinds = {"multi_string": "string", "list": "string", "multi_integer": "integer"}
    return {
        (call.args[0].value, kinds.get(kind, kind))
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and (kind := call.func.attr.removeprefix("DEFINE_")) != call.func.attr
    }


def flags_of_programs():
    """The flags of each command, also those that it shares by a function of program.py."""
    shared = {
        function.name: flags_defined(function)
        for function in ast.parse((ROOT / "xling_tf/program.py").read_text("utf-8")).body
        if isinstance(function, ast.FunctionDef)
    }
    flags = {}
    for command, path in (COMMANDS | WORDS).items():
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        called = {
            call.func.id
            for call in ast.walk(tree)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        }
        flags[command] = flags_defined(tree).union(*(shared.get(name, ()) for name in called))
    return flags


def test_there_is_little_to_choose_from():
    flags = flags_of_programs()
    assert ("import", "string") in flags["train"]
    assert ("output", "string") in flags["prepare raw"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    counts = {
        "commands": len(COMMANDS),
        "flags of one command": max(map(len, flags.values())),
        # Whoever has learned --output once knows it in all commands. So what counts is the number
        # of different flags; one that takes a number here and a word there counts twice.
        "different flags": len(set().union(*flags.values())),
        "presets": len(PRESETS),
        "public names": len(xling_tf.__all__),
        "packages": len(project["dependencies"]),
    }
    bounds = {
        "commands": 15,
        "flags of one command": 18,  # of train; the next has 15
        "different flags": 70,
        "presets": 20,
        "public names": 20,
        "packages": 3,
    }
    assert {name: count for name, count in counts.items() if count > bounds[name]} == {}
