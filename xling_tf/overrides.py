"""Configs from and to JSON, and `a.b=value` overrides typed by the field's annotation."""

import dataclasses
import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from xling_tf.errors import UserError

Config = TypeVar("Config")

_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def apply_overrides(config: Config, overrides: Iterable[str]) -> Config:
    """Changes fields of nested dataclasses.

    Args:
        config: A dataclass.
        overrides: Each "dotted.name=value"; a tuple's values are separated by commas, and a
            dictionary's entry is named by one more part of the dotted name.

    Raises:
        UserError: An override is malformed, names no field, or has a value of another type.

    Example:
        >>> from xling_tf.config import ExperimentConfig
        >>> apply_overrides(ExperimentConfig(), ["text.ngram_sizes=3,4,5"]).text.ngram_sizes
        (3, 4, 5)
    """
    values = dataclasses.asdict(config)  # type: ignore[call-overload]
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals:
            raise UserError(
                f"--set expects name=value, got {override!r}; e.g. --set text.max_tokens=32"
            )
        _set(values, type(config), name.strip().split("."), value.strip(), name.strip())
    # All at once: a change that fits only together with another one must not be refused.
    return _from_mapping(type(config), values)


def to_json(config: Any) -> str:
    """Writes a dataclass as indented JSON."""
    return json.dumps(dataclasses.asdict(config), indent=2) + "\n"


def from_json(kind: type[Config], text: str) -> Config:
    """Reads what `to_json` wrote.

    Raises:
        UserError: A key is not a field.
    """
    return _from_mapping(kind, json.loads(text))


def _set(values: dict[str, Any], kind: Any, path: list[str], value: str, name: str) -> None:
    """Sets the field at `path` of a dataclass `kind` in its dictionary form."""
    if not dataclasses.is_dataclass(kind):
        values[".".join(path)] = _parse(float, value, name)
        return
    first, rest = path[0], path[1:]
    hints = get_type_hints(kind)
    if first not in hints:
        near = difflib.get_close_matches(first, hints, n=3, cutoff=0.4) or sorted(hints)
        raise UserError(
            f"--set {name}: there is no {first!r} here; did you mean {' or '.join(near)}?"
        )
    has_fields = isinstance(values[first], dict)
    if rest and has_fields:
        _set(values[first], hints[first], rest, value, name)
    elif rest:
        raise UserError(
            f"--set {name}: nothing lies below a plain value; leave out .{'.'.join(rest)}"
        )
    elif has_fields:
        below = ", ".join(values[first]) or "any name"
        raise UserError(f"--set {name} expects a field below it ({below}), as in {name}.x=1")
    else:
        values[first] = _parse(hints[first], value, name)


def _parse(kind: Any, value: str, name: str) -> Any:
    try:
        if kind is bool:
            return _BOOLEANS[value.lower()]
        if get_origin(kind) is tuple:
            return tuple(get_args(kind)[0](part) for part in value.split(",") if part)
        return kind(value)
    except (KeyError, ValueError) as error:
        expected = getattr(kind, "__name__", str(kind))
        raise UserError(f"--set {name} expects {expected}, got {value!r}") from error


def _from_mapping(kind: Any, values: Mapping[str, Any]) -> Any:
    hints = get_type_hints(kind)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise UserError(
            f"a {kind.__name__} has no field {unknown[0]!r}; it was saved by another version"
        )
    return kind(**{name: _from_value(hints[name], value) for name, value in values.items()})


def _from_value(kind: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(kind):
        return _from_mapping(kind, value)
    return tuple(value) if get_origin(kind) is tuple else value
