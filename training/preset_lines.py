"""The presets, their settings and their budgets in lines."""

from collections.abc import Iterator, Mapping
from typing import Any

from xling_tf.config import TrainingConfig
from xling_tf.presets import OF_PAPERS, PRESETS
from xling_tf.settings import BY_KIND


def preset_lines() -> Iterator[str]:
    """Yields the names and descriptions of the presets, those of papers after the others."""
    width = max(map(len, PRESETS))
    to_use = [name for name in PRESETS if name not in OF_PAPERS]
    for title, names in (("To use:", to_use), ("Of the papers, to compare with:", OF_PAPERS)):
        yield title
        for name in names:
            yield f"  {name:{width}}  {PRESETS[name].description}"


def budget(training: TrainingConfig) -> str:
    """Returns the limits of a training.

    Example:
        >>> budget(TrainingConfig(steps=1500, minutes=60.0))
        '1,500 steps or 60 minutes'
    """
    limits = [f"{training.steps:,} steps"] if training.steps else []
    limits += [f"{training.minutes:g} minutes"] if training.minutes else []
    return " or ".join(limits)


def settings_by_name(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the names and values of the settings in the result of `to_dict`.

    Example:
        >>> from xling_tf.config import ExperimentConfig
        >>> from xling_tf.settings import to_dict
        >>> values = dict(settings_by_name(to_dict(ExperimentConfig())))
        >>> values["heads.tower_dims"], values["encoder.kind"]
        ((320,), 'transformer')
    """
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from settings_by_name(value, f"{prefix}{name}.")
        elif value is not None or name not in BY_KIND:  # these are the starting model's
            yield f"{prefix}{name}", value
