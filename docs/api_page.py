"""Writes docs/api.md from the signatures and docstrings of the public names: `make api`.

On the site, mkdocstrings shows the whole docstrings in place of what is written here.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from xling_tf import _MODULES  # noqa: E402

PAGE = ROOT / "docs" / "api.md"
_HEAD = """# Python API

All of these are imported from `xling_tf`, on first use. `help(xling_tf)` says what to use when, and
`help(xling_tf.load)` explains its arguments. `make api` writes this page.
"""
_COLUMNS = 88


def page() -> str:
    """Returns the content of the page."""
    package = griffe.load("xling_tf", search_paths=[str(ROOT)])
    parts = [_HEAD]
    for name in sorted(_MODULES, key=str.lower):
        path = f"{_MODULES[name]}.{name}"
        parts.append(f"<!-- ::: xling_tf.{path} -->\n## {name}\n")
        parts += _entry(name, package[path])
    return "\n".join(parts)


def _entry(name: str, member: Any) -> Iterator[str]:
    """Yields the signature and the first sentence of a function, or of a class and its methods."""
    if member.is_attribute:  # another name
        yield f"Another name of [{member.value}](#{str(member.value).lower()}).\n"
        return
    if signature := _wrapped(name, member):
        yield f"```python\n{signature}\n```\n"
    yield f"{_sentence(member)}\n"
    members = member.all_members.items() if member.is_class else ()
    lines = [
        f"- `{key}{_names(part) if part.is_function else ''}`: {_sentence(part)}"
        for key, part in members
        if part.docstring and not key.startswith("_")
    ]
    if lines:
        yield "\n".join(lines) + "\n"


def _wrapped(name: str, member: Any) -> str:
    """Returns a signature on one line or, if it is long, with a line for each argument."""
    line = f"{member.signature(name=name)}".replace("(self, ", "(").replace(" -> None", "")
    if len(line) <= _COLUMNS:
        return line
    begin, end = line.index("("), line.rindex(")")
    # A comma between brackets does not end an argument.
    depth, arguments = 0, [""]
    for letter in line[begin + 1 : end]:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            arguments.append("")
        else:
            arguments[-1] += letter
    lines = (f"    {argument.strip()}," for argument in arguments)
    return "\n".join([line[: begin + 1], *lines, line[end:]])


def _names(function: Any) -> str:
    names = (parameter.name for parameter in function.parameters)
    return f"({', '.join(name for name in names if name not in ('self', 'cls'))})"


def _sentence(member: Any) -> str:
    """Returns the first sentence of a docstring, on one line."""
    text = " ".join(member.docstring.value.split("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z`])", text)[0]


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
