"""The settings of a preset in lines, and the names of its runs."""

from collections.abc import Iterator, Mapping
from typing import Any

from xling_tf.config import ExperimentConfig
from xling_tf.presets import get_preset
from xling_tf.settings import BY_KIND, NONE


def setting_lines(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yields the settings in the result of `to_dict` as "dotted.name=value", which
    `apply_overrides` reads.

    Example:
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


def name_of_run(preset: str, config: ExperimentConfig) -> str:
    """Returns a name for a run: the preset's, with the run's languages if they differ from the
    preset's.

    Example:
        >>> from dataclasses import replace
        >>> from xling_tf.config import DataConfig
        >>> config = replace(get_preset("en-es"), data=DataConfig(targets=("it",)))
        >>> name_of_run("en-es", config), name_of_run("many", config)
        ('en-it', 'many-en-it')
    """
    default, languages = (
        "-".join(data.languages) for data in (get_preset(preset).data, config.data)
    )
    if languages == default:
        return preset
    return preset.replace(default, languages) if default in preset else f"{preset}-{languages}"
