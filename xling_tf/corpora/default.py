"""Where the corpora come from: the user's folder, the built-in sample, or Debian packages."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import logging

from xling_tf.config import ALL_LANGUAGES, DataConfig
from xling_tf.corpora.debian import default_targets, prepare_default_corpora
from xling_tf.corpora.folder import find_targets, load_folder
from xling_tf.corpora.records import Corpus
from xling_tf.corpora.sample import SAMPLE_FOLDER
from xling_tf.corpora.snli import fetch_snli
from xling_tf.files import require_writable_folder

_RAW = Path("data/raw")
_PREPARED = Path("data/prepared")


def resolve_languages(data: Path | None, config: DataConfig) -> DataConfig:
    """Puts the languages that the data have in the place of "all".

    Args:
        data: A data folder; None for the default corpora.
        config: As asked for.

    Returns:
        `config` with the codes of languages as its targets: those that have translations to the
        source or, with `all_pairs`, any.

    Raises:
        UserError: There is no such language, or no such folder.

    Example:
        >>> resolve_languages(None, DataConfig(targets=("all",))).targets
        ('es', 'fr', 'de', 'zh')
    """
    if ALL_LANGUAGES not in config.targets:
        return config
    if data or config.sample:
        folder = data or SAMPLE_FOLDER
        targets = find_targets(folder, source=config.source, all_pairs=config.all_pairs)
    else:
        targets = default_targets(config.source)
    logging.info("languages: %s", ", ".join((config.source, *targets)))
    return dataclasses.replace(config, targets=targets)


def load_corpora(
    data: Path | None,
    config: DataConfig,
    *,
    with_mined: bool = False,
    target_inference: bool = False,
) -> list[Corpus]:
    """Finds the corpora of an experiment's languages.

    Args:
        data: A data folder; None for the default corpora, which are fetched into `data/raw` and
            prepared in `data/prepared` of the working folder the first time.
        config: The languages, as `resolve_languages` gives them, and which corpora are the default.
        with_mined: Whether translations come with their mined hard negatives.
        target_inference: Whether natural language inference is wanted in the target languages too.

    Raises:
        UserError: The folder, or the machine's package client, does not give them.
    """
    wanted = {
        "source": config.source,
        "all_pairs": config.all_pairs,
        "target_inference": target_inference,
        "with_mined": with_mined,
    }
    if data or config.sample:
        return _load(data or SAMPLE_FOLDER, config.targets, wanted)
    for folder in (_RAW, _PREPARED):
        require_writable_folder(folder, "start in another folder, or give corpora with --data DIR")
    corpora: dict[str, Corpus] = {}
    for target in config.targets:
        folder = prepare_default_corpora(
            config.source, target, raw_dir=_RAW, prepared_dir=_PREPARED
        )
        fetch_snli(folder)
        for corpus in _load(folder, [target], wanted):
            # Every pair's folder has texts in the source language, largely the same ones.
            corpora.setdefault(corpus.title, corpus)
    return list(corpora.values())


def _load(folder: Path, targets: Sequence[str], wanted: dict[str, Any]) -> list[Corpus]:
    logging.info("corpora of %s", folder)
    return load_folder(folder, targets=targets, **wanted)
