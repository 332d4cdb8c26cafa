"""Experiments as text: settings such as `encoder.num_layers=2`, and JSON."""

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from numbers import Integral, Real
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from xling_tf.config import ENCODERS, TASKS, TOKENIZERS, ExperimentConfig, Kinds, StageConfig
from xling_tf.errors import UserError, require_known

# Sections whose fields depend on their kind.
_BY_KIND = {"tokenizer": TOKENIZERS, "encoder": ENCODERS}
_KIND = "kind"
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_NONE = ("auto", "none")
_EXPECTED = {int: "an integer", float: "a number", bool: "true or false", str: "a word"}
_STAGE_SHARE = re.compile(r"stages\.[^.]+\.share")
_FORMER = {
    "training.bow_share": "stages.average.share",
    "training.bow_steps": "stages.average.min_steps",
    "training.bow_batch": "stages.average.examples_per_batch",
    "training.bow_rate": "stages.whole.earlier_rate",
}


# {"encoder.num_layers": 1}, ["encoder.num_layers=1"] or "encoder.num_layers=1".
Settings = Mapping[str, Any] | Iterable[str] | str


def setting_lines(settings: Settings) -> list[str]:
    """Returns settings in any form as "dotted.name=value".

    Example:
        >>> setting_lines({"tokenizer.ngram_sizes": (3, 4), "tokenizer.lowercase": True})
        ['tokenizer.ngram_sizes=3,4', 'tokenizer.lowercase=true']
    """
    if isinstance(settings, Mapping):
        return [f"{name}={_as_text(value)}" for name, value in settings.items()]
    return [settings] if isinstance(settings, str) else [*settings]


def _as_text(value: Any) -> str:
    """Returns a value in the form that `_parse` reads."""
    if value is None:
        return _NONE[0]
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def apply_overrides(config: ExperimentConfig, overrides: Settings) -> ExperimentConfig:
    """Returns an experiment with some settings changed.

    Overrides of `tokenizer.kind` and `encoder.kind` are applied first, and give the section the
    defaults of that kind. An override of `initial.model` removes both sections, because they are
    the model's. An override of `stages.<name>.share` adds a stage of a new name after the others.

    Args:
        config: The experiment, which is not changed.
        overrides: "dotted.name=value", several of these, or a dictionary of values by dotted name.
            In a string, commas separate the values of a tuple. The key of a dictionary is the last
            part of the dotted name.

    Raises:
        UserError: An override is malformed, names no field, or has a value of another type.

    Examples:
        >>> from xling_tf.config import ExperimentConfig
        >>> preset = ExperimentConfig()
        >>> apply_overrides(preset, {"training.steps": 7}).training.steps
        7
        >>> apply_overrides(preset, ["tokenizer.ngram_sizes=3,4,5"]).tokenizer.ngram_sizes
        (3, 4, 5)
        >>> apply_overrides(preset, ["encoder.hidden_dim=64", "encoder.kind=static"]).encoder
        StaticConfig(embedding_dim=320, hidden_dim=64)
    """
    values, pairs = to_dict(config), []
    for override in setting_lines(overrides):
        name, equals, value = map(str.strip, override.partition("="))
        if not equals:
            raise UserError(
                f"a setting must be name=value, as in tokenizer.max_tokens=32, got {override!r}"
            )
        if name in _FORMER:
            raise UserError(f"{name} is now {_FORMER[name]}; set that to {value}")
        pairs.append((name, value))
    applied_first = [f"{section}.{_KIND}" for section in _BY_KIND] + ["initial.model"]
    applied_first += [name for name, _ in pairs if _STAGE_SHARE.fullmatch(name)]
    for name, value in sorted(pairs, key=lambda pair: pair[0] not in applied_first):
        path = name.split(".")
        if name == "initial.model" and value:
            values |= dict.fromkeys(_BY_KIND)
        if path[0] in _BY_KIND and path[1:] == [_KIND]:
            values[path[0]] = kind_to_dict(
                _BY_KIND[path[0]], _BY_KIND[path[0]].config_type(value)()
            )
        else:
            _set(values, ExperimentConfig, path, value, name)
    # All overrides are checked together, because some are only valid together.
    return from_dict(values)


def to_dict(config: ExperimentConfig) -> dict[str, Any]:
    """Returns an experiment as nested dictionaries of JSON values."""
    values = dataclasses.asdict(config)
    for section, registry in _BY_KIND.items():
        if (settings := getattr(config, section)) is not None:
            values[section] = kind_to_dict(registry, settings)
    values["tasks"] = {name: dataclasses.asdict(task) for name, task in config.tasks.items()}
    return values


