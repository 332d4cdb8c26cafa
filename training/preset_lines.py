"""The presets, their settings and their budgets in lines."""

from collections.abc import Iterator, Mapping
from typing import Any

from xling_tf.config import TrainingConfig
from xling_tf.presets import OF_PAPERS, PRESETS
from xling_tf.settings import BY_KIND, NONE


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


def setting_lines(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yields the settings in the result of `to_dict` as "dotted.name=value", which
    `apply_overrides` reads.

    Example:
        >>> from xling_tf.config import ExperimentConfig
        >>> from xling_tf.settings import to_dict
        >>> lines = setting_lines(to_dict(ExperimentConfig()))
        >>> [line for line in lines if line.startswith("heads.")]
        ['heads.tower_dims=320', 'heads.residual_towers=false', 'heads.inference_dim=512']
    """
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from setting_lines(value, f"{prefix}{name}.")
        elif value is None:
            if name not in BY_KIND:  # these are the starting model's
                yield f"{prefix}{name}={NONE[0]}"
        elif isinstance(value, tuple):
            yield f"{prefix}{name}={','.join(map(str, value))}"
        else:
            yield f"{prefix}{name}={str(value).lower() if isinstance(value, bool) else value}"
