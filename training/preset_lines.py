"""The settings of a preset in lines."""

from collections.abc import Iterator, Mapping
from typing import Any

from xling_tf.settings import BY_KIND, NONE


def setting_lines(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yields the settings in the result of `to_dict` as "dotted.name=value", which
    `apply_overrides` reads.

    Examples:
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