def settings_by_name(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the values of `to_dict` by dotted name, as `apply_overrides` takes them.

    Examples:
        >>> from xling_tf.config import ExperimentConfig
        >>> settings = settings_by_name(to_dict(ExperimentConfig()))
        >>> settings["heads.tower_dims"], settings["encoder.kind"]
        ((320,), 'transformer')
    """
    settings: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            settings |= settings_by_name(value, f"{prefix}{name}.")
        elif value is not None or name not in _BY_KIND:  # these are the starting model's
            settings[f"{prefix}{name}"] = value
    return settings


def from_dict(values: Mapping[str, Any]) -> ExperimentConfig:
    """Returns the experiment that `to_dict` describes; invalid values raise a `UserError`."""
    values = dict(values)
    for section, registry in _BY_KIND.items():
        if values.get(section) is not None:
            values[section] = kind_from_dict(registry, values[section])
    tasks = values.get("tasks", {})
    values["tasks"] = {name: from_mapping(TASKS.config_type(name), t) for name, t in tasks.items()}
    if "stages" in values:
        stages = values["stages"].items()
        values["stages"] = {name: from_mapping(StageConfig, stage) for name, stage in stages}
    return from_mapping(ExperimentConfig, values)


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yields dotted name, old and new value of each difference of nested JSON mappings."""
    for key in dict.fromkeys([*old, *new]):
        name, before, after = f"{prefix}{key}", old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from differences(before, after, f"{name}.")
        elif json.loads(json.dumps(before)) != json.loads(json.dumps(after)):
            yield name.removeprefix("config."), before, after


def kind_to_dict(registry: Kinds, settings: Any) -> dict[str, Any]:
    """Returns the settings of a tokenizer or encoder as a dictionary of its kind and fields."""
    return {_KIND: registry.name_of(settings), **dataclasses.asdict(settings)}


def kind_from_dict(registry: Kinds, values: Mapping[str, Any]) -> Any:
    """Makes the settings of a tokenizer or encoder from a dictionary of its kind and fields."""
    fields = dict(values)
    return from_mapping(registry.config_type(fields.pop(_KIND, "")), fields)


def _set(values: dict[str, Any], kind: Any, path: list[str], value: str, name: str) -> None:
    """Sets the field at `path` in the dictionary of a dataclass `kind`; `name` is for messages."""
    if not dataclasses.is_dataclass(kind):  # a dictionary of numbers
        values[".".join(path)] = _parse(float, value, name)
        return
    first, *rest = path
    hints = get_type_hints(kind)
    require_known(f"setting {name}", first, hints)
    hint, current = hints[first], values[first]
    if first in _BY_KIND:
        if current is None:
            raise UserError(
                f"{name} must be left out: training starts from a model and uses its {first}"
            )
        hint = _BY_KIND[first].config_type(current[_KIND])
    elif first == "tasks" and rest:
        task, *rest = rest
        hint = TASKS.config_type(task)
        current = current.setdefault(task, dataclasses.asdict(hint(weight=0)))
    elif first == "stages" and rest:
        stage, *rest = rest
        if rest != ["share"] or get_close_matches(stage, current):  # else the stage may be new
            advice = f"to add a stage, set stages.{stage}.share as well"
            require_known(f"setting {name}", stage, current, advice)
        hint, current = StageConfig, current.setdefault(stage, dataclasses.asdict(StageConfig()))
    if not isinstance(current, dict):
        if rest:
            raise UserError(f"{name}: {first} has no fields; leave out .{'.'.join(rest)}")
        values[first] = _parse(hint, value, name)
    elif rest:
        _set(current, hint, rest, value, name)
    else:
        names = ", ".join(current) or "any name"
        raise UserError(f"{name} is a section; set one of its fields ({names}), as in {name}.x=1")


def _parse(kind: Any, value: str, name: str) -> Any:
    is_optional = get_origin(kind) is UnionType
    try:
        if is_optional:
            kind, _ = get_args(kind)
            if value.lower() in _NONE:
                return None
        if kind is bool:
            return _BOOLEANS[value.lower()]
        if get_origin(kind) is tuple:
            return tuple(get_args(kind)[0](p) for p in map(str.strip, value.split(",")) if p)
        return kind(value)
    except (KeyError, ValueError) as error:
        expected = _EXPECTED.get(kind, "values separated by commas") + " or auto" * is_optional
        raise UserError(f"{name} expects {expected}, got {value!r}") from error


def from_mapping(kind: Any, values: Mapping[str, Any]) -> Any:
    """Makes a dataclass from the JSON values of its fields; invalid ones raise a `UserError`."""
    hints = get_type_hints(kind)
    if unknown := sorted(set(values) - set(hints)):
        raise UserError(f"a {kind.__name__} has no field {unknown[0]!r}; another version saved it")
    require_types(kind, values)
    return kind(**{name: _from_value(hints[name], value) for name, value in values.items()})


def require_types(kind: Any, values: Mapping[str, Any]) -> None:
    """Raises a `UserError` unless JSON values of a dataclass's fields have the fields' types."""
    for name, hint in get_type_hints(kind).items():
        if name in values and not _fits(hint, values[name]):
            expected = getattr(hint, "__name__", None) if get_origin(hint) is None else str(hint)
            raise UserError(
                f"{name} of a {kind.__name__} must be {expected}, got {str(values[name])[:100]!r} "
                f"({type(values[name]).__name__}); correct it where it is set"
            )


def _fits(hint: Any, value: Any) -> bool:
    """True if a JSON value has a field's type; types that are not named here are not checked."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return any(_fits(one, value) for one in arguments)
    if origin is tuple:
        return isinstance(value, list | tuple) and all(_fits(arguments[0], part) for part in value)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(_fits(arguments[1], p) for p in value.values())
    if dataclasses.is_dataclass(hint):
        return isinstance(value, Mapping) or dataclasses.is_dataclass(value)
    # True and False are integers in Python.
    types = {int: Integral, float: Real, bool: bool, str: str, type(None): type(None)}
    return isinstance(value, types.get(hint, object)) and (
        hint is bool or not isinstance(value, bool)
    )


def _from_value(kind: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        return from_mapping(kind, value)
    return tuple(value) if get_origin(kind) is tuple else value
