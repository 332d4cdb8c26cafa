"""The settings of a preset in lines, and the names of its runs."""

from collections.abc import Iterator, Mapping
from typing import Any

from xling_tf.config import ALL_LANGUAGES, ExperimentConfig
from xling_tf.presets import FORMER_NAMES, MANY, get_preset
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


# What runs of these presets are called, for a pair of languages and for several.
_NAMES = {
    "multi-task": ("{}", "many"),
    "static": ("{}-static", "multilingual-static"),
    "best": ("{}-best", "multilingual-best"),
    "e5-best": ("{}-e5-best", "multilingual-e5-best"),
    "translation-ranking": ("translation-ranking-{}", "translation-ranking-many"),
    "paper": ("paper-{}", "paper-many"),
}


def name_of_run(preset: str, config: ExperimentConfig) -> str:
    """Returns a name for a run, of its preset and languages.

    Example:
        >>> from dataclasses import replace
        >>> from xling_tf.config import DataConfig
        >>> config = replace(get_preset("static"), data=DataConfig(targets=("it",)))
        >>> [name_of_run(preset, config) for preset in ("multi-task", "static", "no-snli")]
        ['en-it', 'en-it-static', 'no-snli-en-it']
    """
    targets, languages = config.data.targets, "-".join(config.data.languages)
    if preset in FORMER_NAMES and FORMER_NAMES[preset].preset in _NAMES:
        preset = FORMER_NAMES[preset].preset
    if preset in _NAMES:
        for_pair, preset = _NAMES[preset]
        if len(targets) == 1 and targets != (ALL_LANGUAGES,):
            return for_pair.format(languages)
        usual = "-".join(("en", *MANY))
    else:
        usual = "-".join(get_preset(preset).data.languages)
    return preset if languages == usual else f"{preset}-{languages}"
